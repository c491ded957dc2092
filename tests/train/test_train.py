"""Training: derivatives of the least-squares problem, recovery of truth, containment, resuming."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from twinfold_studies.bench.contenders import model_for
from twinfold_studies.systems.registry import system
from twinfold_studies.systems.truth import truth

import twinfold as tw
from twinfold._core import tree_structure_text
from twinfold.train import _run as run_module
from twinfold.train._gradient import Plateau
from twinfold.train._prepare import prepare

TIMES = np.linspace(0, 6, 41)


def oscillations(count: int, times: np.ndarray = TIMES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Initial states and exact trajectories of x'' = -x."""
    x0 = np.random.default_rng(seed).uniform(-1, 1, (count, 2))
    position = x0[:, :1] * np.cos(times) + x0[:, 1:] * np.sin(times)
    velocity = x0[:, 1:] * np.cos(times) - x0[:, :1] * np.sin(times)
    return x0, np.stack([position, velocity], -1)


def spring(width: int = 6, **twin) -> tw.Twin:
    """Kinematics known, force unknown."""
    force = tw.MLP(states=[0, 1], adds_to=[1], width=width, depth=1)
    return tw.Twin(tw.GreyBox(lambda x: jnp.array([x[1], 0.0]), force), **twin)


ENERGY = {"constraint": tw.Conserved(lambda x: 0.5 * x @ x), "projection": tw.Newton()}

CASES = {
    "whole runs": (spring(), {}, tw.Loss()),
    "projected": (spring(**ENERGY), {}, tw.Loss()),
    "pseudo-Huber, l2": (spring(), {}, tw.Loss(huber=0.1, l2=1e-3)),
    "soft constraint": (spring(constraint=ENERGY["constraint"]), {}, tw.Loss(constraint_penalty=0.3)),
    "shooting": (spring(**ENERGY), {"window": 11, "shooting": True}, tw.Loss()),
    "per run": (
        spring(
            params={"k": tw.Unknown(0.5, positive=True, per_run=True)},
            initial=tw.Unknown([0.3, 0.1], per_run=True),
            observe=lambda x, p: p["k"] * x[:1],
        ),
        {},
        tw.Loss(),
    ),
}


@pytest.mark.parametrize(
    "case",
    [case if case == "whole runs" else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
)
@pytest.mark.filterwarnings("ignore:The hidden state 1")  # rightly: without its network the spring does not accelerate
def test_sensitivities_are_the_derivative_of_the_residuals(case):
    twin, windows, loss = CASES[case]
    y = oscillations(3)[1]
    data = tw.Dataset.from_arrays(TIMES, y if twin.observe is None else y[..., :1])
    methods = (tw.LevenbergMarquardt(1),)
    _, (problem,), params = prepare(twin, data, seeds=(3,), loss=loss, methods=methods, **windows)
    start, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], params))
    windows = jnp.arange(problem.batch.size)

    def residuals(v):
        return problem.residuals(problem.estimate(unravel(v)), problem.batch, windows)[0]

    # Away from the start, where shooting states are continuous and penalties vanish.
    v = start + 0.1 * jax.random.normal(jax.random.key(0), start.shape)
    value, jacobian, failed = jax.jit(lambda v: problem.residuals_and_jacobian(unravel(v)))(v)
    expected_value, expected = jax.jit(lambda v: (residuals(v), jax.jacfwd(residuals)(v)))(v)
    assert int(failed) == 0
    np.testing.assert_allclose(value, expected_value, rtol=1e-10, atol=1e-13)
    assert jnp.linalg.norm(jacobian - expected) <= 1e-10 * jnp.linalg.norm(expected)
    gradient = jax.jit(jax.grad(lambda v: problem.training_loss(unravel(v))))(v)
    np.testing.assert_allclose(gradient, 2 * jacobian.T @ value, rtol=1e-8, atol=1e-11)


def test_pseudo_huber_is_quadratic_then_linear():
    loss = tw.Loss(huber=0.5)
    small, large = jnp.array(1e-5), jnp.array(1e4)
    assert abs(loss.robust(small) ** 2 / small**2 - 1) < 1e-8
    assert abs(loss.robust(large) ** 2 / (2 * 0.5 * large) - 1) < 1e-3


def test_plateau_halves_after_patience_without_gain():
    plateau = Plateau.init(jnp.zeros(1))
    scales = []
    for value in [1.0, 0.9, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.5]:
        plateau = plateau.after(jnp.array(value), 0.5, 2)
        scales.append(float(plateau.scale))
    assert scales == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25]


@pytest.mark.parametrize("solver", ["dense", "cg"])
def test_levenberg_marquardt_finds_physical_parameters(solver):
    """x'' = -k x - c x' with both unknown: a small least-squares problem with a known answer."""
    times, k, c = np.linspace(0, 6, 61), 1.7, 0.3
    damped, omega = c / 2, np.sqrt(k - c**2 / 4)
    position = np.exp(-damped * times) * (np.cos(omega * times) + damped / omega * np.sin(omega * times))
    velocity = -np.exp(-damped * times) * k / omega * np.sin(omega * times)
    data = tw.Dataset.from_arrays(times, np.stack([position, velocity], -1)[None])
    twin = tw.Twin(
        lambda x, p: jnp.array([x[1], -p["k"] * x[0] - p["c"] * x[1]]),
        params={"k": tw.Unknown(1.0, positive=True), "c": tw.Unknown(0.1, bounds=(0.0, 2.0))},
    )
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(15, solver=solver), progress=False)
    found = fit.twin.parameters()
    assert float(found["k"]) == pytest.approx(k, rel=1e-5)
    assert float(found["c"]) == pytest.approx(c, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bound"), [("mass_spring", 5e-4), ("two_body", 2e-2)])
def test_default_training_reaches(name, bound):
    """Median over 3 seeds of the MAE on unseen trajectories at the training horizon, PHRPINN robust."""
    chosen = system(name)
    times = chosen.dt * jnp.arange(round(chosen.horizon / chosen.dt) + 1)
    keys = jax.random.split(jax.random.key(5), 3)
    counts = (chosen.train, chosen.valid, 20)
    sets = [np.asarray(truth(chosen, chosen.draw(key, n), times)) for key, n in zip(keys, counts, strict=True)]
    train, valid = (tw.Dataset.from_arrays(np.asarray(times), y) for y in sets[:2])
    fit = tw.fit(model_for("phrpinn_robust", chosen, parameters=450), train, valid=valid, seeds=3, progress=False)
    unseen = jnp.asarray(sets[2])

    def mae(twin):
        run = jax.vmap(lambda x0: tw.rollout(twin.cell, x0, times, throw=False))
        out = run(unseen[:, 0])
        return jnp.mean(jnp.abs(out.xs - unseen)), jnp.sum(out.failed), jnp.max(out.relative_violation)

    errors, failed, violation = fit.map(mae)
    assert not fit.failures
    assert int(jnp.sum(failed)) == 0
    assert float(jnp.max(violation)) <= 1e-12
    assert float(jnp.median(errors)) <= bound


def estimated_starts(fit: tw.Fit, runs: int) -> np.ndarray:
    initial = fit.twin.initial
    assert isinstance(initial, tw.Unknown)
    return np.stack([np.asarray(initial.value(run)) for run in range(runs)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The hidden state 0, 1")  # rightly: without its network nothing moves
def test_hidden_velocity_and_initial_state_are_recovered():
    """Only the position is measured; the force law and both components of each x0 are unknown."""
    times = np.linspace(0, 10, 101)
    x0, y = oscillations(8, times)
    twin = spring(12, observe=lambda x: x[:1], initial=tw.Unknown([0.0, 0.0], per_run=True))
    fit = tw.fit(twin, tw.Dataset.from_arrays(times, y[..., :1]), seeds=2, progress=False)
    found = estimated_starts(fit, 8)
    assert np.abs(found - x0).max() < 2e-3
    simulated = fit.twin.simulate(x0[0], times)
    assert np.abs(np.asarray(simulated.xs) - y[0]).max() < 1e-2  # the velocity too, which was never seen


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The hidden state 0, 1")  # rightly: without its network nothing moves
def test_windows_with_estimated_states_recover_hidden_velocity():
    x0, y = oscillations(6, np.linspace(0, 8, 81))
    twin = spring(8, observe=lambda x: x[:1], initial=tw.Unknown([0.0, 0.0], per_run=True))
    data = tw.Dataset.from_arrays(np.linspace(0, 8, 81), y[..., :1])
    fit = tw.fit(twin, data, window=11, seeds=2, progress=False)
    found = estimated_starts(fit, 6)
    assert np.abs(found - x0).max() < 5e-3


@pytest.mark.slow
def test_shared_law_and_own_stiffness_are_recovered():
    """Springs of different stiffness share one unknown damping law, 0.3 v + 0.2 v |v|."""
    rng = np.random.default_rng(1)
    stiffness, x0 = rng.uniform(0.5, 2.5, 6), rng.uniform(-1.5, 1.5, (6, 2))
    times = jnp.linspace(0, 8, 81)

    def true(x, p):
        return jnp.array([x[1], -p["k"] * x[0] - 0.3 * x[1] - 0.2 * x[1] * jnp.abs(x[1])])

    cell = tw.Cell(true, integrator=tw.RK4(substeps=20))
    y = jax.vmap(lambda x, k: tw.rollout(cell, x, times, p={"k": k}).xs)(jnp.asarray(x0), jnp.asarray(stiffness))
    twin = tw.Twin(
        tw.GreyBox(lambda x, p: jnp.array([x[1], -p["k"] * x[0]]), tw.MLP(states=[1], adds_to=[1], width=12)),
        params={"k": tw.Unknown(1.0, positive=True, per_run=True)},
    )
    names = [f"spring {index}" for index in range(6)]
    fit = tw.fit(twin, tw.Dataset.from_arrays(np.asarray(times), np.asarray(y), names=names), seeds=2, progress=False)
    found = [float(fit.twin.parameters(name)["k"]) for name in names]
    np.testing.assert_allclose(found, stiffness, rtol=1e-3)
    speeds = jnp.linspace(-0.8, 0.8, 9)
    field = fit.twin.field
    assert isinstance(field, tw.GreyBox)
    learned = -jax.vmap(lambda v: field.residual(0.0, jnp.array([0.0, v]))[1])(speeds)
    np.testing.assert_allclose(learned, 0.3 * speeds + 0.2 * speeds * jnp.abs(speeds), atol=5e-3)


SHORT = {"method": (tw.Adam(30, learning_rate=1e-2, batch_size=2), tw.LevenbergMarquardt(5)), "progress": False}


def leaves(fit: tw.Fit) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(fit.map(lambda twin: eqx.filter(twin, eqx.is_inexact_array)))]


@pytest.mark.slow
def test_a_killed_fit_resumes_bit_for_bit(tmp_path, monkeypatch):
    data = tw.Dataset.from_arrays(TIMES, oscillations(5)[1])
    monkeypatch.setattr(run_module, "SAVE_EVERY", -1.0)
    whole = tw.fit(spring(), data, seeds=2, **SHORT)
    honest = run_module.run_epochs
    for kill_at in (2, 5):
        calls = []

        def dying(*arguments, calls=calls, kill_at=kill_at):
            calls.append(1)
            if len(calls) == kill_at:
                raise RuntimeError("killed")
            return honest(*arguments)

        monkeypatch.setattr(run_module, "run_epochs", dying)
        path = tmp_path / f"killed-{kill_at}.npz"
        with pytest.raises(RuntimeError, match="killed"):
            tw.fit(spring(), data, seeds=2, checkpoint=path, **SHORT)
        monkeypatch.setattr(run_module, "run_epochs", honest)
        resumed = tw.fit(spring(), data, seeds=2, checkpoint=path, **SHORT)
        for a, b in zip(leaves(whole), leaves(resumed), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(whole.history["loss"], resumed.history["loss"])


def test_a_checkpoint_is_recognised_by_another_process():
    twin = tw.Twin(jax.jit(lambda x: -x))
    assert "0x" in eqx.tree_pformat(twin)  # the compiled function, with its address in this process
    assert "0x" not in tree_structure_text(twin)


def test_a_checkpoint_of_another_fit_is_refused_and_kept(tmp_path):
    data = tw.Dataset.from_arrays(TIMES, oscillations(3)[1])
    path = tmp_path / "fit.npz"
    tw.fit(spring(), data, method=tw.Adam(2), checkpoint=path, progress=False)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="belongs to another fit"):
        tw.fit(spring(), data, method=tw.Adam(3), checkpoint=path, progress=False)
    assert path.read_bytes() == before
    path.write_bytes(before[:100])
    with pytest.raises(ValueError, match="cannot be read"):
        tw.fit(spring(), data, method=tw.Adam(2), checkpoint=path, progress=False)


def test_the_history_does_not_depend_on_the_speed_of_the_machine(monkeypatch):
    """A fit that converges ends with that step, however many steps one call of the compiled program may take."""
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})

    def run():
        return tw.fit(twin, data, method=tw.LevenbergMarquardt(40), progress=False).history["loss"]

    fast = run()
    monkeypatch.setattr(run_module, "CHUNK", 1)
    slow = run()
    assert len(slow) < 30
    np.testing.assert_array_equal(fast, slow)


def test_ctrl_c_returns_the_best_so_far(monkeypatch):
    data = tw.Dataset.from_arrays(TIMES, oscillations(3)[1])
    honest, calls = run_module.run_epochs, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return honest(*arguments)

    monkeypatch.setattr(run_module, "run_epochs", interrupted)
    fit = tw.fit(spring(), data, method=tw.Adam(10_000, learning_rate=1e-2), progress=False)
    assert fit.interrupted
    assert fit.scores[0] == pytest.approx(fit.history["score"].min())
    assert 0 < len(fit.history["loss"]) < 10_000


def test_ctrl_c_before_an_epoch_or_between_two_stages_changes_nothing(tmp_path, monkeypatch):
    data = tw.Dataset.from_arrays(TIMES[:3], np.exp(-TIMES[:3])[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(2.0)}, integrator=tw.Euler())
    methods = [tw.Adam(2), tw.Adam(1)]
    whole = tw.fit(twin, data, method=methods, progress=False)
    for function, interrupted_call in (("run_epochs", 1), ("begin_stage", 2)):
        honest, calls, path = getattr(run_module, function), [], tmp_path / f"{function}.npz"

        def interrupted(*arguments, honest=honest, calls=calls, interrupted_call=interrupted_call):
            calls.append(1)
            if len(calls) == interrupted_call:
                raise KeyboardInterrupt
            return honest(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(run_module, function, interrupted)
            assert tw.fit(twin, data, method=methods, checkpoint=path, progress=False).interrupted
        resumed = tw.fit(twin, data, method=methods, checkpoint=path, progress=False)
        for a, b in zip(leaves(whole), leaves(resumed), strict=True):
            np.testing.assert_array_equal(a, b)
        for name, values in whole.history.items():
            np.testing.assert_array_equal(values, resumed.history[name], strict=True)


@pytest.mark.slow
def test_seeds_side_by_side_equal_seeds_alone():
    data = tw.Dataset.from_arrays(TIMES, oscillations(4)[1])
    # Two steps: programs of other sizes round differently, and Levenberg-Marquardt multiplies that by up to 1e3 a step.
    methods = (tw.Adam(30, learning_rate=1e-2, batch_size=2), tw.LevenbergMarquardt(2))
    both = tw.fit(spring(), data, seeds=[3, 8], method=methods, progress=False)
    alone = tw.fit(spring(), data, seeds=[8], method=methods, progress=False)
    for a, b in zip(leaves(both), leaves(alone), strict=True):
        np.testing.assert_allclose(a[1], b[0], rtol=1e-9, atol=1e-12)
    assert not all(np.allclose(leaf[0], leaf[1]) for leaf in leaves(both))


def test_a_seed_that_goes_non_finite_is_stopped_and_leaves_the_others_alone(monkeypatch):
    data = tw.Dataset.from_arrays(TIMES, oscillations(3)[1])
    method = tw.Adam(20, learning_rate=1e-2)
    healthy = tw.fit(spring(), data, seeds=[0, 1], method=method, progress=False)
    gradient = tw.Gradient.epoch

    def poisoned(self, problem, params, state, key, trains, before):
        params, *rest = gradient(self, problem, params, state, key, trains, before)
        # Seed 1 is recognised by its data order key; its parameters break after the tenth epoch.
        broken = jnp.all(jax.random.key_data(key) == jax.random.key_data(jax.random.fold_in(jax.random.key(1), 10)))
        return jax.tree.map(lambda leaf: jnp.where(broken, jnp.nan, leaf), params), *rest

    monkeypatch.setattr(tw.Gradient, "epoch", poisoned)
    fit = tw.fit(spring(), data, seeds=[0, 1], method=tw.Adam(20, learning_rate=1.0001e-2), progress=False)
    assert list(fit.failures) == [1]
    assert "non-finite" in fit.failures[1]
    assert all(np.isfinite(leaf).all() for leaf in leaves(fit))
    for a, b in zip(leaves(healthy), leaves(fit), strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-3)
    assert fit.best == 0


def test_a_failed_trajectory_has_no_say_in_the_gradient():
    """x' = a (x + x^3) blows up in finite time for one of three runs; the others' gradient is that without it."""
    times = np.linspace(0, 1, 21)
    starts = np.array([[0.1], [50.0], [0.2]])
    y = starts[:, None, :] * np.ones((3, 21, 1))
    twin = tw.Twin(lambda x, p: p["a"] * x**3 + p["a"] * x, params={"a": tw.Unknown(1.0)})

    def gradient(rows):
        data = tw.Dataset.from_arrays(times, y[rows])
        methods = (tw.Adam(1),)
        _, (problem,), params = prepare(twin, data, loss=tw.Loss(scale="off"), methods=methods)
        params = jax.tree.map(lambda leaf: leaf[0], params)
        slope = jax.jit(jax.value_and_grad(problem.loss, has_aux=True))
        (_, metrics), gradient = slope(params, problem.batch, problem.windows)
        # The loss is a mean over measured values: undo it, so that sums can be compared.
        return int(metrics["failed"]), ravel_pytree(gradient)[0] * len(rows)

    failed, with_bad = gradient([0, 1, 2])
    none, without = gradient([0, 2])
    assert (failed, none) == (1, 0)
    np.testing.assert_allclose(with_bad, without, rtol=1e-13)


def test_validation_chooses_the_parameters():
    """Two runs to learn from, others to judge by: the score is the validation loss of the parameters returned."""
    x0, y = oscillations(6)
    train, valid = tw.Dataset.from_arrays(TIMES, y[:2]), tw.Dataset.from_arrays(TIMES, y[2:])
    fit = tw.fit(
        spring(), train, valid=valid, method=tw.Adam(60, learning_rate=3e-2), loss=tw.Loss(scale="off"), progress=False
    )
    predicted = np.stack([np.asarray(fit.twin.simulate(start, TIMES).xs) for start in x0[2:]])
    assert fit.scores[0] == pytest.approx(np.mean((predicted - y[2:]) ** 2), rel=1e-9)
    assert fit.scores[0] == pytest.approx(fit.history["score"].min(), rel=1e-12)


@pytest.mark.slow
def test_early_stopping_counts_from_the_best():
    data = tw.Dataset.from_arrays(TIMES, oscillations(2)[1])
    fit = tw.fit(spring(), data, method=tw.Adam(400, learning_rate=0.3, patience=5, plateau=None), progress=False)
    scores = fit.history["score"][:, 0]
    assert len(scores) < 400
    best = int(np.argmin(scores))
    assert np.all(scores[best + 6 :] == scores[-1]) or len(scores) - best <= 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "seeds"),
        ({"method": ()}, "method"),
        ({"window": 1000}, "window"),
        ({"twin": tw.Twin(lambda x: -x)}, "nothing to train"),
        ({"twin": spring(observe=lambda x: x[:1])}, "initial"),
        ({"twin": tw.Twin(tw.BlackBox(tw.MLP(adds_to=[5])))}, "no state 5"),
        ({"twin": spring(observe=lambda x: x[:1], initial=lambda y: y)}, "outputs"),
    ],
)
def test_mistakes_are_named_before_anything_runs(arguments, message):
    data = tw.Dataset.from_arrays(TIMES, oscillations(2)[1])
    twin = arguments.pop("twin", spring())
    with pytest.raises(ValueError, match=message):
        tw.fit(twin, data, progress=False, **arguments)


def test_own_parameters_of_an_unseen_validation_run_are_estimated():
    rates = np.array([0.3, 0.5, 0.4])
    y = np.exp(-rates[:, None] * TIMES)[..., None]
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True, per_run=True)})
    train = tw.Dataset.from_arrays(TIMES, y[:2], names=["a", "b"])
    valid = tw.Dataset.from_arrays(TIMES, y[2:], names=["c"])
    fit = tw.fit(twin, train, valid=valid, method=tw.LevenbergMarquardt(15), progress=False)
    np.testing.assert_allclose([fit.twin.parameters(run)["k"] for run in "ab"], rates[:2], rtol=1e-4)
    assert fit.scores[0] < 1e-6
