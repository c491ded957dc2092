"""Names and special files that are read: each is refused with the file and the field."""

import json
import os
import re
import socket

import numpy as np
import pytest

from twinfold.io import ModelInfo, check_regular_file, read_info, unknown_name
from twinfold.io._model_info import FORMAT, MAGIC, ModelHeader, write_model

NAMES = ["a\x00", "a\nb", "\x1b[31m", "\ufffe", "", " ", "x" * 201]


def model_file(path, **changes):
    """A model file without arrays; `changes` of its header are written without any check."""
    about = {"states": ["x"], "outputs": ["y"], **changes.pop("about", {})}
    header = {"magic": MAGIC, "format": FORMAT, "twinfold": "0", "about": about, "structure": "", "arrays": [],
              "runs": None, "groups": None, **changes}  # fmt: skip

    class Forged(ModelHeader):
        def model_dump(self, **options):
            del options
            return header

    plain = header | {"about": ModelInfo(), "runs": None, "groups": None}
    write_model(path, Forged.model_construct(**plain), [])
    return path


def test_a_plain_model_file_is_read(tmp_path):
    info = read_info(
        model_file(tmp_path / "a.twin", about={"units": {"x": "m/s²", "y": ""}, "states": ["größe 1 ??/"]})
    )
    assert info.states == ("größe 1 ??/",)
    assert info.units == {"x": "m/s²", "y": ""}


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("about.states", lambda name: {"about": {"states": ["a", name]}}),
        ("about.inputs", lambda name: {"about": {"inputs": [name]}}),
        ("about.outputs", lambda name: {"about": {"outputs": [name]}}),
        ("about.units", lambda name: {"about": {"units": {name: "m"}}}),
        ("about.units", lambda name: {"about": {"units": {"x": name or "\x07"}}}),
        ("runs", lambda name: {"runs": [name], "groups": ["a"]}),
        ("groups", lambda name: {"runs": ["a"], "groups": [name]}),
    ],
    ids=["states", "inputs", "outputs", "units", "unit", "runs", "groups"],
)
def test_a_name_that_no_file_can_hold(tmp_path, field, changes, name):
    path = model_file(tmp_path / "a.twin", **changes(name))
    with pytest.raises(
        ValueError, match=rf"^{re.escape(str(path))} is not a model file.*: header\.{field}: "
    ) as refusal:
        read_info(path)
    assert str(refusal.value).isprintable()


def test_a_lone_surrogate(tmp_path):
    path = model_file(tmp_path / "a.twin", about={"states": [json.loads('"a\\ud800"')]})
    with pytest.raises(ValueError, match=r"header\.about\.states: the name 'a\\ud800'"):
        read_info(path)


def test_special_files(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    for name, kind in (
        ("fifo", "a FIFO (named pipe)"),
        ("zeros", "a device"),
        ("socket", "a socket"),
        ("", "a folder"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path / name} is {kind}, not a file.")):
            check_regular_file(tmp_path / name)
        with pytest.raises(ValueError, match=re.escape(f"is damaged: it is {kind}, not a file.")):
            read_info(tmp_path / name)
    for missing in (tmp_path / "none", model_file(tmp_path / "a.twin") / "below", "a\0b"):
        with pytest.raises(FileNotFoundError):
            check_regular_file(missing)
    check_regular_file(tmp_path / "a.twin")
    assert np.load(tmp_path / "a.twin").files == ["checksum", "header"]


def test_a_message_about_an_unknown_name_stays_short_and_printable():
    text = unknown_name("y", [f"column {index}" for index in range(10_000)] + ["\x1b[2J"])
    assert text.endswith("column 49 and 9951 more.")
    assert unknown_name("\x07", ["a\nb"]) == r"'\x07'; there are: a\nb."
