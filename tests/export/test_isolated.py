"""Compiled code that crashes, loops or lies: the exporting process survives and reports a failed check."""

import subprocess
import sys
import time

import numpy as np
import pytest
from support.exports import lag, needs_compiler

import twinfold.export._c.export
import twinfold.export._fmu.export
from twinfold.export import _isolated, export_c, export_fmu
from twinfold.export._c.compiled import build
from twinfold.export._isolated import IsolatedError, run_isolated
from twinfold.export._reference import build_reference

CHILD = """
import os, sys, time
import numpy as np

def double(*, factor, x):
    return {"y": factor * x}

def which(**_):
    own = os.path.samefile(".", os.environ["TMPDIR"])
    return {"found": np.array(["jax" in sys.modules, own], int)}

def raising(**_):
    print("noise", file=sys.stderr)
    raise ValueError("no such thing\\x1b[2J\\n")

def strings(**_):
    return {"y": np.array(["text"])}

def leaving_a_child(*, path):
    import fcntl
    file = open(path, "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    if os.fork() == 0:
        time.sleep(60)
    return {}
"""
HOSTILE = {
    "crash": ("raise(11);", "ended with signal 11 (Segmentation fault)"),
    "abort": ("abort();", "ended with signal 6"),
    "loop": ("for (;;) ;", "did not end within 1 s"),
    "exit": ("_exit(0);", "ended without results"),
    "exit code": ("_exit(3);", "ended with exit code 3"),
    "nothing": ("", "ended with exit code 1: AttributeError"),
}


@pytest.fixture(scope="module")
def reference():
    twin, spec = lag()
    return build_reference(twin, spec, samples=5, horizon=5)


@pytest.fixture
def child(tmp_path, monkeypatch):
    (tmp_path / "child_module.py").write_text(CHILD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_isolated, "TIME_LIMIT", 20.0)


@needs_compiler
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_library_fails_the_check_only(kind, reference, tmp_path, monkeypatch):
    """Its constructor runs when it is loaded. The files stay written, and the report says what happened."""
    code, message = HOSTILE[kind]
    source = tmp_path / "hostile.c"
    source.write_text(
        "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        f"__attribute__((constructor)) static void hostile(void) {{ {code} }}\n"
    )
    monkeypatch.setattr(_isolated, "TIME_LIMIT", 1.0 if kind == "loop" else 20.0)
    twin, spec = lag()
    for module, export in ((twinfold.export._c.export, export_c), (twinfold.export._fmu.export, export_fmu)):
        monkeypatch.setattr(module, "build", lambda compiler, sources, library: build(compiler, [source], library))
        report = export(twin, spec, tmp_path / "out", reference=reference)
        assert not report.checked
        assert message in report.messages[-1]
        assert "FAILED" in report.messages[-1]
        assert report.files
        assert all(file.exists() for file in report.files)


def test_arrays_go_to_another_process_and_back(child):
    x = np.arange(6.0).reshape(2, 3)
    results = run_isolated("child_module:double", {"factor": 2}, {"x": x}, {"y": (2, None)})
    np.testing.assert_array_equal(results["y"], 2 * x)


def test_the_other_process_is_light_and_cleans_up(child):
    """It does not import JAX, and its temporary files go with its folder."""
    assert run_isolated("child_module:which", {}, {}, {"found": (2,)})["found"].tolist() == [0, 1]
    modules = "twinfold.export._isolated, twinfold.export._c.compiled, twinfold.export._fmu.simulation"
    subprocess.run([sys.executable, "-c", f"import sys, {modules}; sys.exit('jax' in sys.modules)"], check=True)


@pytest.mark.parametrize(
    ("function", "shapes", "message"),
    [
        ("raising", {}, r"exit code 1: ValueError: no such thing\[2J\.$"),
        ("missing", {}, "exit code 1: AttributeError"),
        ("double", {"y": (3, 3)}, "other results than expected"),
        ("double", {"z": (2, 3)}, "other results than expected"),
        ("strings", {"y": (1,)}, "without results"),
    ],
)
def test_whatever_else_comes_back_is_an_error(function, shapes, message, child):
    settings, arrays = ({"factor": 2}, {"x": np.ones((2, 3))}) if function == "double" else ({}, {})
    with pytest.raises(IsolatedError, match=message):
        run_isolated(f"child_module:{function}", settings, arrays, shapes)


def test_what_the_other_process_started_ends_with_it(child, tmp_path):
    """Its child holds a lock for a minute, unless it is ended."""
    fcntl = pytest.importorskip("fcntl")
    run_isolated("child_module:leaving_a_child", {"path": str(tmp_path / "lock")}, {}, {})
    begin = time.monotonic()
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    assert time.monotonic() - begin < 10


def test_a_missing_interpreter_is_reported(child, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(IsolatedError, match="could not be started"):
        run_isolated("child_module:double", {"factor": 2}, {"x": np.ones(1)}, {"y": (1,)})
