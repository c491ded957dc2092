"""twinfold beside its peers: one run, same work, and whether it keeps what it promises (`make bench`).

Prints the tables and writes `latest.json` next to this file; `README.md` says how to read it.
"""

import argparse
import datetime
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.claims import (
    BY_HAND,
    CLAIMS,
    DIFFRAX,
    MANY,
    ONE,
    PLAIN,
    ROBUST,
    ROOFLINE,
    TORCH_1,
    TORCH_2,
)
from benchmarks.rounds import Timing, run_rounds
from benchmarks.worker import Worker


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="turns of each contender (default: 6)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "latest.json")
    options = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=130)  # a log file has room for the tables
    began = time.perf_counter()

    def say(what: str) -> None:
        after = f"[{time.perf_counter() - began:4.0f} s]"
        console.print(f"{after} {what}", style="dim", markup=False, highlight=False)

    say("trying Diffrax's adjoints, float32")
    best, seen = Worker("float32", "benchmarks.diffrax_side", "fastest_adjoints").receive()
    for name, what in seen.items():
        say(f"  {name}: {what}")
    results: dict[str, Any] = {}
    for dtype in ("float32", "float64"):
        slow = {TORCH_1: 4, TORCH_2: 2}
        timings, left_out = run_rounds(dtype, contenders(best), options.rounds, slow, say)
        agreement = check_same_work(timings, dtype)
        results[dtype] = summary(timings, left_out, agreement)
        show_times(console, dtype, timings, agreement)
        show_claims(console, dtype, timings)
        for name, reason in left_out.items():
            console.print(f"Left out: {name}, because {reason}.", highlight=False)
    report = report_of(results, best)
    report["seconds"] = round(time.perf_counter() - began, 1)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"Written to {options.out} after {report['seconds']:.0f} s.", highlight=False)


def contenders(best: dict[str, str]) -> dict[str, tuple]:
    """Module, function and arguments of each contender."""
    here, diffrax, torch = (f"benchmarks.{name}_side" for name in ("twinfold", "diffrax", "torch"))
    return {
        PLAIN: (here, "plain"),
        ROOFLINE: ("benchmarks.roofline", "products"),
        ROBUST: (here, "robust"),
        DIFFRAX: (diffrax, "solve_task", "vmapped", best["vmapped"]),
        BY_HAND: (diffrax, "solve_task", "by hand", best["by hand"]),
        TORCH_1: (torch, "rk4", 1),
        TORCH_2: (torch, "rk4", 2),
        ONE: (here, "one_seed"),
        MANY: (here, "many_seeds"),
    }


def check_same_work(timings: dict[str, Timing], dtype: str) -> dict[str, dict[str, float]]:
    """Relative differences of loss and gradient from twinfold's; an error where it is not the same work."""
    # The 3/8 rule has another error constant: small at this step, but not rounding.
    allowed = {DIFFRAX: 1e-5, BY_HAND: 1e-5, TORCH_1: 1e-4, TORCH_2: 1e-4}
    own = timings[PLAIN].ready
    assert own.gradient is not None
    agreement: dict[str, dict[str, float]] = {}
    for name, limit in allowed.items():
        if name not in timings:
            continue
        other = timings[name].ready
        assert other.gradient is not None
        off = {
            "loss": abs(other.loss - own.loss) / abs(own.loss),
            "gradient": float(np.linalg.norm(other.gradient - own.gradient) / np.linalg.norm(own.gradient)),
        }
        if not max(off.values()) <= limit:
            raise SystemExit(f"{name} does not compute what twinfold does ({dtype}): it is off by {off}.")
        agreement[name] = off
    return agreement


def summary(timings: dict[str, Timing], left_out: dict[str, str], agreement: dict) -> dict[str, Any]:
    """All figures of one dtype."""
    ratios = {key: claim.measure(timings) for key, claim in CLAIMS.items()}
    return {
        "ratios": {
            key: None if value is None else {"best": round(value.best, 4), "median": round(value.median, 4)}
            for key, value in ratios.items()
        },
        "contenders": {
            name: {
                "best_ms": round(1e3 * timing.best, 3),
                "median_ms": round(1e3 * timing.median, 3),
                "compile_s": timing.ready.compile_seconds and round(timing.ready.compile_seconds, 2),
                "peak_memory_mb": round(timing.peak_mb, 1),
                "loss": timing.ready.loss,
                "notes": timing.ready.notes,
            }
            for name, timing in timings.items()
        },
        "off_by": agreement,
        "left_out": left_out,
    }


def show_times(console: Console, dtype: str, timings: dict[str, Timing], agreement: dict) -> None:
    """Times, memory, and how far loss and gradient are from twinfold's."""
    table = Table(title=f"One training step, {dtype}", title_justify="left")
    for column in ("contender", "best ms", "median ms", "compile s", "peak MB", "loss", "off by", "notes"):
        table.add_column(column, justify="left" if column in ("contender", "notes") else "right")
    for name, timing in timings.items():
        compiled = timing.ready.compile_seconds
        table.add_row(
            name,
            f"{1e3 * timing.best:.2f}",
            f"{1e3 * timing.median:.2f}",
            "-" if compiled is None else f"{compiled:.1f}",
            f"{timing.peak_mb:.0f}",
            f"{timing.ready.loss:.6g}",
            f"{max(agreement[name].values()):.0e}" if name in agreement else "",
            timing.ready.notes,
        )
    console.print(table)


def show_claims(console: Console, dtype: str, timings: dict[str, Timing]) -> None:
    """The ratios and whether they are where they should be."""
    table = Table(title=f"Ratios, {dtype}", title_justify="left")
    for column in ("", "of best times", "median of rounds", "target (for best times)"):
        table.add_column(column, justify="right" if "of " in column and "target" not in column else "left")
    for claim in CLAIMS.values():
        value = claim.measure(timings)
        if value is None:
            table.add_row(claim.label, "-", "-", "left out")
        else:
            table.add_row(claim.label, f"{value.best:.2f}", f"{value.median:.2f}", claim.judge(value.best))
    console.print(table)


def report_of(results: dict[str, Any], best: dict[str, str]) -> dict[str, Any]:
    """What `latest.json` has: the float32 figures by themselves, then everything."""
    from benchmarks.surroundings import machine, versions  # imports twinfold: too heavy to fork workers from

    single, double = results["float32"], results["float64"]

    def figure(ratios: dict[str, Any], key: str) -> float | None:
        return None if ratios[key] is None else ratios[key]["best"]

    memory = {name: row["peak_memory_mb"] for name, row in single["contenders"].items()}
    return {
        **{key: figure(single["ratios"], key) for key in CLAIMS},
        "peak_memory_mb": memory[PLAIN],
        "peak_memory_mb_all": memory,
        **{f"{key}_float64": figure(double["ratios"], key) for key in CLAIMS},
        "targets": {key: claim.aim for key, claim in CLAIMS.items() if claim.target is not None},
        "diffrax_adjoint": best,
        "versions": versions(),
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "float32": single,
        "float64": double,
    }


if __name__ == "__main__":
    main()
