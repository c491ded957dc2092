"""Run folders: created, resumed, refused, replaced; a folder that is not a run's is never written to."""

import json

import pytest

from twinfold._version import __version__
from twinfold.io import ConfigurationMismatch, RunFolder

SETTINGS = {"seeds": 3, "models": ("a", "b"), "epochs": None}


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    run = RunFolder(tmp_path / "runs" / "a", outputs=("fits/*.npz", "metrics.json"), packages=("twinfold",))
    assert run.claim(SETTINGS, command="fit --seeds 3") is False
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
    assert folder.claim(SETTINGS, command="fit --seeds 3") is True
    assert contents(folder.path) == before


def test_a_run_is_not_resumed_unasked_where_the_caller_says_so(folder):
    before = contents(folder.path)
    with pytest.raises(ConfigurationMismatch, match=r"already holds this run.*--resume"):
        folder.claim(SETTINGS, resume=False)
    assert contents(folder.path) == before


@pytest.mark.parametrize(("force", "offered"), [(False, True), (None, False)])
def test_another_configuration_is_refused_with_what_differs(folder, force, offered):
    before = contents(folder.path)
    with pytest.raises(ConfigurationMismatch, match="seeds: 3 in the folder, 5 requested") as refusal:
        folder.claim({**SETTINGS, "seeds": 5}, force=force)
    assert "models" not in str(refusal.value)
    assert ("--force" in str(refusal.value)) == offered
    assert contents(folder.path) == before


def test_another_version_is_another_configuration(folder):
    stored = folder.read()
    stored["versions"]["twinfold"] = "0.0.1"
    (folder.path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ConfigurationMismatch, match=f"twinfold: 0.0.1 in the folder, {__version__} requested"):
        folder.claim(SETTINGS)
    assert RunFolder(folder.path).claim(SETTINGS) is True  # where no package matters


@pytest.mark.parametrize("seeds", [3, 5])
def test_force_starts_over_and_deletes_the_outputs_only(folder, seeds):
    assert folder.claim({**SETTINGS, "seeds": seeds}, force=True) is False
    names = {path.name for path in contents(folder.path)}
    assert names == {"config.json", "notes.txt"}
    assert folder.read()["settings"]["seeds"] == seeds


@pytest.mark.parametrize("claim", [None, "", "[]", "{}", '{"settings": 3, "versions": {}, "command": ""}'])
def test_a_folder_that_is_no_run_is_never_written_to(claim, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    if claim is not None:
        (tmp_path / "config.json").write_text(claim)
    before = contents(tmp_path)
    with pytest.raises(ConfigurationMismatch, match="not the folder of a run"):
        RunFolder(tmp_path, outputs=("*",)).claim(SETTINGS, force=True)
    assert contents(tmp_path) == before


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "a").write_text("mine")
    with pytest.raises(ConfigurationMismatch, match="is a file"):
        RunFolder(tmp_path / "a").claim(SETTINGS, force=True)


def test_an_empty_folder_is_taken(tmp_path):
    assert RunFolder(tmp_path).claim(SETTINGS) is False
    assert RunFolder(tmp_path).claim(SETTINGS) is True


def test_settings_of_an_earlier_version_are_read_by_the_given_function(tmp_path):
    (tmp_path / "old.txt").write_text("3")
    run = RunFolder(tmp_path, read_settings=lambda path: {"seeds": int((path / "old.txt").read_text())})
    with pytest.raises(ConfigurationMismatch, match="seeds: 3 in the folder, 4 requested"):
        run.claim({"seeds": 4})
    assert not (tmp_path / "config.json").exists()
    assert run.claim({"seeds": 3}) is True
    (tmp_path / "old.txt").unlink()
    assert run.claim({"seeds": 3}) is True  # from now on the claim counts
