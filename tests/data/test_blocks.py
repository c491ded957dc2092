"""Blocks of one recording: no sample is in two of them, the gap is in none, whatever the sampling."""

import itertools
import warnings

import numpy as np
import pytest

from twinfold.data import Dataset, load_dataset
from twinfold.data._blocks import block_slices
from twinfold.model import Twin, Unknown

NAN = np.nan


def indices(block: slice) -> list[int]:
    return list(range(block.start, block.stop))


@pytest.mark.parametrize("samples", [10, 11, 97, 1000])
@pytest.mark.parametrize("blocks", [2, 3, 5])
@pytest.mark.parametrize("gap", [0, 1, 4, None])
def test_blocks_are_disjoint_and_the_gap_between_them_is_exact(samples, blocks, gap):
    slices = block_slices(samples, blocks, gap)
    width = -(-samples // (20 * blocks)) if gap is None else gap  # a twentieth of a block, rounded up
    if samples - width * (blocks - 1) < 2 * blocks:
        assert slices == [slice(0, samples)]
        return
    inside = [index for block in slices for index in indices(block)]
    assert len(slices) == blocks
    assert (slices[0].start, slices[-1].stop) == (0, samples)
    assert len(set(inside)) == len(inside) == samples - width * (blocks - 1)
    assert [b.start - a.stop for a, b in itertools.pairwise(slices)] == [width] * (blocks - 1)
    assert max(map(len, map(indices, slices))) - min(map(len, map(indices, slices))) <= 1


def recording(samples: int = 60) -> Dataset:
    """Irregular times, missing values, and an output that tells which sample it is."""
    rng = np.random.default_rng(0)
    ts = np.cumsum(rng.uniform(0.01, 1.0, samples))
    y = np.stack([np.arange(samples), np.where(rng.uniform(size=samples) < 0.5, NAN, 1.0)], axis=1)
    return Dataset.from_arrays(ts, [y], inputs=[ts], names=["log"], groups=["plant"])


def test_blocks_of_an_irregular_run_with_missing_values():
    (whole,) = recording().runs
    data = recording().blocks(4, gap=3)
    assert data.names == ("log[0]", "log[1]", "log[2]", "log[3]")
    assert set(data.groups) == {"plant"}
    seen = np.concatenate([run.y[:, 0] for run in data.runs]).astype(int)
    assert len(set(seen.tolist())) == len(seen)
    # A block begins with the first complete sample behind the gap: what is incomplete there is in no block either.
    between = [np.arange(a.stop, b.start) for a, b in itertools.pairwise(block_slices(60, 4, 3))]
    assert not set(np.concatenate(between)) & set(seen.tolist())
    missing = sorted(set(range(60)) - set(seen.tolist()) - set(np.concatenate(between).tolist()))
    assert missing
    assert np.isnan(whole.y[missing, 1]).all()
    assert not any(np.isnan(run.y[0]).any() for run in data.runs[1:])
    for run in data.runs:
        rows = run.y[:, 0].astype(int)
        np.testing.assert_array_equal(run.ts, whole.ts[rows])
        np.testing.assert_array_equal(run.y, whole.y[rows])
        assert run.w is not None
        assert whole.w is not None
        np.testing.assert_array_equal(run.w, whole.w[rows])
    assert data.fingerprint() == recording().blocks(4, gap=3).fingerprint()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_sample_is_in_two_parts(seed):
    rest, test = recording().blocks(5, gap=2).split(0.2, seed=seed)
    train, valid = rest.split(0.3, seed=seed)
    parts = [{int(y) for run in part.runs for y in run.y[:, 0]} for part in (train, valid, test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) > 40
    for one in parts:
        for other in parts:
            if one is not other:  # two samples lie between any two parts
                assert min(abs(a - b) for a in one for b in other) > 2


def test_blocks_of_a_record_share_the_parameters_of_its_group():
    data = Dataset.from_arrays(np.arange(20.0), [np.ones((20, 1)), np.ones((20, 1))], names=["a", "b"]).blocks(3)
    twin = Twin(lambda x, p: -p["k"] * x, params={"k": Unknown(1.0, per_group=True)})
    assert np.shape(twin.for_runs(data.names, data.groups).unknowns()[0].raw) == (2,)


def test_short_runs_stay_whole_and_empty_blocks_are_left_out():
    long, short = np.ones((30, 1)), np.ones((5, 1))
    long[10:20] = NAN
    ts = [np.arange(30.0), np.arange(5.0)]
    data = Dataset.from_arrays(ts, [long, short], names=["long", "short"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        blocks = data.blocks(3, gap=0)
    assert blocks.names == ("long[0]", "long[2]", "short")
    messages = sorted(str(each.message) for each in caught)
    assert "left out: 'long[1]'." in messages[0]
    assert "run 'short' has 5 samples, too few for 3 blocks with 0 samples between two; it stays whole." in messages[1]


def test_an_input_holds_its_value_across_a_cut():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"t": np.arange(8.0), "u": [5, NAN, NAN, NAN, NAN, 7, NAN, NAN], "p": np.arange(8.0)})
    second = load_dataset(frame, inputs=["u"], outputs=["p"], blocks=2, block_gap=0).runs[1]
    assert second.w is not None
    assert second.w[:, 0].tolist() == [5, 7, 7, 7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 1}, "count=1: a run is cut into at least 2"),
        ({"count": 2, "gap": -1}, "gap=-1: give the number of samples"),
        ({"count": 2}, "x0 is the state at the start of a run, and blocks start later"),
    ],
)
def test_wrong_arguments(arguments, message):
    data = Dataset.from_arrays(np.arange(9.0), [np.ones((9, 1))], x0=[[1.0]])
    with pytest.raises(ValueError, match=message):
        data.blocks(**arguments)
