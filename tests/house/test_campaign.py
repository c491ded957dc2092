"""The campaign in short: a few hundred hostile inputs of each format, and a runner that notices what goes wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from campaign import engine
from campaign.engine import Case, Group, attempt
from campaign.groups import GROUPS, load_group
from campaign.pages import find_browser

ROOT = Path(__file__).parents[2]
# About a second each.
SHORT = {"csv": 0.06, "parquet": 0.04, "mat": 0.04, "toml": 0.3, "set": 0.3, "model": 0.05}


@pytest.mark.parametrize("name", SHORT)
def test_hostile_input_gives_an_error_or_the_right_result(name):
    failures, tried = {}, 0
    for case in load_group(name).cases(7, SHORT[name]):
        if case.key == "csv/many runs":  # 20 s
            continue
        tried += 1
        reason = attempt(case)
        if reason is not None:
            failures[case.key] = reason
    assert failures == {}
    assert tried >= 50


def hang(folder: Path) -> None:
    time.sleep(60)


def crash(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def fail(folder: Path) -> None:
    raise ValueError("wrong")


def bloat(folder: Path) -> None:
    np.full(400 << 20, 1, np.uint8)


def survive(folder: Path) -> None:
    (folder / "a").write_text("x")


BAD = Group("bad", lambda seed, scale: [Case(f.__name__, f) for f in (survive, hang, fail, crash, bloat)], seconds=2)


@pytest.mark.slow
def test_a_case_that_hangs_crashes_fails_or_bloats_is_a_failure_and_the_others_are_tried(tmp_path, monkeypatch):
    log = tmp_path / "bad.jsonl"
    code = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(ROOT)!r}]
from pathlib import Path
import test_campaign
from campaign import engine
engine.MAX_GROWTH_MB = 300
engine.work(test_campaign.BAD, Path({str(log)!r}), seed=0, scale=1.0)
"""
    command = [sys.executable, "-c", code]
    start = subprocess.Popen
    monkeypatch.setattr(engine.subprocess, "Popen", lambda _, **options: start(command, **options))
    outcome = engine.run_group("bad", log, seed=0, scale=1.0)
    assert outcome.tried == 5
    assert {key: reason.split(" (")[0] for key, reason in outcome.failures.items()} == {
        "hang": "took longer than allowed",
        "fail": "ValueError: wrong",
        "crash": f"the process ended with signal {int(signal.SIGSEGV)}",
        "bloat": outcome.failures["bloat"],
    }
    assert "MB more" in outcome.failures["bloat"]
    assert outcome.summary()["survived"] == 1


def test_what_is_recorded_is_not_tried_again(tmp_path):
    log = tmp_path / "a.jsonl"
    tried = []
    group = Group("a", lambda seed, scale: [Case(str(k), lambda folder, k=k: tried.append(k)) for k in range(3)])
    engine.append(log, {"key": "1", "state": engine.ENDED, "reason": "found before", "seconds": 0.0})
    log.write_text(log.read_text() + '\n{"key": "2", "sta')  # killed while it wrote
    engine.work(group, log, seed=0, scale=1.0)
    assert tried == [0, 2]
    assert engine.outcome_of(log).failures == {"1": "found before"}


def test_every_group_exists_and_the_last_campaign_was_survived():
    for name in GROUPS:
        group = load_group(name)
        assert group.title
        if name == "pages" and find_browser() is None:
            continue  # without a browser this group has no cases, and says so
        assert next(iter(group.cases(0, 0.01))).key
    stored = json.loads((ROOT / "results" / "reliability" / "summary.json").read_text())
    assert set(stored["groups"]) == set(GROUPS)
    assert stored["tried"]["input"] >= 10_000
    assert stored["tried"]["kill"] >= 100
    assert {name: group["failures"] for name, group in stored["groups"].items() if group["failures"]} == {}
