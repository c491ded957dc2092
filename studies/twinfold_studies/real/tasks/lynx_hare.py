"""Lynx and hare: the last seven years of 21, from the fourteen before them.

    hare' = (a - b lynx) hare,    lynx' = (c hare - d) lynx

The state is the logarithm of both, which keeps them positive; errors are of logarithms, as pelts vary by factors. The
twin adds to both rates of growth what a small network makes of the state. Forty-two numbers are all there is.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import twinfold as tw
from twinfold_studies.real.figures.lynx_hare import draw
from twinfold_studies.real.loaders.lynx_hare import load
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import StateSpace
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Metric, Model, Outcome, Task

TRAIN, EARLY = 14, 10  # years that are trained on, and of these the first that designs are compared with
RATES = (0.55, 0.028, 0.024, 0.80)  # a, b, c, d, about those of a textbook
FAR = 10.0  # a logarithm that is further off counts as this
SUBSTEPS = 10


def growth(x, p):
    """The rates of the logarithms of hare and lynx."""
    hare, lynx = jnp.exp(x)
    return jnp.stack([p["a"] - p["b"] * lynx, p["c"] * hare - p["d"]])


def parameters() -> dict[str, Any]:
    return {name: tw.Unknown(value, positive=True) for name, value in zip("abcd", RATES, strict=True)}


def series(records: Records) -> Float[np.ndarray, "T 2"]:
    """The logarithms of hare and lynx."""
    record = records["pelts"]
    return np.log(np.stack([record["hare"], record["lynx"]], 1))


def dataset(y: Float[np.ndarray, "T 2"]) -> tw.Dataset:
    return tw.Dataset.from_arrays(np.arange(len(y)) * 1.0, y[None], output_names=("hare", "lynx"))


@functools.cache
def build(width: int) -> tw.Twin:
    """The twin; with a width of 0 the fitted physics. The start is estimated with all else."""
    residual = tw.MLP(width=width, depth=1, zero_last=True) if width else None
    field = growth if residual is None else tw.GreyBox(growth, residual)
    return tw.Twin(field, params=parameters(), warmup=EARLY, integrator=tw.RK4(substeps=SUBSTEPS))


@functools.cache
def build_black_box(width: int) -> tw.Twin:
    return tw.node(tw.MLP(width=width, depth=1), warmup=EARLY, integrator=tw.RK4(substeps=SUBSTEPS))


def extended(twin: tw.Twin, seen: Float[np.ndarray, "S 2"], years: int) -> Float[np.ndarray, "T 2"]:
    """The course from the first year, whose start was estimated in the fit or follows from the years seen."""
    y = np.vstack([seen, np.full((years - len(seen), 2), np.nan)])
    return tw.predict(twin, dataset(y)).predicted[0, 0]


def fit(twin: tw.Twin, seen: Float[np.ndarray, "S 2"], l2: float, seed: int, quick: bool) -> tw.Twin:
    method = tw.LevenbergMarquardt(5 if quick else 60)
    loss = tw.Loss(scale="off", l2=l2)
    return tw.fit(twin, dataset(seen), seeds=[seed], method=method, loss=loss, progress=False).twin


def error(predicted: Float[np.ndarray, "T 2"], y: Float[np.ndarray, "T 2"], first: int, last: int) -> float:
    difference = np.clip((predicted - y)[first:last], -FAR, FAR)
    return float(np.sqrt(np.mean(np.where(np.isfinite(difference), difference, FAR) ** 2)))


def outcome(records: Records, predicted: Float[np.ndarray, "T 2"]) -> Outcome:
    y = series(records)
    shown = np.where(np.isfinite(predicted), np.clip(predicted, -FAR, FAR), FAR)
    metrics = {"rmse": error(predicted, y, TRAIN, len(y)), "next": error(predicted, y, TRAIN, TRAIN + 1)}
    return {"metrics": metrics, "predicted": shown.tolist()}


def model(build: Callable[[int], tw.Twin]) -> tuple[Callable[..., Outcome], Callable[..., float]]:
    """Fit and validation of the models that `build` makes."""

    def fitted(records: Records, design: Mapping[str, Any], seed: int, quick: bool) -> Outcome:
        y = series(records)
        found = fit(build(design["width"]), y[:TRAIN], design["l2"], seed, quick)
        return outcome(records, extended(found, y[:TRAIN], len(y)))

    def validate(records: Records, design: Mapping[str, Any], quick: bool) -> float:
        y = series(records)[:TRAIN]
        found = fit(build(design["width"]), y[:EARLY], design["l2"], 0, quick)
        return error(extended(found, y[:EARLY], TRAIN), y, EARLY, TRAIN)

    return fitted, validate


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    known = tw.Twin(
        growth, params=dict(zip("abcd", RATES, strict=True)), warmup=EARLY, integrator=tw.RK4(substeps=SUBSTEPS)
    )
    y = series(records)
    return outcome(records, extended(known, y[:TRAIN], len(y)))


def by_steps(records: Records, simulate: Callable[[Any, Any], Any]) -> Outcome:
    y = series(records)
    return outcome(records, simulate(np.zeros((len(y), 0)), y[:TRAIN]))


def state_space(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    y = series(records)[:TRAIN]
    return by_steps(records, StateSpace.identify([(np.zeros((TRAIN, 0)), y)], order=2, block_rows=2).simulate)


def narx(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    y = series(records)[:TRAIN]
    return by_steps(records, Narx.identify([(np.zeros((TRAIN, 0)), y)], lags=1, degree=2, terms=3).simulate)


def constant(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """The mean of the years that were seen."""
    del design, seed, quick
    y = series(records)
    return outcome(records, np.tile(y[:TRAIN].mean(0), (len(y), 1)))


def persistence(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    y = series(records)
    return outcome(records, np.tile(y[TRAIN - 1], (len(y), 1)))


def designs(widths: Sequence[int], weights: Sequence[float]) -> dict[str, dict[str, Any]]:
    return {f"{width} units, l2 {l2:g}": {"width": width, "l2": l2} for width in widths for l2 in weights}


GREY, BLACK, PHYSICS = model(build), model(build_black_box), model(build)

TASK = Task(
    "lynx_hare",
    "lynx_hare",
    "Lynx and hare, pelts from 1900 to 1920",
    load,
    {
        "rmse": Metric("1914 to 1920 from the years before", "RMSE of the logarithms", "1"),
        "next": Metric("1914 from the years before", "RMSE of the logarithms", "1"),
    },
    [
        Model("twin", GREY[0], designs((4,), (1e-2, 1e-3, 1e-4)), GREY[1], note="growth rates corrected"),
        Model("fitted physics", PHYSICS[0], {"": {"width": 0, "l2": 0.0}}, seeded=False, note="Lotka-Volterra"),
        Model("physics", physics, seeded=False, note="rates of Carpenter's case study, which saw all 21 years"),
        Model("black box", BLACK[0], designs((4,), (1e-2, 1e-3, 1e-4)), BLACK[1], note="NODE, 22 weights"),
        Model("linear state space", state_space, seeded=False, note="N4SID, order 2"),
        Model("NARX", narx, seeded=False, note="FROLS, degree 2, 1 lag, 3 terms an output"),
        Model("constant", constant, seeded=False),
        Model("persistence", persistence, seeded=False),
    ],
    draw,
)
