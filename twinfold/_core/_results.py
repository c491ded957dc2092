"""How a step ended. Inside jit a failure is data; its message is read once, at the public boundary."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


class RESULTS(eqx.Enumeration):
    """Outcome of a step; the value is the message a user reads.

    **Example:**

    ```python
    trajectory = tw.rollout(tw.Cell(lambda t, x: x**3), 10 * jnp.ones(1), jnp.linspace(0, 1, 11), throw=False)
    jnp.argmax(trajectory.result == tw.RESULTS.nonfinite)  # the first step that diverged
    ```
    """

    successful = ""
    nonfinite = (
        "A step produced a non-finite state (the trajectory is held at its last finite one). The model has "
        "diverged or left the domain of its own equations: try a smaller step (`substeps=`), an implicit "
        "integrator, or a model whose residual starts at zero (`MLP(zero_last=True)`)."
    )
    outside_domain = (
        "The constraint is not finite at the predicted state, and no way back into its domain was found. "
        "Try a smaller step (`substeps=`), `projection=Newton()`, or a constraint defined on all states."
    )
    not_differentiable = (
        "The constraint is finite at the predicted state, but its derivative is not: a norm or square root at zero, "
        "say. Write it so that it can be differentiated there (its square in place of a norm, `jnp.where` around the "
        "argument as well as around the value), or move the initial state."
    )
    singular = (
        "The constraint Jacobian is rank-deficient, and the state was left unprojected. Either constraints that "
        "depend on each other contradict each other (give them levels that agree, or remove one), or this is a "
        "singular point of the manifold (a tip, a crossing, the centre of a circle), where no tangent space exists: "
        "move the initial state or take a smaller step. Where neither helps, ask for the constraint in training "
        "alone: `projection=None` with `Loss(constraint_penalty=...)` or `fit(method=AugmentedLagrangian(...))`."
    )
    not_converged = (
        "The projection did not reach its tolerance; the state was left unprojected. The predictor may be "
        "far from the manifold (smaller step, more `substeps=`), the constraint may have no solution, or "
        "`max_steps=` is too small. A constraint that cannot be held may still be asked for in training alone: "
        "`projection=None` with `Loss(constraint_penalty=...)`, or with `AugmentedLagrangian(...)` as method of `fit`."
    )
    second_order = (
        "The projection converged to a point that fails the second-order condition (a saddle or a farthest "
        "point, not the nearest one); the state was left unprojected. Take a smaller step."
    )
    off_manifold = (
        "The initial state does not satisfy the constraint. Correct `x0`, give the `level` it was measured "
        'at, or pass `inconsistent_x0="project"` to move it to the nearest admissible state.'
    )
    solver = (
        "The integrator's own nonlinear solve did not converge. The step may have no solution near the last state (a "
        "jump): try a smaller step (`substeps=`), samples closer together there, or `integrator=Radau()`."
    )
    algebraic = (
        "The algebraic equations 0 = h(t, x, z, w, p) were not solved in a step; z is the last iterate there. They may "
        "have no solution at the states that the model has reached, or none near the last one: try a smaller step "
        "(`substeps=`), another `guess=` or more `max_steps=` in `Implicit`, or an h that is defined for all z."
    )
    inaccurate = (
        "A step of the integrator is too long: by its own estimate the error exceeds `max_error` of the size of a "
        "state. Something changes faster than the samples tell (a substrate that runs out, say), and the state may be "
        "wrong from there on, even where it satisfies its constraint: take more `substeps=` or closer samples."
    )
    not_minimised = (
        "The least-squares problem of the moving horizon was not solved to its tolerance; the estimate is the last "
        "iterate, and the next sample continues from it. Try more `max_steps=`, a smaller `window=`, or a larger noise."
    )
    events = (
        "Events follow each other without end, or one leaves its condition at zero and at rest, where the next would "
        "be missed; the state is held from there on. A ball that comes to rest does this (Zeno), and so does a relay "
        "without hysteresis: switch to another mode there (`Event(mode=...)`), in which the state stays where it is. "
        "If there are as many events as that between two samples, give `max_events=`, or closer samples."
    )


def first_failure(results: RESULTS) -> RESULTS:
    """The first item along the leading axis that is not `successful` (or `successful`)."""
    index = jnp.argmax(results != RESULTS.successful)
    return jax.tree.map(lambda codes: codes[index], results)


def outcome_codes(results: RESULTS) -> Int[Array | np.ndarray, "..."]:
    """The outcomes as integers: 0 is `successful`."""
    (codes,) = jax.tree.leaves(results)
    return codes


def outcome_messages() -> tuple[str, ...]:
    """The messages in the order of the codes."""
    items = (
        jax.tree.map(lambda _, code=code: np.array(code, np.int32), RESULTS.successful) for code in range(len(RESULTS))
    )
    return tuple(RESULTS[item] for item in items)
