"""The cost of projections: rows of two machines in one table, and weights from random to trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.bench.cache import cached, stored
from twinfold_studies.bench.experiment import Options
from twinfold_studies.bench.store import Store
from twinfold_studies.experiments import cost
from twinfold_studies.experiments.cost import DERIVATIVES, PROJECTIONS, STATES, Bench, analyse, names_of

from twinfold.numerics import Adaptive

ADJOINTS = [
    {"dt": 0.1, "discrete_error": 1e-3, "continuous_error": 2e-3, "between_them": 1e-3, "interpolant_violation": 1e-4}
]


def row(system, name, backend, state, ratio):
    measured = {"time_ratio": ratio, "violation_max": 1e-16, "failed": 0, "memory_mb": 1.0}
    return {"system": system, "projection": name, "backend": backend, "state": state, **measured}


def test_what_was_stored_is_found_under_the_same_settings_only(tmp_path):
    store = Store(tmp_path)
    assert stored(store, "name", [1]) is None
    cached(store, "name", [1], lambda: [2.5])
    assert stored(store, "name", [1]) == [2.5]
    assert stored(store, "name", [2]) is None
    assert stored(store, "other", [1]) is None


def test_rows_of_another_machine_join_those_of_this_one(tmp_path, monkeypatch):
    """Files of a GPU that were copied into the folder; nothing of it is computed here."""
    asked = []

    def measured(ratio):
        def rows(self, name, backend):
            asked.append((name, backend))
            return [row(self.system, name, backend, state, ratio) for state in STATES]

        return rows

    monkeypatch.setattr(cost, "adjoints", lambda: ADJOINTS)
    options, there, here = Options(("mass_spring", "two_body")), Store(tmp_path / "gpu"), Store(tmp_path / "cpu")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(Bench, "rows", measured(3.0))
    analyse(there, options, lambda line: None)
    (here.folder / "analysis").mkdir()
    for file in (there.folder / "analysis").glob("cost-*-gpu-*.json"):
        (here.folder / "analysis" / file.name).write_bytes(file.read_bytes())
    asked.clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(Bench, "rows", measured(1.5))
    findings = analyse(here, options, lambda line: None)
    assert {backend for _, backend in asked} == {"cpu"}
    rows = findings.tables[0].rows
    programs = len(PROJECTIONS) + len(PROJECTIONS) + len(DERIVATIVES)
    assert len(rows) == 2 * programs * len(STATES)
    assert {each["backend"] for each in rows if each["time_ratio"] == 3.0} == {"gpu"}
    assert any(line.startswith("GPU, robust: untrained 3.00 to 3.00") for line in findings.sentences)
    assert any(line.startswith("CPU, adaptive: untrained 1.50 to 1.50") for line in findings.sentences)


def test_every_kind_of_projection_is_measured_on_every_system():
    assert any(isinstance(each, Adaptive) for each in PROJECTIONS.values())
    assert all(set(PROJECTIONS) <= set(names_of(system, False)) for system in ("mass_spring", "two_body"))
    assert set(names_of("two_body", False)) == set(PROJECTIONS) | set(DERIVATIVES)


@pytest.mark.slow
def test_a_training_step_from_random_to_trained(tmp_path):
    bench = Bench("mass_spring", Store(tmp_path), quick=True)
    measured = [each for name in ("none", "robust") for each in bench.rows(name, "cpu")]
    rows = {(each["projection"], each["state"]): each for each in measured}
    for state in STATES:
        assert rows["robust", state]["violation_max"] <= 1e-14
        assert rows["none", state]["violation_max"] > 1e-3
        assert rows["robust", state]["gradient_finite"]
        assert rows["robust", state]["failed"] == 0
        expected = rows["robust", state]["step_ms"] / rows["robust", state]["none_ms"]
        assert rows["robust", state]["time_ratio"] == pytest.approx(expected)
    weights = bench.weights
    np.testing.assert_allclose(weights["half"], (weights["untrained"] + weights["trained"]) / 2)
    assert jnp.max(jnp.abs(weights["trained"] - weights["untrained"])) > 1e-3
    # The gradient of the program is that of the loss, by differences along one direction.
    run, direction = bench.program("robust").run, jnp.cos(jnp.arange(weights["half"].size)).reshape(5, -1)
    gradient = jnp.sum(run(weights["half"])[1] * direction)
    assert abs(gradient) > 0.01
    ahead, behind = (run(weights["half"] + h * direction)[0][0] for h in (1e-5, -1e-5))
    np.testing.assert_allclose((ahead - behind) / 2e-5, gradient, rtol=1e-6)
