"""A twin that follows its plant: are its estimates right, on the manifold, and as uncertain as it says?"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, GREY, INK, subplots
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.follow.cells import JUDGED, NASA_CELLS, TENTH, UNKNOWN, WALKING
from twinfold_studies.follow.learned import HEALTHY_RUNS
from twinfold_studies.follow.pieces import QUICK_SYSTEMS, pieces, size
from twinfold_studies.follow.plants import MEASURED, PROCESS, SEED, SENSOR, START
from twinfold_studies.follow.tracking import DROP_AT, WITHIN
from twinfold_studies.systems import SYSTEMS, system

COVERAGE = (0.85, 0.95)  # where the coverage of a 90 % band is expected
CHARGE = 0.02  # of the capacity: how far an estimate may be away after a tenth of the discharge
SPEED = Path(__file__).parents[3] / "benchmarks" / "following.json"  # of a checkout of the repository
SPEEDS = ("ekf_us", "follow_p99_ms", "follow_seconds", "missing_seconds")


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Consistency on the benchmark systems, tracking of a parameter, and dynamax."""
    found: dict[str, dict[str, Any]] = {name: {} for name in options.systems}
    others: dict[str, Any] = {}
    for piece in pieces(options):
        with record_skips(store):
            log(piece.title)
            result = cached(store, piece.name, piece.settings, piece.compute)
            if piece.system:
                found[piece.system] |= result
            else:
                others[piece.key] = result
    found = {name: models for name, models in found.items() if models}
    peers, tracking = others.get("dynamax", []), others.get("tracking")
    rows = [
        {"system": name, "model": model} | {key: each[key] for key in each if key not in ("nees_over_time", "noise")}
        for name, models in found.items()
        for model, each in models.items()
    ]
    by_model = {
        model: [models[model] for models in found.values() if model in models]
        for model in ("exact", "learned", "unconstrained")
    }
    pairs = zip(by_model["exact"], by_model["unconstrained"], strict=True)
    summary: dict[str, Any] = {
        "systems": len(found),
        "consistent_systems": sum(each["consistent"] for each in by_model["exact"]),
        "systems_learned": len(by_model["learned"]),
        "consistent_systems_learned": sum(each["consistent"] for each in by_model["learned"]),
        "violation": max((each["violation"] for each in by_model["exact"] + by_model["learned"]), default=np.nan),
        "beats_unconstrained": sum(ours["rmse"] < free["rmse"] for ours, free in pairs),
    }
    learned = {name: models["learned"] for name, models in found.items() if "learned" in models}
    shares: dict[str, float] = {name: each["coverage"] for name, each in learned.items()}
    cells = {cell: others[cell] for cell in (WALKING, *NASA_CELLS) if cell in others}
    if cells:
        counts = [(each["twin"]["coverage"], each["twin"]["samples"]) for each in cells.values()]
        shares["battery"] = sum(share * count for share, count in counts) / sum(count for _, count in counts)
    if "emps" in others:
        shares["emps"] = others["emps"]["coverage"]
    exact = [each["coverage"] for each in by_model["exact"]]
    summary["coverage_exact_min"], summary["coverage_exact_max"] = (
        min(exact, default=np.nan),
        max(exact, default=np.nan),
    )
    summary["coverage"] = shares
    summary["coverage_inside"] = sum(COVERAGE[0] <= share <= COVERAGE[1] for share in shares.values())
    sentences = [
        f"Extended Kalman filter with the exact model: NEES and NIS inside their 99.9 % bounds on "
        f"{summary['consistent_systems']} of {len(by_model['exact'])} systems (with the learned twin on "
        f"{summary['consistent_systems_learned']} of {summary['systems_learned']}); largest violation of an estimate "
        f"{summary['violation']:.1e}; "
        f"error below that of the filter without the manifold on {summary['beats_unconstrained']} systems.",
        f"90 % bands of open-loop predictions contain {100 * summary['coverage_exact_min']:.0f} to "
        f"{100 * summary['coverage_exact_max']:.0f} % of the measurements with the exact model; with the learned twin "
        + ", ".join(f"{100 * share:.0f} % ({name})" for name, share in shares.items())
        + f": {summary['coverage_inside']} of {len(shares)} between 85 and 95 %.",
    ]
    tables = [
        Table(
            "consistency",
            "Estimates on the benchmark systems",
            rows,
            ("system", "model", "freedom", "nees", "nees_inside", "nis", "consistent", "rmse", "violation", "coverage"),
            "{} runs of {} samples".format(*size(options.quick))
            + f", seed {SEED}, the same for all systems; standard deviations: start "
            f"{START}, process {PROCESS}, "
            f"sensors {SENSOR}. Measured: "
            + "; ".join(f"{name} {', '.join(system(name).state_names[i] for i in MEASURED[name])}" for name in found)
            + ". nees: the average over runs at the last sample; nees_inside: the share of samples at which this "
            "average is inside its 99.9 % bounds; nis: the average over runs and samples; consistent: both inside; "
            "unconstrained: the exact model without projection, for which nees has n degrees of freedom; learned: its "
            f"noise is estimated from {HEALTHY_RUNS} other runs of the plant, for the filter from the innovations, for "
            "the bands from the errors of open-loop predictions; coverage of 90 % bands of these, expected between "
            f"{COVERAGE[0]} and {COVERAGE[1]}.",
            digits=3,
        )
    ]
    if learned:
        tables.append(noise_table(learned))
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
    if cells:
        summary |= charge_numbers(cells)
        sentences.append(charge_sentence(summary))
        tables.append(charge_table(cells))
        pictures.append(
            Picture(
                "charge",
                "State of charge from a start that is wrong by a fifth",
                "Error of the first discharge that is judged; shaded: within 2 %.",
                lambda: draw_charge(cells),
            )
        )
    if "emps" in others:
        drive = others["emps"]
        sentences.append(
            f"EMPS: the free run over the test record has an error of {drive['rmse_mm']:.1f} mm and a band of "
            f"+-{drive['half_width_mm'][1]:.1f} mm in its middle, with the noise of two halves of the training record."
        )
    if SPEED.exists() and not options.quick:
        measured = json.loads(SPEED.read_text(encoding="utf-8"))
        summary |= {key: measured[key] for key in SPEEDS}
        sentences.append(
            f"Speed (benchmarks/following.json): {measured['ekf_us']:.1f} us per sample of an exported filter of seven "
            f"states; p99 latency of `twinfold follow` {measured['follow_p99_ms']:.0f} ms with "
            f"{measured['follow_assets']} assets at 1 Hz for {measured['follow_seconds']:.0f} s."
        )
    return Findings(sentences, tables, pictures, summary)


def charge_numbers(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The keys of the summary about the state of charge: the largest error after a tenth of any discharge."""
    return {
        "soc_error": {
            cell: {name: each["soc_after_tenth"] for name, each in models.items()} for cell, models in cells.items()
        },
        "soc_cells_within": sum(models["twin"]["soc_after_tenth"] <= CHARGE for models in cells.values()),
        "soc_cells": len(cells),
    }


def charge_sentence(summary: dict[str, Any]) -> str:
    errors = "; ".join(
        f"{cell} {100 * each['twin']:.1f} % (equivalent circuit {100 * each['circuit']:.1f} %)"
        for cell, each in summary["soc_error"].items()
    )
    return (
        f"State of charge from a start that is wrong by {100 * UNKNOWN:.0f} %: largest error after a tenth of the "
        f"discharge {errors}; within {100 * CHARGE:.0f} % on {summary['soc_cells_within']} of {summary['soc_cells']} "
        "cells."
    )


def charge_table(cells: dict[str, dict[str, Any]]) -> Table:
    columns = ("runs", "soc_at_tenth", "soc_after_tenth", "soc_rms", "voltage_mae", "coverage", "failed")
    rows = [
        {"cell": cell, "model": name} | {key: each[key] for key in columns}
        for cell, models in cells.items()
        for name, each in models.items()
    ]
    return Table(
        "charge",
        "State of charge of cells whose start is unknown",
        rows,
        caption=f"The filter begins at 1 - {UNKNOWN} of a full cell. soc_at_tenth, soc_after_tenth: the largest error "
        f"over the runs at {TENTH} of the discharge, and at any sample after it; soc_rms: root mean square after it; "
        "relative to the charge of the cell's first discharge, beside the counted charge. voltage_mae and coverage: "
        "of predictions from the full cell without measurements, in V, and of their 90 % bands. RW26: fitted to a "
        "reference discharge and two random walks, noise from the third, judged on three others. The other cells: "
        "network of the library, which has not seen them, scalars from the first discharge, noise from the next two, "
        f"judged on {JUDGED} more. circuit: two RC pairs, fitted to the same runs, with the same filter.",
        digits=3,
    )


def noise_table(learned: dict[str, dict[str, Any]]) -> Table:
    """The noise of the learned twins, that of each state and each sensor in one cell of the table."""
    rows = [
        {"system": name, "noise": which}
        | {kind: ", ".join(f"{std:.2g}" for std in noise[kind]) for kind in ("process", "measurement")}
        for name, each in learned.items()
        for which, noise in each["noise"].items()
    ]
    return Table(
        "noise",
        "Noise of the learned twins",
        rows,
        caption=f"Standard deviations, estimated; those of the plant are {PROCESS} (process) and {SENSOR} (sensors). "
        "filtering: for the filter, from the innovations; simulation: for bands, from the errors of open-loop "
        "predictions.",
    )


def draw_charge(cells: dict[str, dict[str, Any]]) -> Any:
    """A panel for each cell."""
    with subplots(1, len(cells), width=3.6 * len(cells), height=2.8) as (figure, axes):
        for axis, (cell, models) in zip(axes, cells.items(), strict=True):
            axis.axhspan(-100 * CHARGE, 100 * CHARGE, color=GREY, alpha=0.25, linewidth=0)
            for name, colour in (("twin", INK), ("circuit", COLOURS[1])):
                share, error = (np.array(each) for each in models[name]["course"])
                axis.plot(share, 100 * error, color=colour, linewidth=1.2, label=name)
            axis.set_ylim(-22, 8)
            axis.set_title(cell)
            axis.set_xlabel("part of the discharge")
        axes[0].set_ylabel("error of the state of charge in %")
        axes[0].legend(fontsize=8)
    return figure


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
    "Consistency of filters on the manifold, coverage of bands, tracking of a parameter, state of charge, dynamax.",
    full=Options(tuple(SYSTEMS)),
    quick=Options(QUICK_SYSTEMS),
    requests=lambda options: [],
    analyse=analyse,
)
