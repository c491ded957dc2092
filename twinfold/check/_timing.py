"""Whether the inputs were held or interpolated between their samples, or act late: what the data prefer.

The physics, quickly fitted under each treatment of the inputs, says how well it explains the outputs. Where it explains
little under all of them, a linear regression of each output on past outputs and treated inputs takes its place.
A treatment is preferred only if the error is clearly smaller, and smaller throughout the data.
"""

import jax
import numpy as np

from twinfold._core import tree_take
from twinfold.check._finding import Finding, join_names
from twinfold.check._quick_fit import STEPS, QuickProblem, select_batch, shorten
from twinfold.check._subject import Subject
from twinfold.check._treatment import Treatment, alternatives, can_be_treated, treated_twin
from twinfold.data import Batch, Dataset, Run

DELAYS = (1, 2, 3)  # samples
MAX_INPUTS = 6
MORE_STEPS = 3  # of the fit under each treatment other than the twin's own
MIN_FACTOR = 1.3  # of the error
EQUAL = 1.03  # errors within this factor are the same: the simpler treatment is preferred
PARTS, SIGNIFICANCE = 20, 4.0  # parts of the data, and standard errors of the mean difference between them
MIN_EXPLAINED = 0.5  # of the variance of some output


def check_timing(subject: Subject) -> list[Finding]:
    """Which treatment of the inputs the data prefer, if it makes a difference."""
    names = subject.data.input_names
    twin = subject.given
    if not names or len(names) > MAX_INPUTS or not can_be_treated(twin):
        return []
    if (subject.valid_samples < np.asarray(subject.batch.length)).any():
        return []
    linear = twin.cell.input_interpolation == "linear"
    treatments = alternatives(linear, len(names), DELAYS)
    errors = _physics_errors(subject, treatments)
    source = "the quickly fitted physics"
    if not np.nanmean(errors[0] ** 2, axis=0).min() < 1 - MIN_EXPLAINED:
        errors, source = _regression_errors(subject, treatments), "a linear regression"
    if not errors:
        return []
    scores = np.array([np.mean(np.log(np.sqrt(np.nanmean(each**2, axis=0)) + 1e-12)) for each in errors])
    best = int(np.argmax(scores <= scores.min() + np.log(EQUAL)))
    if best and _is_better(errors[best], errors[0], scores[0] - scores[best]):
        return [_describe(subject, treatments[best], float(np.exp(scores[0] - scores[best])), linear, source)]
    if not best and _is_better(errors[0], errors[1], scores[1] - scores[0]):
        factor = float(np.exp(scores[1] - scores[0]))
        message = (
            f"The data prefer {join_names(names)} {_words(linear)} between samples, as in the twin: otherwise the "
            f"error of {source} would be {factor:.3g} times as large."
        )
        return [Finding("timing", "ok", message, {"factor": factor, "linear": linear})]
    return []


def _words(linear: bool) -> str:
    return "interpolated" if linear else "held"


def _describe(subject: Subject, treatment: Treatment, factor: float, linear: bool, source: str) -> Finding:
    """What the data prefer to the twin's own treatment, and what to change."""
    names = subject.data.input_names
    flipped = [name for name, each in zip(names, treatment.linear, strict=True) if each != linear]
    late = {name: delay for name, delay in zip(names, treatment.delays, strict=True) if delay}
    wishes, changes = [], []
    if flipped:
        wishes.append(f"{join_names(flipped)} {_words(not linear)} between samples (the twin has it {_words(linear)})")
        change = f'input_interpolation="{"hold" if linear else "linear"}" of Twin'
        if len(flipped) < len(names):
            change += ", which applies to all inputs: see which choice has the smaller error"
        changes.append(change)
    for name, delay in late.items():
        step = float(np.median(np.diff(subject.data.runs[0].ts)))
        wishes.append(
            f"{name} later by {delay} sample{'s' if delay > 1 else ''} ({delay * step:.3g}{subject.unit('t', 'time')})"
        )
        change = f"let the model use the delayed input, data.taps = {{{name} = [{delay * step:.6g}]}}"
        if delay == max(DELAYS):
            change += " or more; a lag that the physics lacks looks like this, too"
        changes.append(change)
    message = (
        f"The data prefer {' and '.join(wishes)}: the error of {source} is {factor:.3g} times smaller. "
        f"Change: {'; '.join(changes)}."
    )
    detail = {"factor": factor, "flipped": flipped, "delays": late, "source": source}
    return Finding("timing", "warning", message, detail)


def _is_better(errors: np.ndarray, others: np.ndarray, gain: float) -> bool:
    """Whether the first errors are smaller by a factor that matters, in most parts of the data and of some output."""
    if not gain > np.log(MIN_FACTOR):
        return False
    gains = [np.nanmean(part, axis=0) for part in np.array_split(others**2 - errors**2, PARTS) if len(part)]
    gains = np.array(gains)
    spread = np.nanstd(gains, axis=0) / np.sqrt(len(gains))
    return bool((np.nanmean(gains, axis=0) > SIGNIFICANCE * spread).any())


def _physics_errors(subject: Subject, treatments: list[Treatment]) -> list[np.ndarray]:
    """The errors [N, k] of the fitted physics under each treatment, in units of the spread of the outputs."""
    data = shorten(subject.data)
    quick = QuickProblem.of(subject, treated_twin(subject.physics), _batch(subject, data, None))
    found, start = [], None
    for treatment in treatments:
        inputs = np.asarray(_batch(subject, data, treatment).w)
        fit = quick.with_inputs(inputs).fit(start, STEPS if start is None else MORE_STEPS)
        start = fit.v if start is None else start
        found.append(fit.errors.reshape(-1, fit.errors.shape[-1]))
    return found


def _batch(subject: Subject, data: Dataset, treatment: Treatment | None) -> Batch:
    """Windows from measured states, or whole runs if these are not measured; with treated inputs, these alone count."""
    if treatment is not None:
        treated = [Run(run.name, run.ts, run.y, treatment.treated_run(run), run.x0, run.group) for run in data.runs]
        columns = tuple(f"w{k}" for k in range(treated[0].inputs))
        data = Dataset(tuple(treated), data.output_names, columns)
    return select_batch(subject, data, changed=treatment is not None)


def _regression_errors(subject: Subject, treatments: list[Treatment]) -> list[np.ndarray]:
    """The errors [N, k] of a linear regression under each treatment; nothing if the sampling is irregular.

    An input that is held acts one sample later, one that is interpolated at once as well. The second contains the
    first, so that the regression finds inputs that were interpolated and not held, but not the reverse.
    """
    steps = np.concatenate([np.diff(run.ts) for run in subject.data.runs])
    if np.ptp(np.quantile(steps, [0.05, 0.95])) > 0.01 * np.median(steps) or _acts_directly(subject):
        return []
    lags = -(-subject.state_count // len(subject.data.output_names))
    parts = [[_regressors(run.y, run.w, each, lags) for run in subject.data.runs] for each in treatments]
    found = []
    for runs in parts:
        matrix, target = (np.concatenate(each) for each in zip(*runs, strict=True))
        known = np.isfinite(matrix).all(axis=1) & np.isfinite(target).all(axis=1)
        if known.sum() < 10 * matrix.shape[1]:
            return []
        weights = np.linalg.lstsq(matrix[known], target[known], rcond=None)[0]
        found.append((target[known] - matrix[known] @ weights) / subject.spread)
    return found


def _acts_directly(subject: Subject) -> bool:
    """Whether an output depends on an input at the same time: it is then no sign of interpolation."""
    t, x, w, run = tree_take((subject.samples.t, subject.samples.x, subject.samples.w, subject.samples.run), 0)
    p = subject.initialised.parameters(subject.batch.run[run])
    slope = jax.jacfwd(lambda w: subject.initialised.outputs(t, x, w, p))(jax.device_put(w))
    return bool(np.any(np.asarray(slope) != 0))


def _regressors(y: np.ndarray, w: np.ndarray | None, treatment: Treatment, lags: int) -> tuple[np.ndarray, np.ndarray]:
    """Past outputs and treated inputs, and the outputs, from the first full row on."""
    assert w is not None
    late = treatment.delayed(w)
    rows = len(y) - lags
    past = [y[lags - lag :][:rows] for lag in range(1, lags + 1)]
    acting = [late[lags - lag :][:rows] for lag in range(1, lags + 1)]
    at_once = late[lags:][:, np.array(treatment.linear)]
    return np.concatenate([*past, *acting, at_once, np.ones((rows, 1))], axis=1), y[lags:]
