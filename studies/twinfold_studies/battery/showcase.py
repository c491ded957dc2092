"""Data of the battery's figures: predicted voltages, and the learned V_INT over the range of the data."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.metrics import predict
from twinfold.model import Twin, simulate_unchecked
from twinfold.systems import Interaction, Relations
from twinfold.train import Fit
from twinfold_studies.battery.calibrate import shared_fit
from twinfold_studies.battery.cells import GROUPS, Cells, Pair, pairs, runs_of
from twinfold_studies.battery.models import MODELS

GRID = np.linspace(0.35, 1.0, 131)  # mole fractions of the positive electrode


def showcase(cells: Cells, seeds: int) -> dict[str, Any]:
    """Time, measured and predicted voltage of the next discharge of one cell per group, and the learned V_INT."""
    all_pairs = pairs(cells)
    first = {pair.group: pair for pair in reversed(all_pairs)}
    chosen = [first[group] for group in GROUPS if group in first]
    out: dict[str, Any] = {"cells": {}, "interaction": {}}
    for name in ("physics_fitted", "hrpinn"):
        fitted = shared_fit(MODELS[name], all_pairs, seeds)
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
            out["interaction"] = _interaction(fitted, all_pairs)
    return out


def _interaction(fitted: Fit, pairs: Sequence[Pair]) -> dict[str, Any]:
    """V_INT of the positive electrode at 2 A and 25 degrees, learned (by seed) and published; range of the data."""

    def learned(twin: Twin) -> tuple[jax.Array, jax.Array]:
        relations = twin.algebraic
        assert isinstance(relations, Relations)
        coefficients = twin.parameters(0)["A_p"]
        i, celsius = jnp.array(2.0), jnp.array(25.0)
        return jax.vmap(lambda x: relations.positive(x, i, celsius, coefficients))(jnp.asarray(GRID)), coefficients

    values, coefficients = fitted.map(learned)
    plain = Interaction()
    expansion = jax.vmap(lambda x: plain(x, jnp.array(2.0), jnp.array(25.0), coefficients[0]))(jnp.asarray(GRID))
    data = runs_of([pair.first for pair in pairs])
    twin = fitted.twin
    reached = []
    for run in data.runs:
        assert run.w is not None
        p = twin.parameters(run.name)
        x0 = twin.initial_state(run.ts[0], jnp.asarray(run.y[0]), jnp.asarray(run.w[0]), p)
        out = simulate_unchecked(twin, x0, jnp.asarray(run.ts), jnp.asarray(run.w), p)
        reached += [float(out.zs["x_sp"].min()), float(out.zs["x_sp"].max())]
    return {
        "x": GRID.tolist(),
        "learned": np.asarray(values).tolist(),
        "expansion": np.asarray(expansion).tolist(),
        "range": [min(reached), max(reached)],
    }
