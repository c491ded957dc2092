"""A constant inside a model: an array that training leaves alone."""

from typing import Any

import equinox as eqx


class Frozen(eqx.Module):
    """Marks `value`, an array or a tree of arrays, as not trainable."""

    value: Any
