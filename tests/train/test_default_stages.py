"""The default stages: which methods, in which order, for measured and for hidden states."""

import jax.numpy as jnp
import numpy as np

import twinfold as tw
from twinfold.train import prepare

TS = np.linspace(0, 3, 31)
STATES = np.stack([np.cos(TS), -np.sin(TS)], axis=1)


def stages(hidden: bool, learned: bool, window: int | None = None) -> list[tuple[str, int | None]]:
    """The names and windows of the stages for an oscillator."""

    def swing(x, p):
        return jnp.stack([x[1], -p["k"] * x[0]])

    friction = tw.MLP(states=[1], adds_to=[1], width=3, depth=1, zero_last=True)
    twin = tw.Twin(
        tw.GreyBox(swing, friction) if learned else swing,
        params={"k": tw.Unknown(0.8, positive=True)},
        observe=(lambda x: x[:1]) if hidden else None,
        initial=(lambda y: jnp.append(y, 0.0)) if hidden else None,
    )
    data = tw.Dataset.from_arrays(TS, STATES[None, :, :1] if hidden else STATES[None])
    methods, problems, _ = prepare(twin, data, window=window)
    assert len(problems) == len(methods)
    return [(method.name.split()[0], method.window) for method in methods]


def test_measured_states_begin_with_short_windows():
    expected = [("Adam", 11), ("Levenberg-Marquardt", 11), ("Levenberg-Marquardt", None)]
    assert stages(hidden=False, learned=True) == expected
    assert stages(hidden=False, learned=False) == expected[1:]


def test_hidden_states_begin_with_levenberg_marquardt():
    descent = ("Levenberg-Marquardt", None)
    assert stages(hidden=True, learned=True) == [descent, ("Adam", None), descent]
    first, _, last = tw.train.default_methods(None)
    assert first is last  # compiled once


def test_windows_with_estimated_states_begin_with_adam():
    """The loss of short windows is smooth, and Levenberg-Marquardt would bend their states to a random network."""
    expected = [("Adam", None), ("Levenberg-Marquardt", None)]
    assert stages(hidden=True, learned=True, window=11) == expected
    assert stages(hidden=True, learned=False, window=11) == expected[1:]


def test_parameters_alone_of_a_twin_with_hidden_states_are_fitted_in_one_stage():
    assert stages(hidden=True, learned=False) == [("Levenberg-Marquardt", None)]
