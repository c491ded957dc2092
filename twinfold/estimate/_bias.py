"""Sensors and inputs with an offset that nobody knows: the offset is followed as a slow state.

    y = observe(x) + sensor_bias,        dx/dt = field(x, w + input_bias)

The offsets are unknown parameters of the twin, named in `Noise(drift=...)` like any other.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from twinfold._core import call_by_name
from twinfold.model import Twin, Unknown
from twinfold.numerics._algebraic import AbstractImplicit

SENSOR_BIAS, INPUT_BIAS = "sensor_bias", "input_bias"


class _WithInputBias(eqx.Module):
    """A function of the inputs that receives them with their offset."""

    fn: Callable
    role: str = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, **given: Any) -> Any:
        w = given["w"].at[np.array(self.places)].add(given["p"][INPUT_BIAS])
        return call_by_name(self.fn, self.role, **(given | {"w": w}))


class _WithSensorBias(eqx.Module):
    """The outputs with their offset."""

    observe: Callable | None
    places: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, **given: Any) -> Array:
        y = given["x"] if self.observe is None else call_by_name(self.observe, "observe", **given)
        return jnp.atleast_1d(y).at[np.array(self.places)].add(given["p"][SENSOR_BIAS])


def with_bias(twin: Twin, *, sensors: Sequence[int] = (), inputs: Sequence[int] = ()) -> Twin:
    """A twin whose sensors or inputs have offsets, to be followed beside its state.

    **Arguments:** the `twin`, fitted or not; the indices of the outputs (`sensors`) and of the `inputs` that have an
    offset. Of an offset that nothing else measures (one on every output, say) the data tell little: its standard
    deviation then stays what it was.

    **Returns:** the twin with the unknown parameters `"sensor_bias"` and `"input_bias"`, vectors of zeros in physical
    units. Name them in `Noise(drift=...)`, with the standard deviation that a unit of time adds to them, and say in
    `parameters=` of `init` or of a `Follower` how large they may be.

    **Example:**

    ```python
    twin = tw.Twin(lambda x, w: w - x, observe=lambda x: jnp.concatenate([x, x]))
    biased = tw.estimate.with_bias(twin, sensors=[1])
    noise = tw.estimate.Noise([0.1], [0.05, 0.05], drift={"sensor_bias": 0.001})
    follower = tw.estimate.Follower(
        tw.estimate.ExtendedKalmanFilter(biased, noise), [0.0], [1.0], parameters={"sensor_bias": 0.5}
    )
    for t in np.arange(9.0):
        output = follower.step(t, w=[1.0], y=[1.0, 1.3])
    output.parameters["sensor_bias"]  # about 0.3
    ```
    """
    for name, places in (("sensors", sensors), ("inputs", inputs)):
        if any(place < 0 for place in places) or len(set(places)) != len(places):
            raise ValueError(f"with_bias({name}={list(places)}): give different indices, counted from zero.")
    if not sensors and not inputs:
        raise ValueError("with_bias: name the sensors=, the inputs=, or both that have an offset.")
    if inputs and isinstance(twin.algebraic, AbstractImplicit):
        raise ValueError("with_bias(inputs=...): not with implicit algebraic variables; add p['input_bias'] to w in h.")
    offsets = {
        name: Unknown(np.zeros(len(places)))
        for name, places in ((SENSOR_BIAS, sensors), (INPUT_BIAS, inputs))
        if places
    }
    for name in offsets:
        if name in twin.params:
            raise ValueError(f"with_bias: the twin has a parameter {name!r} already.")
    field, algebraic, observe = twin.field, twin.algebraic, twin.observe
    if inputs:
        field = _WithInputBias(field, "field", tuple(inputs))
        algebraic = None if algebraic is None else _WithInputBias(algebraic, "algebraic", tuple(inputs))
        observe = None if observe is None else _WithInputBias(observe, "observe", tuple(inputs))
    if sensors:
        observe = _WithSensorBias(observe, tuple(sensors))
    return eqx.tree_at(
        lambda twin: (twin.cell.field, twin.cell.algebraic, twin.observe, twin.params),
        twin,
        (field, algebraic, observe, twin.params | offsets),
        is_leaf=lambda node: node is None,
    )
