"""The systems of the comparison and their trajectories: drawn once, integrated to the limit of float64, kept."""

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
from twinfold_studies.systems.registry import SYSTEMS, system
from twinfold_studies.systems.rigid_body import rigid_body
from twinfold_studies.systems.robot_arm import robot_arm
from twinfold_studies.systems.truth import truth

HORIZONS = ("train", "long")  # over which a model is measured
DRAW = 0  # the seed of the initial states

# Where the paper's split leaves nothing to compare, a second one does: one thing known but wrong.
INFORMATIVE: dict[str, Callable[[], System]] = {
    "robot_arm_links": lambda: robot_arm(assumed_links=(1.0, 0.9, 1.0)),
    "rigid_body_inertia": lambda: rigid_body(assumed_inertia=(1.6, 1.2, 2 / 3)),
}
DEGENERATE = {
    "rigid_body": "f_phys = 0: HRPINN is NODE and PHRPINN is PNODE by construction; see rigid_body_inertia.",
    "robot_arm": "f_unk = 0: the known physics is already exact; see robot_arm_links.",
    "robot_arm_links": "the known physics has the second link 10 % too short.",
    "rigid_body_inertia": "the known physics has the second moment of inertia 20 % too large.",
}
ALL = (*SYSTEMS, *INFORMATIVE)
# Where nothing is known a grey box is a black box: the same twin, weight for weight, is not trained twice.
SAME = {
    ("rigid_body", "hrpinn"): "node",
    ("rigid_body", "phrpinn_fast"): "pnode_fast",
    ("rigid_body", "phrpinn_robust"): "pnode_robust",
}


@functools.cache
def problem(name: str) -> System:
    """A system of the comparison; a `ValueError` that lists them for another name."""
    if name in SYSTEMS:
        return system(name)
    if name not in INFORMATIVE:
        raise ValueError(f"there is no system {unknown_name(name, ALL)}")
    made = INFORMATIVE[name]()
    return dataclasses.replace(made, name=name, title=f"{made.title} ({name.rsplit('_', 1)[1]} wrong)")


@dataclasses.dataclass(frozen=True)
class Data:
    """Trajectories of a system: `train`, `valid` and `test` over the training horizon, `long` over the long one."""

    train: Dataset
    valid: Dataset
    test: Dataset
    long: Dataset


@dataclasses.dataclass(frozen=True)
class Amount:
    """How much data: trajectories of each kind, and how far the long ones go (in units of the training horizon)."""

    train: int
    valid: int
    test: int
    long_test: int
    long_horizon: float


def full(system: System) -> Amount:
    """What REFERENCE settings say."""
    return Amount(system.train, system.valid, system.test, system.long_test, system.long_horizon)


def few(system: System) -> Amount:
    """For a quick look."""
    return Amount(8, 4, 8, 4, 3 * system.horizon)


def trajectories(name: str, amount: Amount, folder: Path) -> dict[str, Any]:
    """Truth of all kinds, from the file of an earlier call where there is one."""
    base = name if name in SYSTEMS else name.rsplit("_", 1)[0]
    chosen = system(base)
    tag = "-".join(f"{value:g}" for value in dataclasses.astuple(amount))
    path = folder / f"{base}-{tag}.npz"
    if path.exists():
        with np.load(path) as stored:
            return dict(stored)
    counts = {"train": amount.train, "valid": amount.valid, "test": amount.test, "long": amount.long_test}
    keys = jax.random.split(jax.random.key(DRAW), len(counts))
    x0s = {kind: chosen.draw(key, count) for (kind, count), key in zip(counts.items(), keys, strict=True)}
    short, long = (
        chosen.dt * jnp.arange(round(horizon / chosen.dt) + 1) for horizon in (chosen.horizon, amount.long_horizon)
    )
    together = np.asarray(truth(chosen, jnp.concatenate([x0s["train"], x0s["valid"], x0s["test"]]), short))
    train, valid, test = np.split(together, np.cumsum([amount.train, amount.valid]))
    made: dict[str, Any] = {
        "train": train,
        "valid": valid,
        "test": test,
        "long": np.asarray(truth(chosen, x0s["long"], long)),
    }
    made |= {"ts": np.asarray(short), "long_ts": np.asarray(long)}
    with atomic_write(path) as file:
        np.savez(file, **made)
    return made


def make_data(name: str, amount: Amount, folder: Path, *, fraction: float = 1.0, noise: float = 0.0) -> Data:
    """The data sets of a system.

    **Arguments:** `name`; `amount`; `folder` of the files with the truth; `fraction` of the training trajectories;
    `noise`, the standard deviation of what is added to training and validation data, in units of each state's own.
    """
    raw = trajectories(name, amount, folder)
    names = problem(name).state_names
    kept = max(1, round(fraction * amount.train))
    random = np.random.default_rng(DRAW)
    size = raw["train"].std((0, 1))
    train, valid = (noise * size * random.standard_normal(raw[kind].shape) + raw[kind] for kind in ("train", "valid"))
    return Data(
        Dataset.from_arrays(raw["ts"], train[:kept], output_names=names),
        Dataset.from_arrays(raw["ts"], valid, output_names=names),
        Dataset.from_arrays(raw["ts"], raw["test"], output_names=names),
        Dataset.from_arrays(raw["long_ts"], raw["long"], output_names=names),
    )
