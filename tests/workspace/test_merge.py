"""Neighbouring blocks of a part become one run, with the samples between them."""

import numpy as np

from twinfold.data import Dataset
from twinfold.workspace._merge import merge_blocks

WHOLE = Dataset.from_arrays(
    np.arange(100.0), [np.arange(100.0), -np.arange(100.0)], inputs=np.ones((2, 100, 1)), names=["a", "b"]
)
BLOCKS = WHOLE.blocks(5, gap=2)


def test_neighbours_are_joined_and_others_are_not():
    merged = merge_blocks(BLOCKS.select(["a[0]", "a[1]", "a[3]", "b[1]", "b[2]", "b[3]"]), WHOLE)
    assert merged.names == ("a[0-1]", "a[3]", "b[1-3]")
    first, _, last = merged.runs
    np.testing.assert_array_equal(first.y[:, 0], np.arange(40.0))  # two blocks of 19, 2 between
    np.testing.assert_array_equal(first.ts, np.arange(40.0))
    assert first.w is not None
    assert len(first.w) == len(first.ts)
    assert first.group == BLOCKS.runs[0].group
    begin, end = BLOCKS.select(["b[1]", "b[3]"]).runs
    assert (last.ts[0], last.ts[-1]) == (begin.ts[0], end.ts[-1])
    np.testing.assert_array_equal(last.y[:, 0], -last.ts)


def test_runs_that_were_not_cut_stay():
    assert merge_blocks(WHOLE, WHOLE) is not WHOLE
    assert merge_blocks(WHOLE, WHOLE).names == ("a", "b")
    odd = Dataset.from_arrays(np.arange(3.0), np.ones((2, 3, 1)), names=["x[0]", "x[1]"])
    assert merge_blocks(odd, odd).names == ("x[0]", "x[1]")  # names that only look like blocks
