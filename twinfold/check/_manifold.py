"""Checks of the constraint at the states where it is used: initial states, and the rank of its Jacobian."""

import jax
import numpy as np
from jaxtyping import Array

from twinfold._core import quick_jit, tree_take
from twinfold.check._finding import Finding, Severity, join_names
from twinfold.check._subject import StateSamples, Subject
from twinfold.model import Twin, Unknown
from twinfold.numerics import NoProjection
from twinfold.numerics._constraint import inequality_rows, sides, value_and_jacobian

MAX_VIOLATION = 0.01  # relative, of an initial state
MAX_FIRST_ERROR = 0.5  # of the spread of an output, between the initial state and the first measurement
MAX_NOISE_LEVELS = 10  # standard deviations of the noise
MIN_SINGULAR_VALUE = 1e-8  # of rows of length one, below which they are linearly dependent
MAX_CONDITION = 1e6  # condition number above which too many digits are lost


def check_initial_states(subject: Subject) -> list[Finding]:
    """The relative distance of the first state of each run from the manifold."""
    trajectory, _ = subject.simulated
    found = _check_first_outputs(subject)
    if not subject.constrained:
        return [*found, Finding("constraint", "ok", "There is no constraint.")]
    if isinstance(subject.given.projection, NoProjection):
        message = "There is a constraint but no projection: it is enforced only as far as the loss penalises it."
        found.append(Finding("constraint", "note", message))
    relative = np.asarray(trajectory.initial_violation) / np.maximum(trajectory.scale, np.finfo(np.float64).tiny)
    worst = relative.max(axis=1)
    run = int(np.argmax(np.where(np.isfinite(worst), worst, np.inf)))
    detail = {"relative": dict(zip(subject.data.names, worst.tolist(), strict=True))}
    rows = [f"g{row}" for row in np.flatnonzero(~(relative[run] <= np.sqrt(np.finfo(float).eps)))]
    if not rows:
        return [*found, Finding("initial", "ok", "Every initial state is on the manifold.", detail)]
    severity: Severity = "note"
    if not worst[run] <= MAX_VIOLATION:
        severity = "warning" if worst[run] <= 10 * MAX_VIOLATION else "problem"
    message = (
        f"{int(np.sum(~(worst <= 1e-8)))} of {len(worst)} initial states are off the manifold, that of run "
        f"'{subject.data.names[run]}' most: {join_names(rows)} by {worst[run]:.3g} of its scale. A projection moves "
        "them onto it before the first step."
    )
    if severity != "note":
        message += " This is more than rounding or good sensors explain: correct x0, or the constraint."
    return [*found, Finding("initial", severity, message, detail)]


def _check_first_outputs(subject: Subject) -> list[Finding]:
    """Whether the initial states agree with the first measurements; those that the fit estimates are not checked."""
    if isinstance(subject.given.initial, Unknown):
        return []
    simulated = np.asarray(subject.simulated[1])[:, 0]
    off = np.abs(simulated - np.stack([run.y[0] for run in subject.data.runs]))
    off = np.where(off > MAX_NOISE_LEVELS * np.nan_to_num(subject.noise), off / subject.spread, 0.0)
    run, output = np.unravel_index(np.nanargmax(off), off.shape)
    if not off[run, output] > MAX_FIRST_ERROR:
        return []
    runs = int(np.sum(np.nanmax(off, axis=1) > MAX_FIRST_ERROR))
    message = (
        f"The initial state contradicts the first measurement in {runs} of {len(off)} runs, most in run "
        f"'{subject.data.names[run]}': {subject.data.output_names[output]} is off by {off[run, output]:.3g} of its "
        "spread. Correct x0 or the twin's `initial`, or let the fit estimate it: initial=Unknown(guess, per_run=True)."
    )
    detail = {"runs": runs, "relative": float(off[run, output])}
    # Parameters that are still to be estimated can be the reason where only a few runs are affected.
    return [Finding("initial", "problem" if 2 * runs > len(off) else "warning", message, detail)]


def check_rank(subject: Subject) -> list[Finding]:
    """Whether constraints are linearly dependent, everywhere or at some states, and their condition number."""
    if not subject.constrained:
        return []
    samples, names = subject.samples, subject.data.names
    equations = equation_rows(subject)
    if not len(equations):
        return []
    size = np.sqrt(np.mean(samples.x**2, axis=0))
    scaled = constraint_jacobians(subject)[0][:, equations] * np.where(size > 0, size, 1.0)
    finite = np.isfinite(scaled).all(axis=(1, 2))
    if not finite.all():
        at = int(np.argmin(finite))
        message = (
            f"The derivative of the constraint is not finite at {samples.describe(at, names)}: rewrite the constraint "
            "so that it is smooth there."
        )
        return [Finding("rank", "problem", message, {"t": float(samples.t[at])})]
    lengths = np.linalg.norm(scaled, axis=2, keepdims=True)
    # A row of zeros stays zero: a singular point by itself.
    unit = scaled / np.where(lengths > 0, lengths, 1.0)
    left, singular_values, _ = np.linalg.svd(unit, full_matrices=False)
    ranks = (singular_values > MIN_SINGULAR_VALUE * max(unit.shape[1:])).sum(axis=1)
    m, full = len(equations), int(ranks.max())
    detail = {"constraints": m, "rank": [int(ranks.min()), full], "states": len(ranks)}
    found = []
    if full < m:
        found.append(_describe_redundancy(equations, left[int(np.argmax(ranks))], full, detail))
    singular = np.flatnonzero(ranks < full)
    if len(singular):
        at = int(singular[0])
        message = (
            f"The Jacobian of the constraint loses rank at {len(singular)} of {len(ranks)} states, first at "
            f"{samples.describe(at, names)}: at a singular point a projection has no direction. Rewrite the "
            "constraint, or keep the data away from there."
        )
        found.append(Finding("rank", "problem", message, detail | {"t": float(samples.t[at])}))
    conditions = singular_values[:, 0] / np.maximum(singular_values[:, max(full - 1, 0)], np.finfo(np.float64).tiny)
    worst = float(conditions[ranks == full].max())
    where = _describe_origin(samples)
    if worst > MAX_CONDITION:
        message = f"The constraints are almost dependent {where}: condition number {worst:.2g}. Remove or rescale one."
        found.append(Finding("conditioning", "warning", message, {"condition": worst}))
    elif not found:
        message = f"{m} constraint{'s' if m > 1 else ''}, of full rank at {len(ranks)} states {where}; "
        found.append(Finding("rank", "ok", message + f"condition number {worst:.3g}.", detail | {"condition": worst}))
    return found


def _describe_origin(samples: StateSamples) -> str:
    return "in the data" if samples.measured else "along the simulated physics (the state is not observed)"


def _describe_redundancy(equations: np.ndarray, left: np.ndarray, rank: int, detail: dict) -> Finding:
    """Name the rows in a combination that vanishes; `left` holds the left singular vectors."""
    m = len(equations)
    involved = [f"g{equations[row]}" for row in np.flatnonzero(np.abs(left[:, rank:]).max(axis=1) > 1e-6)]
    message = (
        f"{m - rank} of {m} constraints depend on the others at all states (among {join_names(involved)}): duplicates, "
        "multiples or sums. They only add cost: remove them."
    )
    return Finding("rank", "warning", message, detail | {"redundant": m - rank, "among": involved})


def equation_rows(subject: Subject) -> np.ndarray:
    """Return the indices of the constraints that are equations, not bounds."""
    samples, twin = subject.samples, subject.physics
    p = twin.parameters(tree_take(subject.batch.run, samples.run[0]))
    t, x = tree_take((samples.t, samples.x), 0)
    bounds = inequality_rows(twin.constraint, t, x, p)
    return np.flatnonzero(~np.array(bounds, bool))


def constraint_jacobians(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Return dg/dx and dlevel/dx at the states along the data, [K, m, n]."""
    samples = subject.samples
    run = tree_take(subject.batch.run, samples.run)
    g, level = _jacobians(subject.physics, run, *jax.device_put((samples.t, samples.x, samples.level)))
    return np.asarray(g), np.asarray(level)


@quick_jit
def _jacobians(twin: Twin, run: Array, t: Array, x: Array, level: Array) -> tuple[Array, Array]:
    def at(run: Array, t: Array, x: Array, level: Array) -> tuple[Array, Array]:
        p = twin.parameters(run)
        # Inside a bound its residual is zero; its side is not.
        _, g = value_and_jacobian(lambda x: sides(twin.constraint, t, x, p, level)[0], x)
        return g, jax.jacfwd(lambda x: twin.constraint.level(t, x, p))(x)

    return jax.vmap(at)(run, t, x, level)
