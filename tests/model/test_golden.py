"""Model files of earlier releases load with the current code and predict the same."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import twinfold as tw
from twinfold.io._model_info import FORMAT, PATH_CHANGES

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.rglob("*.twin"))
CASES = [
    pytest.param(
        path,
        id=f"{path.parent.name}-{path.stem}",
        marks=pytest.mark.slow if path.parent.name == tw.__version__ else (),
    )
    for path in FILES
]


def _build(name: str) -> Callable[[], tw.Twin]:
    """The function that builds a golden twin."""
    return runpy.run_path(str(GOLDEN / "systems" / f"{name}.py"))["twin"]


@pytest.mark.parametrize("path", CASES)
def test_a_model_file_of_an_earlier_release_predicts_the_same(path):
    twin = _build(path.stem)()
    expected = json.loads(path.with_suffix(".json").read_text())
    x0, ts, w = (expected[name] and np.array(expected[name]) for name in ("x0", "ts", "w"))
    simulation = tw.load_model(path, twin).simulate(x0, ts, w, run=expected.get("run"))
    np.testing.assert_allclose(simulation.ys, expected["ys"], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(simulation.xs, expected["xs"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("path", CASES)
def test_the_metadata_of_a_model_file_of_an_earlier_release_are_read(path):
    info = tw.read_info(path)
    expected = json.loads(path.with_suffix(".json").read_text())
    assert len(info.states) == len(expected["xs"][0])
    assert len(info.outputs) == len(expected["ys"][0])
    assert info.dt == pytest.approx(expected["ts"][1], rel=1e-9)
    assert list(info.x0_example) == expected["x0"]


def test_a_loaded_file_can_be_saved_in_the_current_format(tmp_path):
    path = GOLDEN / "0.1.0" / "parts.twin"
    build = _build("parts")
    loaded = tw.load_model(path, build())
    tw.save_model(tmp_path / "parts.twin", loaded, about=tw.read_info(path))
    with np.load(tmp_path / "parts.twin") as arrays:
        assert json.loads(arrays["header"].tobytes())["format"] == FORMAT
    again = tw.load_model(tmp_path / "parts.twin", build())
    assert again.parameters("r1").keys() == loaded.parameters("r1").keys()
    for name, value in loaded.parameters("r1").items():
        np.testing.assert_array_equal(again.parameters("r1")[name], value)


def test_every_format_and_this_version_have_golden_files():
    formats = set()
    for path in FILES:
        with np.load(path) as arrays:
            formats.add(json.loads(arrays["header"].tobytes())["format"])
    assert formats == {*PATH_CHANGES, FORMAT}
    assert GOLDEN / tw.__version__ in {path.parent for path in FILES}, "run python tests/model/golden/write.py"
