"""Stiff systems: Robertson's kinetics with conserved mass and learned rates, Van der Pol, long steps."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.report import format_number
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.store import Store
from twinfold_studies.numerics import kinetics, large_steps


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """Robertson's kinetics (work and precision, metric of the projection, learned rates), Van der Pol, long steps."""
    settings = [kinetics.LAST, kinetics.UNBALANCED, kinetics.NOISE]
    work = cached(store, "numerics-stiff-work", [settings, quick], lambda: kinetics.work_precision(quick, log))
    log("stiff: metric of the projection")
    metrics = cached(store, "numerics-stiff-metric", [settings, quick], lambda: kinetics.metric_rows(quick))
    learned = cached(store, "numerics-stiff-rates", [settings, quick], lambda: kinetics.learn(quick, log))
    log("stiff: Van der Pol")
    jumps = cached(store, "numerics-stiff-van-der-pol", [quick], lambda: large_steps.van_der_pol_rows(quick))
    log("stiff: Lotka-Volterra")
    steps = cached(
        store, "numerics-stiff-long-steps", [large_steps.STEPS, quick], lambda: large_steps.lotka_volterra_rows(quick)
    )
    weighted = [row for row in metrics if row["case"] == "t = 1e5" and row["projection"] == "weighted"]
    summary = {
        "robertson_violation_max": max(row["violation_max"] for row in weighted),
        "robertson_rate_error": max(row["error"] for row in learned["rows"]),
    }
    pictures = [_work_picture(work), _long_picture(steps)]
    if learned["law"]:
        pictures.append(_law_picture(learned["law"]))
    return Findings(
        _summarise(work, metrics, learned, jumps, steps),
        _tables(work, metrics, learned, jumps, steps),
        pictures,
        summary,
    )


def _tables(work: list, metrics: list, learned: dict, jumps: list, steps: list) -> list[Table]:
    return [
        Table(
            "stiff_metric",
            "Robertson: error of each species by metric of the projection",
            metrics,
            caption="Radau, four steps per decade of time. Largest relative error of each species at the samples (for "
            "t = 1e11 at the final time, against the published solution). The unbalanced law creates an excess of "
            f"{kinetics.UNBALANCED:g} of the product; its errors include that of the law.",
        ),
        Table(
            "stiff_work",
            "Robertson to t = 1e5: error against time",
            work,
            caption="Largest relative error of any species at the samples. Cells take fixed steps between 38 samples "
            "and project (weighted); SciPy and Diffrax choose their steps and interpolate. One trajectory, compiled, "
            f"best of {kinetics.REPEATS}; SciPy evaluates the field in Python.",
        ),
        Table(
            "stiff_rates",
            f"Robertson: rates learned from samples with {100 * kinetics.NOISE:g} % noise",
            learned["rows"],
            caption="Levenberg-Marquardt through Radau and the projection. Error of the network: largest relative "
            f"error on an unseen run from t = {kinetics.MIN_TIME:g} on.",
        ),
        Table(
            "stiff_van_der_pol",
            "Van der Pol, mu = 1000",
            jumps,
            caption="Relative error at the end. A jump takes about 1e-3 units of time: a step of 10 across it has no "
            "solution near the last state, and is flagged as failed.",
        ),
        Table(
            "stiff_long_steps",
            "Lotka-Volterra with long steps",
            steps,
            caption=f"Largest error over t = 0 ... {large_steps.DURATION:g} (about four periods).",
        ),
    ]


def _summarise(work: list, metrics: list, learned: dict, jumps: list, steps: list) -> list[str]:
    by = {(row["case"], row["projection"]): row for row in metrics}
    plain, weighted = by["t = 1e5, unbalanced law", "unweighted"], by["t = 1e5, unbalanced law", "weighted"]
    exact = by["t = 1e5", "weighted"]
    sentences = [
        "Robertson to t = 1e5 with Radau: largest relative violation of the mass "
        f"{format_number(exact['violation_max'])}, largest relative error of the species "
        f"{format_number(max(exact[f'error_x{i}'] for i in (1, 2, 3)))}.",
        "With a law that does not conserve mass, the relative error of the smallest species is "
        f"{format_number(plain['error_x2'])} after an unweighted projection, and "
        f"{format_number(weighted['error_x2'])} after one that is weighted by the sizes of the species.",
    ]
    sentences += [f"Learned {row['learned']}: error {100 * row['error']:.2g} %." for row in learned["rows"]]
    own = min((row for row in work if row["method"].startswith("Radau cell")), key=lambda row: row["error"])
    peers = [row for row in work if "cell" not in row["method"] and row["error"] <= own["error"]]
    if peers:
        fastest = min(peers, key=lambda row: row["ms"])
        sentences.append(
            f"The Radau cell reaches an error of {format_number(own['error'])} in {format_number(own['ms'])} ms; the "
            f"fastest peer of the same accuracy is {fastest['method']} ({fastest['setting']}) with "
            f"{format_number(fastest['ms'])} ms."
        )
    else:
        sentences.append(f"No peer reaches the accuracy of the Radau cell, {format_number(own['error'])}.")
    flagged = [row for row in jumps if row["flagged_at"] is not None]
    sentences += [
        f"Van der Pol, {row['samples']}, {row['integrator']}: flagged at t = {row['flagged_at']:g}." for row in flagged
    ]
    longest = max(row["dt"] for row in steps)
    sentences += [
        f"Lotka-Volterra in steps of {longest:g}, {'projected' if row['projected'] else 'unprojected'}, "
        f"{row['integrator']}: "
        f"{'flagged as failed' if row['failed'] else 'error ' + format_number(row['error'])}."
        for row in steps
        if row["dt"] == longest
    ]
    return sentences


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
        "stiff_work", "Robertson to t = 1e5: error against time", "One trajectory; lower left is better.", draw
    )


def _long_picture(rows: list[dict[str, Any]]) -> Picture:
    def draw() -> Any:
        lines: dict[str, list] = {}
        for row in rows:
            name = f"{row['integrator']}{', projected' if row['projected'] else ''}"
            lines.setdefault(name, []).append((row["dt"], np.nan if row["failed"] else row["error"]))
        panel = {name: tuple(np.array(points).T) for name, points in lines.items()}
        return curves({"Lotka-Volterra": panel}, "dt", "largest error")

    return Picture("stiff_long_steps", "Long steps", "Missing points: the run was flagged as failed.", draw)


def _law_picture(law: list[list[float]]) -> Picture:
    def draw() -> Any:
        x2, learned, true = np.array(sorted(law)).T
        panel = {"true": (x2, true), "learned": (x2, learned)}
        return curves({"Rate of 2 x2 -> x2 + x3": panel}, "x2", "rate")

    return Picture("stiff_law", "A learned rate law", "Along an unseen run.", draw)
