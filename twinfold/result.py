"""How a step ended. Inside jit a failure is data; its message is read once, at the public boundary."""

import equinox as eqx
import jax
import jax.numpy as jnp


class RESULTS(eqx.Enumeration):
    """Outcome of a step; the value is the message a user reads."""

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
    singular = (
        "The constraint Jacobian is rank-deficient: two constraints are redundant, or the state is a "
        "singular point of the manifold. Remove the redundant constraint or move the initial state."
    )
    not_converged = (
        "The projection did not reach its tolerance; the state was left unprojected. The predictor may be "
        "far from the manifold (smaller step, more `substeps=`), the constraint may have no solution, or "
        "`max_steps=` is too small."
    )
    second_order = (
        "The projection converged to a point that fails the second-order condition (a saddle or a farthest "
        "point, not the nearest one); the state was left unprojected. Take a smaller step."
    )
    off_manifold = (
        "The initial state does not satisfy the constraint. Correct `x0`, give the `level` it was measured "
        'at, or pass `start="project"` to move it to the nearest admissible state.'
    )
    solver = (
        "The integrator's own nonlinear solve did not converge. Try a smaller step (`substeps=`) or looser "
        "tolerances in the solver's root finder."
    )


def first_failure(results: RESULTS) -> RESULTS:
    """The first item along the leading axis that is not `successful` (or `successful`)."""
    index = jnp.argmax(results != RESULTS.successful)
    return jax.tree.map(lambda codes: codes[index], results)
