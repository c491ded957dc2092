"""The search for the nearest point of the manifold: one loop, with one evaluation in each iteration.

    near      a step with unit Hessian from the predictor, then Newton steps on the KKT system, as long as each brings
              it much closer; few small problems come here: `near.py` solves the others with the same steps
    beside    where G is rank-deficient at the solution, one evaluation tells whether it is so all around
    guarded   steps that cannot go astray, for the rest: along the manifold from the last state on it (the anchor),
              inside the domain of g and always nearer to the predictor; or, where no such state is known, Newton steps
              that are shortened until a merit function falls

Vmapped, each lane is in a phase of its own, and the loop runs until the last one has finished.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from twinfold._core import tree_where
from twinfold.numerics._iterate import iterate
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.numerics._project.kkt import (
    Point,
    ReducedHessian,
    newton_direction,
    point,
    reduced_hessian,
    sqp_direction,
)
from twinfold.numerics._project.line_search import SHORTEST_STEP, Descent, descent
from twinfold.numerics._project.near import (
    CLOSER,
    MUCH_CLOSER,
    USUAL_EVALUATIONS,
    may_be_near,
)
from twinfold.numerics._project.redundant import RankHistory, beside, may_be_redundant
from twinfold.typing import Count, Flag, State

NEAR, BESIDE, ENTER, GUARDED, LOST, SOLVED = range(6)  # ENTER: the anchor is evaluated
MAX_RETRACTIONS = 8  # Gauss-Newton steps back to the manifold after a step along it
ON_MANIFOLD = 16  # the violation, in tolerances, that is left to rounding
GUARDED_EVALUATIONS = 8  # for each of `max_steps`


class Walk(eqx.Module):
    """What the steps from a state along the manifold have to improve: the distance to the target."""

    distance: Float[Array, ""]  # squared; infinite for a state that is not on the manifold, as the anchor may be
    expected: Float[Array, ""]  # the fall of the distance along the direction, to first order

    def accepts(self, length: Float[Array, ""], distance: Float[Array, ""], halved: Flag) -> Flag:
        """Whether a step of that length leads nearer to the target; `halved`: whether the error is."""
        falls = distance < self.distance - 1e-4 * length * self.expected
        # Near the solution the distance falls by less than rounding of g may raise it.
        slack = max(1e-6, 64 * float(jnp.finfo(distance.dtype).eps))
        return falls | (halved & (distance <= (1 + slack) * self.distance))


class Taken(eqx.Module):
    """What is remembered of the state that was taken last: every array that is carried costs a step its speed."""

    x: State
    error: Float[Array, ""]
    acceptable: Flag
    definite: Flag  # the second-order condition
    rank: Count
    vanishing: Flag  # a gradient has, compared with those before
    direction: State  # of the steps from x
    guard: Walk | Descent


class Search(eqx.Module):
    """Where a search stands: the state that was taken last, and the one to be evaluated next."""

    phase: Int[Array, ""]
    taken: Taken
    trial: State
    length: Float[Array, ""]  # of the step that leads there
    back: Count  # Gauss-Newton steps back to the manifold that may follow
    left: Count  # evaluations that may follow in this phase
    evaluations: Count
    ranks: RankHistory

    @property
    def solved(self) -> Flag:
        return self.phase == SOLVED


def search(
    problem: ProjectionProblem, start: Point, tolerance: float, max_steps: int, trial: State | None = None
) -> Search:
    """The state nearest to the target of a problem.

    **Arguments:** `start`, what is known of the target; `trial`, a state to be tried first, such as the last of the
    first steps (where constraints are nearly parallel, rounding can leave there more than is tolerated).
    """
    look, reach = may_be_redundant(problem), reach_of(problem, start)

    def step(at: Search) -> Search:
        there = point(problem, at.trial, tolerance)
        curvature = reduced_hessian(problem, at.trial, there)
        near, enter, guarded = at.phase == NEAR, at.phase == ENTER, at.phase == GUARDED

        # The first step is taken unless it leads away; at the end rounding can raise the error.
        part = jnp.where(at.left == max_steps, CLOSER, MUCH_CLOSER)
        closer = there.converged | (there.error < part * at.taken.error)
        accepted, retract = _accepts(problem, at, there)
        moved = (near & closer) | enter | (guarded & accepted)
        retract = guarded & ~accepted & retract
        ranks = at.ranks.updated(there.space, there.violation_ratio <= ON_MANIFOLD)
        ranks = tree_where(moved & ~near, ranks, at.ranks)
        taken = tree_where(moved, _taken(problem, at.trial, there, curvature, ranks), at.taken)
        length = jnp.where(moved, 1, jnp.where(retract, 1, 0.5) * at.length)
        trial = taken.x + length * taken.direction
        trial = jnp.where(retract, at.trial - there.space.min_norm(there.g), trial)

        # A phase ends at a solution, where no step helps (as at a saddle), or after too many evaluations.
        ends = (moved & there.converged) | (near & ~closer) | (length <= SHORTEST_STEP) | (at.left == 1)
        ends = ends | (enter & ~there.sound)
        solved = taken.acceptable & taken.definite & (~near | is_local(problem, taken.x, reach))
        ended = jnp.where(solved, SOLVED, LOST)
        after = Search(
            phase=jnp.where(ends, ended, jnp.where(enter, GUARDED, at.phase)),
            taken=taken,
            trial=trial,
            length=length,
            back=jnp.where(retract, at.back - 1, MAX_RETRACTIONS),
            left=at.left - 1,
            evaluations=at.evaluations + 1,
            ranks=ranks,
        )
        after = _go_guarded(problem, after, near & (after.phase == LOST), max_steps)
        return _look_beside(at, after, there) if look else after

    taken = _at_target(problem, start)
    first = Search(
        phase=jnp.array(NEAR),
        taken=taken,
        trial=taken.x + taken.direction if trial is None else trial,
        length=jnp.ones((), problem.target.dtype),
        back=jnp.array(MAX_RETRACTIONS),
        left=jnp.array(max_steps),
        evaluations=jnp.array(0),
        ranks=RankHistory(start.space.rank, jnp.zeros_like(problem.level)),
    )
    return iterate(first, step, lambda at: at.phase < LOST, usual=0 if may_be_near(problem) else USUAL_EVALUATIONS)


def _at_target(problem: ProjectionProblem, start: Point) -> Taken:
    """The target, with a step of unit Hessian from it: there are no multipliers yet."""
    direction = sqp_direction(problem, problem.target, start)
    return _from(problem, problem.target, start, direction, jnp.array(True), jnp.array(False))


def _taken(problem: ProjectionProblem, x: State, here: Point, curvature: ReducedHessian, ranks: RankHistory) -> Taken:
    direction = newton_direction(problem, x, here, curvature, far=problem.anchor is not None)
    return _from(problem, x, here, direction, curvature.definite, ranks.vanishing(here.space))


def _from(
    problem: ProjectionProblem, x: State, here: Point, direction: State, definite: Flag, vanishing: Flag
) -> Taken:
    gap = problem.target - x
    if problem.anchor is None:
        guard = descent(problem, x, here, direction)
    else:
        expected = jnp.sum(here.space.tangent(gap) * direction)
        distance = jnp.where(here.violation_ratio > ON_MANIFOLD, jnp.inf, jnp.sum(gap**2))
        guard = Walk(distance, expected)
    return Taken(x, here.error, here.acceptable, definite, here.space.rank, vanishing, direction, guard)


def _accepts(problem: ProjectionProblem, at: Search, there: Point) -> tuple[Flag, Flag]:
    """Whether a guarded step is accepted; if not, whether to go back to the manifold before it is judged."""
    guard = at.taken.guard
    if isinstance(guard, Descent):
        return guard.accepts(at.length, at.trial, there), jnp.array(False)
    feasible = there.sound & (there.violation_ratio <= jnp.where(at.back > 0, 1, ON_MANIFOLD))
    distance = jnp.sum((problem.target - at.trial) ** 2)
    accepted = feasible & guard.accepts(at.length, distance, there.error <= 0.5 * at.taken.error)
    return accepted, there.sound & ~feasible & (at.back > 0)


def _go_guarded(problem: ProjectionProblem, at: Search, lost: Flag, max_steps: int) -> Search:
    """Where it is lost, the search goes on from the anchor, or else from the state that was taken last."""
    if problem.anchor is None:
        # From a saddle there is no way on.
        phase = jnp.where(at.taken.acceptable, LOST, GUARDED)
        trial = at.taken.x + at.taken.direction
    else:
        phase, trial = ENTER, problem.anchor
    changes = (phase, trial, jnp.ones_like(at.length), GUARDED_EVALUATIONS * max_steps)
    now = (at.phase, at.trial, at.length, at.left)
    return eqx.tree_at(lambda at: (at.phase, at.trial, at.length, at.left), at, tree_where(lost, changes, now))


def _look_beside(before: Search, after: Search, there: Point) -> Search:
    """Where the rank of G at the solution is in question, one more evaluation tells that beside it."""
    asked = before.phase == BESIDE
    rank = jnp.maximum(before.ranks.rank, there.space.rank)
    answered = eqx.tree_at(lambda at: (at.phase, at.ranks.rank), before, (jnp.array(SOLVED), rank))
    ask = (before.phase == NEAR) & after.solved & (after.taken.rank < there.g.shape[0])
    asking = (jnp.where(ask, BESIDE, after.phase), jnp.where(ask, beside(after.taken.x), after.trial))
    return tree_where(asked, answered, eqx.tree_at(lambda at: (at.phase, at.trial), after, asking))


def reach_of(problem: ProjectionProblem, start: Point) -> Float[Array, ""]:
    """No nearest point is farther: the way to the anchor and, where the manifold has moved on, from there to it."""
    if problem.anchor is None:
        return jnp.array(jnp.inf, problem.target.dtype)
    moved = start.space.min_norm(problem.residual(problem.anchor))
    return jnp.linalg.norm(problem.anchor - problem.target) + jnp.linalg.norm(moved)


def is_local(problem: ProjectionProblem, x: State, reach: Float[Array, ""]) -> Flag:
    """Whether a correction is short, or at least within reach: it stays on the same branch."""
    move = jnp.linalg.norm(x - problem.target)
    return (move <= 0.05 * jnp.linalg.norm(x)) | (move <= (1 + 1e-6) * reach)
