"""Everything that a report states about a twin, computed once before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twinfold.data import Dataset
from twinfold.model import Twin
from twinfold.report._estimates import ParameterEstimate, estimate_parameters
from twinfold.report._learned_parts import LearnedPart, Samples, describe_parts, sample_splits, sample_states
from twinfold.report._predictions import SplitPredictions, predict_splits
from twinfold.report._responses import Response, response
from twinfold.train import Fit


@dataclass(frozen=True, eq=False)
class Analysis:
    """`splits` are the predicted runs, `omitted` counts those of each split that the page does not show.

    `extrapolation` is the share of samples outside the range of the training data, by split and input of a learned
    part. `problems` are sentences about what could not be computed.
    """

    twin: Twin
    fit: Fit | None
    train: Dataset
    states: Sequence[str]
    parts: Sequence[LearnedPart]
    responses: Sequence[Response]
    estimates: Sequence[ParameterEstimate]
    units: Mapping[str, str]
    metrics: Mapping[str, Any]
    splits: Mapping[str, SplitPredictions]
    omitted: Mapping[str, int]
    extrapolation: Mapping[str, Mapping[str, float]]
    problems: Sequence[str]
    test_openings: Mapping[str, int]
    notes: Sequence[str] = ()  # sentences about the errors


def analyse(
    twin: Twin,
    fit: Fit | None,
    data: Mapping[str, Dataset],
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    states: Sequence[str] | None,
    units: Mapping[str, str],
    test_openings: Mapping[str, int],
    notes: Sequence[str] = (),
) -> Analysis:
    """Predict the runs, evaluate the learned parts and estimate standard errors; `data` by split, with "train"."""
    train = data["train"]
    problems: list[str] = []
    splits = predict_splits(twin, fit, data, problems)
    samples = _sample_splits(twin, {"train": train} | {k: v.data for k, v in splits.items() if k != "train"})
    outputs_are_states = states is None and twin.observe is None
    names = _state_names(train.output_names if outputs_are_states else states, samples["train"])
    parts = describe_parts(twin, samples["train"], names, train.input_names)
    extrapolation = {
        split: _outside_range(parts, describe_parts(twin, samples[split], names, each.data.input_names))
        for split, each in splits.items()
        if split != "train"
    }
    return Analysis(
        twin=twin,
        fit=fit,
        train=train,
        states=names,
        parts=parts,
        responses=[response(twin, fit, part) for part in parts if part.samples.size],
        estimates=estimate_parameters(twin, fit, train, config, problems),
        units=units,
        metrics=metrics,
        splits=splits,
        omitted={split: len(data[split]) - len(each.data) for split, each in splits.items()},
        extrapolation=extrapolation,
        problems=problems,
        test_openings=test_openings,
        notes=notes,
    )


def _sample_splits(twin: Twin, splits: Mapping[str, Dataset]) -> dict[str, Samples]:
    try:
        return sample_splits(twin, splits)
    except ValueError:  # for example a name of a run in two splits
        return {split: sample_states(twin, data) for split, data in splits.items()}


def _state_names(states: Sequence[str] | None, samples: Samples) -> list[str]:
    count = samples.x.shape[1]
    if states is None:
        return [f"x{index}" for index in range(count)]
    if len(states) != count:
        raise ValueError(f"states: {len(states)} names ({', '.join(states)}) for {count} states; give one for each.")
    return list(states)


def _outside_range(train: Sequence[LearnedPart], other: Sequence[LearnedPart]) -> dict[str, float]:
    """For each input of a learned part, the share of other samples outside the range of the training samples."""
    shares: dict[str, float] = {}
    for known, new in zip(train, other, strict=True):
        if not known.samples.size or not new.samples.size:
            continue
        low, high = known.samples.min(axis=0), known.samples.max(axis=0)
        outside = ((new.samples < low) | (new.samples > high)).mean(axis=0)
        for name, share in zip(known.inputs, outside.tolist(), strict=True):
            shares[name] = max(share, shares.get(name, 0.0))
    return shares
