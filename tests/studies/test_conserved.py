"""Which conserved quantities to add: what the documentation says of a spherical pendulum."""

import pytest
from twinfold_studies.experiments.conserved import ROD, WITH_BOTH, WITH_ENERGY, measured_rows


@pytest.mark.slow
def test_energy_is_held_at_the_expense_of_angular_momentum():
    wide, planar = (
        {row["constraints"]: row for row in measured_rows(start, 0.05)} for start in ("wide", "nearly planar")
    )
    assert not any(row["failed"] for row in (*wide.values(), *planar.values()))
    assert wide[WITH_ENERGY]["energy_drift"] <= 1e-14 < 1e-3 < wide[ROD]["energy_drift"]
    assert wide[WITH_ENERGY]["momentum_drift"] > 3 * wide[ROD]["momentum_drift"]
    assert wide[WITH_ENERGY]["error"] > 3 * wide[ROD]["error"]
    assert wide[WITH_BOTH]["error"] < 0.2 * wide[ROD]["error"]
    assert planar[WITH_ENERGY]["error"] < 0.2 * planar[ROD]["error"]
