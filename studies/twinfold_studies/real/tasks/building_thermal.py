"""A test cell under the sun: the temperature indoors over the last 30 hours of 90, in a free run.

Two capacities (air, envelope) and two resistances, all unknown; the envelope is hidden:

    Ca Ta' = (Te - Ta) / Ri + heat + ai sun,    Ce Te' = (Ta - Te) / Ri + (T_out - Te) / Ro + ae sun

The twin adds to Ta' what a network makes of the temperatures, the heat and the sun. The start of the test part is
estimated from the last hours before it.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import twinfold as tw
from twinfold_studies.real.figures.building_thermal import draw
from twinfold_studies.real.loaders.building_thermal import load
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import StateSpace
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Metric, Model, Outcome, Task

TRAIN, EARLY = 120, 84  # samples that are trained on, and of these the first that designs are compared with
SEEN = 12  # samples before the free run, from which its start is estimated
FAR = 50.0  # K, that a larger error counts as
INPUTS = ("T_out", "heat", "sun")
GUESS = {"Ca": 0.5, "Ce": 5.0, "Ri": 5.0, "Ro": 10.0, "ai": 0.5, "ae": 0.5}  # kWh/K, K/kW, m^2


def network_2r2c(x, w, p):
    """The rates of the temperatures of air and envelope [K/h]."""
    air, envelope = x
    inward = (envelope - air) / p["Ri"]
    return jnp.stack(
        [
            (inward + w[1] + p["ai"] * w[2]) / p["Ca"],
            ((w[0] - envelope) / p["Ro"] - inward + p["ae"] * w[2]) / p["Ce"],
        ]
    )


def indoors(x):
    return x[:1]


def both_alike(y):
    return jnp.concatenate([y, y])


@functools.cache
def build(width: int) -> tw.Twin:
    """The twin; with a width of 0 the fitted physics."""
    field: Any = network_2r2c
    if width:
        residual = tw.MLP(states=[0, 1], inputs=[0, 1, 2], adds_to=[0], width=width, depth=1, zero_last=True)
        field = tw.GreyBox(network_2r2c, residual)
    params = {name: tw.Unknown(value, positive=True) for name, value in GUESS.items()}
    return tw.Twin(
        field, params=params, observe=indoors, initial=both_alike, warmup=SEEN, integrator=tw.RK4(substeps=2)
    )


@functools.cache
def build_black_box(width: int) -> tw.Twin:
    scaling = tw.Scaling(
        jnp.array([32.0, 32.0, 21.0, 0.5, 0.25]), jnp.array([3.0, 3.0, 4.5, 0.9, 0.3]), jnp.array([1.0, 1.0])
    )
    network = tw.MLP(inputs=[0, 1, 2], width=width, depth=1, scaling=scaling, zero_last=True)
    return tw.node(network, observe=indoors, initial=both_alike, warmup=SEEN, integrator=tw.RK4(substeps=2))


def columns(records: Records) -> tuple[Float[np.ndarray, "T 3"], Float[np.ndarray, "T 1"]]:
    record = records["cell"]
    return np.stack([record[name] for name in INPUTS], 1), record["T_in"][:, None]


def piece(records: Records, first: int, last: int) -> tw.Dataset:
    w, y = columns(records)
    part = slice(first, last)
    ts = records["cell"]["t"][part]
    return tw.Dataset((tw.Run(f"cell@{first}", ts - ts[0], y[part], w[part]),), ("T_in",), INPUTS)


def fit(twin: tw.Twin, data: tw.Dataset, l2: float, seed: int, quick: bool) -> tw.Twin:
    method = tw.LevenbergMarquardt(5 if quick else 60)
    loss = tw.Loss(scale="off", l2=l2)
    return tw.fit(twin, data, seeds=[seed], method=method, loss=loss, progress=False).twin


def free(twin: tw.Twin, records: Records, first: int, last: int) -> Float[np.ndarray, " T"]:
    """The temperature indoors from `first` on; the model sees the samples before it."""
    return tw.predict(twin, piece(records, first - SEEN, last)).predicted[0, 0, SEEN:, 0]


def error(predicted: Float[np.ndarray, " T"], measured: Float[np.ndarray, " T"]) -> float:
    difference = np.clip(predicted - measured, -FAR, FAR)
    return float(np.sqrt(np.mean(np.where(np.isfinite(difference), difference, FAR) ** 2)))


def outcome(records: Records, predicted: Float[np.ndarray, " T"], **more: Any) -> Outcome:
    measured = columns(records)[1][TRAIN:, 0]
    shown = np.where(np.isfinite(predicted), np.clip(predicted, -FAR, 2 * FAR), 2 * FAR)
    return {"metrics": {"rmse": error(predicted, measured)}, "predicted": shown.tolist()} | more


def model(build: Callable[[int], tw.Twin]) -> tuple[Callable[..., Outcome], Callable[..., float]]:
    """Fit and validation of the models that `build` makes."""

    def fitted(records: Records, design: Mapping[str, Any], seed: int, quick: bool) -> Outcome:
        found = fit(build(design["width"]), piece(records, 0, TRAIN), design["l2"], seed, quick)
        values = {name: float(value) for name, value in found.parameters().items()}
        return outcome(records, free(found, records, TRAIN, len(columns(records)[1])), p=values)

    def validate(records: Records, design: Mapping[str, Any], quick: bool) -> float:
        found = fit(build(design["width"]), piece(records, 0, EARLY), design["l2"], 0, quick)
        return error(free(found, records, EARLY, TRAIN), columns(records)[1][EARLY:TRAIN, 0])

    return fitted, validate


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """The network of resistances at its first guesses."""
    del design, seed, quick
    known = tw.Twin(
        network_2r2c, params=GUESS, observe=indoors, initial=both_alike, warmup=SEEN, integrator=tw.RK4(substeps=2)
    )
    return outcome(records, free(known, records, TRAIN, len(columns(records)[1])))


def by_steps(records: Records, simulate: Callable[[Any, Any], Any]) -> Outcome:
    w, y = columns(records)
    first = TRAIN - SEEN
    return outcome(records, simulate(w[first:], y[first:TRAIN])[SEEN:, 0])


def state_space(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    w, y = columns(records)
    return by_steps(records, StateSpace.identify([(w[:TRAIN], y[:TRAIN])], order=2, block_rows=8).simulate)


def narx(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    w, y = columns(records)
    return by_steps(records, Narx.identify([(w[:TRAIN], y[:TRAIN])], lags=2, degree=2, terms=6).simulate)


def persistence(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    y = columns(records)[1]
    return outcome(records, np.full(len(y) - TRAIN, y[TRAIN - 1, 0]))


def constant(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """The mean of the part that was trained on."""
    del design, seed, quick
    y = columns(records)[1]
    return outcome(records, np.full(len(y) - TRAIN, y[:TRAIN].mean()))


def designs(widths: Sequence[int], weights: Sequence[float]) -> dict[str, dict[str, Any]]:
    return {f"{width} units, l2 {l2:g}": {"width": width, "l2": l2} for width in widths for l2 in weights}


GREY, BLACK = model(build), model(build_black_box)

TASK = Task(
    "building_thermal",
    "building_thermal",
    "Test cell under the sun",
    load,
    {"rmse": Metric("free run over the last 30 h of 90", "RMSE of the temperature indoors", "K")},
    [
        Model("twin", GREY[0], designs((4,), (1e-2, 1e-3, 1e-4)), GREY[1], note="2R2C and a network for the air"),
        Model("fitted physics", GREY[0], {"": {"width": 0, "l2": 0.0}}, seeded=False, note="2R2C"),
        Model("physics", physics, seeded=False, note="2R2C at its first guesses"),
        Model("black box", BLACK[0], designs((4,), (1e-2, 1e-3, 1e-4)), BLACK[1], note="NODE, two states, 34 weights"),
        Model("linear state space", state_space, seeded=False, note="N4SID, order 2"),
        Model("NARX", narx, seeded=False, note="FROLS, degree 2, 2 lags, 6 terms"),
        Model("constant", constant, seeded=False),
        Model("persistence", persistence, seeded=False),
    ],
    draw,
)
