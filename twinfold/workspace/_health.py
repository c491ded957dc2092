"""What wears, run by run, beside the alarms of a plant: a capacity or another health, and the remaining life.

The parameters in `monitor.estimate` are re-estimated on every run; the health is one of them, or a function of
system.py. A cycle is a run; units are told apart by `data.group`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.data import Dataset
from twinfold.data._rows import rows_of
from twinfold.identify import ParameterEstimates, reestimate
from twinfold.identify._reestimate import with_change
from twinfold.io import unknown_name
from twinfold.metrics import predict
from twinfold.model import Twin
from twinfold.monitor._drift import fading_health
from twinfold.monitor._life import Life, RemainingLife
from twinfold.monitor._state import decode, encode
from twinfold.plot import COLOURS, INK, PALE, subplots
from twinfold.workspace._config import MonitorConfig
from twinfold.workspace._fit import Fitted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIDENCE, HORIZON = 0.9, 1000  # of the interval; runs ahead
MAX_UNITS = 5  # in a message
Row = dict[str, Any]


@dataclass(eq=False)
class Health:
    """The lives of all units: `lives` and `first`, the health of the healthy runs, by unit; `taken`, the names of runs.

    `scale` of the outputs, see `reestimate`; `by_group`: whether a unit is a group; `rows` are those of this session;
    `findings`, what is doubtful about the healthy runs.
    """

    config: MonitorConfig
    by_group: bool
    scale: tuple[float, ...]
    lives: dict[str, Life] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def take(self, fitted: Fitted, data: Dataset, *, healthy: bool = False) -> None:
        """Take the runs that were not taken yet, in the order of the data."""
        taken = set(self.taken)
        new = [name for name in data.names if name not in taken]
        if not new:
            return
        data = compared(data.select(new), self.config)
        values, errors, estimates = estimate_health(fitted, data, self.config, self.scale)
        units = [run.group if self.by_group else "" for run in data.runs]
        if healthy:
            for unit in dict.fromkeys(units):
                self._begin(unit, values[[each == unit for each in units]])
        for index, (run, unit) in enumerate(zip(data.names, units, strict=True)):
            if unit not in self.lives:
                raise ValueError(f"'{unit}' has no healthy run: give its first ones with --healthy.")
            self.lives[unit] = self.lives[unit].update(float(values[index]), _finite(errors[index]))
            row = {"unit": unit, "run": run, "healthy": healthy, "health": float(values[index])}
            row |= {"error": float(errors[index])}
            row |= {name: float(estimates.values[index, k]) for k, name in enumerate(estimates.names)}
            rest = self.lives[unit].remaining(confidence=CONFIDENCE, horizon=HORIZON)
            row |= {"remaining": rest.median, "low": rest.low, "high": rest.high}
            notes = [estimates.failures.get(run, ""), rest.note]
            self.rows.append(row | {"note": "; ".join(note for note in notes if note)})
        self.taken += new

    def _begin(self, unit: str, values: np.ndarray) -> None:
        name = f"{self.config.health} of '{unit}'" if unit else self.config.health
        if not np.isfinite(values).any():
            raise ValueError(f"monitor.health: {name} could not be computed in any healthy run.")
        self.first[unit] = float(np.nanmedian(values))
        threshold = self.config.end_of_life(self.first[unit])
        self.lives[unit] = Life.start(self.first[unit], threshold, falling=self.config.falling)
        found = fading_health(values, threshold, falling=self.config.falling)
        self.findings += [f"{name}: {each}" for each in found]

    def message(self) -> str:
        """The health of each unit and what remains of its life."""
        lines = list(self.findings)
        for unit, life in list(self.lives.items())[:MAX_UNITS]:
            known = [row for row in self.rows if row["unit"] == unit and math.isfinite(row["health"])]
            last = known[-1] if known else None
            if last is None:
                continue
            rest = life.remaining(confidence=CONFIDENCE, horizon=HORIZON)
            lines.append(
                f"{self.config.health}{f' of {unit!r}' if unit else ''} in run '{last['run']}': {last['health']:.4g} "
                f"(standard error {last['error']:.2g}), {last['health'] / self.first[unit]:.1%} of that of the healthy "
                f"runs. {describe_rest(rest, life.threshold)}"
            )
        if len(self.lives) > MAX_UNITS:
            lines.append(f"{len(self.lives) - MAX_UNITS} more units are in the table.")
        return "\n".join(lines)

    def state(self) -> dict[str, Any]:
        """Return everything but the rows as plain JSON."""
        return {
            "settings": [self.config.model_dump(mode="json"), self.by_group],
            "scale": list(self.scale),
            "lives": {unit: encode(life) for unit, life in self.lives.items()},
            "first": self.first,
            "taken": self.taken,
            "findings": self.findings,
        }

    @staticmethod
    def from_state(config: MonitorConfig, by_group: bool, state: Mapping[str, Any]) -> "Health":
        """Return what was saved by `state`. **Raises:** `ValueError` if the settings were others."""
        if state["settings"] != [config.model_dump(mode="json"), by_group]:
            raise ValueError("The settings in [monitor] have changed since the state was saved; omit --resume.")
        lives = {unit: decode(Life, life) for unit, life in state["lives"].items()}
        return Health(
            config,
            by_group,
            tuple(state["scale"]),
            lives,
            dict(state["first"]),
            list(state["taken"]),
            list(state["findings"]),
        )


def compared(data: Dataset, config: MonitorConfig) -> Dataset:
    """The runs without the outputs that are not compared; their first sample stays, from which a run may start."""
    left_out = [index for index, name in enumerate(data.output_names) if config.outputs and name not in config.outputs]
    if not left_out:
        return data
    runs = []
    for run in data.runs:
        y = run.y.copy()
        y[1:, left_out] = np.nan
        runs.append(replace(run, y=y))
    return replace(data, runs=tuple(runs))


def check_settings(config: MonitorConfig, fitted: Fitted) -> tuple[str, ...]:
    """The parameters to estimate. **Raises:** `ValueError` that names the setting to change."""
    known = list(fitted.twin.parameters(0) if fitted.twin.has_own_parameters else fitted.twin.parameters())
    if config.threshold is None:
        raise ValueError('monitor.health needs monitor.threshold: its value at the end of life, or a share ("80%").')
    names = config.estimate or ((config.health,) if config.health in known else ())
    for name in config.outputs:
        if name not in fitted.info.outputs:
            raise ValueError(f"monitor.outputs: there is no output {unknown_name(name, fitted.info.outputs)}")
    for name in names:
        if name not in known:
            raise ValueError(f"monitor.estimate: the twin has no parameter {unknown_name(name, known)}")
    if config.health not in names and config.health not in fitted.system.functions:
        raise ValueError(
            f"monitor.health is '{config.health}'; it must be in monitor.estimate ({', '.join(names) or 'empty'}), or "
            f"be a function {config.health}(twin, p) of system.py."
        )
    if not names:
        raise ValueError("monitor.estimate is empty; list the parameters that are re-estimated on every run.")
    return tuple(names)


def estimate_health(
    fitted: Fitted, data: Dataset, config: MonitorConfig, scale: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, ParameterEstimates]:
    """The health [R] of each run, its standard error, and the estimates behind it."""
    names = check_settings(config, fitted)
    estimates = reestimate(fitted.twin, data, names, scale=scale)
    rows = rows_of(fitted.twin, data)
    twin = rows.adapt(fitted.twin)
    function = fitted.system.functions.get(config.health)

    def value(change: Any, run: Any) -> Any:
        p = with_change(twin.parameters(run), names, change)
        if config.health in names or function is None:
            return p[config.health]
        return jnp.asarray(function(twin, p)).reshape(())

    health = jax.jit(jax.value_and_grad(value))
    values, errors = np.full(len(data), np.nan), np.full(len(data), np.nan)
    for index in range(len(data)):
        if np.isfinite(estimates.change[index]).all():
            found, slope = health(jnp.asarray(estimates.change[index]), rows.batch.run[index])
            values[index] = float(found)
            errors[index] = math.sqrt(max(float(slope @ estimates.covariance[index] @ slope), 0.0))
    return values, errors, estimates


def typical_errors(twin: Twin, data: Dataset) -> tuple[float, ...]:
    """The root mean square of what the twin leaves over, for each output: errors of this size count alike."""
    predictions = predict(twin, data)
    residual = np.where(predictions.mask, predictions.y - predictions.predicted[0], np.nan)
    size = np.sqrt(np.nanmean(residual**2, axis=(0, 1)))
    return tuple(float(each) if np.isfinite(each) and each > 0 else 1.0 for each in size)


def describe_rest(rest: RemainingLife, threshold: float) -> str:
    """A sentence on the remaining life."""
    if rest.median == 0 and rest.high == 0:
        return f"Its life has ended: {rest.note}."
    if not np.isfinite(rest.median):
        return f"Remaining life: {rest.note}."
    high = f"{rest.high:.0f}" if np.isfinite(rest.high) else f"more than {HORIZON}"
    return (
        f"About {rest.median:.0f} runs remain until it stays beyond {threshold:.4g} ({CONFIDENCE:.0%} interval: "
        f"{rest.low:.0f} to {high})."
    )


def draw_health(rows: Sequence[Mapping[str, Any]], config: MonitorConfig, thresholds: Mapping[str, float]) -> "Figure":
    """The health of each unit over its runs, with two standard errors, and the interval of its end."""
    units = list(dict.fromkeys(str(row["unit"]) for row in rows))
    with subplots(1, 1, width=9.5, height=3.2) as (figure, axes):
        axis = axes[0]
        for number, unit in enumerate(units[:MAX_UNITS]):
            mine = [row for row in rows if str(row["unit"]) == unit]
            cycle, colour = np.arange(1, len(mine) + 1), COLOURS[number % len(COLOURS)]
            value, error = (np.array([float(row[name]) for row in mine]) for name in ("health", "error"))
            style = {"fmt": "o", "color": colour, "markersize": 3.5, "elinewidth": 0.8}
            axis.errorbar(cycle, value, 2 * error, label=unit or None, **style)
            axis.axhline(thresholds[unit], color=INK, linewidth=1.0, linestyle="--")
            low, high = (float(mine[-1][name]) for name in ("low", "high"))
            if np.isfinite(low):
                ends = [len(mine) + low, len(mine) + (high if np.isfinite(high) else max(2 * low, 10.0))]
                axis.plot(ends, [thresholds[unit]] * 2, color=colour if number else PALE, linewidth=6, alpha=0.6)
        axis.set_xlabel("run")
        axis.set_ylabel(config.health)
        if len(units) > 1:
            axis.legend(fontsize=8.5)
    return figure


def _finite(error: float) -> float:
    return float(error) if math.isfinite(error) else 0.0
