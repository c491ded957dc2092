"""A report in sentences: what the twin is, how good it is, what failed, and where to be careful."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.identify._guard import CONFOUNDED
from twinfold.model import Twin
from twinfold.numerics import ExplicitRungeKutta, NoProjection, Unconstrained
from twinfold.report._estimates import Estimated
from twinfold.report._page import number
from twinfold.report._scores import BASELINES, TITLES, TWIN, headline, value_of
from twinfold.report._seen import Part
from twinfold.report._shown import Shown, usable_seeds
from twinfold.train import Fit

FEW = 8  # names that are listed before the rest is counted
OUTSIDE = 0.01  # share of samples outside the range that is worth a word


@dataclass(frozen=True, eq=False)
class Facts:
    """All that the sentences are about."""

    twin: Twin
    fit: Fit | None
    train: Dataset
    states: Sequence[str]
    parts: Sequence[Part]
    estimates: Sequence[Estimated]
    metrics: Mapping[str, Any]
    shown: Mapping[str, Shown]
    outside: Mapping[str, Mapping[str, float]]  # split -> name of what is seen -> share of samples beyond training
    problems: Sequence[str]


def what_it_is(facts: Facts) -> list[str]:
    """States, inputs, outputs, learned parts, unknown parameters, integrator, constraint, projection."""
    train = facts.train
    inputs = f"{_count(len(train.input_names), 'input')} ({listed(train.input_names)})" if train.input_names else ""
    words = [
        f"The twin has {_count(len(facts.states), 'state')} ({listed(facts.states)}), {inputs or 'no inputs'} and "
        f"{_count(len(train.output_names), 'output')} ({listed(train.output_names)})."
    ]
    words += [
        f"Learned: {part.title}, "
        + (f"a network {part.layers} " if part.layers else f"of the kind {part.kind} ")
        + f"with {_count(part.weights, 'weight')}"
        + _seen(part)
        for part in facts.parts
    ] or ["Nothing is learned: the twin has no network."]
    if facts.estimates:
        words.append(f"Estimated: {listed([estimate_in_words(each) for each in facts.estimates], '; ')}.")
    else:
        words.append("No physical parameter was unknown.")
    words.append(_integrator(facts))
    words.append(_constraint(facts))
    return words


def how_good(facts: Facts) -> list[str]:
    """The error of the twin beside each baseline, whichever way it falls."""
    found = headline(facts.metrics)
    if found is None:
        return ["No error of the twin was given, so nothing can be said of how good it is."]
    split, name = found
    own = value_of(facts.metrics, TWIN, split, name)
    assert own is not None
    runs = f" ({_count(len(facts.shown[split].data), 'run')} drawn here)" if split in facts.shown else ""
    words = [f"On the {split} data{runs} the twin's {TITLES[name]} is {number(own)}."]
    if split != "test":
        words.append(f"No test error was given: the {split} data were seen while training, so this flatters the twin.")
    for model, meaning in BASELINES.items():
        words.append(_against(model, meaning, own, value_of(facts.metrics, model, split, name)))
    seen = value_of(facts.metrics, TWIN, "train", name)
    if split == "test" and seen is not None and seen > 0 and own > 2 * seen:
        words.append(
            f"That is {own / seen:.1f} times its error on the training data ({number(seen)}): it does not carry "
            "over in full. More varied runs, a smaller network or Loss(l2=...) may help."
        )
    return words


def what_failed(facts: Facts) -> list[str]:
    """Seeds, runs, and parts of the report itself."""
    words = []
    if facts.fit is not None:
        words += [f"Seed {seed} {reason}." for seed, reason in facts.fit.failures.items()]
        if facts.fit.interrupted:
            words.append("The fit was interrupted: this is the best that was found until then.")
    runs = 0
    for split, each in facts.shown.items():
        runs += len(each.data)
        for run, name in enumerate(each.data.names):
            reason = each.predictions.reason(0, run)
            words += [f"The {split} run '{name}' could not be predicted to its end. At {reason}"] if reason else []
    words += facts.problems
    seeds = "" if facts.fit is None else f" and none of the {_count(len(facts.fit.seeds), 'seed')}"
    return words or [f"Nothing: none of the {_count(runs, 'run')} drawn here{seeds} failed."]


def careful(facts: Facts) -> list[str]:
    """Extrapolation, parameters that the data do not tell, seeds that disagree."""
    words = []
    for split, shares in facts.outside.items():
        large = [f"{name} ({share:.0%})" for name, share in shares.items() if share > OUTSIDE]
        if large:
            words.append(
                f"On the {split} data a learned part is asked about places that it never saw in training: "
                f"{listed(large)} of the samples. What it says there is extrapolation."
            )
    drawn = [part for part in facts.parts if part.seen.size]
    if drawn:
        ranges = listed([f"{n} from {a:.3g} to {b:.3g}" for n, (a, b) in _ranges(drawn).items()])
        words.append(f"Trust the learned parts only where the training data were: {ranges}. Outside it is a guess.")
    lost = [each.name for each in facts.estimates if math.isinf(each.error)]
    if lost:
        words.append(f"The data say nothing of {listed(lost)}: its value is the first guess, moved by chance.")
    blurred = [each for each in facts.estimates if each.inflation > CONFOUNDED and not math.isinf(each.error)]
    if blurred:
        names = listed([f"{each.name} ({each.inflation:.0f} times less sure)" for each in blurred])
        words.append(f"The data hardly tell these from the learned part beside them: {names}.")
    if any(math.isnan(each.error) for each in facts.estimates):
        words.append("Some parameters are given without a standard error: how sure they are is not known.")
    usable = usable_seeds(facts.fit)
    if facts.parts and len(usable) < 2:
        words.append("There is one seed only: how much of what was learned is chance cannot be seen. Fit several.")
    elif facts.fit is not None and len(usable) > 1:
        scores = facts.fit.scores[usable]
        if scores.min() > 0 and scores.max() > 3 * scores.min():
            words.append(
                f"The seeds disagree: the worst ends at {number(float(scores.max()))}, the best at "
                f"{number(float(scores.min()))}. The fit may not have converged."
            )
    return words or ["Nothing in particular."]


def outside_range(train: Sequence[Part], other: Sequence[Part]) -> dict[str, float]:
    """For what the learned parts see, the share of samples of other data beyond the range of the training data."""
    shares: dict[str, float] = {}
    for known, new in zip(train, other, strict=True):
        if not known.seen.size or not new.seen.size:
            continue
        low, high = known.seen.min(axis=0), known.seen.max(axis=0)
        beyond = ((new.seen < low) | (new.seen > high)).mean(axis=0)
        for name, share in zip(known.sees, beyond.tolist(), strict=True):
            shares[name] = max(share, shares.get(name, 0.0))
    return shares


def estimate_in_words(each: Estimated) -> str:
    """k = 2.031 ± 0.012 (first guess 1)."""
    if math.isinf(each.error):
        sure = ", which the data do not tell"
    else:
        sure = "" if math.isnan(each.error) else f" ± {each.error:.2g}"
    return f"{each.name} = {each.value:.5g}{sure} (first guess {each.start:.5g})"


def listed(names: Sequence[str], between: str = ", ") -> str:
    """The first few, and how many more."""
    rest = len(names) - FEW
    return between.join(names) if rest <= 0 else f"{between.join(names[:FEW])} and {rest} more"


def _ranges(parts: Sequence[Part]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for part in parts:
        for index, name in enumerate(part.sees):
            name = name if part.kind == "MLP" else f"{name} of {part.title}"
            found[name] = (float(part.seen[:, index].min()), float(part.seen[:, index].max()))
    return found


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _seen(part: Part) -> str:
    if not part.sees:
        return "."
    if part.kind == "MLP":
        return f"; it sees {listed(part.sees)} and adds to {listed(part.gives)}."
    return f"; {_count(len(part.sees), 'input')}, {_count(len(part.gives), 'output')}."


def _integrator(facts: Facts) -> str:
    twin = facts.twin
    if twin.trajectory is not None:
        return "The state is a function of time; nothing is integrated."
    integrator = twin.integrator
    substeps = int(getattr(integrator, "substeps", 1))
    name = type(integrator).__name__
    if isinstance(integrator, ExplicitRungeKutta):
        name = f"an explicit Runge-Kutta method of order {integrator.order}"
    steps = "one step" if substeps == 1 else f"{substeps} steps"
    said = f"It is integrated by {name}, {steps} from one sample to the next"
    if not facts.train.input_names:
        return f"{said}."
    return (
        f"{said}; inputs are {'held' if twin.cell.input_interpolation == 'hold' else 'interpolated'} between samples."
    )


def _constraint(facts: Facts) -> str:
    twin = facts.twin
    if isinstance(twin.constraint, Unconstrained):
        return "It has no constraint."
    rows = next((each.predictions.violation.shape[-1] for each in facts.shown.values()), None)
    equations = "" if rows is None else f", {_count(rows, 'equation')}"
    kind = f"It has a constraint ({type(twin.constraint).__name__}{equations})"
    if isinstance(twin.projection, NoProjection):
        return f"{kind} that is watched and not enforced: nothing is projected."
    largest = [each.predictions.relative[0][each.predictions.real].max() for each in facts.shown.values()]
    worst = f"; over all runs the largest relative violation is {number(float(np.max(largest)))}" if largest else ""
    return f"{kind}, enforced after every step by the projection {type(twin.projection).__name__}{worst}."


def _against(model: str, meaning: str, own: float, other: float | None) -> str:
    if other is None:
        return f"Not given: the baseline '{model}' ({meaning})."
    said = f"{model} ({meaning}) has {number(other)}"
    if not math.isfinite(own):
        return f"{said[0].upper()}{said[1:]}; the twin has no finite error."
    if not math.isfinite(other):
        return f"{said[0].upper()}{said[1:]}: it does not get through the runs."
    if own == 0 or other == 0 or abs(other - own) <= 0.02 * max(own, other):
        return f"{said[0].upper()}{said[1:]}: about the same, so the twin gains nothing over it."
    if own < other:
        return f"{said[0].upper()}{said[1:]}: the twin's error is {_times(other / own)} lower."
    return f"{said[0].upper()}{said[1:]}: the twin is WORSE, its error is {_times(own / other)} higher."


def _times(ratio: float) -> str:
    return f"{ratio - 1:.0%}" if ratio < 1.5 else f"{ratio:.2g} times" if ratio < 100 else f"{ratio:.0f} times"
