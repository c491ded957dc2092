"""Every public name has a docstring, and every public class and function an example that runs."""

import importlib
import inspect

import pytest
from support.examples import PUBLIC, run_example
from support.strict import strict_promotion

import twinfold as tw

# Examples that take seconds to compile.
LONG = {
    "twinfold.Adaptive",
    "twinfold.Fit",
    "twinfold.Implicit",
    "twinfold.Krylov",
    "twinfold.export.export_onnx",
    "twinfold.identify.guarded_fit",
    "twinfold.plot.training_curves",
    "twinfold.systems.simulate_load",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in PUBLIC]
)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    """Also where JAX promotes nothing by itself, which only adds errors: between them they enter every room."""
    monkeypatch.chdir(tmp_path)
    with strict_promotion():
        run_example(name)


def test_about_sixty_names_at_the_top():
    names = [name for name in dir(tw) if not inspect.ismodule(getattr(tw, name))]
    assert len(names) <= 67
    for name in names:
        module = getattr(tw, name)
        assert not inspect.ismodule(module)
    # No function shadows a module: what `twinfold.NAME` gives is what `import twinfold.NAME` gives.
    for name in names:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"twinfold.{name}")
