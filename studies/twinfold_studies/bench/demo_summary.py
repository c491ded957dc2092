"""Tables and sentences of a demonstration."""

import math
from dataclasses import dataclass
from typing import Any

from twinfold.report import format_number
from twinfold_studies.bench.demo import ModelResult, Results
from twinfold_studies.bench.problems import HORIZONS


@dataclass(frozen=True)
class Line:
    """One line of the table: a cell for each model; `best`, the lowest one; `indented`: a detail of the line above."""

    label: str
    cells: list[str]
    best: int | None = None
    indented: bool = False


def metric_rows(results: Results) -> list[dict[str, Any]]:
    """All metrics of each model, horizon, seed and run, and of the floors ("field": "exact")."""
    return [
        {"model": outcome.name, "field": field, "horizon": horizon} | row
        for outcome in results.outcomes
        for field, evaluations in (("learned", outcome.metrics), ("exact", outcome.floor_metrics))
        for horizon in HORIZONS
        for row in evaluations[horizon].rows()
    ]


def summary_rows(results: Results) -> list[dict[str, Any]]:
    """Mean, standard deviation and median over seeds: one row for each model and horizon."""
    rows = []
    for outcome in results.outcomes:
        for horizon, duration in zip(HORIZONS, (results.data.horizon, results.data.long), strict=True):
            row: dict[str, Any] = {"model": outcome.name, "horizon": horizon, "duration": duration}
            for metric, spread in outcome.metrics[horizon].aggregate().items():
                row |= {f"{metric}_{kind}": value for kind, value in spread.items()}
            row["floor_mae"] = outcome.floor_metrics[horizon].aggregate()["mae"]["mean"]
            row["failed_runs"] = outcome.metrics[horizon].failures
            row["failed_seeds"] = len(outcome.fit.failures)
            rows.append(row | {"seconds": outcome.fit.seconds, "parameters": outcome.fit.parameters})
    return rows


def table(results: Results) -> list[Line]:
    """The table of the terminal and of the report."""
    outcomes, seeds = results.outcomes, results.settings.seeds
    lines = []
    for horizon, duration in zip(HORIZONS, (results.data.horizon, results.data.long), strict=True):
        spreads = [outcome.metrics[horizon].aggregate()["mae"] for outcome in outcomes]
        at = f"T = {duration:g}"
        lines.append(_numbers(f"MAE, {at}", [s["mean"] for s in spreads], best=True))
        if seeds > 1:
            lines.append(Line("± over seeds", [format_number(s["std"]) for s in spreads], indented=True))
            lines.append(_numbers("median", [s["median"] for s in spreads], best=True, indented=True))
        floors = [outcome.floor_metrics[horizon].aggregate()["mae"]["mean"] for outcome in outcomes]
        lines.append(_numbers("floor", floors, indented=True))
        distances = [outcome.metrics[horizon].aggregate()["dtw"]["mean"] for outcome in outcomes]
        lines.append(_numbers("DTW", distances, best=True, indented=True))
    long = [outcome.metrics["long"].aggregate() for outcome in outcomes]
    lines.append(_numbers("rel. violation, mean", [m["relative_violation_mean"]["mean"] for m in long], best=True))
    worst = [outcome.metrics["long"].by_seed()["relative_violation_max"].max() for outcome in outcomes]
    lines.append(_numbers("largest", worst, best=True, indented=True))
    lines.append(Line("valid until", [f"{m['valid_time']['mean']:.1f}" for m in long]))
    lines.append(Line("training", [f"{outcome.fit.seconds:.0f} s" for outcome in outcomes]))
    lines.append(Line("parameters", [str(outcome.fit.parameters) for outcome in outcomes]))
    lines.append(Line("failed runs", [_failures(outcome) for outcome in outcomes]))
    lines.append(Line("failed seeds", [f"{len(o.fit.failures)} of {len(o.fit.seeds)}" for o in outcomes]))
    return lines


def summarise(results: Results) -> list[str]:
    """The main results in sentences."""
    if not results.outcomes:
        return ["No model was fitted."]
    horizon, long = results.data.horizon, results.data.long
    errors = {h: {o.title: o.metrics[h].aggregate()["mae"]["median"] for o in results.outcomes} for h in HORIZONS}
    best = min(errors["train"], key=lambda title: errors["train"][title])
    worst = max(errors["train"], key=lambda title: errors["train"][title])
    sentences = [
        f"On {results.settings.test} unseen trajectories, {best} has the lowest median error over the "
        f"training horizon (T = {horizon:g}): MAE {format_number(errors['train'][best])}"
        + (f", against {format_number(errors['train'][worst])} for {worst}." if worst != best else ".")
    ]
    far = min(errors["long"], key=lambda title: errors["long"][title])
    sentences.append(
        f"Over three times that horizon (T = {long:g}) {far} is {'again ' if far == best else ''}the most accurate, "
        f"with MAE {format_number(errors['long'][far])}."
    )
    violations = {o.title: o.metrics["long"].by_seed()["relative_violation_max"].max() for o in results.outcomes}
    tightest, loosest = (pick(violations, key=lambda title: violations[title]) for pick in (min, max))
    if math.isfinite(violations[tightest]):
        sentences.append(
            f"The largest relative violation over all steps and runs is {format_number(violations[tightest])} for "
            f"{tightest} and {format_number(violations[loosest])} for {loosest}."
        )
    failed = sum(outcome.metrics["long"].failures for outcome in results.outcomes)
    runs = sum(outcome.metrics["long"].metrics["failed"].size for outcome in results.outcomes)
    diverged = sum(len(outcome.fit.failures) for outcome in results.outcomes)
    sentences.append(
        (f"{failed} of {runs} runs failed" if failed else f"None of the {runs} runs failed")
        + (f", and {diverged} of the seeds diverged in training." if diverged else ".")
    )
    sentences += [f"{title} could not be fitted: {reason}" for title, reason in results.errors.items()]
    if results.interrupted:
        sentences.append("The run was interrupted: missing models were not finished.")
    return sentences


def failure_reasons(results: Results) -> list[tuple[str, str]]:
    """Model, seed and run of every failure, with its reason."""
    failures = [(title, reason) for title, reason in results.errors.items()]
    for outcome in results.outcomes:
        failures += [(f"{outcome.title}, seed {seed}", reason) for seed, reason in outcome.fit.failures.items()]
        for (seed, run), reason in outcome.metrics["long"].reasons.items():
            failures.append((f"{outcome.title}, seed {seed}, run {run}", reason))
    return failures


def _numbers(label: str, values: list[float], *, best: bool = False, indented: bool = False) -> Line:
    usable = [value if math.isfinite(value) else math.inf for value in values]
    lowest = usable.index(min(usable)) if best and usable and math.isfinite(min(usable)) else None
    return Line(label, [format_number(value) for value in values], lowest, indented)


def _failures(outcome: ModelResult) -> str:
    evaluation = outcome.metrics["long"]
    return f"{evaluation.failures} of {evaluation.metrics['failed'].size}"
