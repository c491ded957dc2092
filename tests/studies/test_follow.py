"""The experiment `follow`: plants that obey the model of the filter, and the bounds of averages."""

import numpy as np
import pytest
from twinfold_studies.follow.consistency import bounds, exact_results
from twinfold_studies.follow.plants import START, record
from twinfold_studies.systems import system


def test_bounds_of_an_average():
    """Of many values the average of chi-squared with f degrees of freedom is nearly normal: f +- 3.29 sqrt(2 f / n)."""
    low, high = bounds(3, 100_000)
    np.testing.assert_allclose([low, high], 3 + 3.2905 * np.sqrt(6 / 100_000) * np.array([-1, 1]), atol=2e-4)


@pytest.mark.slow
def test_a_plant_stays_on_its_manifold_and_the_filter_is_consistent():
    plant = record("rigid_body", 100, 15)
    np.testing.assert_allclose(0.5 * np.sum(plant.x**2, axis=-1), np.tile(plant.level, (1, 15)), atol=1e-12)
    # The start deviates in the two tangent directions.
    away = np.sum((plant.x[:, 0] - plant.x0) ** 2, axis=1).mean() / START**2
    assert 2 - 5 * np.sqrt(4 / 100) < away < 2 + 5 * np.sqrt(4 / 100)
    assert system("rigid_body").dt * 14 == plant.ts[-1]
    found = exact_results("rigid_body", 100, 15)
    assert found["exact"]["consistent"]
    assert found["exact"]["freedom"] == 2
    assert found["exact"]["violation"] < 1e-12
    assert found["exact"]["rmse"] < found["unconstrained"]["rmse"]
