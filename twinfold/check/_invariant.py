"""Whether the constraint holds in the data. A constraint that contradicts the measurements is the costliest mistake.

Along a run, g(t, x, p) of the measured states should be its level plus noise. The noise is estimated from the
differences of g itself (see `_noise`), which includes correlations between sensors. The excess,

    excess^2 = mean (g - level)^2 - noise^2,        about zero for g = 0, about its mean for a conserved quantity

is not explained by sensor noise: it is the slack s that the data ask for, g = level + s. It is reported relative to
max(|level|, sum_j |dg/dx_j| |x_j|): the relative error of the measured states that would explain it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from twinfold._core import quick_jit, tree_take
from twinfold.check._finding import Finding, Severity, join_names
from twinfold.check._manifold import constraint_jacobians, equation_rows
from twinfold.check._subject import Subject
from twinfold.data import Batch
from twinfold.data._noise import estimate_noise
from twinfold.model import Twin
from twinfold.numerics._constraint import sides, slack_of, value_and_jacobian

MAX_EXCESS, PROBLEM_EXCESS = 2e-3, 2e-2  # relative: above the first a warning, above the second a problem
SIGNIFICANCE = 5.0  # standard deviations of the estimated noise variance
MAX_OUTSIDE = 0.01  # share of samples outside a bound


@dataclass(frozen=True, eq=False)
class MeasuredConstraint:
    """One constraint along one run, from measured states: times and g - level, its scale and its noise."""

    run: str
    ts: np.ndarray
    g: np.ndarray
    scale: float
    noise: float

    def excess(self, conserved: bool) -> float:
        """Return the excess over the noise; zero if not significant."""
        square, noise = self.square(conserved), self.known_noise
        chance = SIGNIFICANCE * np.sqrt(2 / len(self.g)) * noise**2
        return float(np.sqrt(square - noise**2)) if square > noise**2 + chance else 0.0

    @property
    def known_noise(self) -> float:
        """The noise; zero if it is unknown."""
        return self.noise if np.isfinite(self.noise) else 0.0

    def square(self, conserved: bool) -> float:
        """Return the mean square of g - level; of a conserved quantity, whose level is as noisy, the variance."""
        return float(np.var(self.g)) if conserved else float(np.mean(self.g**2))

    def drift(self) -> float:
        """Return the mean of the last tenth minus that of the first."""
        part = max(len(self.g) // 10, 1)
        return float(self.g[-part:].mean() - self.g[:part].mean())


def check_invariants(subject: Subject) -> list[Finding]:
    """One finding for each constraint: it holds, the data contradict it and by how much, or it is not measured."""
    if not subject.constrained:
        return []
    found = []
    equations, guessed, loose = equation_rows(subject), rows_with_unknowns(subject), rows_with_slack(subject)
    conserved = np.abs(np.nan_to_num(constraint_jacobians(subject)[1])).max(axis=(0, 2)) > 0
    for row, series in measured_constraints(subject).items():
        if isinstance(series, str):
            message = f"Whether g{row} holds in the data is unknown: {series}."
            found.append(Finding("invariant", "note", message, {"constraint": row, "measured": False}))
        elif row in equations and loose[row]:
            found.append(_check_slack(row, series, conserved=bool(conserved[row])))
        elif row in equations:
            found.append(_check_equation(row, series, conserved=bool(conserved[row]), guessed=bool(guessed[row])))
        else:
            found.append(_check_bound(row, series))
    return found


def measured_constraints(subject: Subject) -> dict[int, "list[MeasuredConstraint] | str"]:
    """Return the values of each constraint along the runs, or the reason why there are none."""
    used = np.abs(np.nan_to_num(constraint_jacobians(subject)[0], nan=1.0)).max(axis=0) > 0
    return {row: _measure(subject, row, np.flatnonzero(used[row]).tolist()) for row in range(used.shape[0])}


def _measure(subject: Subject, row: int, states: list[int]) -> list[MeasuredConstraint] | str:
    if not states:
        return "it depends on no state"
    hidden = [subject.state_names[state] for state in states if state not in subject.output_of_state]
    if hidden:
        verb = "is" if len(hidden) == 1 else "are"
        return f"it depends on {join_names(hidden)}, which {verb} not measured"
    batch, outputs = subject.batch, [subject.output_of_state[state] for state in states]
    mask, xs = np.asarray(batch.mask)[..., outputs], np.array(subject.simulated[0].xs)
    xs[..., states] = np.where(mask, np.asarray(batch.y)[..., outputs], xs[..., states])
    parts = _evaluate(subject.physics, batch, jax.device_put(xs))
    values, distances, scales = (np.asarray(part)[..., row] for part in parts)
    series = []
    for run, name in enumerate(subject.data.names):
        use = mask[run].all(axis=-1) & np.isfinite(values[run])
        if use.sum() >= 3:
            ts = np.asarray(batch.ts)[run, use]
            scale = max(float(scales[run]), float(np.finfo(np.float64).tiny))
            # A bound is zero inside: its noise shows in the distance from it.
            noise = estimate_noise(ts, distances[run, use])
            series.append(MeasuredConstraint(name, ts, values[run, use], scale, noise))
    return series or "no run has three samples at which everything that it depends on was measured"


def _check_equation(row: int, series: list[MeasuredConstraint], *, conserved: bool, guessed: bool) -> Finding:
    slack, error = measured_slack(series, conserved)
    relative = np.array([each.excess(conserved) / each.scale for each in series])
    noise = np.array([np.nan_to_num(each.noise) / each.scale for each in series])
    worst = int(np.argmax(relative))
    each, largest = series[worst], float(relative[worst])
    detail = {
        "constraint": row,
        "measured": True,
        "conserved": conserved,
        "run": each.run,
        "excess": each.excess(conserved),
        "relative": largest,
        "noise": float(np.median(noise)),
        "drift": each.drift(),
    }
    name = f"g{row} ({'a conserved quantity' if conserved else 'g = 0'})"
    if largest <= MAX_EXCESS:
        message = f"{name} holds in the data to within noise of {np.median(noise):.2g} of its scale"
        message += f" (excess {largest:.1g})." if largest > 0 else "."
        return Finding("invariant", "ok", message, detail)
    detail |= {"slack": slack, "error": error}
    severity: Severity = "problem" if largest > PROBLEM_EXCESS and not guessed else "warning"
    beyond = f", {largest / noise[worst]:.0f} times the noise" if noise[worst] > 0 else ""
    message = (
        f"The measurements contradict {name}: in run '{each.run}' it is off by {detail['excess']:.3g} "
        f"({largest:.1%} of its scale{beyond}; mean {each.g.mean():.3g}, change from start to end "
        f"{detail['drift']:.3g}); {int(np.sum(relative > MAX_EXCESS))} of {len(series)} runs are affected. "
    )
    message += (
        "It depends on an Unknown parameter at its first guess: correct the guess, or let the fit estimate it."
        if guessed
        else "A twin that enforces it cannot follow these data: correct the constraint (a length, a unit, a loss of "
        f"energy) or remove it before training. If it is nearly true, it needs a slack of {_words(slack, error)} "
        "(g = level + s, over all runs): Slack(constraint), and the fit estimates how far to trust it."
    )
    return Finding("invariant", severity, message, detail)


def measured_slack(series: Sequence[MeasuredConstraint], conserved: bool) -> tuple[float, float]:
    """Return the root mean square of s in g = level + s over all runs, and its standard error.

    Of N samples with noise n, the variance of mean (g - level)^2 is (4 s^2 n^2 + 2 n^4) / N; that of n^2, estimated by
    medians from the same samples, is about 6 n^4 / N.
    """
    counts = np.array([len(each.g) for each in series], float)
    noise = np.array([each.known_noise**2 for each in series])
    square = np.array([each.square(conserved) for each in series]) - noise
    slack = float(np.sqrt(max(np.average(square, weights=counts), 0.0)))
    if not slack or not all(np.isfinite(each.noise) for each in series):
        return slack, np.nan
    variance = np.sum(counts * (4 * np.maximum(square, 0.0) * noise + 8 * noise**2)) / counts.sum() ** 2
    return slack, float(np.sqrt(variance) / (2 * slack))


def _words(slack: float, error: float) -> str:
    return f"s = {slack:.3g} ± {error:.1g}" if np.isfinite(error) else f"s = {slack:.3g} (of unknown error)"


def _check_slack(row: int, series: list[MeasuredConstraint], *, conserved: bool) -> Finding:
    """Whether the data ask for the slack that a constraint has, and for how much."""
    slack, error = measured_slack(series, conserved)
    relative = max(each.excess(conserved) / each.scale for each in series)
    noise = float(np.median([each.known_noise for each in series]))
    detail = {"constraint": row, "slack": slack, "error": error, "relative": relative, "noise": noise}
    if relative <= MAX_EXCESS:
        message = (
            f"g{row} holds in the data to within noise of {noise:.2g}: they ask for no slack. Without Slack(...) the "
            "twin keeps it exactly."
        )
        return Finding("invariant", "note", message, detail | {"slack": 0.0})
    message = (
        f"g{row} is only nearly true, as its Slack says: the data ask for {_words(slack, error)} in g = level + s, "
        f"{relative:.1%} of its scale in the worst run, beyond noise of {noise:.2g}."
    )
    return Finding("invariant", "ok", message, detail)


def _check_bound(row: int, series: list[MeasuredConstraint]) -> Finding:
    """How far the measurements are outside a bound."""
    outside = [np.abs(each.g) - 4 * np.nan_to_num(each.noise) for each in series]
    share = float(np.mean(np.concatenate(outside) > 0))
    each = series[int(np.argmax([values.max() for values in outside]))]
    detail = {
        "constraint": row,
        "measured": True,
        "share": share,
        "run": each.run,
        "farthest": float(np.abs(each.g).max()),
    }
    if not share:
        return Finding("invariant", "ok", f"The measurements stay within the bounds of g{row}.", detail)
    message = (
        f"The measurements violate the bounds of g{row} at {share:.1%} of the samples, by up to "
        f"{detail['farthest']:.3g} in run '{each.run}', more than noise explains: correct the bound."
    )
    return Finding("invariant", "problem" if share > MAX_OUTSIDE else "warning", message, detail)


def rows_with_unknowns(subject: Subject) -> np.ndarray:
    """Return for each constraint whether it depends on a parameter that is still to be estimated."""
    samples, physics = subject.samples, subject.physics
    t, x, level = tree_take((samples.t, samples.x, samples.level), 0)
    run = subject.batch.run[samples.run[0]]

    def raw_values(twin: Twin) -> list:
        return [unknown.raw for unknown in twin.unknowns()]

    def residual(raw: list) -> Array:
        twin = eqx.tree_at(raw_values, physics, raw)
        return twin.constraint.residual(t, x, twin.parameters(run), level)

    if not physics.unknowns():
        return np.zeros(samples.level.shape[1], bool)
    slopes = eqx.filter_jit(jax.jacfwd(residual))(raw_values(physics))
    return np.any([(np.abs(slope) > 0).reshape(len(slope), -1).any(axis=1) for slope in slopes], axis=0)


def rows_with_slack(subject: Subject) -> np.ndarray:
    """Return for each constraint whether it has a slack."""
    samples, physics = subject.samples, subject.physics
    t, x = tree_take((samples.t, samples.x), 0)
    sizes = slack_of(physics.constraint, t, x, physics.parameters(subject.batch.run[samples.run[0]]))
    return np.zeros(samples.level.shape[1], bool) if sizes is None else np.asarray(sizes) > 0


@quick_jit
def _evaluate(twin: Twin, batch: Batch, xs: Array) -> tuple[Array, Array, Array]:
    """g - level along each run, [R, T, m], the distance to the side of a bound, and the median scale of g, [R, m].

    The level is that of the first state. At a single state the gradient of g may vanish (a body at rest).
    """

    def run(row: Batch, xs: Array) -> tuple[Array, Array, Array]:
        p = twin.parameters(row.run)
        level = twin.constraint.level(row.ts[0], xs[0], p)

        def at(t: Array, x: Array) -> tuple[Array, ...]:
            low, high = sides(twin.constraint, t, x, p, level)
            _, slope = value_and_jacobian(lambda x: sides(twin.constraint, t, x, p, level)[0], x)
            scale = jnp.maximum(jnp.abs(level), jnp.sum(jnp.abs(slope * x[None]), axis=-1))
            return twin.constraint.residual(t, x, p, level), jnp.where(jnp.isfinite(low), low, high), scale

        g, distance, scale = jax.vmap(at)(row.ts, xs)
        return g, distance, jnp.nanmedian(scale, axis=0)

    return jax.vmap(run)(batch, xs)
