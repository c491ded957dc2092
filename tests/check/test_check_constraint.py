"""The examination before any training: constraints and identifiability, against planted mistakes."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.check_cases import NET, TS, known, look, pendulum, rod, spring, spring_data, swinging

from twinfold.check import examine
from twinfold.check._identifiability import check_identifiability, describe_direction
from twinfold.check._invariant import MeasuredConstraint, check_invariants, measured_slack
from twinfold.check._manifold import check_initial_states, check_rank
from twinfold.data._dataset import Dataset
from twinfold.model._constraint.base import Conserved, Constraint, Stack
from twinfold.model._constraint.bounds import Bounds
from twinfold.model._fields import GreyBox
from twinfold.model._learned.mlp import MLP
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown
from twinfold.numerics._project.tangent import Tangent


def energy(x):
    return 0.5 * (x[2] ** 2 + x[3] ** 2) + 9.81 * x[1]


@pytest.fixture(scope="module")
def swings():
    return pendulum()


@pytest.fixture(scope="module")
def stacked(swings):
    """Five constraints at once: a wrong length, the right one, the energy, a first guess of the length, bounds."""
    guessed = Constraint(lambda x, p: x[0] ** 2 + x[1] ** 2 - p["L"] ** 2)
    bounds = Bounds(lambda x: x[:2], lower=-2.0, upper=0.5)
    constraint = Stack([rod(1.1), rod(1.0), Conserved(energy), guessed, bounds])
    params = {"L": Unknown(1.1), "a": Unknown(0.5, positive=True), "b": Unknown(2.0, positive=True)}
    return examine(Twin(swinging, params=params, constraint=constraint), swings)


def test_a_constraint_that_the_data_contradict_is_a_problem_with_numbers(stacked):
    found = stacked.select("invariant")[0]
    assert found.severity == "problem"
    assert "contradict" in found.message
    assert found.detail["excess"] == pytest.approx(1.1**2 - 1, rel=0.01)
    assert found.detail["relative"] == pytest.approx(0.21 / 2, rel=0.02)
    assert found.detail["noise"] == pytest.approx(0.004, rel=0.3)
    assert stacked.worst == "problem"
    assert "invariant" in stacked.figures


def test_constraints_that_hold_but_for_noise(stacked):
    length, conserved = stacked.select("invariant")[1:3]
    assert length.severity == conserved.severity == "ok"
    assert (length.detail["conserved"], conserved.detail["conserved"]) == (False, True)
    assert length.detail["noise"] == pytest.approx(0.004, rel=0.3)


def test_a_first_guess_in_the_constraint_is_only_a_warning_and_bounds_are_looked_at(stacked, swings):
    guessed, px, py = stacked.select("invariant")[3:]
    assert guessed.severity == "warning"
    assert "first guess" in guessed.message
    assert px.severity == "problem"
    assert px.detail["share"] == pytest.approx(np.mean([run.y[:, 0] > 0.516 for run in swings.runs]), abs=0.01)
    assert py.severity == "ok"


def test_redundant_constraints(stacked):
    found = stacked.select("rank")[0]
    assert found.severity == "warning"
    assert (found.detail["redundant"], found.detail["among"]) == (2, ["g0", "g1", "g3"])


def test_an_initial_state_off_the_manifold_by_a_known_amount():
    start = np.array([1.02, 0.0])
    data = Dataset.from_arrays(TS, [np.stack([np.cos(TS), np.sin(TS)], 1)] * 2, x0=[start, [1.0, 0.0]])
    twin = Twin(lambda x: jnp.stack([-x[1], x[0]]), constraint=Constraint(lambda x: x @ x - 1), projection=Tangent())
    (found,) = look(check_initial_states, twin, data)
    assert found.severity == "warning"
    wanted = (1.02**2 - 1) / (2 * 1.02**2)
    assert found.detail["relative"] == {"0": pytest.approx(wanted, rel=1e-9), "1": 0.0}


@pytest.mark.slow
def test_much_noise_hides_nothing_and_invents_nothing():
    noisy = pendulum(noise=0.05)
    right, wrong = look(check_invariants, Twin(swinging, constraint=Stack([rod(1.0), rod(1.1)])), noisy)
    assert right.severity == "ok"
    assert right.detail["noise"] == pytest.approx(0.05, rel=0.3)
    assert wrong.severity == "problem"


@pytest.mark.parametrize(("conserved", "noise", "slack"), [(False, 0.02, 0.05), (True, 0.02, 0.05), (False, 0.1, 0.1)])
def test_the_slack_has_the_error_that_it_is_said_to_have(conserved, noise, slack):
    """Over many data sets: the mean is right, and the estimate is off by its standard error."""
    rng, ts = np.random.default_rng(0), np.linspace(0, 20, 400)
    wave = np.sqrt(2) * slack * np.sin(ts * np.pi)  # of ten whole periods
    found = []
    for _ in range(60):
        runs = [
            MeasuredConstraint("a", ts, wave + noise * rng.normal(size=ts.size), 1.0, noise * (1 + 0.06 * rng.normal()))
            for _ in range(2)
        ]
        found.append(measured_slack(runs, conserved))
    values, errors = np.array(found).T
    assert abs(values.mean() - slack) < 4 * values.std() / np.sqrt(60) + 1e-3 * slack
    assert 0.7 < values.std() / errors.mean() < 1.4


def test_no_slack_is_claimed_without_an_error_where_the_noise_is_unknown():
    short = MeasuredConstraint("a", np.arange(4.0), np.full(4, 0.3), 1.0, np.nan)
    slack, error = measured_slack([short], conserved=False)
    assert slack == pytest.approx(0.3)
    assert np.isnan(error)


@pytest.mark.slow
def test_an_energy_that_is_lost_in_the_data():
    lost = Twin(known, params={"k": 2.0}, constraint=Conserved(lambda x: 0.5 * x[1] ** 2 + x[0] ** 2))
    (found,) = look(check_invariants, lost, spring_data(*spring()))
    assert found.severity == "problem"


@pytest.mark.slow
def test_what_is_not_measured_cannot_be_told_and_what_is_can(swings):
    positions = Dataset.from_arrays(TS, [run.y[:, :2] for run in swings.runs], x0=[run.y[0] for run in swings.runs])
    speed = Constraint(lambda x: x[0] * x[2] + x[1] * x[3])
    twin = Twin(swinging, observe=lambda x: x[:2], constraint=Stack([rod(1.1), speed]))
    length, velocity = look(check_invariants, twin, positions, states=("px", "py", "vx", "vy"))
    assert length.severity == "problem"
    assert velocity.severity == "note"
    assert "vx, vy, which are not measured" in velocity.message


@pytest.mark.slow
def test_conditioning_and_singular_points(swings):
    near = Stack([rod(1.0), Constraint(lambda x: x[0] ** 2 + x[1] ** 2 + 5e-7 * x[2])])
    (ill,) = look(check_rank, Twin(swinging, constraint=near), swings)
    assert ill.kind == "conditioning"
    assert ill.detail["condition"] > 1e6
    ts = np.linspace(-1, 1, 21)
    still = Dataset.from_arrays(ts, [np.stack([ts, ts], 1)])
    cross = Twin(lambda x: jnp.ones_like(x), constraint=Constraint(lambda x: x[0] * x[1] - x[0] ** 2))
    (point,) = look(check_rank, cross, still)
    assert point.severity == "problem"
    assert point.detail["t"] == pytest.approx(0.0, abs=1e-12)


# Identifiability


def test_a_pair_of_which_only_the_product_matters_and_one_that_does_nothing(stacked):
    dead, pair = stacked.select("identify")
    assert dead.detail["no_effect"] == ["L"]  # it is in the constraint alone, which is not projected onto
    assert pair.severity == "warning"
    assert pair.detail["parameters"] == ["a", "b"]
    assert "only the product a * b matters" in pair.message


def test_combinations_in_words():
    both = {"a": True, "b": True}
    assert describe_direction({"a": 0.5, "b": 0.5}, both) == "only the ratio a / b matters"
    assert describe_direction({"a": -1.0, "b": 2.0}, both) == "only the product a^2 * b matters"
    assert "a by +10.5 %" in describe_direction({"a": 1.0, "b": 0.37}, both)
    assert "b by -0.05" in describe_direction({"a": 1.0, "b": -0.5}, {"a": True, "b": False})


@pytest.mark.slow
def test_a_parameter_that_the_residual_can_imitate_and_outputs_that_nothing_sees():
    data = spring_data(*spring())
    sees_x = GreyBox(known, MLP(states=[0, 1], adds_to=[1], **NET))
    found = look(check_identifiability, Twin(sees_x, params={"k": Unknown(1.8, positive=True)}), data)
    assert any("k" in each.detail.get("inflation", {}) for each in found)
    # Only x0 is measured, and x1 never acts on it.
    apart = Twin(
        GreyBox(lambda x: -x, MLP(states=[0], adds_to=[0, 1], **NET)),
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([y[0], 0.0]),
    )
    lone = Dataset.from_arrays(TS, [np.exp(-TS)[:, None]])
    found = look(check_identifiability, apart, lone, states=("seen", "hidden"))
    assert [each.detail["residual"] for each in found] == [["hidden"], ["seen"]]
    # Position alone is measured: a push on the velocity and one on the position do much the same.
    both = Twin(
        GreyBox(lambda x: jnp.stack([x[1], -x[0]]), MLP(states=[0], adds_to=[0, 1], **NET)),
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([y[0], 0.0]),
    )
    noisy = np.cos(TS) + 0.5 * np.random.default_rng(0).normal(size=len(TS))
    short = Dataset.from_arrays(TS[:25], [noisy[:25, None]])
    found = look(check_identifiability, both, short, states=("q", "v"))
    assert any(
        each.severity == "warning" and "q" in each.detail["residual"] + each.detail.get("beside", []) for each in found
    )


@pytest.mark.slow
def test_parameters_of_single_runs_have_names():
    twin = Twin(
        lambda x, p: -p["c"] * x,
        params={"c": Unknown([1.0, 2.0], per_run=True)},
        observe=lambda x: x[:1] * x[1:],
        initial=lambda y: jnp.stack([y[0], 1.0]),
    )
    data = Dataset.from_arrays(TS, [np.exp(-3 * TS)[:, None]] * 2, names=["a", "b"])
    found = look(check_identifiability, twin, data)
    pairs = [each.detail["parameters"] for each in found if "parameters" in each.detail]
    assert sorted(pairs) == [["c[0] of a", "c[1] of a"], ["c[0] of b", "c[1] of b"]]
