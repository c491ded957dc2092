"""The local minimum of a projected oscillator: where it is, and that neither short windows nor free steps have it."""

import numpy as np
import pytest
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.store import Store
from twinfold_studies.experiments.trap import SCHEDULES, STIFFNESSES, WINDOWS, false_minima, landscape_rows


def test_schedules_have_the_budget_of_the_paper():
    """500 epochs in all, of 30 updates: a batch has the windows of one trajectory of 101 samples."""
    for project, stages in SCHEDULES.values():
        assert sum(stage.epochs for stage in stages) == 500
        for stage in stages:
            windows = 1 if stage.window is None else 100 // (stage.window - 1)
            assert getattr(stage, "batch_size", None) == windows
        assert project == "late" or stages[0].window is not None


@pytest.mark.slow
def test_only_projected_whole_trajectories_have_a_false_minimum(tmp_path):
    rows = landscape_rows(Job("mass_spring", "phrpinn_fast", "paper", quick=True), Store(tmp_path))
    assert len(rows) == 2 * len(WINDOWS) * len(STIFFNESSES)
    for samples in WINDOWS:
        assert false_minima(rows, samples, "unprojected") == []
        ((k, loss), *others) = false_minima(rows, samples, "projected") or [(np.nan, np.nan)]
        if samples == 101:
            # Half a turn in 10 s: the period of -k x on the circle is 2 pi / sqrt(k).
            assert not others
            assert 2 * np.pi / np.sqrt(k) == pytest.approx(20, rel=0.3)
            assert loss > 0.1
        elif samples <= 26:
            assert np.isnan(k)
    for kind in ("projected", "unprojected"):
        best = min((row for row in rows if (row["kind"], row["samples"]) == (kind, 101)), key=lambda row: row["loss"])
        assert best["k"] == pytest.approx(1.0, abs=1e-9)
        assert best["loss"] < 1e-8
