"""Loads of a workspace: constant inputs, the end of a load, its switches, and what is said about them."""

import numpy as np
import pytest

from twinfold.data import Dataset, Run
from twinfold.workspace._config import DataConfig
from twinfold.workspace._loads import prepare_loads


def log():
    w = np.array([[0.0, 24], [0, 25], [2, 26], [2, 27], [0, 28]])
    run = Run("a", np.array([0.0, 10, 20.7, 30.7, 40.7]), y=np.array([4.2, 4.2, 4.0, 3.9, 4.1]), w=w)
    return Dataset((run,), ("V",), ("I", "ambient"))


def config(**settings):
    return DataConfig(files=("a.csv",), outputs=("V",), **settings)


def test_a_load_is_prepared_and_each_change_is_said():
    data, notes = prepare_loads(log(), config(switches={"I": 0.1}, tail={"I": 0.1}, constant=("ambient",)))
    run = data.runs[0]
    np.testing.assert_allclose(run.ts, [0, 10, 10.7, 20.7, 30.7])
    np.testing.assert_array_equal(run.w, [[0, 24], [0, 24], [2, 24], [2, 24], [2, 24]])
    assert np.isnan(run.y[2, 0])
    assert "1 row left out" in notes[0]
    assert "1 row inserted" in notes[1]


def test_nothing_is_changed_unless_told_and_mistakes_name_the_setting():
    data, notes = prepare_loads(log(), config())
    assert data.fingerprint() == log().fingerprint()
    assert notes == ()
    with pytest.raises(ValueError, match=r"data\.tail: .*'J'"):
        prepare_loads(log(), config(tail={"J": 0.1}))
    with pytest.raises(ValueError, match=r"data\.constant: there is no input"):
        prepare_loads(log(), config(constant=("ambiant",)))
