"""The table of dependent constraints in every order, on a short orbit."""

import numpy as np
import pytest
from twinfold_studies.numerics.orbit import kepler
from twinfold_studies.numerics.row_order import INDEPENDENT, NAMES, ORDERS, invariants, order_rows


def test_three_of_the_four_invariants_are_independent():
    """A^2 = 1 + 2 E L^2, at any state of an orbit of semi-major axis 1; A_y = 0 with the pericentre on the x axis."""
    for x in kepler(np.linspace(0.3, 5, 4), 0.6):
        energy, momentum, ax, ay = np.asarray(invariants(x))
        np.testing.assert_allclose(ax**2 + ay**2, 1 + 2 * energy * momentum**2, atol=1e-12)
        np.testing.assert_allclose([energy, momentum, ax, ay], [-0.5, np.sqrt(1 - 0.6**2), 0.6, 0], atol=1e-12)


@pytest.mark.slow
def test_rows_do_not_depend_on_the_order():
    rows = order_rows(0.9, ORDERS[::8], periods=1, steps=100)
    assert len(rows) == 4
    assert rows[0]["constraints"] == ", ".join(NAMES[index] for index in INDEPENDENT)
    assert {row["adaptive_steps"] for row in rows} == {rows[0]["adaptive_steps"]}
    assert [row["redundant"] for row in rows] == [0, 1, 1, 1]
    assert all(row["flagged"] == 0 for row in rows)
    assert max(row["violation_max"] for row in rows) <= 2e-15
    assert max(row["distance"] for row in rows) <= 1e-8
    assert max(row["adaptive_error"] for row in rows) <= 1e-3
