"""Does the invariant hold in the data at all? A constraint that the measurements contradict is the costliest mistake.

Along a run g(t, x, p) of the measured states should be its level plus noise. What noise explains is read from the
differences of g itself (see `noise`), correlations between sensors included; what is left,

    excess^2 = mean (g - level)^2 - noise^2,        about zero for g = 0, about its own mean for a conserved quantity

is what no sensor noise accounts for. It is told relative to max(|level|, sum_j |dg/dx_j| |x_j|): by what share the
measured states would have to be wrong together.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from twinfold.check._finding import Finding, Severity, listing
from twinfold.check._manifold import equation_rows, jacobians
from twinfold.check._noise import noise_of
from twinfold.check._subject import Subject
from twinfold.data import Batch
from twinfold.model import Twin
from twinfold.model._unknown import is_unknown
from twinfold.numerics._constraint import sides, value_and_jacobian

HOLDS, CONTRADICTED = 2e-3, 2e-2  # excess relative to the scale: below the first nothing is said
SURE = 5.0  # standard deviations by which the excess has to exceed what chance makes of noise


@dataclass(frozen=True, eq=False)
class Measured:
    """One constraint along one run, from measured states: times and g - level there, its scale and its noise."""

    run: str
    ts: np.ndarray
    g: np.ndarray
    scale: float
    noise: float

    def excess(self, conserved: bool) -> float:
        """What noise does not explain, zero where chance may have made it."""
        square = float(np.var(self.g)) if conserved else float(np.mean(self.g**2))
        noise = self.noise if np.isfinite(self.noise) else 0.0
        chance = SURE * np.sqrt(2 / len(self.g)) * noise**2
        return float(np.sqrt(square - noise**2)) if square > noise**2 + chance else 0.0


def holds(subject: Subject) -> list[Finding]:
    """One finding for each constraint: it holds, it is contradicted and by how much, or it cannot be told."""
    if not subject.constrained:
        return []
    found = []
    equations, conserved, guessed = equation_rows(subject), conserved_rows(subject), unknown_rows(subject)
    for row, series in measured(subject).items():
        if isinstance(series, str):
            words = f"Whether g{row} holds in the data cannot be told: {series}."
            found.append(Finding("invariant", "note", words, {"constraint": row, "told": False}))
        elif row in equations:
            found.append(_equation(row, series, conserved=bool(conserved[row]), guessed=bool(guessed[row])))
        else:
            found.append(_bound(row, series))
    return found


def measured(subject: Subject) -> dict[int, "list[Measured] | str"]:
    """For each constraint its values along the runs, or why there are none."""
    used = np.abs(np.nan_to_num(jacobians(subject), nan=1.0)).max(axis=0) > 0
    out: dict[int, list[Measured] | str] = {}
    base, _ = subject.rolled
    for row in range(used.shape[0]):
        states = np.flatnonzero(used[row]).tolist()
        if not states:
            out[row] = "it depends on no state"
            continue
        hidden = [subject.state_names[state] for state in states if state not in subject.measured]
        if hidden:
            out[row] = f"it depends on {listing(hidden)}, which is not measured"
            continue
        y, mask = np.asarray(subject.batch.y), np.asarray(subject.batch.mask)
        xs = np.array(base.xs)
        for state in states:
            output = subject.measured[state]
            xs[:, :, state] = np.where(mask[:, :, output], y[:, :, output], xs[:, :, state])
        seen = np.logical_and.reduce([mask[:, :, subject.measured[state]] for state in states])
        parts = _values(subject.twin, subject.batch, jnp.asarray(xs))
        values, distance, scales = (np.asarray(part)[..., row] for part in parts)
        series = []
        for run, name in enumerate(subject.data.names):
            use = seen[run] & np.isfinite(values[run])
            if use.sum() >= 3:
                ts, g = np.asarray(subject.batch.ts)[run, use], values[run, use]
                # A bound is zero inside: its noise shows in the distance from it.
                scale = max(float(scales[run]), np.finfo(np.float64).tiny)
                series.append(Measured(name, ts, g, scale, noise_of(ts, distance[run, use])))
        out[row] = series or "no run has three samples at which all that it depends on was measured"
    return out


def _equation(row: int, series: list[Measured], *, conserved: bool, guessed: bool) -> Finding:
    relative = np.array([each.excess(conserved) / each.scale for each in series])
    noise = np.array([np.nan_to_num(each.noise) / each.scale for each in series])
    worst = int(np.argmax(relative))
    each = series[worst]
    detail = {
        "constraint": row,
        "told": True,
        "conserved": conserved,
        "run": each.run,
        "excess": each.excess(conserved),
        "relative": float(relative[worst]),
        "noise": float(np.median(noise)),
        "drift": float(_drift(each)),
    }
    what = f"g{row} ({'a conserved quantity' if conserved else 'g = 0'})"
    if relative[worst] <= HOLDS:
        words = f"{what} holds in the data: nothing beyond noise of {np.median(noise):.2g} of its scale"
        words += f" (and {relative[worst]:.1g})." if relative[worst] > 0 else "."
        return Finding("invariant", "ok", words, detail)
    severity: Severity = "problem" if relative[worst] > CONTRADICTED and not guessed else "warning"
    beyond = f", {relative[worst] / noise[worst]:.0f} times what the noise explains" if noise[worst] > 0 else ""
    words = (
        f"The measurements contradict {what}: in run '{each.run}' it is off by {detail['excess']:.3g} "
        f"({relative[worst]:.1%} of its scale{beyond}; mean {each.g.mean():.3g}, change from start to end "
        f"{detail['drift']:.3g}); {int(np.sum(relative > HOLDS))} of {len(series)} runs are concerned."
    )
    if guessed:
        words += (
            " It depends on an Unknown parameter at its first guess: correct that, or let the fit show that it can."
        )
    else:
        words += (
            " A twin that is held to it cannot follow these data: correct the constraint (a length, a unit, a loss "
            "of energy) or leave it out, before anything is trained."
        )
    return Finding("invariant", severity, words, detail)


def _bound(row: int, series: list[Measured]) -> Finding:
    """A bound: how far the measurements are outside."""
    outside = [np.abs(each.g) - 4 * np.nan_to_num(each.noise) for each in series]
    share = float(np.mean(np.concatenate(outside) > 0))
    worst = int(np.argmax([values.max() for values in outside]))
    each = series[worst]
    detail = {"constraint": row, "told": True, "share": share, "run": each.run, "farthest": float(np.abs(each.g).max())}
    if not share:
        return Finding("invariant", "ok", f"The measurements stay within the bounds of g{row}.", detail)
    severity: Severity = "problem" if share > 0.01 else "warning"
    words = (
        f"The measurements leave the bounds of g{row} at {share:.1%} of the samples, by up to {detail['farthest']:.3g} "
        f"in run '{each.run}', more than noise explains: correct the bound."
    )
    return Finding("invariant", severity, words, detail)


def _drift(each: Measured) -> float:
    """Mean of the last tenth less that of the first."""
    part = max(len(each.g) // 10, 1)
    return float(each.g[-part:].mean() - each.g[:part].mean())


def conserved_rows(subject: Subject) -> np.ndarray:
    """For each constraint whether its level depends on the initial state."""
    along = subject.along
    run = subject.batch.run[jnp.asarray(along.run)]
    slopes = _level_slopes(subject.twin, run, jnp.asarray(along.t), jnp.asarray(along.x))
    return np.abs(np.nan_to_num(np.asarray(slopes))).max(axis=(0, 2)) > 0


def unknown_rows(subject: Subject) -> np.ndarray:
    """For each constraint whether it depends on a parameter that is still to be estimated."""
    along, rows = subject.along, subject.levels.shape[1]
    if not subject.twin.unknowns():
        return np.zeros(rows, bool)
    moving, fixed = eqx.partition(
        subject.twin,
        jax.tree.map(
            lambda node: jax.tree.map(eqx.is_inexact_array, node) if is_unknown(node) else False,
            subject.twin,
            is_leaf=is_unknown,
        ),
    )
    run, t = subject.batch.run[along.run[0]], jnp.asarray(along.t[0])

    def g(moving: Twin) -> Array:
        twin = eqx.combine(moving, fixed)
        return twin.constraint.residual(t, jnp.asarray(along.x[0]), twin.parameters(run), jnp.asarray(along.level[0]))

    leaves = jax.tree.leaves(eqx.filter_jit(jax.jacfwd(g))(moving))
    slopes = [np.abs(np.asarray(leaf)).reshape(leaf.shape[0], -1) for leaf in leaves]
    return np.any(np.concatenate(slopes, axis=1) > 0, axis=1)


@eqx.filter_jit
def _level_slopes(twin: Twin, run: Array, t: Array, x: Array) -> Array:
    def at(run: Array, t: Array, x: Array) -> Array:
        return jax.jacfwd(lambda x: twin.constraint.level(t, x, twin.parameters(run)))(x)

    return jax.vmap(at)(run, t, x)


@eqx.filter_jit
def _values(twin: Twin, batch: Batch, xs: Array) -> tuple[Array, Array, Array]:
    """g - level along each run, [R, T, m], the distance to the side of a bound, and the usual scale of g, [R, m].

    The level is that of the first state. One state alone may be where the gradient of g vanishes (a body at rest).
    """

    def run(row: Batch, xs: Array) -> tuple[Array, Array, Array]:
        p = twin.parameters(row.run)
        level = twin.constraint.level(row.ts[0], xs[0], p)
        g = jax.vmap(lambda t, x: twin.constraint.residual(t, x, p, level))(row.ts, xs)
        low, high = jax.vmap(lambda t, x: sides(twin.constraint, t, x, p, level))(row.ts, xs)
        slopes = jax.vmap(lambda t, x: value_and_jacobian(lambda x: sides(twin.constraint, t, x, p, level)[0], x)[1])(
            row.ts, xs
        )
        scale = jnp.maximum(jnp.abs(level), jnp.sum(jnp.abs(slopes * xs[:, None, :]), axis=-1))
        return g, jnp.where(jnp.isfinite(low), low, high), jnp.nanmedian(scale, axis=0)

    return jax.vmap(run)(batch, xs)
