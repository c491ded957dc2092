"""Parameters that belong to a group of runs: a cell's own capacity, seen in several of its cycles."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw

TIMES = 0.1 * np.arange(41)
STIFFNESS = {"soft": 1.0, "hard": 4.0, "new": 2.5}


def runs(groups, starts):
    ys = [
        np.stack([a * np.cos(omega * TIMES), -a * omega * np.sin(omega * TIMES)], axis=1)
        for a, omega in ((start, np.sqrt(STIFFNESS[group])) for group, start in zip(groups, starts, strict=True))
    ]
    names = [f"{group}/{start}" for group, start in zip(groups, starts, strict=True)]
    return tw.Dataset.from_arrays(TIMES, ys, names=names, groups=groups)


def spring(**unknown):
    return tw.Twin(
        lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]), params={"k": tw.Unknown(2.0, positive=True, **unknown)}
    )


def fitted(**unknown):
    data = runs(["soft", "hard", "soft"], [0.5, 0.7, 1.0])
    return tw.fit(spring(**unknown), data, method=tw.LevenbergMarquardt(20), progress=False)


def test_runs_of_a_group_share_one_value():
    fit = fitted(per_group=True)
    assert fit.parameters == 2
    found = [float(fit.twin.parameters(name)["k"]) for name in ("soft/0.5", "hard/0.7", "soft/1.0", "hard", "soft")]
    np.testing.assert_allclose(found, [1.0, 4.0, 1.0, 4.0, 1.0], rtol=1e-4)
    assert found[0] == found[2]


@pytest.mark.slow
def test_a_new_run_has_the_value_of_its_group_and_one_of_a_new_group_is_estimated():
    fit = fitted(per_group=True)
    assert tw.evaluate(fit, runs(["hard", "soft"], [0.3, 0.2]), dtw=False).metrics["mae"].max() < 1e-3
    strange = runs(["new"], [0.6])
    found = tw.predict(fit, strange)
    np.testing.assert_array_equal(found.warmup, [20])
    np.testing.assert_allclose(found.predicted[0, 0], strange.runs[0].y, atol=1e-3)
    again = tw.fit(fit.twin, strange, method=tw.LevenbergMarquardt(3), trainable="per_run", progress=False)
    assert again.twin.groups == ("new",)


def test_values_of_single_runs_are_not_those_of_their_group():
    fit = fitted(per_run=True)
    assert fit.parameters == 3
    # That of another run is estimated from its first samples, which then do not count.
    found = tw.predict(fit, runs(["hard"], [0.3]))
    assert found.warmup[0] == 20
    known = tw.predict(fitted(per_group=True), runs(["hard"], [0.3])).predicted
    np.testing.assert_allclose(found.predicted, known, atol=1e-3)


def test_validation_on_other_runs_of_the_same_groups():
    data, valid = runs(["soft", "hard"], [0.5, 0.7]), runs(["hard", "soft"], [1.0, 1.1])
    method = tw.LevenbergMarquardt(15)
    fit = tw.fit(spring(per_group=True), data, valid=valid, method=method, progress=False)
    assert fit.scores[0] < 1e-6


def test_both_kinds_at_once_are_refused():
    with pytest.raises(ValueError, match="per_group"):
        tw.Unknown(1.0, per_run=True, per_group=True)


def test_groups_come_from_a_column(tmp_path):
    pytest.importorskip("pandas")
    path = tmp_path / "log.csv"
    path.write_text("t,id,cell,y\n0,a,007,1\n1,a,007,2\n0,b,008,3\n1,b,008,4\n0,c,007,5\n1,c,007,6\n")
    data = tw.Dataset.from_csv(path, time="t", run="id", group="cell", outputs=["y"])
    assert data.groups == ("007", "008", "007")
    assert data.select(["c", "b"]).groups == ("007", "008")
    path.write_text("t,id,cell,y\n0,a,1,1\n1,a,2,2\n")
    with pytest.raises(ValueError, match=r"run 'a' has 2 names in column 'cell'"):
        tw.Dataset.from_csv(path, time="t", run="id", group="cell", outputs=["y"])


def test_seeds_side_by_side_keep_their_own_values():
    data = runs(["soft", "hard"], [0.5, 0.7])
    fit = tw.fit(spring(per_group=True), data, seeds=2, method=tw.LevenbergMarquardt(15), progress=False)
    found = fit.map(lambda twin: jax.vmap(lambda run: twin.parameters(run)["k"])(jnp.arange(2)))
    np.testing.assert_allclose(found, [[1.0, 4.0]] * 2, rtol=1e-4)


@pytest.mark.slow
def test_what_is_believed_of_a_parameter_holds_it_as_much_as_the_data_are_few():
    # Two runs whose stiffness the data say is 4; believed to be 2 within 10 %. The minimum is where the two agree.
    data = runs(["hard", "hard"], [0.5, 0.7])
    found = []
    for prior in (0.0, 1e-2, 1e4):
        twin = spring(spread=0.1)
        fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(30), loss=tw.Loss(prior=prior), progress=False)
        found.append(float(fit.twin.parameters()["k"]))
    np.testing.assert_allclose(found[0], 4.0, rtol=1e-4)
    assert 2.0 < found[1] < found[0]
    np.testing.assert_allclose(found[2], 2.0, rtol=1e-3)
    with pytest.raises(ValueError, match="spread"):
        tw.Unknown(1.0, spread=0.0)


@pytest.mark.parametrize(
    ("unknown", "values"),
    [
        (tw.Unknown(2.0, positive=True, per_group=True), [1.0, 2.5, 9.0]),
        (tw.Unknown(-0.5, per_run=True), [-3.0, 0.25, 4.0]),
        (tw.Unknown(0.3, bounds=(0.0, 1.0), per_group=True), [0.1, 0.2, 0.9]),
    ],
)
def test_a_new_group_starts_from_the_median_of_those_that_were_fitted(unknown, values):
    twin = tw.Twin(lambda x: -x, params={"k": unknown, "c": tw.Unknown(1.5)}).for_runs(("a", "b", "c"))
    before = twin.params["k"]
    raw = {
        "positive": lambda v: np.log(v / 2.0),
        "free": lambda v: v + 0.5,
        "bounded": lambda v: np.log(v / (1 - v)) - np.log(0.3 / 0.7),
    }["positive" if unknown.positive else "bounded" if unknown.bounds else "free"]
    fitted = eqx.tree_at(lambda t: t.params["k"].raw, twin, jnp.asarray([raw(v) for v in values]))
    np.testing.assert_allclose([fitted.parameters(name)["k"] for name in "abc"], values, rtol=1e-6)
    new = fitted.centred()
    np.testing.assert_allclose(float(new.parameters()["k"]), values[1], rtol=1e-6)
    np.testing.assert_allclose(float(new.for_runs(("d",)).parameters("d")["k"]), values[1], rtol=1e-6)
    assert new.runs is None
    assert float(new.parameters()["c"]) == 1.5
    assert before.owner is not None
