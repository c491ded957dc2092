"""Finished cells from one machine to another: nothing is lost, nothing is overwritten, and nothing hostile gets in."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
import twinfold_studies.bench.store as store_module
from twinfold_studies.bench.fingerprint import code_fingerprint
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.queue import Request
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import summary_rows
from twinfold_studies.bench.travel import UnusableArchive, pack, unpack
from typer.testing import CliRunner

from twinfold.cli import app

JOBS = [Job("mass_spring", model, "best", quick=True) for model in ("hrpinn", "node")]
REQUESTS = [Request(job, 3, dtw=True) for job in (*JOBS, Job("two_body", "node", "best", quick=True))]


def computed(folder, job, *, seeds=3, base=0.0):
    """A finished cell as the queue stores it, with metrics of no meaning."""
    store, rng = Store(folder), np.random.default_rng(seeds)
    names = ("mae", "mse", "rmse", "relative_violation_mean", "relative_violation_max", "valid_time", "failed")
    metrics = {
        f"{horizon}.{name}": (base + rng.uniform(size=(seeds, 4))).astype(np.float32)
        for horizon in ("train", "long")
        for name in names
    }
    facts = {"seeds": list(range(seeds))}
    store.save(
        job,
        "fit",
        facts | {"parameters": 7, "train_s": 1.5},
        {"leaf0": rng.uniform(size=(seeds, 9)), "losses": rng.uniform(size=seeds)},
    )
    store.save(job, "dtw", facts, {"train": rng.uniform(size=(seeds, 4)), "long": rng.uniform(size=(seeds, 4))})
    store.save(job, "errors", facts | {"infer_s": {"train": 0.1, "long": 0.2}}, metrics)


@pytest.fixture
def packed(tmp_path):
    for job in JOBS:
        computed(tmp_path / "a", job)
    assert pack(REQUESTS, tmp_path / "a", tmp_path / "cells.zip") == (2, 3)
    return tmp_path / "cells.zip"


def cells(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "cells").iterdir())}


def test_tables_are_the_same_on_the_other_machine(packed, tmp_path):
    report = unpack(packed, tmp_path / "b")
    assert sorted(report.added) == sorted(job.key for job in JOBS)
    assert cells(tmp_path / "b") == cells(tmp_path / "a")
    here, there = (summary_rows(JOBS, Store(tmp_path / name), 3) for name in "ab")
    assert len(here) == 4
    np.testing.assert_equal(there, here)
    again = unpack(packed, tmp_path / "b")
    assert not again.added
    assert len(again.known) == 2


def test_the_same_cells_make_the_same_file(packed, tmp_path):
    pack(REQUESTS, tmp_path / "a", tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == packed.read_bytes()


def test_a_cell_that_differs_is_kept_and_named(packed, tmp_path):
    computed(tmp_path / "b", JOBS[0], base=1.0)
    before = cells(tmp_path / "b")
    report = unpack(packed, tmp_path / "b")
    assert report.different == [JOBS[0].key]
    assert report.added == [JOBS[1].key]
    assert {name: content for name, content in cells(tmp_path / "b").items() if name in before} == before
    result = CliRunner().invoke(app, ["bench", "unpack", str(packed), "--out", str(tmp_path / "b")])
    assert result.exit_code == 1
    assert f"{JOBS[0].key} differs" in result.output


def test_a_cell_with_more_seeds_replaces_one_with_fewer(packed, tmp_path):
    computed(tmp_path / "b", JOBS[0], seeds=2)
    assert JOBS[0].key in unpack(packed, tmp_path / "b").added
    assert cells(tmp_path / "b") == cells(tmp_path / "a")
    computed(tmp_path / "c", JOBS[0], seeds=4)
    assert unpack(packed, tmp_path / "c").different == [JOBS[0].key]


def test_cells_of_other_code_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "code_fingerprint", lambda: "0123456789abcdef")
    computed(tmp_path / "a", JOBS[0])
    pack(REQUESTS, tmp_path / "a", tmp_path / "cells.zip")
    result = CliRunner().invoke(app, ["bench", "unpack", str(tmp_path / "cells.zip"), "--out", str(tmp_path / "b")])
    assert result.exit_code == 2
    assert "computed by other code (fingerprint 0123456789abcdef" in result.output
    assert not (tmp_path / "b").exists()


def header(job, /, **changed):
    facts = {"job": job.settings, "code": code_fingerprint(), "seeds": [0]} | changed
    return np.array(json.dumps(facts))


def part(**arrays):
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def huge(job):
    """A part whose header declares an array of 8 EB."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("header.npy", zipfile.ZipFile(io.BytesIO(part(header=header(job)))).read("header.npy"))
        declared = io.BytesIO()
        np.lib.format.write_array_header_1_0(declared, {"descr": "<f8", "fortran_order": False, "shape": (2**60,)})
        archive.writestr("mae.npy", declared.getvalue())
    return content.getvalue()


KEY = JOBS[0].key
HOSTILE = {
    "a path upwards": {f"../{KEY}.errors.npz": part(header=header(JOBS[0]))},
    "an absolute path": {f"/tmp/{KEY}.errors.npz": part(header=header(JOBS[0]))},
    "another kind of file": {"sitecustomize.py": b"raise SystemExit"},
    "a job that is not the one of the name": {f"{KEY}.errors.npz": part(header=header(JOBS[1]))},
    "an unknown model": {f"{KEY}.errors.npz": part(header=header(JOBS[0], job={"system": "two_body", "model": "x"}))},
    "an unknown setting": {f"{KEY}.errors.npz": part(header=header(JOBS[0], job=JOBS[0].settings | {"x": 1}))},
    "no metrics": {f"{KEY}.fit.npz": part(header=header(JOBS[0]))},
    "an array larger than its data": {f"{KEY}.errors.npz": huge(JOBS[0])},
    "objects": {f"{KEY}.errors.npz": part(header=header(JOBS[0]), mae=np.array([{}], dtype=object))},
    "not an archive inside": {f"{KEY}.errors.npz": b"PK nothing"},
    "a bomb": {f"{KEY}.errors.npz": part(header=header(JOBS[0]), mae=np.zeros(2**24))},
    "a large entry": {f"{KEY}.errors.npz": bytes(2**26 + 1)},
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_hostile_archives_are_refused_as_a_whole(kind, tmp_path):
    """Beside a good cell, which is not written either."""
    computed(tmp_path / "a", JOBS[1])
    pack(REQUESTS, tmp_path / "a", tmp_path / "cells.zip")
    with zipfile.ZipFile(tmp_path / "cells.zip", "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in HOSTILE[kind].items():
            archive.writestr(name, content)
    with pytest.raises(UnusableArchive, match=r"cells\.zip"):
        unpack(tmp_path / "cells.zip", tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_archives_are_refused(packed, tmp_path, kept):
    content = packed.read_bytes()
    packed.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(UnusableArchive):
        unpack(packed, tmp_path / "b")


def test_a_fifo_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "cells.zip")
    with pytest.raises(UnusableArchive, match="FIFO"):
        unpack(tmp_path / "cells.zip", tmp_path / "b")


def test_the_command_packs_the_experiments_that_are_named(tmp_path):
    computed(tmp_path / "bench-quick", Job("mass_spring", "node", "best", quick=True))
    file = tmp_path / "cells.zip"
    arguments = ["bench", "pack", str(file), "cs2", "--quick", "--out", str(tmp_path / "bench")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "1 of " in result.output
    assert CliRunner().invoke(app, ["bench", "cs2", "cs3"]).exit_code == 2
    assert CliRunner().invoke(app, ["bench", "pack"]).exit_code == 2
