"""The rules that every class of the package obeys."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import equinox as eqx

import twinfold


def modules():
    """Every module of the package that can be imported without an extra."""
    found = []
    for info in pkgutil.walk_packages(twinfold.__path__, "twinfold."):
        try:
            found.append(importlib.import_module(info.name))
        except ImportError as error:
            if "twinfold" in str(error):
                raise
    return found


def classes():
    return [
        item
        for module in modules()
        for item in vars(module).values()
        if inspect.isclass(item) and item.__module__ == module.__name__ and issubclass(item, eqx.Module)
    ]


def test_every_class_is_abstract_or_final():
    """Nothing subclasses a concrete class, and no concrete method is overridden."""
    found = classes()
    assert len(found) >= 20
    for cls in found:
        for base in cls.__mro__[1:]:
            if base not in found:
                continue
            assert inspect.isabstract(base) or base.__name__.startswith("Abstract"), f"{cls}: {base}"
            for name, method in vars(base).items():
                concrete = inspect.isfunction(method) and not getattr(method, "__isabstractmethod__", False)
                if concrete and not name.startswith("__"):
                    assert name not in vars(cls), f"{cls.__name__}.{name} overrides {base.__name__}.{name}"


def test_no_module_calls_super():
    """Only an exception may: it has no other way to set its message."""
    for module in modules():
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not any("Error" in ast.unparse(base) for base in node.bases):
                calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and inner.id == "super"]
                assert not calls, f"{module.__name__}.{node.name} calls super()"


def test_processes_are_started_by_the_executor_alone():
    """A study that wants several calls `map_tasks`: it has progress, resumes, and runs on a cluster."""
    root = Path(twinfold.__path__[0]).parent
    pools = ("ProcessPoolExecutor", "get_context", "Pool(", "multiprocessing.Process", "os.fork")
    sources = [path for folder in ("twinfold", "studies") for path in (root / folder).rglob("*.py")]
    assert len(sources) > 300
    for path in sources:
        found = [pool for pool in pools if pool in path.read_text(encoding="utf-8")]
        assert not found, f"{path}: {found}; see twinfold.parallel"
