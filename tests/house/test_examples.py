"""Every public name has a docstring, and every public class and function an example that runs."""

import importlib
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.rooms import ROOMS

import twinfold as tw

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
# Examples that take seconds to compile.
LONG = {
    "twinfold.Adaptive",
    "twinfold.Fit",
    "twinfold.Implicit",
    "twinfold.Krylov",
    "twinfold.export.export_onnx",
    "twinfold.identify.guarded_fit",
    "twinfold.plot.training_curves",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in PUBLIC]
)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(PUBLIC[name])
    assert text, f"{name} has no docstring"
    blocks = BLOCK.findall(text)
    assert blocks, f"{name} has no example"
    for _, code in blocks:
        exec(compile(code, name, "exec"), {"tw": tw, "jax": jax, "jnp": jnp, "np": np})


def test_about_sixty_names_at_the_top():
    names = [name for name in dir(tw) if not inspect.ismodule(getattr(tw, name))]
    assert len(names) <= 66
    for name in names:
        module = getattr(tw, name)
        assert not inspect.ismodule(module)
    # No function shadows a module: what `twinfold.NAME` gives is what `import twinfold.NAME` gives.
    for name in names:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"twinfold.{name}")
