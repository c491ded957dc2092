"""What the battery's pictures are drawn from: predicted courses, and the learned V_INT over the range of the data."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.metrics import predict
from twinfold.model import Twin
from twinfold.model._simulation import simulate_unchecked
from twinfold.systems import Relations
from twinfold_studies.battery.calibrate import shared_fit
from twinfold_studies.battery.cells import GROUPS, Cells, pairs, runs_of
from twinfold_studies.battery.models import MODELS

GRID = np.linspace(0.35, 1.0, 131)  # of the filling of the positive electrode


def courses(cells: Cells, seeds: int) -> dict[str, Any]:
    """One cell of each group: time, measured and predicted voltage of its next discharge, by model."""
    found = pairs(cells)
    chosen = [next(pair for pair in found if pair.group == group) for group in GROUPS if _has(found, group)]
    out: dict[str, Any] = {"cells": {}, "interaction": {}}
    for name in ("physics_fitted", "hrpinn"):
        fitted = shared_fit(MODELS[name], found, seeds)
        predicted = predict(fitted, runs_of([pair.next for pair in chosen]))
        for index, pair in enumerate(chosen):
            length = int(predicted.length[index])
            entry = out["cells"].setdefault(
                pair.next.name,
                {
                    "group": pair.group,
                    "t": predicted.ts[index, :length].tolist(),
                    "measured": np.where(predicted.mask, predicted.y, np.nan)[index, :length, 0].tolist(),
                },
            )
            entry[name] = predicted.predicted[:, index, :length, 0].mean(0).tolist()
        if name == "hrpinn":
            out["interaction"] = _interaction(fitted, found)
    return out


def _has(found: Sequence[Any], group: str) -> bool:
    return any(pair.group == group for pair in found)


def _interaction(fitted: Any, found: Sequence[Any]) -> dict[str, Any]:
    """V_INT of the positive electrode at 2 A and 25 degrees, learned (by seed) and expanded; where data exist."""

    def learned(twin: Twin) -> tuple[jax.Array, jax.Array]:
        relations = twin.algebraic
        assert isinstance(relations, Relations)
        coefficients = twin.parameters(0)["A_p"]
        i, celsius = jnp.array(2.0), jnp.array(25.0)
        return jax.vmap(lambda x: relations.positive(x, i, celsius, coefficients))(jnp.asarray(GRID)), coefficients

    values, coefficients = fitted.map(learned)
    plain = Relations.plain().positive
    known = jax.vmap(lambda x: plain(x, jnp.array(2.0), jnp.array(25.0), coefficients[0]))(jnp.asarray(GRID))
    data = runs_of([pair.first for pair in found])
    twin = fitted.twin
    reached = []
    for run in data.runs:
        assert run.w is not None
        p = twin.parameters(run.name)
        x0 = twin.initial_state(run.ts[0], jnp.asarray(run.y[0]), jnp.asarray(run.w[0]), p)
        out = simulate_unchecked(twin, x0, jnp.asarray(run.ts), jnp.asarray(run.w), p, None)
        reached += [float(out.zs["x_sp"].min()), float(out.zs["x_sp"].max())]
    return {
        "x": GRID.tolist(),
        "learned": np.asarray(values).tolist(),
        "expansion": np.asarray(known).tolist(),
        "range": [min(reached), max(reached)],
    }
