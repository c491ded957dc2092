"""Hostile input through the command line, as a user types it: every command ends with a code and a sentence."""

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from functools import cache, partial
from io import BytesIO
from pathlib import Path

import numpy as np

from campaign import hostile
from campaign.engine import Case, Group, scaled
from campaign.process import Done, Process

CODES = (0, 1, 2)  # success, a check failed, wrong input
SYSTEM = """
import jax.numpy as jnp
import twinfold as tw

STATES = ["x", "v"]


def rate(x, w, p):
    return jnp.stack([x[1], -p["k"] * x[0] + w[0]])


def twin():
    return tw.Twin(rate, params={"k": tw.Unknown(1.0, positive=True)})
"""


def twinfold(folder: Path, *arguments: str) -> Done:
    """Run a command and check its manners: a known exit code, no traceback, a sentence if it failed."""
    done = Process(folder, arguments).wait()
    assert done.code in CODES, done.said
    assert "Traceback" not in done.out + done.err, done.said
    assert "Internal error" not in done.out + done.err, done.said
    if done.code:
        assert len((done.out + done.err).strip()) > 20, f"exit code {done.code} without a word: {arguments}"
    hostile.assert_nothing_executed()
    return done


def project(folder: Path) -> None:
    """A small project that could be fitted."""
    (folder / "data").mkdir()
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(hostile.TOML)
    (folder / "data" / "log.csv").write_text(hostile.CSV)


@cache
def fitted() -> Path:
    """A project with a fit, made once for all cases of a worker."""
    folder = Path(tempfile.mkdtemp(prefix="campaign-fitted-"))
    project(folder)
    done = twinfold(
        folder, "fit", "--quiet", "--set", "fit.seeds=1", "--set", "fit.adam_epochs=2", "--set", "data.test=0.0"
    )
    assert (folder / "runs" / "first" / "model.twin").exists(), done.out + done.err
    return folder


def check_csv(seed: int, folder: Path) -> None:
    """`check` of a project with a hostile table."""
    project(folder)
    (folder / "data" / "log.csv").write_bytes(hostile.csv(np.random.default_rng(seed)))
    twinfold(folder, "check", "--no-plots")


def info_of(seed: int, folder: Path) -> None:
    """`info` of a hostile model file."""
    good = (fitted() / "runs" / "first" / "model.twin").read_bytes()
    path = folder / "model.twin"
    path.write_bytes(hostile.model(good, np.random.default_rng(seed), str(folder / "executed")))
    twinfold(folder, "info", str(path), *(["--json"] if seed % 2 else []))
    hostile.assert_nothing_executed(folder / "executed")


def set_option(seed: int, folder: Path) -> None:
    """A command with hostile settings; it must not have fitted anything else than what was asked for."""
    random = np.random.default_rng(seed)
    project(folder)
    text = hostile.override(random).replace("\0", "0").encode(errors="replace").decode()
    twinfold(folder, "info", "--set", text)


def toml_file(seed: int, folder: Path) -> None:
    """A command with a hostile configuration."""
    project(folder)
    (folder / "twinfold.toml").write_bytes(hostile.toml(np.random.default_rng(seed)))
    twinfold(folder, "info")


def argument(seed: int, folder: Path) -> None:
    """Hostile arguments: paths, numbers and names."""
    random = np.random.default_rng(seed)
    project(folder)

    def text() -> str:
        return hostile.pick(hostile.NAMES, random).replace("\0", "0").encode(errors="replace").decode()

    forms = (
        ("new", text()),
        ("new", "plant", "--template", text()),
        ("info", text()),
        ("info", "/dev/zero"),
        ("info", "-C", text()),
        ("simulate", text(), "--x0", text()),
        ("export", "--to", text()),
        ("evaluate", "--run-folder", text()),
        ("monitor", text(), "--healthy", text()),
        (text(), text()),
    )
    twinfold(folder, *hostile.pick(forms, random))


def command_cases(seed: int, scale: float) -> Iterable[Case]:
    """More than 300 commands."""
    kinds = (
        ("info", info_of, 120),
        ("set", set_option, 90),
        ("toml", toml_file, 60),
        ("argument", argument, 60),
        ("check", check_csv, 50),
    )
    for label, attempt, count in kinds:
        for index in range(scaled(count, scale)):
            yield Case(f"{label}/{index:04d}", partial(attempt, 1_000_000 * seed + index))


def special_files(folder: Path) -> None:
    """A FIFO, a device and a folder in place of a table or a model file are named as what they are."""
    project(folder)
    os.mkfifo(folder / "data" / "pipe.csv")
    for source in ("data/pipe.csv", "/dev/zero", "data"):
        setting = ("--set", f'data.files=["{source}"]', "--set", 'data.format="csv"')
        done = twinfold(folder, "check", "--no-plots", *setting)
        assert done.code == 2, done.out
        assert any(word in done.err for word in ("FIFO", "pipe", "device", "folder")), done.err


def export_names(target: str, index: int, name: str, folder: Path) -> None:
    """Export a model file whose names were forged, with a correct checksum: refused, or exported as text."""
    shutil.copytree(fitted(), folder / "plant")
    path = folder / "plant" / "runs" / "first" / "model.twin"
    with zipfile.ZipFile(BytesIO(path.read_bytes())) as archive:
        arrays = {each[:-4]: np.load(BytesIO(archive.read(each))) for each in archive.namelist()}
    fields = json.loads(arrays["header"].tobytes())
    role = ("states", "inputs", "outputs", "units")[index % 4]
    fields["about"][role] = {"x": name} if role == "units" else [name, *fields["about"][role][1:]]
    path.write_bytes(hostile.rewritten(arrays, fields))
    done = twinfold(folder / "plant", "export", "--to", target, "--out", "out")
    harmless = name.strip() and len(name) <= 200 and name.isprintable()
    if harmless:
        assert done.code == 0, done.out + done.err
        assert "FAILED" not in done.out, done.out


def export_cases(seed: int, scale: float) -> Iterable[Case]:
    """Every hostile name to C and to an FMU, and special files."""
    yield Case("special files", special_files)
    for index, name in enumerate(hostile.NAMES[: scaled(len(hostile.NAMES), scale)]):
        target = ("c", "fmu")[(index + seed) % 2]
        yield Case(f"{target}/{index:03d}", partial(export_names, target, index // 2, name))


COMMANDS = Group("Commands with hostile files, settings and arguments", command_cases)
EXPORTS = Group("Model files with forged names, exported to C and FMU", export_cases)
