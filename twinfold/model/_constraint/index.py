"""The index of a differential-algebraic system, found by differentiating its constraints along the flow.

    x' = f(t, x, z),    0 = g(t, x, z)

Each equation is differentiated until the algebraic variable z (for a mechanism: the multipliers) appears in it. If the
equations found last determine z, the index is one more than the number of derivatives, and all before them are
constraints on the state: those given, and the hidden ones. Use it before a simulation: at index 3 a
projection needs the hidden constraints too; a rank below full means redundant constraints or a singular state.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import call_by_name
from twinfold.model._constraint.hidden import along, nearby
from twinfold.model._learned.base import Context, Statistics, initialise, learned_parts, trainable
from twinfold.model._mechanics.multibody import Multibody, PositionLevel, VelocityLevel
from twinfold.typing import ConstraintVector, Parameters, Scalar, State

SUPPORTED = 3
MAX_DERIVATIVES = 5  # after which the search is given up
MIN_DERIVATIVE = 1e-8  # of z relative to x; a smaller one is rounding

KINDS = ("a learned part of the rate", "the input w")

ALTERNATIVES = (
    "Supported are 1 (solve for z: `Twin(algebraic=...)`), 2 and 3 (project: `with_hidden_constraints`). Instead: "
    "give, as the constraint, one of its derivatives, nearer to where z acts, and the ones above it as "
    "initial conditions; choose coordinates that satisfy it; or model the force that enforces it (a stiff "
    "spring, a controller)."
)


@dataclasses.dataclass(frozen=True)
class Index:
    """The index, and how often each equation is differentiated until it contains z; `str` is a readable summary."""

    index: int
    orders: tuple[int, ...]
    levels: tuple[str, ...]  # what each equation is a constraint on
    variable: str

    @property
    def hidden(self) -> int:
        """Constraints on the state that were not given."""
        return sum(max(order - 1, 0) for order in self.orders)

    def __str__(self) -> str:
        count = len(self.orders)
        lines = [f"index {self.index}: {_plural(count, 'constraint')}, {_plural(self.hidden, 'hidden constraint')}"]
        for level, order in dict.fromkeys(zip(self.levels, self.orders, strict=True)):
            same = sum(pair == (level, order) for pair in zip(self.levels, self.orders, strict=True))
            for k in range(order + 1):
                role = "hidden" if k else "given"
                if k == order:
                    role = f"contains and determines {self.variable}"
                place = _raised(level, k)
                lines.append(f"  {_derivative(k)} ({place}{role}): {_plural(same, 'equation')}")
        return "\n".join(lines)


def index_of(mechanism: Multibody, x: State, *, t: float = 0.0, w: Any = None, p: Parameters | None = None) -> Index:
    """The index of a mechanism at a state on its constraints: 3 for constraints on positions, 2 on velocities.

    **Raises:** `ValueError` where constraints are redundant, or the state is a singular configuration.

    **Example:**

    ```python
    pendulum = tw.Multibody([1.0, 1.0], lambda q: q @ q - 1)
    print(tw.model.index_of(pendulum, jnp.array([1.0, 0, 0, 0])))  # index 3: ...
    ```
    """
    x = jnp.asarray(x)
    values: list[Callable] = []
    levels: list[str] = []
    for kind, given in (("position", mechanism.position), ("velocity", mechanism.velocity)):
        if given is not None:
            values.append(PositionLevel(given) if kind == "position" else VelocityLevel(given))
            count = jax.eval_shape(values[-1], t, x, {} if p is None else p).shape[0]
            levels += [kind] * count

    def g(t: Scalar, x: State, p: Parameters) -> ConstraintVector:
        return jnp.concatenate([value(t, x, p) for value in values])

    z, variable = jnp.zeros(len(levels), x.dtype), "the multiplier" if len(levels) == 1 else "the multipliers"
    return dae_index(_Released(mechanism), g, x, z, t=t, w=w, p=p, levels=levels, variable=variable)


class _Released(eqx.Module):
    """A mechanism whose multipliers are the algebraic variable z."""

    mechanism: Multibody

    def __call__(self, t: Scalar, x: State, z: Float[Array, " m"], w: Any, p: Parameters) -> State:
        return self.mechanism.released(t, x, z, w, p)


def dae_index(
    rate: Callable,
    g: Callable,
    x: State,
    z: Float[Array, " m"],
    *,
    t: float = 0.0,
    w: Any = None,
    p: Parameters | None = None,
    levels: Sequence[str] | None = None,
    variable: str = "z",
) -> Index:
    """The index of x' = rate(t, x, z, w, p), 0 = g(t, x, z, w, p) at a state, for as many equations as z has values.

    **Arguments:** `rate` and `g`, of what they name; x, z, t, w, p where to look; `levels` and `variable`, what the
    equations and z are called.

    **Raises:** `ValueError` where the index is above 3, where the equations do not determine z, or where a hidden
    constraint depends on an input or on a learned part of the rate: it would not be known.

    **Example:**

    ```python
    tw.model.dae_index(lambda x, z: z, lambda x: x, jnp.zeros(1), jnp.zeros(1)).index  # 2
    ```
    """
    x, z, p = jnp.asarray(x), jnp.asarray(z), {} if p is None else p
    if learned_parts(rate):
        # Any weights and scales will do: the question is only whether a derivative exists.
        ones, zeros, one = jnp.ones_like(x), jnp.zeros_like(x), jnp.ones((), x.dtype)
        inputs = (None, None) if w is None else (jnp.zeros_like(w), jnp.ones_like(w))
        statistics = Statistics(zeros, ones, ones, *inputs, 0 * one, one)
        context = Context(x.shape[0], 0 if w is None else w.shape[0], x.dtype, statistics)
        rate = initialise(rate, jax.random.key(0), context)
    system = _System(rate, g, p)
    size = jax.eval_shape(lambda: system.derivative(0, t, x, z, w)).shape[0]
    if size != z.shape[0]:
        raise ValueError(f"g: {size} equations for {z.shape[0]} algebraic variables z; give one for each.")
    names = tuple(levels) if levels is not None else ("",) * size
    orders, rows = _orders(system, t, x, z, w)
    if None in orders or max(order for order in orders if order is not None) + 1 > SUPPORTED:
        raise ValueError(_too_high(orders, variable))
    found = tuple(order for order in orders if order is not None)
    _check_rank(np.stack(rows), variable)
    for order in range(1, max(found)):
        _check_known(system, order, [index for index, each in enumerate(found) if order < each], t, x, z, w)
    return Index(max(found) + 1, found, names, variable)


class _System(eqx.Module):
    """Rate and constraint of a DAE, and the derivatives of the constraint along the rate."""

    rate: Callable
    g: Callable
    p: Parameters

    def derivative(self, order: int, t: Scalar, x: State, z: Float[Array, " k"], w: Any) -> ConstraintVector:
        """d^order g / dt^order, at constant z and w."""

        def value(t: Scalar, x: State) -> ConstraintVector:
            return jnp.atleast_1d(call_by_name(self.g, "g", t=t, x=x, z=z, w=w, p=self.p))

        def flow(t: Scalar, x: State) -> State:
            return call_by_name(self.rate, "rate", t=t, x=x, z=z, w=w, p=self.p)

        for _ in range(order):
            value = along(value, flow)
        return value(t, x)


def _orders(system: _System, t: Scalar, x: State, z: Float[Array, " m"], w: Any) -> tuple[list[int | None], list]:
    """For each equation the first derivative that contains z, and its slope in z at x."""
    # Around z = 0 as well: multipliers that vanish hide what they multiply.
    guesses = [z, *(z + step for step in np.random.default_rng(1).normal(size=(4, z.shape[0])))]
    orders: list[int | None] = [None] * z.shape[0]
    rows: list[Any] = [None] * z.shape[0]
    for order in range(MAX_DERIVATIVES + 1):
        if None not in orders:
            break
        slope = jax.jit(jax.jacfwd(lambda x, z, order=order: system.derivative(order, t, x, z, w), argnums=(0, 1)))
        slopes = [tuple(map(np.asarray, slope(*place))) for place in zip(nearby(x), guesses, strict=True)]
        for index in range(len(orders)):
            by_x = max(np.abs(np.nan_to_num(each[0][index])).max() for each in slopes)
            by_z = max(np.abs(np.nan_to_num(each[1][index])).max() for each in slopes)
            if orders[index] is None and by_z > MIN_DERIVATIVE * by_x:
                orders[index], rows[index] = order, slopes[0][1][index]
    return orders, rows


def _too_high(orders: Sequence[int | None], variable: str) -> str:
    last = [index for index, order in enumerate(orders) if order is None or order + 1 > SUPPORTED]
    which = f"equation{'s' if len(last) > 1 else ''} {', '.join(map(str, last))} of g"
    if None in orders:
        return (
            f"index above {MAX_DERIVATIVES + 1}: {variable} appears neither in {which} nor in {MAX_DERIVATIVES} "
            f"derivatives along the flow, so nothing enforces the constraint, or only from very far. {ALTERNATIVES}"
        )
    highest = max(order for order in orders if order is not None)
    return f"index {highest + 1}: {which} must be differentiated {highest} times to contain {variable}. {ALTERNATIVES}"


def _check_rank(rows: np.ndarray, variable: str) -> None:
    """A `ValueError` that names the equations, unless the last derivatives determine z."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    left, values, _ = np.linalg.svd(rows / np.where(lengths > 0, lengths, 1))
    rank = int((values > MIN_DERIVATIVE * max(values.max(), 1e-300)).sum()) if values.size else 0
    if rank < len(rows):
        involved = np.flatnonzero(np.abs(left[:, rank:]).max(axis=1) > 1e-6)
        raise ValueError(
            f"g: equations {', '.join(map(str, involved))} do not determine {variable} here (rank {rank} of "
            f"{len(rows)}). They are redundant, or the state is a singular configuration (a dead point): remove a "
            "redundant equation, change the geometry, or move the state."
        )


def _check_known(system: _System, order: int, equations: list[int], t: Scalar, x: State, z: Any, w: Any) -> None:
    """A hidden constraint has nothing in it that is learned or an input, or a `ValueError`."""
    weights, fixed = eqx.partition(system.rate, trainable(system.rate) if learned_parts(system.rate) else False)

    def value(weights: Any, w: Any, place: State) -> ConstraintVector:
        return _System(eqx.combine(weights, fixed), system.g, system.p).derivative(order, t, place, z, w)

    @jax.jit
    def slopes(place: State, which: ConstraintVector) -> tuple[Any, Any]:
        return jax.vjp(lambda weights, w: value(weights, w, place), weights, w)[1](which)

    if not jax.tree.leaves((weights, w)):
        return
    for place, index in itertools.product(nearby(x, 2), equations):
        for what, slope in zip(KINDS, slopes(place, jnp.eye(z.shape[0], dtype=x.dtype)[index]), strict=True):
            if any(np.asarray(leaf).any() for leaf in jax.tree.leaves(slope)):
                raise ValueError(
                    f"g: the hidden constraint {_derivative(order)} = 0 of equation {index} depends on {what}, so "
                    "that the manifold is not known. Keep the learned part out of the states that the constraint sees "
                    "(for a mechanism: forces, not q' = v), or project onto g alone."
                )


def _derivative(order: int) -> str:
    return ("g", "dg/dt")[order] if order < 2 else f"d{order}g/dt{order}"


def _raised(level: str, order: int) -> str:
    """What a constraint on positions becomes when it is differentiated: one on velocities, then on accelerations."""
    names = ["position", "velocity", "acceleration"]
    return f"{names[names.index(level) + order]} level, " if level in names else ""


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
