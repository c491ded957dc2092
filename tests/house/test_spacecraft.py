"""The example of the README: unknown drag and inertia of a spacecraft, from its gyro alone, by way of a CSV file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw

INERTIA = np.array([1.5, 1.1, 0.75])


def quaternion_rate(q, omega):
    a, b, c, d = q
    x, y, z = omega
    return 0.5 * jnp.stack(
        [-b * x - c * y - d * z, a * x + c * z - d * y, a * y - b * z + d * x, a * z + b * y - c * x]
    )


def attitude(t, x, w, p):
    q, omega = x[:4], x[4:]
    return jnp.concatenate([quaternion_rate(q, omega), (w - jnp.cross(omega, p["I"] * omega)) / p["I"]])


def with_drag(t, x, w, p):
    return attitude(t, x, w, p) - jnp.concatenate([jnp.zeros(4), 0.2 * x[4:]])


def start(y):
    return jnp.concatenate([jnp.array([1.0, 0, 0, 0]), y])


def write_flights(path, flights: int = 10) -> None:
    rng, ts = np.random.default_rng(0), jnp.linspace(0, 5, 51)
    cell = tw.Cell(with_drag, integrator=tw.RK4(substeps=10), input_interpolation="hold")
    run = jax.jit(lambda x0, w: tw.rollout(cell, x0, ts, w, p={"I": jnp.asarray(INERTIA)}).xs)
    lines = ["id,t,tx,ty,tz,wx,wy,wz"]
    for flight in range(flights):
        torque = np.repeat(rng.normal(0, 0.5, (11, 3)), 5, axis=0)[:51]
        xs = np.asarray(run(start(jnp.asarray(rng.uniform(-1, 1, 3))), jnp.asarray(torque)))
        for t, w, x in zip(np.asarray(ts), torque, xs, strict=True):
            lines.append(",".join([f"flight {flight}", *(repr(float(v)) for v in (t, *w, *x[4:]))]))
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_the_readme_example_recovers_inertia_and_stays_on_the_sphere(tmp_path):
    write_flights(tmp_path / "flights.csv")
    data = tw.Dataset.from_csv(
        tmp_path / "flights.csv", time="t", run="id", inputs=["tx", "ty", "tz"], outputs=["wx", "wy", "wz"]
    )
    train, valid = data.split(valid=0.2)
    twin = tw.Twin(
        field=tw.GreyBox(attitude, residual=tw.MLP(states=[4, 5, 6], adds_to=[4, 5, 6], width=8, depth=1)),
        params={"I": tw.Unknown([1.6, 1.0, 0.7], positive=True)},
        observe=lambda t, x, w, p: x[4:],
        initial=start,
        integrator=tw.RK4(),
        constraint=tw.Constraint(lambda t, x, p: x[:4] @ x[:4] - 1),
        projection=tw.Newton(),
    )
    methods = (tw.Adam(150, learning_rate=1e-2), tw.LevenbergMarquardt(25))
    fit = tw.fit(twin, train, valid=valid, seeds=1, method=methods, progress=False)
    flight = valid.runs[0]
    assert flight.w is not None
    simulated = fit.twin.simulate(start(jnp.asarray(flight.y[0])), flight.ts, flight.w)
    # A flight that it never saw, beside what the physics alone makes of it (with the right inertia).
    physics = tw.Twin(attitude, params={"I": INERTIA}, observe=twin.observe)
    alone = physics.simulate(start(jnp.asarray(flight.y[0])), flight.ts, flight.w)
    error, without = (np.abs(np.asarray(run.ys) - flight.y).max() for run in (simulated, alone))
    assert error < 0.1 * without
    assert float(simulated.trajectory.relative_violation.max()) <= 1e-12
    # Torque is known, so the inertia is identified against it; drag is left to the network.
    np.testing.assert_allclose(fit.twin.parameters()["I"], INERTIA, rtol=0.05)
