"""A twin that follows its plant: are its estimates right, on the manifold, and as uncertain as it says?"""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, GREY, INK, subplots
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.follow.consistency import exact_results, learned_results
from twinfold_studies.follow.learned import TRAINING_SETTINGS
from twinfold_studies.follow.peers import differences
from twinfold_studies.follow.plants import MEASURED, PLANT_SETTINGS, PROCESS, RUNS, SAMPLES, SEED, SENSOR, START
from twinfold_studies.follow.tracking import DROP_AT, TRACKING_SETTINGS, WITHIN, tracked
from twinfold_studies.systems import SYSTEMS, system

COVERAGE = (0.85, 0.95)  # where the coverage of a 90 % band is expected
TO_ROUNDING = 1e-12


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Consistency on the benchmark systems, tracking of a parameter, and dynamax."""
    runs, samples = (20, 20) if options.quick else (RUNS, SAMPLES)
    found: dict[str, dict[str, Any]] = {}
    peers: list[dict[str, Any]] = []
    tracking: dict[str, Any] | None = None
    with record_skips(store):
        log("dynamax")
        peers = cached(store, "follow-dynamax", [], differences)
    for name in options.systems:
        with record_skips(store):
            log(f"consistency: {name}")
            found[name] = cached(
                store,
                "follow-exact",
                [name, runs, samples, PLANT_SETTINGS],
                lambda name=name: exact_results(name, runs, samples),
            )
    with record_skips(store):
        log("tracking of a parameter")
        tracking = cached(
            store, "follow-tracking", [options.quick, TRACKING_SETTINGS], lambda: tracked(quick=options.quick)
        )
    for name in found:
        with record_skips(store):
            log(f"consistency of the learned twin: {name}")
            found[name] |= cached(
                store,
                "follow-learned",
                [name, runs, samples, options.quick, PLANT_SETTINGS, TRAINING_SETTINGS],
                lambda name=name: learned_results(name, runs, samples, quick=options.quick),
            )
    rows = [
        {"system": name, "model": model} | {key: each[key] for key in each if key != "nees_over_time"}
        for name, models in found.items()
        for model, each in models.items()
    ]
    by_model = {
        model: [models[model] for models in found.values() if model in models]
        for model in ("exact", "learned", "unconstrained")
    }
    pairs = zip(by_model["exact"], by_model["unconstrained"], strict=True)
    summary: dict[str, float] = {
        "systems": len(found),
        "consistent_systems": sum(each["consistent"] for each in by_model["exact"]),
        "systems_learned": len(by_model["learned"]),
        "consistent_systems_learned": sum(each["consistent"] for each in by_model["learned"]),
        "violation": max((each["violation"] for each in by_model["exact"] + by_model["learned"]), default=np.nan),
        "beats_unconstrained": sum(ours["rmse"] < free["rmse"] for ours, free in pairs),
    }
    for model in ("exact", "learned"):
        shares = [each["coverage"] for each in by_model[model]]
        summary[f"coverage_{model}_min"] = min(shares, default=np.nan)
        summary[f"coverage_{model}_max"] = max(shares, default=np.nan)
    sentences = [
        f"Extended Kalman filter with the exact model: NEES and NIS inside their 99.9 % bounds on "
        f"{summary['consistent_systems']} of {len(found)} systems (with the learned twin on "
        f"{summary['consistent_systems_learned']} of {summary['systems_learned']}); largest violation of an estimate "
        f"{summary['violation']:.1e}; "
        f"error below that of the filter without the manifold on {summary['beats_unconstrained']} systems.",
        f"90 % bands of open-loop predictions contain {100 * summary['coverage_exact_min']:.0f} to "
        f"{100 * summary['coverage_exact_max']:.0f} % of the measurements with the exact model, "
        f"{100 * summary['coverage_learned_min']:.0f} to {100 * summary['coverage_learned_max']:.0f} % with the "
        "learned twin.",
    ]
    tables = [
        Table(
            "consistency",
            "Estimates on the benchmark systems",
            rows,
            ("system", "model", "freedom", "nees", "nees_inside", "nis", "consistent", "rmse", "violation", "coverage"),
            f"{runs} runs of {samples} samples, seed {SEED}, the same for all systems; standard deviations: start "
            f"{START}, process {PROCESS}, "
            f"sensors {SENSOR}. Measured: "
            + "; ".join(f"{name} {', '.join(system(name).state_names[i] for i in MEASURED[name])}" for name in found)
            + ". nees: the average over runs at the last sample; nees_inside: the share of samples at which this "
            "average is inside its 99.9 % bounds; nis: the average over runs and samples; consistent: both inside; "
            "unconstrained: the exact model without projection, for which nees has n degrees of freedom; coverage of "
            f"90 % bands, expected between {COVERAGE[0]} and {COVERAGE[1]}.",
            digits=3,
        )
    ]
    pictures = []
    if found:
        pictures.append(
            Picture(
                "nees",
                "Normalised error over time",
                "Average over runs of the squared error, normalised by the covariance; shaded: where it lies with "
                "probability 99.9 % if the filter is consistent.",
                lambda: draw_nees(found),
            )
        )
    if peers:
        worst = {
            problem: max(
                value
                for row in peers
                if row["problem"] == problem
                for value in row.values()
                if isinstance(value, float)
            )
            for problem in ("linear", "pendulum")
        }
        summary["dynamax_difference"] = max(worst.values())
        sentences.append(
            f"dynamax: means and covariances of filters and smoothers differ by {worst['linear']:.1e} (linear) and "
            f"{worst['pendulum']:.1e} (pendulum) at most."
        )
        tables.append(Table("dynamax", "Difference from dynamax, relative to the largest number", peers))
    if tracking is not None:
        settled = {model: np.array(tracking[model]["settled"]) for model in ("exact", "learned")}
        medians = {model: float(np.median(values)) for model, values in settled.items()}
        summary["tracking_ratio"] = float(np.mean(settled["learned"]) / np.mean(settled["exact"]))
        summary |= {f"tracking_samples_{model}": value for model, value in medians.items()}
        sentences.append(
            f"A stiffness that drops by 20 %: its estimate by moving-horizon estimation stays within "
            f"{100 * WITHIN:.0f} % after {medians['exact']:.0f} samples (median) with the exact model and "
            f"{medians['learned']:.0f} with the learned twin; ratio of the means {summary['tracking_ratio']:.2f}."
        )
        tracks = [
            {"run": run, "exact": a, "learned": b}
            for run, (a, b) in enumerate(zip(settled["exact"], settled["learned"], strict=True))
        ]
        tables.append(Table("tracking", "Samples until the estimate of the stiffness has settled", tracks))
        pictures.append(
            Picture(
                "tracking",
                "A stiffness that drops by a fifth",
                "One run: the estimate with two standard deviations, by moving-horizon estimation.",
                lambda: draw_tracking(tracking),
            )
        )
    return Findings(sentences, tables, pictures, summary)


def draw_nees(found: dict[str, dict[str, Any]]) -> Any:
    """A panel for each system."""
    columns = min(3, len(found))
    with subplots(-(-len(found) // columns), columns, width=max(4.2 * columns, 6.0), height=2.6) as (figure, axes):
        for axis, (name, models) in zip(axes, found.items(), strict=False):
            low, high = models["exact"]["nees_bounds"]
            axis.axhspan(low, high, color=GREY, alpha=0.25, linewidth=0)
            axis.axhline(models["exact"]["freedom"], color=GREY, linewidth=1)
            for model, colour in (("exact", INK), ("learned", COLOURS[1])):
                if model not in models:
                    continue
                axis.plot(models[model]["nees_over_time"], color=colour, label=f"{model} model", linewidth=1.3)
            axis.set_yscale("log")
            axis.set_title(system(name).title)
            axis.set_xlabel("sample")
        for axis in axes[len(found) :]:
            axis.set_visible(False)
        axes[0].set_ylabel("NEES, average over runs")
        axes[0].legend(fontsize=8)
    return figure


def draw_tracking(tracking: dict[str, Any]) -> Any:
    """Estimates of one run."""
    ts = np.array(tracking["ts"])
    with subplots(1, 1, width=7.0, height=3.2) as (figure, axes):
        axis = axes[0]
        axis.plot(ts, tracking["truth"], color=GREY, linewidth=2, label="truth")
        for model, colour in (("exact", INK), ("learned", COLOURS[1])):
            value, std = np.array(tracking[model]["value"]), np.array(tracking[model]["std"])
            axis.plot(ts, value, color=colour, linewidth=1.2, label=f"{model} model")
            axis.fill_between(ts, value - 2 * std, value + 2 * std, color=colour, alpha=0.15, linewidth=0)
        axis.axvline(ts[DROP_AT], color=GREY, linewidth=0.8)
        axis.set_xlabel("time in s")
        axis.set_ylabel("stiffness")
        axis.legend(fontsize=8)
    return figure


FOLLOW = Experiment(
    "follow",
    "A twin that follows its plant",
    "Consistency of filters on the manifold, coverage of bands, tracking of a parameter, agreement with dynamax.",
    full=Options(tuple(SYSTEMS)),
    quick=Options(("mass_spring", "rigid_body")),
    requests=lambda options: [],
    analyse=analyse,
)
