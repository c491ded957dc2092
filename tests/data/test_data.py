"""Data sets: windows, padding, masks and statistics against values computed by hand."""

import dataclasses
import hashlib
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.data import Dataset, Run

NAN = np.nan
TS_A = [0.0, 0.5, 1.5, 1.75, 3.0]
TS_B = [10.0, 12.0, 13.0]
Y_A = [[1.0, 10.0], [2.0, NAN], [NAN, NAN], [4.0, 40.0], [5.0, NAN]]
Y_B = [[NAN, -1.0], [7.0, NAN], [9.0, 1.0]]
W_A = [[0.0], [1.0], [2.0], [3.0], [4.0]]
W_B = [[5.0], [6.0], [7.0]]


def irregular() -> Dataset:
    """Two runs of 5 and 3 samples, irregular, with gaps."""
    return Dataset.from_arrays(
        [TS_A, TS_B],
        [np.array(Y_A), np.array(Y_B)],
        inputs=[W_A, W_B],
        x0=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
        names=["a", "b"],
        output_names=["p", "q"],
        input_names=["u"],
    )


def ramps(*lengths: int) -> Dataset:
    """Runs of these lengths whose output is 100 * run + sample, at a step of 1."""
    return Dataset.from_arrays(
        [np.arange(n) * 1.0 for n in lengths],
        [100.0 * index + np.arange(n) for index, n in enumerate(lengths)],
    )


def covered(batch, window: int) -> list[float]:
    """The measured values of a window of single-output data."""
    return np.asarray(batch.y)[window, :, 0][np.asarray(batch.mask)[window, :, 0]].tolist()


def test_a_batch_pads_with_zero_steps_and_masks_missing_values():
    batch = irregular().batch()
    np.testing.assert_array_equal(batch.ts, [TS_A, [10.0, 12.0, 13.0, 13.0, 13.0]])
    np.testing.assert_array_equal(
        batch.y,
        [
            [[1, 10], [2, 0], [0, 0], [4, 40], [5, 0]],
            [[0, -1], [7, 0], [9, 1], [0, 0], [0, 0]],
        ],
    )
    np.testing.assert_array_equal(
        batch.mask,
        np.array(
            [
                [[1, 1], [1, 0], [0, 0], [1, 1], [1, 0]],
                [[0, 1], [1, 0], [1, 1], [0, 0], [0, 0]],
            ],
            bool,
        ),
    )
    np.testing.assert_array_equal(np.asarray(batch.w)[..., 0], [[0, 1, 2, 3, 4], [5, 6, 7, 7, 7]])
    np.testing.assert_array_equal(batch.length, [5, 3])
    np.testing.assert_array_equal(batch.run, [0, 1])
    np.testing.assert_array_equal(batch.is_run_start, [True, True])
    np.testing.assert_array_equal(batch.previous_window, [-1, -1])
    np.testing.assert_array_equal(batch.x0, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(batch.origin_t, [0, 10])
    np.testing.assert_array_equal(batch.origin_y, [[1, 10], [NAN, -1]])
    np.testing.assert_array_equal(batch.origin_w, [[0], [5]])


def test_windows_share_their_ends_and_index_the_previous_window():
    batch = irregular().windows(3)
    np.testing.assert_array_equal(batch.ts, [[0.0, 0.5, 1.5], [1.5, 1.75, 3.0], TS_B])
    np.testing.assert_array_equal(np.asarray(batch.w)[..., 0], [[0, 1, 2], [2, 3, 4], [5, 6, 7]])
    np.testing.assert_array_equal(batch.length, [3, 3, 3])
    np.testing.assert_array_equal(batch.run, [0, 0, 1])
    np.testing.assert_array_equal(batch.is_run_start, [True, False, True])
    np.testing.assert_array_equal(batch.previous_window, [-1, 0, -1])
    # Every window carries the first sample and the initial state of its run.
    np.testing.assert_array_equal(batch.origin_t, [0, 0, 10])
    np.testing.assert_array_equal(batch.origin_y, [[1, 10], [1, 10], [NAN, -1]])
    np.testing.assert_array_equal(batch.x0, [[1, 2, 3], [1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("lengths", "length", "stride", "spans", "previous_window"),
    [
        ([7], 3, None, [(0, 2), (2, 4), (4, 6)], [-1, 0, 1]),
        ([8], 4, None, [(0, 3), (3, 6), (6, 7)], [-1, 0, 1]),
        ([8, 3], 4, None, [(0, 3), (3, 6), (6, 7), (100, 102)], [-1, 0, 1, -1]),
        ([3, 5, 2], 5, None, [(0, 2), (100, 104), (200, 201)], [-1, -1, -1]),
        ([8], 4, 4, [(0, 3), (4, 7)], [-1, -1]),
        ([9], 4, 4, [(0, 3), (4, 7), (7, 8)], [-1, -1, 1]),
        ([7], 4, 2, [(0, 3), (2, 5), (4, 6)], [-1, -1, -1]),
        ([9], 5, 2, [(0, 4), (2, 6), (4, 8)], [-1, -1, 0]),
        ([5], 3, 1, [(0, 2), (1, 3), (2, 4)], [-1, -1, 0]),
        ([4], 2, None, [(0, 1), (1, 2), (2, 3)], [-1, 0, 1]),
    ],
)
def test_windows_cover_each_run_to_its_end(lengths, length, stride, spans, previous_window):
    batch = ramps(*lengths).windows(length, stride=stride)
    assert batch.ts.shape == (len(spans), length)
    for window, (first, last) in enumerate(spans):
        values = list(range(first, last + 1))
        assert covered(batch, window) == values
        padding = [values[-1] % 100] * (length - len(values))
        assert np.asarray(batch.ts)[window].tolist() == [value % 100 for value in values] + padding
    np.testing.assert_array_equal(batch.length, [last - first + 1 for first, last in spans])
    np.testing.assert_array_equal(batch.previous_window, previous_window)
    np.testing.assert_array_equal(batch.is_run_start, [first % 100 == 0 for first, _ in spans])
    np.testing.assert_array_equal(batch.run, [first // 100 for first, _ in spans])


def test_an_unmeasured_window_is_kept_only_if_another_needs_it():
    middle = Dataset.from_arrays([np.arange(7.0)], [[0.0, 1.0, NAN, NAN, NAN, 5.0, 6.0]])
    batch = middle.windows(3)
    assert [covered(batch, window) for window in range(3)] == [[0, 1], [], [5, 6]]
    np.testing.assert_array_equal(batch.previous_window, [-1, 0, 1])

    end = Dataset.from_arrays([np.arange(7.0)], [[0.0, 1.0, 2.0, 3.0, NAN, NAN, NAN]])
    np.testing.assert_array_equal(end.windows(3).ts, [[0, 1, 2], [2, 3, 4]])

    apart = Dataset.from_arrays([np.arange(9.0)], [[NAN, NAN, NAN, NAN, NAN, NAN, 6.0, 7.0, 8.0]])
    batch = apart.windows(3, stride=3)
    np.testing.assert_array_equal(batch.ts, [[0, 1, 2], [6, 7, 8]])  # the first begins its run
    np.testing.assert_array_equal(batch.previous_window, [-1, -1])


def test_dtypes():
    data = irregular()
    assert data.batch().y.dtype == jnp.zeros(()).dtype
    batch: Any = data.windows(3, dtype=jnp.float32)
    for leaf in (batch.ts, batch.y, batch.w, batch.x0, batch.origin_t, batch.origin_y, batch.origin_w):
        assert leaf.dtype == jnp.float32
    statistics: Any = data.statistics(True, jnp.float32)
    assert statistics.rate_std.dtype == statistics.t_std.dtype == jnp.float32


def test_statistics_use_measured_values_only():
    found: Any = irregular().statistics(True)
    p, q = np.array([1.0, 2.0, 4.0, 5.0, 7.0, 9.0]), np.array([10.0, 40.0, -1.0, 1.0])
    np.testing.assert_allclose(found.x_mean, [p.mean(), q.mean()], rtol=1e-14)
    np.testing.assert_allclose(found.x_std, [p.std(), q.std()], rtol=1e-14)
    # From one measured sample to the next, over the gaps: p in a, p in b; q in a, q in b.
    p_rates = np.array([1 / 0.5, 2 / 1.25, 1 / 1.25, 2 / 1.0])
    q_rates = np.array([30 / 1.75, 2 / 3.0])
    np.testing.assert_allclose(found.rate_std, np.sqrt([np.mean(p_rates**2), np.mean(q_rates**2)]), rtol=1e-14)
    np.testing.assert_allclose(found.w_mean, [3.5], rtol=1e-14)
    np.testing.assert_allclose(found.w_std, [np.arange(8.0).std()], rtol=1e-14)
    ts = np.array(TS_A + TS_B)
    np.testing.assert_allclose([found.t_mean, found.t_std], [ts.mean(), ts.std()], rtol=1e-14)
    hidden = irregular().statistics(False)
    assert hidden.x_mean is hidden.x_std is hidden.rate_std is None
    np.testing.assert_array_equal(hidden.w_std, found.w_std)


def test_statistics_do_not_depend_on_padding():
    short, long = ramps(4), ramps(4, 50)
    alone: Any = long.select(["0"]).statistics(True)
    for here, there in zip(dataclasses.astuple(alone), dataclasses.astuple(short.statistics(True)), strict=True):
        np.testing.assert_array_equal(here, there)
    np.testing.assert_allclose(alone.x_std, [np.sqrt(1.25)], rtol=1e-14)


def test_a_spread_of_zero_or_of_rounding_becomes_one():
    ys = np.stack([np.full(7, 0.1), np.full(7, NAN), np.arange(7.0)], axis=1)
    ys[3, 1] = 2.0
    found: Any = Dataset.from_arrays(np.arange(7.0), [ys], inputs=np.zeros((1, 7, 1))).statistics(True)
    np.testing.assert_array_equal(found.x_std, [1, 1, 2])
    np.testing.assert_array_equal(found.rate_std, [1, 1, 1])
    np.testing.assert_allclose(found.x_mean, [0.1, 2, 3], rtol=1e-14)
    np.testing.assert_array_equal(found.w_std, [1])
    never: Any = Dataset.from_arrays(np.arange(7.0), [ys * [1, NAN, 1]]).statistics(True)
    np.testing.assert_array_equal([never.x_mean[1], never.x_std[1], never.rate_std[1]], [0, 1, 1])


@pytest.mark.parametrize(("valid", "count"), [(0.2, 2), (0.5, 5), (0.01, 1), (0.999, 9)])
def test_split_is_by_run_disjoint_complete_and_repeatable(valid, count):
    data = ramps(*range(2, 12))
    train, held = data.split(valid, seed=3)
    assert len(held) == count
    assert sorted(train.names + held.names, key=int) == list(data.names)
    assert list(train.names) == sorted(train.names, key=int)
    again = data.split(valid, seed=3)
    assert (again[0].fingerprint(), again[1].fingerprint()) == (train.fingerprint(), held.fingerprint())
    assert all(run is data.runs[int(run.name)] for run in train.runs + held.runs)


def test_split_depends_on_its_seed_and_takes_names():
    data = ramps(*range(2, 12))
    assert len({data.split(seed=seed)[1].names for seed in range(8)}) > 1
    train, held = data.split(["7", "1"])
    assert held.names == ("1", "7")
    assert train.names == ("0", "2", "3", "4", "5", "6", "8", "9")
    assert data.select(["7", "1"]).names == ("7", "1")
    assert len(data) == 10


def test_runs_may_share_their_times():
    ys = np.arange(12.0).reshape(2, 3, 2)
    data = Dataset.from_arrays(jnp.array([0.0, 1.0, 3.0]), jnp.asarray(ys), inputs=ys[..., :1], x0=ys[:, 0])
    assert data.names == ("0", "1")
    assert (data.output_names, data.input_names) == (("y0", "y1"), ("w0",))
    for index, run in enumerate(data.runs):
        np.testing.assert_array_equal(run.ts, [0, 1, 3])
        np.testing.assert_array_equal(run.y, ys[index])
        np.testing.assert_array_equal(run.x0, ys[index, 0])
        assert run.w is not None
        np.testing.assert_array_equal(run.w[:, 0], ys[index, :, 0])


def test_a_run_copies_its_arrays():
    y = np.zeros((3, 1))
    run = Run("a", np.arange(3), y)
    y[0] = 9.0
    assert run.y[0, 0] == 0.0
    assert run.ts.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        run.y[0] = 1.0


def test_the_fingerprint_depends_on_the_contents_only():
    data = irregular()
    y = data.runs[0].y.copy()
    y[np.isnan(y)] = -NAN  # another bit pattern of the same missing value
    assert (
        dataclasses.replace(data, runs=(dataclasses.replace(data.runs[0], y=y), data.runs[1])).fingerprint()
        == irregular().fingerprint()
    )
    first = data.runs[0]
    changed = [
        dataclasses.replace(first, name="c"),
        dataclasses.replace(first, ts=first.ts + 1e-12),
        dataclasses.replace(first, y=first.y * 2),
        dataclasses.replace(first, w=np.zeros((5, 1))),
        dataclasses.replace(first, x0=np.zeros(3)),
        dataclasses.replace(first, group="both"),
    ]
    others = [dataclasses.replace(data, runs=(run, data.runs[1])) for run in changed]
    others += [data.select(["b", "a"]), dataclasses.replace(data, output_names=("p", "r"))]
    assert len({other.fingerprint() for other in [data, *others]}) == len(others) + 1
    # Written out: little-endian float64 of each array, then the names and shapes as JSON.
    tiny = Dataset.from_arrays([0.0, 1.0], [[2.0, NAN]], names=["é"])
    digest = hashlib.sha256(np.array([0.0, 1.0, 2.0, NAN], "<f8").tobytes())
    digest.update(json.dumps([["y0"], [], ["é", "é", [[2], [2, 1], None, None]]]).encode())
    assert tiny.fingerprint() == digest.hexdigest()


def test_describe():
    assert irregular().describe().splitlines() == [
        "runs      2",
        "samples   8 (3 to 5 a run)",
        "time      0 to 13",
        "sampling  min 0.25, median 1, max 2",
        "inputs    u",
        "x0        3 states",
        "output p  25.0% missing",
        "output q  50.0% missing",
    ]
    assert "inputs     none\nx0         not given" in ramps(3).describe()


TS, Y, W = [0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [[0.0], [0.0], [0.0]]


@pytest.mark.parametrize(
    ("ts", "ys", "options", "message"),
    [
        (TS, [], {}, "ys: the data set is empty; give at least one run"),
        (TS, np.zeros((0, 3, 1)), {}, "ys: the data set is empty"),
        (
            TS,
            np.zeros((3, 2)),
            {},
            r"ys has shape \(3, 2\); it must be an \[R, T, k\] array.*for one run, \[y\]",
        ),
        (TS, Y, {}, "ys is a list of numbers"),
        (1.0, [Y], {}, r"ts is a float; it must be a \[T\] vector"),
        (TS, [Y, Y[:2]], {}, r"ys of run '1' has shape \(2, 1\).*row for each of the 3 times"),
        (TS, [np.zeros((3, 0))], {}, r"ys of run '0' has shape \(3, 0\)"),
        (TS, [["a", "b", "c"]], {}, "ys of run '0' must be an array of real numbers"),
        (TS, [np.ones(3) * 1j], {}, "ys of run '0' must be an array of real numbers: its dtype is complex"),
        ([TS], [Y, Y], {}, "ts has 1 runs and ys 2; give one for each run"),
        ([], [Y], {}, "ts has 0 runs and ys 1"),
        ([0.0], [[1.0]], {}, "ts of run '0' has shape .* at least two times"),
        ([0.0, NAN, 2.0], [Y], {}, "ts of run '0' is not finite at sample 1"),
        ([0.0, np.inf, 2.0], [Y], {}, "ts of run '0' is not finite at sample 1"),
        (
            [TS, [0.0, 2.0, 1.0]],
            [Y, Y],
            {},
            r"ts of run '1' must increase: sample 2 \(1\) is not after sample 1",
        ),
        (
            [0.0, 1.0, 1.0],
            [Y],
            {},
            r"ts of run '0' must increase: sample 2 \(1\) is not after sample 1 \(1\)",
        ),
        (TS, [Y, [1.0, np.inf, 2.0]], {}, "ys of run '1' is infinite at sample 1, column 0; use NaN"),
        (TS, [Y, [NAN] * 3], {}, "ys of run '1' has no measured value; remove the run"),
        (TS, [Y, np.zeros((3, 2))], {}, "ys of run '1' has 2 outputs and that of run '0' 1"),
        (TS, [Y], {"x0": [[1.0, NAN]]}, r"x0 of run '0' is not finite: \[ 1. nan\]; give every state"),
        (TS, [Y], {"x0": [[[1.0]]]}, r"x0 of run '0' has shape \(1, 1\); it must be a vector"),
        (TS, [Y], {"x0": [1.0, 2.0]}, r"x0 is a list of numbers; it must be an \[R, n\] array"),
        (TS, [Y, Y], {"x0": [[1.0]]}, "x0 has 1 runs and ys 2"),
        (TS, [Y, Y], {"x0": [[1.0], None]}, "x0 of run '1' has no states and that of run '0' 1"),
        (TS, [Y, Y], {"x0": [None, [1.0]]}, "x0 of run '1' has 1 states and that of run '0' none"),
        (
            TS,
            [Y],
            {"inputs": [[0.0, NAN, 1.0]]},
            "inputs of run '0' is not finite at sample 1, column 0.*hold",
        ),
        (TS, [Y], {"inputs": [[0.0, np.inf, 1.0]]}, "inputs of run '0' is not finite"),
        (TS, [Y], {"inputs": [[0.0, 1.0]]}, r"inputs of run '0' has shape \(2, 1\)"),
        (
            TS,
            [Y],
            {"inputs": np.zeros((3, 1))},
            r"inputs has shape \(3, 1\); it must be an \[R, T, d\] array",
        ),
        (TS, [Y, Y], {"inputs": [W, None]}, "inputs of run '1' has no inputs and that of run '0' 1"),
        (TS, [Y, Y], {"inputs": [W]}, "inputs has 1 runs and ys 2"),
        (TS, [Y, Y], {"names": ["a", "a"]}, "names: 'a' names two runs"),
        (TS, [Y, Y], {"names": ["a"]}, "names has 1 runs and ys 2"),
        (TS, [Y], {"output_names": ["a", "b"]}, "output_names has 2 names for 1 columns"),
        (TS, [Y], {"input_names": ["a"]}, "input_names has 1 names for 0 columns"),
        (TS, [np.zeros((3, 2))], {"output_names": ["a", "a"]}, "output_names: 'a' names two columns"),
    ],
)
def test_invalid_arrays_are_refused(ts, ys, options, message):
    with pytest.raises(ValueError, match=message):
        Dataset.from_arrays(ts, ys, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: Dataset((), ("y",)), "runs: the data set is empty"),
        (lambda data: data.select([]), "runs: the data set is empty"),
        (lambda data: data.select("0"), "names='0': give a list of run names"),
        (lambda data: data.select(["2"]), "names: there is no run '2'; there are: 0, 1"),
        (lambda data: data.select(["0", "0"]), "names: '0' names two runs"),
        (lambda data: data.select(["0"]).split(), "only the run '0', and neither part may be empty"),
        (lambda data: data.split(0.0), "valid=0.0: give a fraction between 0 and 1"),
        (lambda data: data.split(1), "valid=1: give a fraction between 0 and 1"),
        (lambda data: data.split([]), r"valid=\[\]: no run remains for validation"),
        (lambda data: data.split(["1", "0"]), "no run remains for training; name some runs, not all"),
        (lambda data: data.split(["7"]), "valid: there is no run or group '7'"),
        (lambda data: data.split("1"), "valid='1': give a list of run names"),
        (lambda data: data.windows(1), r"windows\(length=1\): a window has at least two samples"),
        (
            lambda data: data.windows(7),
            r"length=7\): the window is longer than every run; the longest, '1', has 6 samples",
        ),
        (lambda data: data.windows(3, stride=0), r"stride=0\): give 1 to 3"),
        (lambda data: data.windows(3, stride=4), r"stride=4\): give 1 to 3.*skips samples"),
        (lambda data: data.batch(dtype=int), "give a floating-point dtype"),
    ],
)
def test_invalid_selections_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(ramps(4, 6))


def test_times_that_are_equal_in_single_precision_are_refused():
    data = Dataset.from_arrays(1.7e9 + np.arange(3.0), [Y], names=["epoch"])
    with pytest.raises(ValueError, match=r"ts of run 'epoch': samples 0 and 1 .* are the same time in float32"):
        data.batch(dtype=jnp.float32)


def test_many_runs_are_checked_in_linear_time():
    ts, y = np.arange(2.0), np.zeros((2, 1))
    runs = tuple(Run(str(index), ts, y) for index in range(20_000))
    assert len(Dataset(runs, ("y",)).select([run.name for run in runs[::2]])) == 10_000
