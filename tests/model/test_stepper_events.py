"""A stepper with events: the same numbers as a simulation, across a saved state."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw

TANK = tw.Twin(
    lambda x, w, p: w - jnp.where(p["mode"] == 1, 0.8, 0.0),
    params={"mode": 0},
    events=[
        tw.Event(lambda x: x[0] - 1, "rising", mode=1, name="open"),
        tw.Event(lambda x: x[0] - 0.5, mode=0, name="close"),
        tw.Event(lambda x: x[0] - 2, "rising", stop=True, name="overflow"),
    ],
)
TS = np.linspace(0, 6, 31)
W = np.where(TS < 4, 0.3, 3.0)[:, None]


@pytest.mark.slow
def test_a_stepper_sees_the_events_of_a_simulation():
    """Filled at 0.3, emptied at -0.5: open at 10/3, then flooded from 4 on, and stopped."""
    whole = TANK.simulate([0.0], TS, W)
    assert whole.events is not None
    assert [row["event"] for row in whole.events.table()] == ["open", "open", "overflow"]
    flooded = 4 + np.array([0.5 * (4 - 10 / 3), 1 + 0.5 * (4 - 10 / 3)]) / 2.2
    np.testing.assert_allclose(whole.events.first(3).times, [10 / 3, *flooded], rtol=1e-13)
    stepper, outputs = TANK.stepper([0.0]), []
    for t, w in zip(TS[:18], W[:18], strict=True):
        outputs.append(stepper.step(t, w))
    assert [output.events for output in outputs if output.events] == [((pytest.approx(10 / 3), "open"),)]
    np.testing.assert_allclose([output.x for output in outputs], whole.xs[:18], rtol=0, atol=1e-15)
    ahead = stepper.ahead(TS[18:], W[18:])
    np.testing.assert_allclose(ahead.xs, whole.xs[18:], rtol=0, atol=1e-15)
    again = TANK.stepper([0.0])
    again.restore(json.loads(json.dumps(stepper.state())))
    outputs = [again.step(TS[k], W[k]) for k in range(18, 31)]
    np.testing.assert_allclose([output.x for output in outputs], whole.xs[18:], rtol=0, atol=1e-15)
    assert outputs[-1].stopped
    assert outputs[-1].ok
    with pytest.raises(ValueError, match="ended this run"):
        again.ahead([7.0], [[0.0]])
    with pytest.raises(ValueError, match="other events"):
        tw.Twin(lambda x, w: w - x).stepper([0.0]).restore(stepper.state())
