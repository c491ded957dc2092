"""Time grows linearly with the number of runs."""

import copy
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from twinfold.data import Dataset, Run

ROOT = Path(__file__).parents[2]


def test_many_runs_are_compared_in_linear_time():
    """Comparing each of the names with every other one takes 15 s."""
    first, runs = Run("first", np.arange(2.0), np.arange(2.0)), []
    for index in range(20_000):
        runs.append(copy.copy(first))
        object.__setattr__(runs[-1], "name", f"run {index}")
    began = time.process_time()
    data = Dataset(tuple(runs), ("y",))
    train, valid = data.split(0.3)
    assert time.process_time() - began < 5
    assert set(train.names) | set(valid.names) == set(data.names)
    with pytest.raises(ValueError, match="'run 7' names two runs"):
        Dataset((*runs, runs[7]), ("y",))


@pytest.mark.slow
def test_the_benchmark_of_loading_finds_linear_growth(tmp_path):
    # In a process of its own: the suite checks the types of every call.
    options = ["--sizes", "1000", "20000", "--rounds", "2", "--out", str(tmp_path / "loading.json")]
    subprocess.run([sys.executable, "-m", "benchmarks.loading", *options], cwd=ROOT, check=True)
    found = json.loads((tmp_path / "loading.json").read_text())
    for step in ("load", "batch", "windows", "split", "fingerprint"):
        assert found[step]["exponent"] < 1.25, step
