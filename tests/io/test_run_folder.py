"""Run folders: created, resumed, refused, replaced; a folder that is not a run's is never written to."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from twinfold._version import __version__
from twinfold.io import ConfigurationMismatch, FolderInUse, RunFolder, atomic_write
from twinfold.io._atomic import HOST

SETTINGS = {"seeds": 3, "models": ("a", "b"), "epochs": None}


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder): path.read_bytes() for path in files}


def claim(run, settings=SETTINGS, **options):
    """Claim a folder and release it at once; whether a run was resumed."""
    with run.claim(settings, **options) as resumed:
        return resumed


@pytest.fixture
def folder(tmp_path):
    run = RunFolder(tmp_path / "runs" / "a", outputs=("fits/*.npz", "metrics.json"), packages=("twinfold",))
    assert claim(run, SETTINGS, command="fit --seeds 3") is False
    (run.path / "fits").mkdir()
    for name in ("fits/one.npz", "metrics.json", "notes.txt"):
        (run.path / name).write_text(name)
    return run


def test_the_claim_is_one_file_with_settings_versions_and_command(folder):
    stored = folder.read()
    assert stored["settings"] == {"seeds": 3, "models": ["a", "b"], "epochs": None}
    assert stored["versions"]["twinfold"] == __version__
    assert stored["versions"].keys() >= {"jax", "numpy", "python", "machine"}
    assert stored["command"] == "fit --seeds 3"
    assert json.loads((folder.path / "config.json").read_text()) == stored


def test_the_same_configuration_is_resumed(folder):
    before = contents(folder.path)
    assert claim(folder, SETTINGS, command="fit --seeds 3") is True
    assert contents(folder.path) == before


def test_a_run_is_not_resumed_unasked_where_the_caller_says_so(folder):
    before = contents(folder.path)
    with pytest.raises(ConfigurationMismatch, match=r"already holds this run.*--resume"):
        claim(folder, SETTINGS, resume=False)
    assert contents(folder.path) == before


@pytest.mark.parametrize(("force", "offered"), [(False, True), (None, False)])
def test_another_configuration_is_refused_with_what_differs(folder, force, offered):
    before = contents(folder.path)
    with pytest.raises(ConfigurationMismatch, match="seeds: 3 in the folder, 5 requested") as refusal:
        claim(folder, {**SETTINGS, "seeds": 5}, force=force)
    assert "models" not in str(refusal.value)
    assert ("--force" in str(refusal.value)) == offered
    assert contents(folder.path) == before


def test_another_version_is_another_configuration(folder):
    stored = folder.read()
    stored["versions"]["twinfold"] = "0.0.1"
    (folder.path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ConfigurationMismatch, match=f"twinfold: 0.0.1 in the folder, {__version__} requested"):
        claim(folder, SETTINGS)
    assert claim(RunFolder(folder.path), SETTINGS) is True  # where no package matters


@pytest.mark.parametrize("seeds", [3, 5])
def test_force_starts_over_and_deletes_the_outputs_only(folder, seeds):
    assert claim(folder, {**SETTINGS, "seeds": seeds}, force=True) is False
    names = {path.name for path in contents(folder.path)}
    assert names == {"config.json", "notes.txt"}
    assert folder.read()["settings"]["seeds"] == seeds


@pytest.mark.parametrize("found", [None, "", "[]", "{}", '{"settings": 3, "versions": {}, "command": ""}'])
def test_a_folder_that_is_no_run_is_never_written_to(found, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    if found is not None:
        (tmp_path / "config.json").write_text(found)
    before = contents(tmp_path)
    with pytest.raises(ConfigurationMismatch, match="not the folder of a run"):
        claim(RunFolder(tmp_path, outputs=("*",)), SETTINGS, force=True)
    assert contents(tmp_path) == before


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "a").write_text("mine")
    with pytest.raises(ConfigurationMismatch, match="is a file"):
        claim(RunFolder(tmp_path / "a"), SETTINGS, force=True)


def test_an_empty_folder_is_taken(tmp_path):
    assert claim(RunFolder(tmp_path), SETTINGS) is False
    assert claim(RunFolder(tmp_path), SETTINGS) is True


def test_settings_of_an_earlier_version_are_read_by_the_given_function(tmp_path):
    (tmp_path / "old.txt").write_text("3")
    run = RunFolder(tmp_path, read_settings=lambda path: {"seeds": int((path / "old.txt").read_text())})
    with pytest.raises(ConfigurationMismatch, match="seeds: 3 in the folder, 4 requested"):
        claim(run, {"seeds": 4})
    assert not (tmp_path / "config.json").exists()
    assert claim(run, {"seeds": 3}) is True
    (tmp_path / "old.txt").unlink()
    assert claim(run, {"seeds": 3}) is True  # from now on the claim counts


HOLD = """
import sys, time
from pathlib import Path
from twinfold.io import RunFolder
with RunFolder(Path(sys.argv[1])).claim({"seeds": 3}):
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def held_by_another_process(folder):
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "held\n"
        yield other
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


def test_a_folder_in_use_is_refused_with_its_owner_and_free_once_that_is_killed(tmp_path):
    with held_by_another_process(tmp_path) as other:
        before = contents(tmp_path)
        with pytest.raises(FolderInUse, match=f"in use by process {other.pid} on .* since 20"):
            claim(RunFolder(tmp_path), {"seeds": 3}, force=True)
        assert contents(tmp_path) == before
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert claim(RunFolder(tmp_path), {"seeds": 3}) is True
    assert {path.name for path in contents(tmp_path)} == {"config.json"}


def dead_process():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_a_folder_that_was_claimed_by_half_is_taken(tmp_path):
    (tmp_path / f"config.json.{HOST}.{dead_process()}.part").write_text("{")
    (tmp_path / ".owner.json").write_text("{")
    (tmp_path / ".lock").touch()
    assert claim(RunFolder(tmp_path), SETTINGS) is False
    assert {path.name for path in contents(tmp_path)} == {"config.json"}


def test_unfinished_files_of_dead_processes_are_removed_and_no_others(tmp_path):
    run = RunFolder(tmp_path)
    claim(run)
    stale = tmp_path / f"fit.npz.{HOST}.{dead_process()}.part"
    kept = [
        tmp_path / f"fit.npz.{HOST}.{os.getppid()}.part",
        tmp_path / f"fit.npz.elsewhere-{HOST}.1.part",
        tmp_path / "a.part",
    ]
    for file in (stale, *kept):
        file.touch()
    claim(run)
    assert not stale.exists()
    assert all(file.exists() for file in kept)
    stale.touch()
    with atomic_write(tmp_path / "other.npz") as file:
        file.write(b"1")
    assert stale.exists()
    with atomic_write(tmp_path / "fit.npz") as file:
        file.write(b"1")
    assert not stale.exists()
