"""Names of assets and of the parameters that are followed."""

import numpy as np

from twinfold.estimate._state_space import StateSpace


def place_of(assets: dict[str, int], name: str) -> int:
    """The number of an asset, which joins if it is new."""
    return assets.setdefault(name, len(assets))


def parameter_names(space: StateSpace) -> tuple[str, ...]:
    """The names of all values of the parameters that are followed: `k`, or `I[0]`, `I[1]` of a vector."""
    names: list[str] = []
    for name, unknown in space.followed.items():
        shape = unknown.raw.shape
        names += [name + (f"[{','.join(map(str, index))}]" if shape else "") for index in np.ndindex(*shape)]
    return tuple(names)
