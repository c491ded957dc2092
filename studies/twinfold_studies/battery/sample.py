"""The synthetic log of the template `battery`: the shipped cell with other scalars, logged as test benches do.

    python -m twinfold_studies.battery.sample --out twinfold/workspace/templates/battery/sample.csv

No row has the moment at which the load is switched on, and the log goes on after the load while the voltage recovers.
"""

import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from twinfold import enable_x64
from twinfold.systems import fitted_cell

TRUE = {"q_max": 11000.0, "R_o": 0.15, "R_th": 9.0}  # the scalars of the sample that differ from the first guesses
CURRENTS = (1.0, 2.0, 1.5, 3.0, 2.5, 1.2, 1.8, 2.2, 2.8, 1.6)  # A, one discharge each
AMBIENTS = (24.0, 22.0, 26.0, 24.0, 21.0, 25.0, 23.0, 27.0, 24.0, 22.0)
STEP, DELAY, REST, TAIL = 40.0, 0.7, 2, 5  # s between rows; s from a row to the switch; rows before and after the load
CUTOFF, NOISE = (3.0, (2e-3, 0.05))  # V; of voltage and temperature


def sample_csv() -> str:
    """The text of the file."""
    rng = np.random.default_rng(0)
    cell = fitted_cell()
    p = cell.parameters() | {name: jnp.asarray(value) for name, value in TRUE.items()}
    lines = ["run,t,V,I,T"]
    for number, (current, ambient) in enumerate(zip(CURRENTS, AMBIENTS, strict=True), 1):
        on = (REST - 1) * STEP + DELAY
        logged = np.concatenate([STEP * np.arange(REST), on + STEP * np.arange(1, 500)])
        ts = np.sort(np.append(logged, on))

        def simulated(load: np.ndarray, ts: np.ndarray = ts, ambient: float = ambient) -> np.ndarray:
            w = jnp.asarray(np.stack([load, np.full_like(ts, ambient)], axis=1))
            x0 = cell.initial_state(0.0, jnp.array([4.19, ambient]), w[0], p)
            return np.asarray(cell.simulate(x0, ts, w, p=p).ys)

        load = np.where(ts >= on, current, 0.0)
        end = int(np.argmax(~(simulated(load)[:, 0] > CUTOFF)))  # NaN, below what the physics knows, ends it as well
        ys = simulated(np.where(np.arange(len(ts)) < end, load, 0.0))
        for row in range(end + TAIL):
            if ts[row] in logged:
                volt, celsius = ys[row] + rng.normal(size=2) * NOISE
                lines.append(f"{number},{ts[row]:g},{volt:.4f},{load[row] * (row < end):g},{celsius:.2f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the synthetic log of the template battery.")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    enable_x64()
    options.out.write_text(sample_csv(), encoding="utf-8")


if __name__ == "__main__":
    main()
