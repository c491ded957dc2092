"""The numbers of a demonstration as tables: one line for each model and horizon, and the one that people read."""

import math
from dataclasses import dataclass
from typing import Any

from twinfold.report import number
from twinfold_studies.bench.demo import Outcome, Results
from twinfold_studies.bench.problems import HORIZONS


@dataclass(frozen=True)
class Line:
    """One line of the table that people read: a cell for each model; `best` is the index of the lowest."""

    label: str
    cells: list[str]
    best: int | None = None


def metric_rows(results: Results) -> list[dict[str, Any]]:
    """Every metric of each model, horizon, seed and run, and of the floors ("field": "exact")."""
    return [
        {"model": outcome.name, "field": field, "horizon": horizon} | row
        for outcome in results.outcomes
        for field, evaluations in (("learned", outcome.metrics), ("exact", outcome.floor_metrics))
        for horizon in HORIZONS
        for row in evaluations[horizon].rows()
    ]


def summary_rows(results: Results) -> list[dict[str, Any]]:
    """Mean, standard deviation and median over seeds, one row for each model and horizon."""
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
    """What is shown in the terminal and in the report."""
    outcomes, seeds = results.outcomes, results.settings.seeds
    lines = []
    for horizon, duration in zip(HORIZONS, (results.data.horizon, results.data.long), strict=True):
        spreads = [outcome.metrics[horizon].aggregate()["mae"] for outcome in outcomes]
        at = f"T = {duration:g}"
        lines.append(_numbers(f"MAE, {at}", [s["mean"] for s in spreads], best=True))
        if seeds > 1:
            lines.append(Line("± over seeds", [number(s["std"]) for s in spreads]))
            lines.append(_numbers("median", [s["median"] for s in spreads], best=True))
        lines.append(_numbers("floor", [o.floor_metrics[horizon].aggregate()["mae"]["mean"] for o in outcomes]))
        lines.append(_numbers("DTW", [o.metrics[horizon].aggregate()["dtw"]["mean"] for o in outcomes], best=True))
    long = [outcome.metrics["long"].aggregate() for outcome in outcomes]
    lines.append(_numbers("rel. violation, mean", [m["relative_violation_mean"]["mean"] for m in long], best=True))
    worst = [outcome.metrics["long"].by_seed()["relative_violation_max"].max() for outcome in outcomes]
    lines.append(_numbers("largest", worst, best=True))
    lines.append(Line("valid until", [f"{m['valid_time']['mean']:.1f}" for m in long]))
    lines.append(Line("training", [f"{outcome.fit.seconds:.0f} s" for outcome in outcomes]))
    lines.append(Line("parameters", [str(outcome.fit.parameters) for outcome in outcomes]))
    lines.append(Line("failed runs", [_failures(outcome) for outcome in outcomes]))
    lines.append(Line("failed seeds", [f"{len(o.fit.failures)} of {len(o.fit.seeds)}" for o in outcomes]))
    return lines


def in_words(results: Results) -> list[str]:
    """What the numbers say, in sentences that hold whatever they are."""
    if not results.outcomes:
        return ["No model was fitted."]
    horizon, long = results.data.horizon, results.data.long
    errors = {h: {o.title: o.metrics[h].aggregate()["mae"]["median"] for o in results.outcomes} for h in HORIZONS}
    best = min(errors["train"], key=lambda title: errors["train"][title])
    worst = max(errors["train"], key=lambda title: errors["train"][title])
    words = [
        f"On {results.settings.test} trajectories that no model has seen, {best} has the lowest median error over the "
        f"training horizon (T = {horizon:g}): MAE {number(errors['train'][best])}"
        + (f", against {number(errors['train'][worst])} for {worst}." if worst != best else ".")
    ]
    far = min(errors["long"], key=lambda title: errors["long"][title])
    again = "it is again" if far == best else f"{far} is"
    words.append(
        f"Three times as far (T = {long:g}) {again} the most accurate, with MAE {number(errors['long'][far])}."
    )
    held = {o.title: o.metrics["long"].by_seed()["relative_violation_max"].max() for o in results.outcomes}
    tightest, loosest = (pick(held, key=lambda title: held[title]) for pick in (min, max))
    if math.isfinite(held[tightest]):
        words.append(
            f"{tightest} never leaves its manifold by more than {number(held[tightest])} of its size at any step of "
            f"any run; {loosest} does so by up to {number(held[loosest])}."
        )
    failed = sum(outcome.metrics["long"].failures for outcome in results.outcomes)
    runs = sum(outcome.metrics["long"].metrics["failed"].size for outcome in results.outcomes)
    lost = sum(len(outcome.fit.failures) for outcome in results.outcomes)
    words.append(
        (f"{failed} of {runs} runs failed" if failed else f"None of the {runs} runs failed")
        + (f", and {lost} of the seeds went non-finite while training." if lost else ".")
    )
    words += [f"{title} could not be fitted: {reason}" for title, reason in results.errors.items()]
    if results.interrupted:
        words.append("The run was interrupted: models that are missing here were not finished.")
    return words


def reasons(results: Results) -> list[tuple[str, str]]:
    """(model and where, reason) of everything that failed."""
    found = [(title, reason) for title, reason in results.errors.items()]
    for outcome in results.outcomes:
        found += [(f"{outcome.title}, seed {seed}", reason) for seed, reason in outcome.fit.failures.items()]
        for (seed, run), reason in outcome.metrics["long"].reasons.items():
            found.append((f"{outcome.title}, seed {seed}, run {run}", reason))
    return found


def _numbers(label: str, values: list[float], *, best: bool = False) -> Line:
    usable = [value if math.isfinite(value) else math.inf for value in values]
    lowest = usable.index(min(usable)) if best and usable and math.isfinite(min(usable)) else None
    return Line(label, [number(value) for value in values], lowest)


def _failures(outcome: Outcome) -> str:
    evaluation = outcome.metrics["long"]
    return f"{evaluation.failures} of {evaluation.metrics['failed'].size}"
