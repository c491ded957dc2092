"""SYNTHETIC battery cells with their own six scalars, 50 to 500 samples each: in memory, or as a folder of Parquet."""

from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold import Twin, Unknown
from twinfold.model import simulate_unchecked
from twinfold.systems import battery

SCALARS = ("q_max", "R_o", "D", "S_p", "tau_o", "tau_p")
STEP, SHORTEST, LONGEST = 20.0, 50, 500  # seconds, samples
SPREAD = 0.08  # of the logarithm of each scalar over the fleet
NOISE = 5e-4  # V
CHUNK = 500  # cells of a file, and cells simulated at a time


class Cells(NamedTuple):
    """Times [A, T], voltages [A, T, 1] (NaN beyond the end of a cell), loads [A, T, 2], scalars [A, 6] by name."""

    ts: np.ndarray
    y: np.ndarray
    w: np.ndarray
    scalars: np.ndarray
    lengths: np.ndarray


def cell_twin() -> Twin:
    """The twin of a cell, whose six scalars are unknown."""
    values = battery().parameters()
    return battery(unknown={name: Unknown(float(values[name]), positive=True) for name in SCALARS})


def simulate_cells(
    count: int, *, seed: int = 0, shortest: int = SHORTEST, longest: int = LONGEST, chunk: int = CHUNK
) -> Cells:
    """SYNTHETIC cells: loads that change every few minutes, discharge and charge, voltages with noise.

    `chunk` of them are simulated at a time.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, count)
    steps = -(-longest // 10)
    current = np.repeat(rng.uniform(-1.0, 1.6, (count, steps)), 10, axis=1)[:, :longest]
    w = np.stack([current, np.full_like(current, 25.0)], axis=2)
    twin = cell_twin()
    middle = np.array([float(twin.parameters()[name]) for name in SCALARS])
    scalars = middle * np.exp(SPREAD * rng.normal(size=(count, len(SCALARS))))
    ts = STEP * np.arange(longest)
    y = np.concatenate(
        [
            np.asarray(_voltages(twin, jnp.asarray(ts), *map(jnp.asarray, part)))
            for part in zip(*(np.array_split(each, -(-count // chunk)) for each in (w, scalars)), strict=True)
        ]
    )
    y = y + NOISE * rng.normal(size=y.shape)
    y = np.where(np.arange(longest)[None, :, None] < lengths[:, None, None], y, np.nan)
    return Cells(np.tile(ts, (count, 1)), y, w, scalars, lengths)


@eqx.filter_jit
def _voltages(
    twin: Twin, ts: Float[Array, " T"], w: Float[Array, "A T 2"], scalars: Float[Array, "A 6"]
) -> Float[Array, "A T 1"]:
    def cell(w: Float[Array, "T 2"], own: Float[Array, "6"]) -> Float[Array, "T 1"]:
        p = twin.parameters() | {name: own[index] for index, name in enumerate(SCALARS)}
        return simulate_unchecked(twin, twin.initial_state(ts[0], jnp.zeros(1), w[0], p), ts, w, p).ys

    return jax.vmap(cell)(w, scalars)


def write_cells(
    folder: Path,
    count: int,
    *,
    seed: int = 0,
    shortest: int = SHORTEST,
    longest: int = LONGEST,
    of_file: int = CHUNK,
) -> None:
    """Write a folder of Parquet files with `of_file` cells each; columns cell, t, current, celsius, voltage."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, count, of_file)):
        cells = simulate_cells(min(of_file, count - first), seed=seed + number, shortest=shortest, longest=longest)
        rows = np.arange(longest)[None] < cells.lengths[:, None]
        names = np.array([f"SYN-{first + index:06d}" for index in range(len(cells.lengths))])
        table = pd.DataFrame(
            {
                "cell": np.repeat(names, cells.lengths),
                "t": cells.ts[rows],
                "current": cells.w[rows, 0],
                "celsius": cells.w[rows, 1],
                "voltage": cells.y[rows, 0],
            }
        )
        table.to_parquet(folder / f"cells-{number:05d}.parquet", index=False)
