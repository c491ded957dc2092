"""Ready-made systems to start from. Copy the one that is closest to yours.

- `two_body`: a planet orbits a sun of unknown gravity, and its angular momentum is conserved. It shows a learned
  residual under an invariant that must hold. `two_body()` returns a `System`: the truth, from which data can be
  simulated, and the known physics, the constraint and the settings, from which a twin is built:

      system = tw.systems.two_body()
      residual = tw.MLP(states=system.residual_states, adds_to=system.residual_adds_to)
      twin = tw.phrpinn(system.physics, residual, system.constraint, integrator=tw.RK4(system.substeps))

- `battery`: an electrochemical cell with seven hidden states, of which only the voltage is measured. It shows hidden
  states, algebraic variables (`Relations`, with symmetric or general Butler-Volmer kinetics), and parameters of
  individual units. `battery()` returns a twin; `charged` gives its states, an `Interaction` its learned parts:

      capacity = tw.Unknown(13200.0, positive=True, per_group=True)
      network = tw.Network(1, 1, width=8, depth=1, zero_last=True)
      learned = tw.systems.Interaction(network, output_scale=0.1)
      twin = tw.systems.battery(unknown={"q_max": capacity}, positive=learned)

- `circuit`: the equivalent circuit of a cell of any chemistry, a voltage source over the state of charge
  (`OpenCircuit`, for example read from a C/20 discharge), a resistor and up to two RC pairs:

      ocv = tw.systems.OpenCircuit.from_slow_cycle(time, current, voltage)
      twin = tw.systems.circuit(ocv, pairs=2, unknown={"R_0": tw.Unknown(0.03, positive=True)})

Both cells can predict their temperature from the load and the surroundings (`temperature="state"`).

Fit any of these twins with `tw.fit(twin, data)`.

The public names are listed in `__init__.pyi`; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
