"""The systems of the comparison and their reference trajectories, which are computed once and stored."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.data import Dataset
from twinfold.io import atomic_write, unknown_name
from twinfold.systems import System
from twinfold_studies.systems import SYSTEMS, system
from twinfold_studies.systems.rigid_body import rigid_body
from twinfold_studies.systems.robot_arm import robot_arm
from twinfold_studies.systems.truth import truth

HORIZONS = ("train", "long")  # over which a model is measured
SEED = 0  # of the initial states and of the noise

# Variants of the two systems on which the paper's split decides the comparison: their known physics is slightly wrong.
INFORMATIVE: dict[str, Callable[[], System]] = {
    "robot_arm_links": lambda: robot_arm(assumed_links=(1.0, 0.9, 1.0)),
    "rigid_body_inertia": lambda: rigid_body(assumed_inertia=(1.6, 1.2, 2 / 3)),
}
REMARKS = {
    "rigid_body": "f_phys = 0: HRPINN is NODE and PHRPINN is PNODE by construction; see rigid_body_inertia.",
    "robot_arm": "f_unk = 0: the known physics is already exact; see robot_arm_links.",
    "robot_arm_links": "the known physics has the second link 10 % too short.",
    "rigid_body_inertia": "the known physics has the second moment of inertia 20 % too large.",
}
ALL = (*SYSTEMS, *INFORMATIVE)
# With f_phys = 0 a grey box is a black box: the same twin, weight for weight, is trained once.
SAME = {
    ("rigid_body", "hrpinn"): "node",
    ("rigid_body", "phrpinn_fast"): "pnode_fast",
    ("rigid_body", "phrpinn_robust"): "pnode_robust",
}


@functools.cache
def problem(name: str) -> System:
    """A system of the comparison. **Raises:** `ValueError` that lists the names."""
    if name in SYSTEMS:
        return system(name)
    if name not in INFORMATIVE:
        raise ValueError(f"there is no system {unknown_name(name, ALL)}")
    variant = INFORMATIVE[name]()
    return dataclasses.replace(variant, name=name, title=f"{variant.title} ({name.rsplit('_', 1)[1]} wrong)")


@dataclasses.dataclass(frozen=True)
class Data:
    """Trajectories of a system: `train`, `valid` and `test` over the training horizon, `long` over the long one."""

    train: Dataset
    valid: Dataset
    test: Dataset
    long: Dataset


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Numbers of trajectories, and the duration of the long ones."""

    train: int
    valid: int
    test: int
    long_test: int
    long_horizon: float


def full_sizes(system: System) -> Sizes:
    """The sizes that the system defines."""
    return Sizes(system.train, system.valid, system.test, system.long_test, system.long_horizon)


def quick_sizes(system: System) -> Sizes:
    """The sizes of a quick run."""
    return Sizes(8, 4, 8, 4, 3 * system.horizon)


def trajectories(name: str, sizes: Sizes, folder: Path) -> dict[str, Any]:
    """The reference trajectories of all sets, loaded from their file in `folder` if it exists."""
    base = name if name in SYSTEMS else name.rsplit("_", 1)[0]
    chosen = system(base)
    tag = "-".join(f"{value:g}" for value in dataclasses.astuple(sizes))
    path = folder / f"{base}-{tag}.npz"
    if path.exists():
        with np.load(path) as stored:
            return dict(stored)
    counts = {"train": sizes.train, "valid": sizes.valid, "test": sizes.test, "long": sizes.long_test}
    keys = jax.random.split(jax.random.key(SEED), len(counts))
    x0s = {kind: chosen.draw(key, count) for (kind, count), key in zip(counts.items(), keys, strict=True)}
    short, long = (
        chosen.dt * jnp.arange(round(horizon / chosen.dt) + 1) for horizon in (chosen.horizon, sizes.long_horizon)
    )
    together = np.asarray(truth(chosen, jnp.concatenate([x0s["train"], x0s["valid"], x0s["test"]]), short))
    train, valid, test = np.split(together, np.cumsum([sizes.train, sizes.valid]))
    arrays: dict[str, Any] = {
        "train": train,
        "valid": valid,
        "test": test,
        "long": np.asarray(truth(chosen, x0s["long"], long)),
        "ts": np.asarray(short),
        "long_ts": np.asarray(long),
    }
    with atomic_write(path) as file:
        np.savez(file, **arrays)
    return arrays


def make_data(name: str, sizes: Sizes, folder: Path, *, fraction: float = 1.0, noise: float = 0.0) -> Data:
    """The data sets of a system.

    **Arguments:** `name`; `sizes`; `folder` of the reference trajectories; `fraction` of the training trajectories to
    use; `noise` on training and validation data, as a fraction of the standard deviation of each state.
    """
    arrays = trajectories(name, sizes, folder)
    names = problem(name).state_names
    count = max(1, round(fraction * sizes.train))
    random = np.random.default_rng(SEED)
    scale = noise * arrays["train"].std((0, 1))
    train, valid = (scale * random.standard_normal(arrays[kind].shape) + arrays[kind] for kind in ("train", "valid"))
    return Data(
        Dataset.from_arrays(arrays["ts"], train[:count], output_names=names),
        Dataset.from_arrays(arrays["ts"], valid, output_names=names),
        Dataset.from_arrays(arrays["ts"], arrays["test"], output_names=names),
        Dataset.from_arrays(arrays["long_ts"], arrays["long"], output_names=names),
    )
