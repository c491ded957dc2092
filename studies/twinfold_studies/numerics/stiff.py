"""Stiff systems in the cell: Robertson's kinetics with its mass held and its rates learned, Van der Pol, long steps."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.report import number
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.kept import kept
from twinfold_studies.bench.store import Store
from twinfold_studies.numerics import kinetics, large_steps


def find(store: Store, quick: bool, tell: Callable[[str], None]) -> Findings:
    """Work and precision on Robertson's kinetics, the metric of its projection, its rates; then long steps."""
    settings = [kinetics.LAST, kinetics.UNBALANCED, kinetics.NOISE]
    work = kept(store, "numerics-stiff-work", [settings, quick], lambda: kinetics.work(quick, tell))
    tell("stiff: metric of the projection")
    metrics = kept(store, "numerics-stiff-metric", [settings, quick], lambda: kinetics.metrics(quick))
    learned = kept(store, "numerics-stiff-rates", [settings, quick], lambda: kinetics.learn(quick, tell))
    tell("stiff: Van der Pol")
    jumps = kept(store, "numerics-stiff-van-der-pol", [quick], lambda: large_steps.relaxation(quick))
    tell("stiff: Lotka-Volterra")
    steps = kept(store, "numerics-stiff-long-steps", [large_steps.STEPS, quick], lambda: large_steps.predators(quick))
    held = [row for row in metrics if row["case"] == "t = 1e5" and row["projection"] == "weighted"]
    summary = {
        "robertson_violation_max": max(row["violation_max"] for row in held),
        "robertson_rate_error": max(row["error"] for row in learned["rows"]),
    }
    pictures = [_work_picture(work), _long_picture(steps)]
    if learned["law"]:
        pictures.append(_law_picture(learned["law"]))
    return Findings(
        _words(work, metrics, learned, jumps, steps), _tables(work, metrics, learned, jumps, steps), pictures, summary
    )


def _tables(work: list, metrics: list, learned: dict, jumps: list, steps: list) -> list[Table]:
    return [
        Table(
            "stiff_metric",
            "Robertson: what the metric of a projection does to each species",
            metrics,
            caption="Radau, four steps in each decade of time. The largest relative error of each species at the "
            "samples (at t = 1e11 that of the end, against the published solution). The unbalanced law makes "
            f"{kinetics.UNBALANCED:g} more of the product than it uses up; its error is that of the law itself, too.",
        ),
        Table(
            "stiff_work",
            "Robertson to t = 1e5: error against time",
            work,
            caption="Largest relative error of any species at the samples. Cells take fixed steps between 38 samples "
            "and project (weighted); SciPy and Diffrax choose their own steps, and interpolate between them. One "
            f"trajectory, compiled, best of {kinetics.REPEATS}; SciPy evaluates the field in Python.",
        ),
        Table(
            "stiff_rates",
            f"Robertson: rates learned from samples with {100 * kinetics.NOISE:g} % noise",
            learned["rows"],
            caption="Levenberg-Marquardt through Radau and the projection. The error of the network is its largest "
            f"relative one on a run that it has not seen, from t = {kinetics.LEAST_TIME:g} on.",
        ),
        Table(
            "stiff_van_der_pol",
            "Van der Pol, mu = 1000",
            jumps,
            caption="Relative error at the end. A jump takes about 1e-3: a step of 10 across it has no solution near "
            "the last state, which is flagged and not hidden.",
        ),
        Table(
            "stiff_long_steps",
            "Lotka-Volterra with long steps",
            steps,
            caption=f"Largest error over t = 0 ... {large_steps.DURATION:g} (about four periods).",
        ),
    ]


def _words(work: list, metrics: list, learned: dict, jumps: list, steps: list) -> list[str]:
    by = {(row["case"], row["projection"]): row for row in metrics}
    plain, weighted = by["t = 1e5, unbalanced law", "unweighted"], by["t = 1e5, unbalanced law", "weighted"]
    held = by["t = 1e5", "weighted"]
    said = [
        f"Robertson to t = 1e5 with Radau: relative violation of the mass at most {number(held['violation_max'])}, "
        f"relative error of the species at most {number(max(held[f'error_x{i}'] for i in (1, 2, 3)))}.",
        f"Where the law does not conserve mass by itself, an unweighted projection leaves the smallest species with a "
        f"relative error of {number(plain['error_x2'])}, one weighted by the sizes of the species "
        f"{number(weighted['error_x2'])}.",
    ]
    said += [f"Learned {row['learned']}: within {100 * row['error']:.2g} % of truth." for row in learned["rows"]]
    own = min((row for row in work if row["method"].startswith("Radau cell")), key=lambda row: row["error"])
    peers = [row for row in work if "cell" not in row["method"] and row["error"] <= own["error"]]
    if peers:
        fastest = min(peers, key=lambda row: row["ms"])
        said.append(
            f"An error of {number(own['error'])} takes the Radau cell {number(own['ms'])} ms; the fastest peer that is "
            f"as accurate is {fastest['method']} ({fastest['setting']}) with {number(fastest['ms'])} ms."
        )
    else:
        said.append(f"No peer reaches the error of the Radau cell, {number(own['error'])}.")
    flagged = [row for row in jumps if row["flagged_at"] is not None]
    said += [
        f"Van der Pol, {row['samples']}, {row['integrator']}: flagged at t = {row['flagged_at']:g}." for row in flagged
    ]
    longest = max(row["dt"] for row in steps)
    said += [
        f"Lotka-Volterra in steps of {longest:g}, {'projected' if row['projected'] else 'free'}, {row['integrator']}: "
        f"{'failed, and flagged' if row['failed'] else 'error ' + number(row['error'])}."
        for row in steps
        if row["dt"] == longest
    ]
    return said


def _work_picture(rows: list[dict[str, Any]]) -> Picture:
    def draw() -> Any:
        panels = {}
        for title, key in (("Species", "error"), ("Mass", "mass")):
            lines: dict[str, list] = {}
            for row in rows:
                if not row["failed"]:
                    lines.setdefault(row["method"], []).append((row["ms"], row[key]))
            panels[title] = {name: tuple(np.array(points).T) for name, points in lines.items()}
        return curves(panels, "ms", "largest relative error", columns=2)

    return Picture(
        "stiff_work", "Robertson to t = 1e5: error against time", "One trajectory; lower and left is better.", draw
    )


def _long_picture(rows: list[dict[str, Any]]) -> Picture:
    def draw() -> Any:
        lines: dict[str, list] = {}
        for row in rows:
            name = f"{row['integrator']}{', projected' if row['projected'] else ''}"
            lines.setdefault(name, []).append((row["dt"], np.nan if row["failed"] else row["error"]))
        panel = {name: tuple(np.array(points).T) for name, points in lines.items()}
        return curves({"Lotka-Volterra": panel}, "dt", "largest error")

    return Picture("stiff_long_steps", "Long steps", "Where a point is missing, the run failed and says so.", draw)


def _law_picture(law: list[list[float]]) -> Picture:
    def draw() -> Any:
        x2, learned, true = np.array(sorted(law)).T
        panel = {"true": (x2, true), "learned": (x2, learned)}
        return curves({"Rate of 2 x2 -> x2 + x3": panel}, "x2", "rate")

    return Picture("stiff_law", "A law of reaction, learned", "Along a run that was not in the data.", draw)
