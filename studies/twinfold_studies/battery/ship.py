"""Fit the network that is shipped with the library, and write its file and data sheet.

    python -m twinfold_studies.battery.ship --out twinfold/systems/_battery/fitted/nasa_18650.json

One cell of each group is left out of the training; its errors are those of the data sheet: scalars from the first clean
discharge, the next one predicted, temperature included. The fitted physics stands beside.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinfold import enable_x64
from twinfold.io import write_json
from twinfold.model import Twin
from twinfold.systems import fade_outside
from twinfold.train import fit
from twinfold_studies.battery.calibrate import METHOD, baselines, model_runs, score_unseen, shared_fit
from twinfold_studies.battery.cells import SAMPLE_INTERVAL, Pair, open_cells, pairs
from twinfold_studies.battery.models import HEATED, SCALARS, THERMAL
from twinfold_studies.battery.scores import score

HELD_OUT = ("B0018", "B0032", "B0040", "B0047", "B0056")  # the last cell of each group
DIGITS = 6


def fitted_network(others: Sequence[Pair], seeds: int) -> Twin:
    """The twin fitted to the first clean discharges of these cells, fading outside of them."""
    model = HEATED["hrpinn"]
    known = model_runs(model, [pair.first for pair in others], interval=SAMPLE_INTERVAL)
    return fade_outside(shared_fit(model, others, seeds).twin, known).centred()


def held_out_errors(twin: Twin, others: Sequence[Pair], these: Sequence[Pair]) -> list[dict[str, Any]]:
    """For each held-out cell, the mean absolute error of its next discharge in volt, beside fitted physics."""
    model = HEATED["hrpinn"]
    first = model_runs(model, [pair.first for pair in these], interval=SAMPLE_INTERVAL)
    own = fit(twin, first, method=METHOD, loss=model.loss, trainable="per_run", progress=False)
    found = {
        "twin": score(own, model_runs(model, [pair.next for pair in these])),
        "fitted_physics": score_unseen(HEATED["physics_fitted"], others, these, 1),
        "persistence": baselines(these)["persistence"],
    }
    return [
        {"cell": pair.cell, "group": pair.group, "ambient_C": pair.first.ambient}
        | {name: round(scores.mae[0][scores.cells.index(pair.cell)], 4) for name, scores in found.items()}
        for pair in these
    ]


def contents(twin: Twin, others: Sequence[Pair], errors: list[dict[str, Any]]) -> dict[str, Any]:
    """The file: data sheet, scalars, network."""
    algebraic: Any = twin.algebraic
    part = algebraic.relations.positive
    p, region = twin.parameters(), part.region.value
    box = {end: _rounded(getattr(region, end)) for end in ("low", "high", "margin")}
    spreads = {name: spread for name, (_, spread) in (SCALARS | THERMAL).items()}
    return {
        "name": "nasa_18650",
        "about": "18650 lithium-ion cells of 2 Ah (NASA PCoE data set #5): Daigle and Kulkarni's equations, a network "
        "added to V_INT of the positive electrode, a lumped thermal model, Arrhenius factors.",
        "trained_on": {
            "cells": {pair.cell: pair.group or "other" for pair in others},
            "discharges": "the first clean discharge of each cell, at constant current (or as logged)",
            "seeds": 1,
        },
        "holds_for": {
            "chemistry": "cells of this kind; for another one use an equivalent circuit (twinfold.systems.circuit)",
            "range": dict(
                zip(
                    ("mole fraction x_s,p", "current A", "temperature C"),
                    zip(box["low"], box["high"], strict=True),
                    strict=True,
                )
            ),
            "outside": "the network fades to zero over the margin, and the physics remains",
            "not_tried": "charging; currents that change within seconds",
        },
        "held_out": errors,
        "errors": "mean absolute error of the voltage of the next discharge in V, temperature predicted",
        "scalars": {
            name: {"guess": _rounded(p[name])} | ({"spread": spreads[name]} if name in spreads else {})
            for name in (*SCALARS, *THERMAL, "dU_dT")
        },
        "network": {
            "inputs": list(part.inputs),
            "output_scale": part.output_scale,
            "region": box,
            "layers": [
                {"weight": _rounded(layer.weight), "bias": _rounded(layer.bias)}
                for layer in part.network.weights.layers
            ],
        },
    }


def _rounded(values: Any) -> Any:
    return np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"))(np.asarray(values)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the shipped network of a battery cell.")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    enable_x64()
    cells = open_cells()
    if cells.synthetic:
        raise SystemExit("There are no measurements; `twinfold data nasa-battery` gets them.")
    others = [pair for pair in pairs(cells) if pair.cell not in HELD_OUT]
    these = [pair for pair in pairs(cells) if pair.cell in HELD_OUT]
    twin = fitted_network(others, 1)
    errors = held_out_errors(twin, others, these)
    write_json(options.out, contents(twin, others, errors))
    for row in errors:
        print(row)


if __name__ == "__main__":
    main()
