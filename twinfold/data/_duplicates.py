"""Runs that contain the same measurements, whatever their names and times."""

from collections import Counter, defaultdict
from itertools import combinations

import numpy as np

from twinfold.data._dataset import Dataset

STRETCH = 8  # consecutive samples that are compared as one; fewer may agree by chance
MIN_SHARE = 0.5  # of the stretches of the shorter run
MAX_RUNS = 50  # in which a stretch may occur: one that is everywhere is a standstill, not a copy


def find_duplicates(data: Dataset) -> dict[tuple[int, int], float]:
    """Pairs of runs that have at least half of their measurements in common, and the share of the shorter run.

    Outputs and inputs are compared, times are not: a copy may be shifted, cut or renamed. The cost grows linearly.
    """
    samples = np.concatenate([run.y if run.w is None else np.hstack([run.y, run.w]) for run in data.runs])
    # Equal samples have equal numbers; bit patterns, since NaN equals NaN here.
    _, numbers = np.unique((samples + 0.0).view(f"V{8 * samples.shape[1]}").ravel(), return_inverse=True)
    stretches = [_stretches(each) for each in np.split(numbers, np.cumsum([len(run.ts) for run in data.runs])[:-1])]
    runs_with = defaultdict(list)
    for index, found in enumerate(stretches):
        for stretch in found:
            runs_with[stretch].append(index)
    shared = Counter(pair for runs in runs_with.values() if len(runs) <= MAX_RUNS for pair in combinations(runs, 2))
    shares = {pair: count / min(len(stretches[k]) for k in pair) for pair, count in shared.items()}
    return {pair: share for pair, share in sorted(shares.items()) if share >= MIN_SHARE}


def _stretches(numbers: np.ndarray) -> set[tuple[int, ...]]:
    """The distinct stretches of a run in which something changes."""
    windows = np.lib.stride_tricks.sliding_window_view(numbers, min(STRETCH, len(numbers)))
    changing = windows[(windows != windows[:, :1]).any(axis=1)]
    return set(map(tuple, changing.tolist()))
