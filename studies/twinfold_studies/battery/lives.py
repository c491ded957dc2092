"""What the nominal twin has to say about every discharge of a cell, from the first to the last."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.identify import reestimate
from twinfold.metrics import predict
from twinfold.model import Twin
from twinfold.monitor import residual_features
from twinfold.train import LevenbergMarquardt, fit
from twinfold_studies.battery.capacity import capacities, residuals_of_loss, standard_load
from twinfold_studies.battery.cells import Cells, runs_of, taken_out
from twinfold_studies.battery.models import PRIOR
from twinfold_studies.nasa import Discharge

FOLLOWED = ("B0005", "B0006", "B0018")
LEAST = 25  # discharges of a cell whose life can be followed
AGAIN = ("q_max", "R_o")  # what is estimated again in every discharge
METHOD = LevenbergMarquardt(30)  # of the scalars of a new cell
SHOWN, POINTS = 12, 80  # residual curves of a cell that are kept for a picture, and points of each

Lives = Mapping[str, Sequence[Discharge]]
Residuals = dict[str, list[tuple[np.ndarray, np.ndarray]]]


def followed(cells: Cells) -> dict[str, list[Discharge]]:
    """The clean discharges of NASA's three cells, or of the first three of a synthetic fleet that live long enough."""
    long = _long(cells)
    return {cell: long[cell] for cell in (list(long)[:3] if cells.synthetic else FOLLOWED) if cell in long}


def others(cells: Cells) -> dict[str, list[Discharge]]:
    """The clean discharges of all other cells that live long enough."""
    return {cell: each for cell, each in _long(cells).items() if cell not in followed(cells)}


def _long(cells: Cells) -> dict[str, list[Discharge]]:
    clean = cells.collection.select(kind="cycle", clean=True)
    return {cell: each for cell, each in clean.by_cell().items() if len(each) >= LEAST}


def nominal_twin(nominal: Twin, lives: Lives) -> Twin:
    """The twin of each cell as it was when new: the network as it is, the scalars from the first discharge."""
    first = runs_of([each[0] for each in lives.values()])
    return fit(nominal, first, method=METHOD, loss=PRIOR, trainable="per_run", progress=False).twin


def tell_residuals(twin: Twin, lives: Lives) -> Residuals:
    """For each cell and discharge: the charge taken out in Ah, and measured minus predicted voltage.

    The initial state comes from the first sample of each discharge, all else from the new cell.
    """
    data = _all(lives)
    found = predict(twin, data)
    left = np.where(found.mask, found.y - found.predicted[0], np.nan)[..., 0]
    told: Residuals = {cell: [] for cell in lives}
    for run, residual in zip(data.runs, left, strict=True):
        assert run.w is not None
        charge = taken_out(run.ts, run.w[:, 0]) / 3600
        told[run.group].append((charge, residual[: len(charge)]))
    return told


def features_of(residuals: Residuals) -> dict[str, list[dict[str, float]]]:
    """The features of each residual along the charge: the same place means the same charge in every cycle of a cell."""
    return {
        cell: [residual_features(residual, charge, span=(0.0, each[0][0][-1])) for charge, residual in each]
        for cell, each in residuals.items()
    }


def curves_of(residuals: Residuals) -> dict[str, list[dict[str, Any]]]:
    """Some residuals of each cell, from its first cycle to its last."""

    def few(count: int, most: int) -> np.ndarray:
        return np.unique(np.linspace(0, count - 1, most).astype(int))

    return {
        cell: [
            {"cycle": int(k) + 1}
            | {name: series[few(len(series), POINTS)].tolist() for name, series in _named(each[k])}
            for k in few(len(each), SHOWN)
        ]
        for cell, each in residuals.items()
    }


def tell_parameters(twin: Twin, lives: Lives) -> dict[str, list[dict[str, float]]]:
    """For each cell and discharge: q_max and R_o estimated again, and the capacity that follows, with errors."""
    data, names = _all(lives), list(lives)
    again = reestimate(twin, data, AGAIN)
    standard = standard_load(twin, [each[0] for each in lives.values()])
    cell = np.array([names.index(run.group) for run in data.runs])
    start = np.array([run.y[0, 0] for run in data.runs])
    capacity, error = capacities(twin, standard, cell, start, AGAIN, again.change, again.covariance)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in lives}
    for k, run in enumerate(data.runs):
        row = {name: float(again.values[k, place]) for place, name in enumerate(AGAIN)}
        row |= {f"{name}_error": float(again.errors[k, place]) for place, name in enumerate(AGAIN)}
        row |= {"estimated_Ah": float(capacity[k]), "estimated_error": float(error[k])}
        found[run.group].append(row | {"misfit": float(np.nanmean(np.abs(again.residual[k])))})
    return found


def tell_loss(twin: Twin, lives: Lives, loss: float) -> dict[str, dict[str, float]]:
    """The features that the residual of each cell would have if it lost this share of its charge and nothing else."""
    standard = standard_load(twin, [each[0] for each in lives.values()])
    ends = [float(np.median([each.end_voltage for each in discharges[:5]])) for discharges in lives.values()]
    left = residuals_of_loss(twin, standard, loss, ends)
    return {
        cell: residual_features(residual, charge, span=(0.0, each[0].charge))
        for (cell, each), (charge, residual) in zip(lives.items(), left, strict=True)
    }


def _all(lives: Lives) -> Dataset:
    return runs_of([each for discharges in lives.values() for each in discharges])


def _named(residual: tuple[np.ndarray, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return list(zip(("charge", "residual"), residual, strict=True))
