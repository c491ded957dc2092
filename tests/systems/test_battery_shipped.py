"""The cell whose network is shipped: its data sheet, its network, and where it fades."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw


def test_the_data_sheet_says_what_was_trained_on_and_what_was_not():
    sheet = tw.systems.data_sheet("nasa_18650")
    held_out = {row["cell"] for row in sheet["held_out"]}
    assert len(sheet["trained_on"]["cells"]) == 22
    assert len(held_out) == 5
    assert not held_out & set(sheet["trained_on"]["cells"])
    assert all(row["twin"] < row["fitted_physics"] for row in sheet["held_out"])
    with pytest.raises(ValueError, match="Did you mean 'nasa_18650'"):
        tw.systems.fitted_cell("nasa_1865")


def test_the_network_has_its_weights_and_fades_outside_its_region():
    algebraic: Any = tw.systems.fitted_cell().algebraic
    part = algebraic.relations.positive
    plain = tw.systems.Interaction()
    coefficients = tw.systems.battery().parameters()["A_p"]

    def learned(current):
        at = (jnp.array(0.7), jnp.array(current), jnp.array(24.0), coefficients)
        return float(part(*at) - plain(*at))

    assert abs(learned(2.0)) > 1e-3
    assert learned(20.0) == 0.0


def test_each_cell_has_scalars_of_its_own_only_if_told():
    own = {each.own for each in tw.systems.fitted_cell(per_cell=True).unknowns()}
    shared = {each.own for each in tw.systems.fitted_cell().unknowns()}
    assert (own, shared) == ({True}, {False})
    assert np.isclose(tw.systems.fitted_cell().parameters()["q_max"], 1.1e4, rtol=0.1)
