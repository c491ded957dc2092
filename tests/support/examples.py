"""The example in the docstring of every public class and function."""

import importlib
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np

import twinfold as tw
from support.rooms import ROOMS

BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.M | re.S)


def public() -> dict[str, object]:
    """Every public class and function once, by the shortest name it has."""
    found: dict[int, tuple[str, object]] = {}
    for room in ROOMS:
        if room == "typing":  # names for arrays, which are no classes of ours
            continue
        module = importlib.import_module(f"twinfold.{room}")
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.isclass(item) or inspect.isfunction(inspect.unwrap(item)):
                found[id(item)] = (f"twinfold.{room}.{name}", item)
    for name in dir(tw):
        item = getattr(tw, name)
        if inspect.isclass(item) or inspect.isfunction(inspect.unwrap(item)):
            found[id(item)] = (f"twinfold.{name}", item)
    return dict(sorted(found.values()))


PUBLIC = public()


def run_example(name: str) -> None:
    """Execute the example of a public name, in the current folder."""
    text = inspect.getdoc(PUBLIC[name])
    assert text, f"{name} has no docstring"
    blocks = BLOCK.findall(text)
    assert blocks, f"{name} has no example"
    for _, code in blocks:
        exec(compile(code, name, "exec"), {"tw": tw, "jax": jax, "jnp": jnp, "np": np})
