"""The summary of a report in sentences: the model, its accuracy, failures, warnings."""

import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from twinfold.identify._guard import CONFOUNDED
from twinfold.metrics import extrapolation_share
from twinfold.model import Slack, Unknown
from twinfold.numerics import AbstractConstraint, ExplicitRungeKutta, NoProjection, Unconstrained
from twinfold.report._analysis import Analysis
from twinfold.report._estimates import ParameterEstimate
from twinfold.report._learned_parts import LearnedPart
from twinfold.report._metrics import BASELINES, DIGITS, SPLITS, TITLES, TWIN, headline, metric_units, metric_value
from twinfold.report._numbers import format_number
from twinfold.report._predictions import usable_seeds

MAX_LISTED = 8  # names in a sentence; the others are counted
CONFIRMED, REJECTED = 0.9, 0.01  # shares of the way to a manifold with slack that a step takes
MAX_EXTRAPOLATION = 0.01  # share of samples outside the training range without a warning


def summarise(analysis: Analysis) -> dict[str, list[str]]:
    """Sentences by heading."""
    return {
        "Model": _model(analysis),
        "Accuracy": _accuracy(analysis),
        "Failures": _failures(analysis),
        "Warnings": _warnings(analysis),
    }


def slack_verdict(size: float, error: float = math.nan, part: str = "The constraint") -> str:
    """How much slack the data ask for, its standard error, and what this says about the constraint."""
    share = 1 / (1 + size**2)
    verdict = (
        "the data confirm it"
        if share > CONFIRMED
        else "the data contradict it, and it has next to no effect"
        if share < REJECTED
        else "the data confirm it in part"
    )
    uncertainty = f" ± {error:.2g}" if math.isfinite(error) else ""
    return (
        f"{part} has a slack of {size:.3g}{uncertainty}: each step moves the state by {share:.2g} of the way to the "
        f"manifold; {verdict}."
    )


def listed(names: Sequence[object], separator: str = ", ") -> str:
    """The first `MAX_LISTED` names, and how many more there are."""
    rest = len(names) - MAX_LISTED
    first = separator.join(map(str, names[:MAX_LISTED]))
    return first if rest <= 0 else f"{first} and {rest} more"


def _model(analysis: Analysis) -> list[str]:
    train, twin = analysis.train, analysis.twin
    inputs = f"{_count(len(train.input_names), 'input')} ({listed(train.input_names)})" if train.input_names else ""
    sentences = [
        f"The twin has {_count(len(analysis.states), 'state')} ({listed(analysis.states)}), {inputs or 'no inputs'} "
        f"and {_count(len(train.output_names), 'output')} ({listed(train.output_names)})."
    ]
    sentences += [_learned_part(part) for part in analysis.parts] or ["It has no learned part."]
    if analysis.estimates:
        sentences.append(f"Estimated parameters: {listed(analysis.estimates, '; ')}.")
    else:
        sentences.append("It has no unknown parameters.")
    if twin.warmup is not None:
        sentences.append(
            "Initial states are estimated: of a training run from all of its samples, of any other run from its first "
            f"{twin.warmup}, which then do not count as predicted."
        )
    sentences += _slacks(twin.constraint, analysis.estimates)
    held = "held constant" if twin.cell.input_interpolation == "hold" else "interpolated"
    between = f" Inputs are {held} between samples." if train.input_names else ""
    return [*sentences, f"{_integrator(analysis)}{between}", _constraint(analysis)]


def _slacks(constraint: AbstractConstraint, estimates: Sequence[ParameterEstimate]) -> list[str]:
    """A sentence for each part of the constraint with a slack that was estimated."""
    leaves = jax.tree_util.tree_flatten_with_path(constraint, is_leaf=_is_slack)[0]
    found = [(jax.tree_util.keystr(path), node) for path, node in leaves if _is_slack(node)]
    sentences = []
    for path, node in found:
        if isinstance(node.size, Unknown):
            own = (each.error for each in estimates if each.name.endswith(f"constraint{path}.size"))
            part = f"The part {path.lstrip('.')} of the constraint" if path else "The constraint"
            sentences.append(slack_verdict(float(node.size.value()), next(own, math.nan), part))
    return sentences


def _is_slack(node: object) -> bool:
    return isinstance(node, Slack)


def _learned_part(part: LearnedPart) -> str:
    kind = f"{part.layers} network" if part.layers else part.kind
    sentence = f"Learned part {part.title}: {kind} with {_count(part.weights, 'weight')}"
    sentence += f", {part.structure} by construction" if part.structure else ""
    if part.kind == "MLP" and part.inputs:
        return f"{sentence}; inputs {listed(part.inputs)}; added to {listed(part.outputs)}."
    if part.inputs:
        return f"{sentence}; {_count(len(part.inputs), 'input')}, {_count(len(part.outputs), 'output')}."
    return f"{sentence}."


def _integrator(analysis: Analysis) -> str:
    if analysis.twin.trajectory is not None:
        return "The state is an explicit function of time; there is no integration."
    integrator = analysis.twin.integrator
    substeps = int(getattr(integrator, "substeps", 1))
    name = type(integrator).__name__
    if isinstance(integrator, ExplicitRungeKutta):
        name = f"explicit Runge-Kutta method of order {integrator.order}"
    return f"Integrator: {name}, {_count(substeps, 'step')} per sampling interval."


def _constraint(analysis: Analysis) -> str:
    twin, splits = analysis.twin, analysis.splits.values()
    if isinstance(twin.constraint, Unconstrained):
        return "It has no constraint."
    sentence = f"Constraint of type {type(twin.constraint).__name__}"
    if splits:
        equations = next(iter(splits)).predictions.violation.shape[-1]
        sentence += f" with {_count(equations, 'equation')}"
    if isinstance(twin.projection, NoProjection):
        return f"{sentence}, monitored but not enforced: there is no projection."
    sentence += f", enforced after every step by the projection {type(twin.projection).__name__}"
    if splits:
        largest = max(float(each.violations.max()) for each in splits)
        sentence += f". The largest relative violation over all runs is {format_number(largest)}"
    return f"{sentence}."


def _accuracy(analysis: Analysis) -> list[str]:
    """The error of the twin and of each baseline, whichever is better."""
    found = headline(analysis.metrics)
    if found is None:
        return ["No error of the twin was given, so its accuracy is unknown."]
    split, name, own = found
    runs = f" ({_count(len(analysis.splits[split].data), 'run')} shown)" if split in analysis.splits else ""
    unit = metric_units(analysis.train.output_names, analysis.units).get(name, "")
    fit = metric_value(analysis.metrics, TWIN, split, "fit_percent")
    quoted = format_number(own, DIGITS) + (f" {unit}" if unit else "")
    quoted += "" if fit is None else f" (FIT {format_number(fit, DIGITS)} %)"
    sentences = [f"On the {SPLITS.get(split, split)} data{runs}, the twin's {TITLES[name]} is {quoted}."]
    if split != "test":
        sentences.append(
            f"No test error was given. The {SPLITS.get(split, split)} data were used in the fit, so this error is "
            "optimistic."
        )
    if analysis.test_openings:
        sentences.append(_openings(analysis.test_openings))
    sentences += analysis.notes
    for model, meaning in BASELINES.items():
        other = metric_value(analysis.metrics, model, split, name)
        if other is None:
            sentences.append(f"Baseline '{model}' ({meaning}): not given.")
        else:
            value = format_number(other, DIGITS)
            sentences.append(f"Baseline '{model}' ({meaning}): {value}. {_comparison(own, other)}")
    trained = metric_value(analysis.metrics, TWIN, "train", name)
    if split == "test" and trained is not None and trained > 0 and own > 2 * trained:
        sentences.append(
            f"The twin generalises poorly: its test error is {own / trained:.1f} times its training error "
            f"({format_number(trained, DIGITS)}). More varied runs, a smaller network or Loss(l2=...) may help."
        )
    return sentences


def _openings(openings: Mapping[str, int]) -> str:
    """How often the test data were used: an error that chose between designs is optimistic."""
    total, by_command = sum(openings.values()), [f"{name} {count}" for name, count in openings.items()]
    sentence = f"The test data were opened {'once' if total == 1 else f'{total} times'} so far ({listed(by_command)})"
    if openings.get("fit", 0) > 1:
        return (
            f"{sentence}, by {openings['fit']} fits: if their errors decided between designs, this one is optimistic."
        )
    return f"{sentence}, by one fit."


def _comparison(own: float, other: float) -> str:
    if not math.isfinite(own):
        return "The twin has no finite error."
    if not math.isfinite(other):
        return "The baseline does not complete the runs."
    if own == 0 or other == 0 or abs(other - own) <= 0.02 * max(own, other):
        return "The twin has about the same error: it gains nothing over this baseline."
    ratio = max(own, other) / min(own, other)
    factor = f"by a factor of {ratio:.2g}" if ratio < 100 else f"by a factor of {ratio:.0f}"
    if own < other:
        return f"The twin's error is lower {f'by {1 - own / other:.0%}' if ratio < 1.5 else factor}."
    return f"The twin is WORSE: its error is higher {f'by {ratio - 1:.0%}' if ratio < 1.5 else factor}."


def _failures(analysis: Analysis) -> list[str]:
    """Seeds, runs, and parts of the report itself."""
    sentences, fit = [], analysis.fit
    if fit is not None:
        sentences += [f"Seed {seed} {reason}." for seed, reason in fit.failures.items()]
        if fit.interrupted:
            sentences.append("The fit was interrupted; the twin is the best one found until then.")
    for split, each in analysis.splits.items():
        for run, name in enumerate(each.data.names):
            reason = each.predictions.reason(0, run)
            sentences += [f"The {SPLITS.get(split, split)} run '{name}' failed at {reason}"] if reason else []
    sentences += analysis.problems
    runs = sum(len(each.data) for each in analysis.splits.values())
    seeds = "" if fit is None else f", {_count(len(fit.seeds), 'seed')}"
    return sentences or [f"None ({_count(runs, 'run')} shown{seeds})."]


def _warnings(analysis: Analysis) -> list[str]:
    """Extrapolation, parameters that the data do not identify, seeds that disagree."""
    sentences = []
    for split, shares in analysis.extrapolation.items():
        large = [f"{name} ({share:.0%} of the samples)" for name, share in shares.items() if share > MAX_EXTRAPOLATION]
        if large:
            sentences.append(
                f"On the {SPLITS.get(split, split)} data, inputs of a learned part leave the range of the training "
                f"data, where it extrapolates: {listed(large)}."
            )
    for split, each in analysis.splits.items():
        share = extrapolation_share(each.predictions)
        if split != "train" and share.dominates:
            sentences.append(share.sentence(f"the {SPLITS.get(split, split)} runs"))
    ranges = [
        f"{name if part.kind == 'MLP' else f'{name} of {part.title}'} from {low:.3g} to {high:.3g}"
        for part in analysis.parts
        if part.samples.size
        for name, low, high in zip(part.inputs, part.samples.min(axis=0), part.samples.max(axis=0), strict=True)
    ]
    if ranges:
        sentences.append(
            f"Training data support the learned parts only in this range: {listed(list(dict.fromkeys(ranges)))}."
        )
    estimates = analysis.estimates
    lost = [each.name for each in estimates if math.isinf(each.error)]
    if lost:
        sentences.append(f"The data do not identify {listed(lost)}: the estimate depends on the first guess.")
    unsure = [str(each) for each in estimates if each.flag and not math.isinf(each.error)]
    if unsure:
        sentences.append(f"The standard error exceeds the value, so not even its size is known: {listed(unsure)}.")
    confounded = [each for each in estimates if each.inflation > CONFOUNDED and not math.isinf(each.error)]
    if confounded:
        names = listed([f"{each.name} (standard error {each.inflation:.0f} times larger)" for each in confounded])
        sentences.append(f"The data hardly distinguish these parameters from the learned parts: {names}.")
    if any(math.isnan(each.error) for each in estimates):
        sentences.append("Some parameters have no standard error: their uncertainty is unknown.")
    return [*sentences, *_seed_warnings(analysis)] or ["None."]


def _seed_warnings(analysis: Analysis) -> list[str]:
    fit, usable = analysis.fit, usable_seeds(analysis.fit)
    if len(usable) < 2:
        warning = "There is only one seed, so the uncertainty of the learned parts is unknown. Fit several seeds."
        return [warning] if analysis.parts else []
    assert fit is not None
    best, worst = float(np.min(fit.scores[usable])), float(np.max(fit.scores[usable]))
    if best <= 0 or worst <= 3 * best:
        return []
    return [
        f"The seeds disagree: the worst score is {format_number(worst)}, the best {format_number(best)}. The fit may "
        "not have converged."
    ]


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
