"""Residuals, parameters and capacity of every discharge in the life of a cell, from the twin of the new cell."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.identify import reestimate
from twinfold.metrics import predict
from twinfold.model import Twin
from twinfold.monitor import residual_features
from twinfold.train import LevenbergMarquardt, fit
from twinfold_studies.battery.capacity import capacities, loss_residuals, standard_load
from twinfold_studies.battery.cells import Cells, discharged, runs_of
from twinfold_studies.battery.models import PRIOR
from twinfold_studies.nasa import Discharge

STUDIED = ("B0005", "B0006", "B0018")
MIN_DISCHARGES = 25  # of a cell whose life is studied
REESTIMATED = ("q_max", "R_o")  # parameters that are estimated anew for every discharge
METHOD = LevenbergMarquardt(30)  # for the scalars of a new cell
CURVES, POINTS = 12, 80  # residual curves per cell in the figure, and points of each

Lives = Mapping[str, Sequence[Discharge]]
Residuals = dict[str, list[tuple[np.ndarray, np.ndarray]]]


def studied_lives(cells: Cells) -> dict[str, list[Discharge]]:
    """The clean discharges of three of NASA's cells, or of the first three long lives of a synthetic fleet."""
    lives = long_lives(cells)
    return {cell: lives[cell] for cell in (list(lives)[:3] if cells.synthetic else STUDIED) if cell in lives}


def other_lives(cells: Cells) -> dict[str, list[Discharge]]:
    """The clean discharges of all other cells with enough of them."""
    return {cell: each for cell, each in long_lives(cells).items() if cell not in studied_lives(cells)}


def long_lives(cells: Cells) -> dict[str, list[Discharge]]:
    """The clean discharges of every cell with enough of them."""
    clean = cells.collection.select(kind="cycle", clean=True)
    return {cell: each for cell, each in clean.by_cell().items() if len(each) >= MIN_DISCHARGES}


def nominal_twin(nominal: Twin, lives: Lives) -> Twin:
    """The twin of each new cell: the network is fixed, the scalars are fitted to the first discharge."""
    first = runs_of([each[0] for each in lives.values()])
    return fit(nominal, first, method=METHOD, loss=PRIOR, trainable="per_run", progress=False).twin


def voltage_residuals(twin: Twin, lives: Lives) -> Residuals:
    """Charge [Ah] and measured minus predicted voltage of each discharge.

    The initial state is that of the first sample of the discharge; everything else is that of the new cell.
    """
    data = _runs(lives)
    predictions = predict(twin, data)
    differences = np.where(predictions.mask, predictions.y - predictions.predicted[0], np.nan)[..., 0]
    residuals: Residuals = {cell: [] for cell in lives}
    for run, residual in zip(data.runs, differences, strict=True):
        assert run.w is not None
        charge = discharged(run.ts, run.w[:, 0]) / 3600
        residuals[run.group].append((charge, residual[: len(charge)]))
    return residuals


def cycle_features(residuals: Residuals) -> dict[str, list[dict[str, float]]]:
    """The features of each residual as a function of the charge, over the charge of the first cycle."""
    return {
        cell: [residual_features(residual, charge, span=(0.0, each[0][0][-1])) for charge, residual in each]
        for cell, each in residuals.items()
    }


def residual_curves(residuals: Residuals) -> dict[str, list[dict[str, Any]]]:
    """Some residuals of each cell, from the first cycle to the last."""

    def spaced(count: int, limit: int) -> np.ndarray:
        return np.unique(np.linspace(0, count - 1, limit).astype(int))

    return {
        cell: [
            {"cycle": int(k) + 1}
            | {
                name: series[spaced(len(series), POINTS)].tolist()
                for name, series in zip(("charge", "residual"), each[k], strict=True)
            }
            for k in spaced(len(each), CURVES)
        ]
        for cell, each in residuals.items()
    }


def reestimated_readings(twin: Twin, lives: Lives) -> dict[str, list[dict[str, float]]]:
    """q_max and R_o of each discharge, estimated anew, and the resulting capacity, with standard errors."""
    data, names = _runs(lives), list(lives)
    estimates = reestimate(twin, data, REESTIMATED)
    standard = standard_load(twin, [each[0] for each in lives.values()])
    cell = np.array([names.index(run.group) for run in data.runs])
    start = np.array([run.y[0, 0] for run in data.runs])
    capacity, error = capacities(twin, standard, cell, start, REESTIMATED, estimates.change, estimates.covariance)
    readings: dict[str, list[dict[str, float]]] = {name: [] for name in lives}
    for k, run in enumerate(data.runs):
        row = {name: float(estimates.values[k, index]) for index, name in enumerate(REESTIMATED)}
        row |= {f"{name}_error": float(estimates.errors[k, index]) for index, name in enumerate(REESTIMATED)}
        row |= {"estimated_Ah": float(capacity[k]), "estimated_error": float(error[k])}
        readings[run.group].append(row | {"misfit": float(np.nanmean(np.abs(estimates.residual[k])))})
    return readings


def loss_features(twin: Twin, lives: Lives, loss: float) -> dict[str, dict[str, float]]:
    """The features of the residual that the loss of this share of q_max alone would cause in each cell."""
    standard = standard_load(twin, [each[0] for each in lives.values()])
    ends = [float(np.median([each.end_voltage for each in discharges[:5]])) for discharges in lives.values()]
    residuals = loss_residuals(twin, standard, loss, ends)
    return {
        cell: residual_features(residual, charge, span=(0.0, each[0].charge))
        for (cell, each), (charge, residual) in zip(lives.items(), residuals, strict=True)
    }


def _runs(lives: Lives) -> Dataset:
    return runs_of([each for discharges in lives.values() for each in discharges])
