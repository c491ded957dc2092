"""Commands that are killed (SIGKILL) or interrupted (SIGINT), at random times and at exact points of their writes.

Afterwards the same command must end as if nothing had happened, with the same files, bit for bit.
"""

import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from campaign import plant
from campaign.engine import Case, Group
from campaign.plant import Scenario, select
from campaign.process import CACHE, NO_CACHE, READ_ONLY_CACHE, Done, Process
from campaign.undisturbed import assert_completes, assert_no_half_files, contents, undisturbed

MOMENTS = ("opened", "half", "before", "after")
NOWHERE = ("never", "-", "0")
INTERRUPTED = 130
# Kills after random times, for each command. Those of StableHLO are all of this kind: its files contain the places in
# the program from which it was called, so they differ if it is started otherwise.
TIMED = {
    plant.FIT: 18,
    plant.REPORT: 5,
    plant.C: 3,
    plant.FMU: 3,
    plant.HLO: 3,
    plant.MONITOR: 3,
    plant.RESUME: 3,
    plant.SIMULATE: 3,
}


def kill_at(scenario: Scenario, moment: str, file: str, occurrence: int, folder: Path) -> None:
    """Kill a command at an exact point."""
    place = undisturbed(scenario).copy(folder)
    aim = ("SIGKILL", moment, file, str(occurrence))
    done = Process(place, scenario.arguments, aim=aim, cache=READ_ONLY_CACHE).wait()
    assert done.code == -signal.SIGKILL, f"was not killed, {done.said}"
    assert_no_half_files(place, scenario)
    assert_completes(place, scenario)


def kill_after(scenario: Scenario, part: float, cold: bool, folder: Path) -> None:
    """Kill a command after a part of the time it takes."""
    place, done = _disturb(scenario, signal.SIGKILL, part, NO_CACHE if cold else READ_ONLY_CACHE, folder)
    assert done.code == -signal.SIGKILL, done.said
    assert_no_half_files(place, scenario)
    assert_completes(place, scenario)


def interrupt_after(scenario: Scenario, part: float, folder: Path) -> None:
    """Interrupt a command after a part of the time it takes."""
    place, done = _disturb(scenario, signal.SIGINT, part, READ_ONLY_CACHE, folder)
    _assert_interrupted(done)
    assert_completes(place, scenario)


def interrupt_at(scenario: Scenario, moment: str, file: str, occurrence: int, folder: Path) -> None:
    """Interrupt a command at an exact point."""
    place = undisturbed(scenario).copy(folder)
    aim = ("SIGINT", moment, file, str(occurrence))
    _assert_interrupted(Process(place, scenario.arguments, aim=aim, cache=READ_ONLY_CACHE).wait())
    assert not list(place.rglob("*.part")), "an unfinished file is left"
    assert_completes(place, scenario)


def _assert_interrupted(done: Done) -> None:
    assert done.code == INTERRUPTED, f"exit code {INTERRUPTED} expected, {done.said}"
    assert "Interrupted" in done.err, done.said
    assert "Traceback" not in done.err, done.said


def _disturb(scenario: Scenario, number: int, part: float, cache: dict[str, str], folder: Path) -> tuple[Path, Done]:
    """Send a signal to a command after a part of its time, again and earlier if it has ended by then."""
    expected, attempt = undisturbed(scenario), 0
    seconds = expected.done.seconds
    while True:
        place = expected.copy(folder / str(attempt))
        aim = ("SIGINT", *NOWHERE) if number == signal.SIGINT else ()
        process = Process(place, scenario.arguments, aim=aim, cache=cache)
        while aim and "ready" not in process.said()[0]:
            time.sleep(0.001)
        time.sleep(part * seconds)
        process.send_signal(number)
        done = process.wait()
        # An interrupt while Python ends, after the command, ends it like any other program.
        if done.code not in (expected.done.code, -signal.SIGINT):
            return place, done
        seconds, attempt = min(0.8 * seconds, done.seconds), attempt + 1


def two_at_once(scenario: Scenario, moment: str, file: str, folder: Path) -> None:
    """While one process holds the run folder, a second says so and changes nothing; once it is killed, it succeeds."""
    place = undisturbed(scenario).copy(folder)
    first = Process(place, scenario.arguments, aim=("SIGSTOP", moment, file, "0"), cache=READ_ONLY_CACHE)
    try:
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"was not stopped, {first.said()}"
        before = contents(place)
        second = Process(place, scenario.arguments, cache=CACHE).wait()
        assert "Traceback" not in second.err or scenario is plant.CLAIM, second.said  # a script has no command line
        holder = f"process {first.pid} " if before.keys() & {f"{plant.RUN}/.owner.json"} else "another process"
        assert f"is in use by {holder}" in second.err, second.said
        assert second.code == (1 if scenario is plant.CLAIM else 2), second.said
        assert contents(place) == before, "the second process has changed the folder"
    finally:
        first.send_signal(signal.SIGKILL)
    assert first.wait().code == -signal.SIGKILL
    assert_completes(place, scenario)


def _points(scenario: Scenario, *moments: str) -> list[tuple[Scenario, str, str, int]]:
    """These moments of all writes of a command. A fit writes its checkpoints and its findings several times."""
    repeated = {"fit.npz": 4, plant.FINDINGS: 2} if scenario is plant.FIT else {}
    return [
        (scenario, moment, file, index)
        for file in scenario.files
        for index in range(repeated.get(file, 1))
        for moment in moments
    ]


def _kill_points() -> Iterator[tuple[Scenario, str, str, int]]:
    yield from _points(plant.FIT, "half", "after")
    yield from ((plant.FIT, moment, file, 0) for file in plant.CLAIM_FILES for moment in ("opened", "before"))
    yield from ((plant.FORCE, "unlink", file, 0) for file in ("fit.npz", "model.twin", "metrics.json"))
    yield plant.FORCE, "after", "config.json", 0
    yield from _points(plant.REPORT, "half")
    yield from _points(plant.RESUME, *MOMENTS)
    for each in (plant.C, plant.FMU, plant.MONITOR, plant.SIMULATE):
        yield from _points(each, "half", "after")
    yield plant.ONNX, "half", "plant_step_float32.onnx", 0


def kill_cases(seed: int, scale: float) -> Iterable[Case]:
    """Kills at exact points, kills after random times, and two processes at once."""
    draw = random.Random(seed)
    quick = [partial(kill_at, *point) for each in plant.LIGHT for point in _points(each, *MOMENTS)]
    whole = [partial(kill_at, *point) for point in _kill_points()]
    for scenario, count in TIMED.items():
        for index in range(count):
            part = (index + draw.random()) / count  # one in each part of its time
            # Without a cache, a fit compiles most of the time.
            whole.append(partial(kill_after, scenario, part, scenario is plant.FIT and index % 2 == 0))
    held = ((".owner.json", "before"), ("config.json", "after"), ("fit.npz", "after"), ("model.twin", "half"))
    whole += [partial(two_at_once, plant.FIT, moment, file) for file, moment in held]
    return select(quick, whole, scale, draw, always=[partial(two_at_once, plant.CLAIM, "after", "config.json")])


def interrupt_cases(seed: int, scale: float) -> Iterable[Case]:
    """Interrupts after random times: of start-up, of a fit, of a report; and within the writes of a fit."""
    draw = random.Random(seed)
    quick = [partial(interrupt_after, plant.NEW, draw.uniform(0, 0.8)) for _ in range(10)]
    whole = [partial(interrupt_after, plant.FIT, draw.uniform(0, 0.3)) for _ in range(12)]
    whole += [partial(interrupt_after, plant.FIT, draw.uniform(0.3, 1)) for _ in range(18)]
    whole += [partial(interrupt_after, plant.REPORT, draw.random()) for _ in range(2)]
    whole += [partial(interrupt_at, *point) for point in _points(plant.FIT, "half")[::2]]
    return select(quick, whole, scale, draw)


KILLS = Group("Kill a command, then run it again", kill_cases, kind="kill", seconds=600)
INTERRUPTS = Group("Interrupt a command, then run it again", interrupt_cases, kind="kill", seconds=600)
