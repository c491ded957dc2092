"""The constraint at the states where it will be used: the initial states, and the rank of its Jacobian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from twinfold.check._finding import Finding, Severity, listing
from twinfold.check._subject import Subject
from twinfold.model import Twin
from twinfold.numerics import NoProjection
from twinfold.numerics._constraint import inequality_rows, sides, value_and_jacobian

FAR = 0.01  # relative violation of an initial state: more is worth a warning
DEPENDENT = 1e-8  # singular value, of rows of length one, below which rows depend on each other
ILL = 1e6  # condition number from which on digits are lost that one would like to keep


def initial(subject: Subject) -> list[Finding]:
    """How far each run's first state is from the manifold, relative."""
    trajectory, _ = subject.rolled
    if not subject.constrained:
        return [Finding("constraint", "ok", "There is no constraint.")]
    found = []
    if isinstance(subject.given.projection, NoProjection):
        words = "There is a constraint but no projection: it is measured, and held only as far as the loss asks for it."
        found.append(Finding("constraint", "note", words))
    relative = np.asarray(trajectory.initial_violation) / np.maximum(trajectory.scale, np.finfo(np.float64).tiny)
    worst = relative.max(axis=1)
    run = int(np.argmax(np.where(np.isfinite(worst), worst, np.inf)))
    detail = {"relative": dict(zip(subject.data.names, worst.tolist(), strict=True))}
    rows = [f"g{row}" for row in np.flatnonzero(~(relative[run] <= np.sqrt(np.finfo(float).eps)))]
    if not rows:
        words = "Every initial state is on the manifold."
        return [*found, Finding("initial", "ok", words, detail)]
    severity: Severity = "note"
    if not worst[run] <= FAR:
        severity = "warning" if worst[run] <= 10 * FAR else "problem"
    words = (
        f"{int(np.sum(~(worst <= 1e-8)))} of {len(worst)} initial states are off the manifold, that of run "
        f"'{subject.data.names[run]}' farthest: {listing(rows)} by {worst[run]:.3g} of its scale. A projection moves "
        "them onto it before the first step."
    )
    if severity != "note":
        words += " That is more than rounding or good sensors explain: correct x0, or the constraint."
    return [*found, Finding("initial", severity, words, detail)]


def rank(subject: Subject) -> list[Finding]:
    """Whether the constraints depend on each other, everywhere or somewhere, and how well they are told apart."""
    if not subject.constrained:
        return []
    along, names = subject.along, subject.data.names
    equations, g = equation_rows(subject), jacobians(subject)
    g = g[:, equations]
    if not len(equations):
        return []
    size = np.sqrt(np.mean(along.x**2, axis=0))
    scaled = g * np.where(size > 0, size, 1.0)
    finite = np.isfinite(scaled).all(axis=(1, 2))
    if not finite.all():
        at = int(np.argmin(finite))
        words = f"The constraint cannot be differentiated at t = {along.t[at]:.6g} of run '{names[along.run[at]]}'."
        return [Finding("rank", "problem", words, {"t": float(along.t[at])})]
    lengths = np.linalg.norm(scaled, axis=2, keepdims=True)
    # A row of length zero stays zero: it is a singular point by itself.
    unit = scaled / np.where(lengths > 0, lengths, 1.0)
    left, strength, _ = np.linalg.svd(unit, full_matrices=False)
    ranks = (strength > DEPENDENT * max(unit.shape[1:])).sum(axis=1)
    m, best = len(equations), int(ranks.max())
    detail = {"constraints": m, "rank": [int(ranks.min()), best], "states": len(ranks)}
    found = []
    if best < m:
        # The combination of rows that vanishes is the left singular vector.
        at = int(np.argmax(ranks))
        involved = [f"g{equations[row]}" for row in np.flatnonzero(np.abs(left[at][:, best:]).max(axis=1) > 1e-6)]
        words = (
            f"{m - best} of {m} constraints depend on the others all along the data (among {listing(involved)}): the "
            "same one twice, a multiple, or a sum. They add nothing but cost: take them out."
        )
        found.append(Finding("rank", "warning", words, detail | {"redundant": m - best, "among": involved}))
    lower = np.flatnonzero(ranks < best)
    if len(lower):
        at = int(lower[0])
        words = (
            f"The constraint Jacobian loses rank at {len(lower)} of {len(ranks)} states, first at t = "
            f"{along.t[at]:.6g} of run '{names[along.run[at]]}': a singular point, where a projection has no direction."
        )
        found.append(Finding("rank", "problem", words, detail | {"t": float(along.t[at])}))
    conditions = strength[:, 0] / np.maximum(strength[:, max(best - 1, 0)], np.finfo(np.float64).tiny)
    worst = float(conditions[ranks == best].max())
    where = "in the data" if along.from_data else "along the physics' own trajectory (the state is not observed)"
    if worst > ILL:
        words = f"The constraints can hardly be told apart {where}: condition number {worst:.2g}."
        found.append(Finding("conditioning", "warning", words, {"condition": worst}))
    elif not found:
        words = f"{m} constraint{'s' if m > 1 else ''}, of full rank at {len(ranks)} states {where}; "
        found.append(Finding("rank", "ok", words + f"condition number {worst:.3g}.", detail | {"condition": worst}))
    return found


def equation_rows(subject: Subject) -> np.ndarray:
    """The indices of the constraints that are equations, not bounds."""
    along, twin = subject.along, subject.twin
    p = twin.parameters(subject.batch.run[along.run[0]])
    bounds = inequality_rows(twin.constraint, jnp.asarray(along.t[0]), jnp.asarray(along.x[0]), p)
    return np.flatnonzero(~np.array(bounds, bool))


def jacobians(subject: Subject) -> np.ndarray:
    """dg/dx at the states along the data, [K, m, n]."""
    along = subject.along
    run = subject.batch.run[jnp.asarray(along.run)]
    return np.asarray(
        _jacobians(subject.twin, run, jnp.asarray(along.t), jnp.asarray(along.x), jnp.asarray(along.level))
    )


@eqx.filter_jit
def _jacobians(twin: Twin, run: Array, t: Array, x: Array, level: Array) -> Array:
    def at(run: Array, t: Array, x: Array, level: Array) -> Array:
        # Inside a bound its residual is zero; its side is not.
        return value_and_jacobian(lambda x: sides(twin.constraint, t, x, twin.parameters(run), level)[0], x)[1]

    return jax.vmap(at)(run, t, x, level)
