"""`python -m campaign`: run all groups or some, resume what is not finished, write results/reliability/summary.json."""

import argparse
import signal
import sys
import time
from pathlib import Path

from campaign import engine
from campaign.groups import GROUPS, load_group
from twinfold.io import versions, write_json

ROOT = Path(__file__).parents[1]
SUMMARY = ROOT / "results" / "reliability" / "summary.json"


def main() -> int:
    """Run the campaign; the exit code is 1 if anything did not survive."""
    # A shell ignores it for a job in the background, and so would every command that is interrupted here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1:2] == ["--worker"]:
        name, log, seed, scale = sys.argv[2:]
        engine.work(load_group(name), Path(log), seed=int(seed), scale=float(scale))
        return 0
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"default: all; there are {', '.join(GROUPS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the cases of the whole campaign")
    parser.add_argument("--seconds", type=float, help="stop after this time; the same command resumes")
    parser.add_argument("--fresh", action="store_true", help="forget what was recorded for these groups")
    parser.add_argument("--out", type=Path, default=SUMMARY)
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}; there are: {', '.join(GROUPS)}")
    folder = ROOT / "runs" / "campaign" / f"seed-{options.seed}-scale-{options.scale:g}"
    deadline = None if options.seconds is None else time.monotonic() + options.seconds
    for name in options.groups or GROUPS:
        log = folder / f"{name}.jsonl"
        if options.fresh:
            log.unlink(missing_ok=True)
        print(f"{name} ...", flush=True)
        outcome = engine.run_group(name, log, seed=options.seed, scale=options.scale, deadline=deadline)
        print(f"{name}: {outcome.tried} tried, {len(outcome.failures)} failed, {outcome.seconds:.0f} s", flush=True)
        for key, reason in list(outcome.failures.items())[:10]:
            print(f"  {key}: {reason}", flush=True)
    return write_summary(folder, options.out, options.seed, options.scale)


def write_summary(folder: Path, path: Path, seed: int, scale: float) -> int:
    """Write what the logs of all groups say."""
    outcomes = {name: engine.outcome_of(folder / f"{name}.jsonl") for name in GROUPS}
    totals = {
        kind: sum(outcomes[name].tried for name in GROUPS if GROUPS[name][1] == kind)
        for kind in ("input", "kill", "run")
    }
    groups = {name: {"title": load_group(name).title} | each.summary() for name, each in outcomes.items() if each.tried}
    write_json(path, {"seed": seed, "scale": scale, "versions": versions(), "tried": totals, "groups": groups})
    print(path)
    return int(any(each.failures for each in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
