"""A direction among parameters, said so that a reader can do something with it."""

from collections.abc import Mapping

import numpy as np

WHOLE = 0.02  # how near exponents have to be to small whole numbers to be written as such


def combination(direction: Mapping[str, float], positive: Mapping[str, bool]) -> str:
    """What can be changed without any effect: of positive parameters a product of powers that is all that matters."""
    names, values = list(direction), np.array(list(direction.values()))
    values = values / np.abs(values).max() * (np.sign(values[0]) or 1.0)
    if all(positive[name] for name in names) and len(names) == 2:
        # The logarithms move along (u, v): what stays is v log a - u log b.
        powers = np.array([-values[1], values[0]])
        powers = powers / np.abs(powers).min() if np.abs(powers).min() > 0 else powers
        powers = powers * (np.sign(powers[0]) or 1.0)
        if np.abs(powers - np.round(powers)).max() < WHOLE * np.abs(powers).max() and np.abs(powers).max() < 5:
            return f"only {_product(names, np.round(powers).astype(int))} matters"
    change = 0.1 * values
    said = [
        f"{name} by {100 * np.expm1(step):+.1f} %" if positive[name] else f"{name} by {step:+.2g} (of its first guess)"
        for name, step in zip(names, change, strict=True)
    ]
    return f"changing {' and '.join(said)} together changes nothing that is measured"


def _product(names: list[str], powers: np.ndarray) -> str:
    up = [name if power == 1 else f"{name}^{power}" for name, power in zip(names, powers, strict=True) if power > 0]
    down = [name if power == -1 else f"{name}^{-power}" for name, power in zip(names, powers, strict=True) if power < 0]
    if not down:
        return "the product " + " * ".join(up)
    return "the ratio " + " * ".join(up) + " / " + " / ".join(down)
