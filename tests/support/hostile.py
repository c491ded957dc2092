"""Generators of hostile input: tables, configurations and model files, bent in every way that was thought of.

Each takes a random generator and gives bytes; the same seed gives the same bytes.
"""

import io
import json
import pickle
import zipfile

import numpy as np

ROWS = 12
CSV = "t,run,u,x,v\n" + "".join(
    f"{0.1 * k:.1f},{run},{np.sin(k):.6f},{np.cos(0.3 * k):.6f},{-0.3 * np.sin(0.3 * k):.6f}\n"
    for run in ("a", "b")
    for k in range(ROWS)
)
TOML = """[system]
file = "system.py"

[data]
files = ["data/*.csv"]
time = "t"
run = "run"
inputs = ["u"]
outputs = ["x", "v"]
scale = { u = 2.0 }
missing = [-999]
valid = 0.2
test = 0.2

[fit]
seeds = 2
adam_epochs = 20
learning_rate = 5e-3
lm_steps = 5

[loss]
huber = 0.1
l2 = 1e-6

[run]
folder = "runs/first"
"""
CELLS = (
    "", "nan", "NaN", "inf", "-inf", "1e400", "-999", "abc", "1,5", "0x10", "1_000", "=cmd()", "None", "TRUE",
    "1e308", "5e-324", "\uff12", "2024-01-01", "2024-01-01T00:00:00Z", '"', "'", "\t", " 3 ", "--1", "1.2.3",
    "\x00", "\u221e",
)  # fmt: skip
SCRAPS = (
    b"\x00",
    b"\xff\xfe",
    b'"',
    b",",
    b"\n",
    b"\r",
    b"\t",
    b";",
    b"#",
    b"=",
    b"[",
    b"]",
    b"{",
    b"'",
    b"\\",
    b"1e9999",
)
TOML_VALUES = (
    "nan", "inf", "-1", "0", "1e400", "99999999999999999999999999", '""', '"x"', "[]", "[[]]", "{}", "true",
    "1979-05-27", '"../../etc"', '["a", 1]', '{ a = "b" }', "0.5", "[0.1]", '"__import__(\'os\')"', "0x7f",
    '"\\u0000"', "-0.0",
)  # fmt: skip


def scrambled(raw: bytes, random: np.random.Generator) -> bytes:
    """A few bytes changed, dropped, put in or cut off anywhere."""
    out = bytearray(raw)
    for _ in range(random.integers(1, 5)):
        at = int(random.integers(0, max(len(out), 1)))
        kind = random.integers(0, 5)
        if kind == 0 and out:
            out[at] = int(random.integers(0, 256))
        elif kind == 1:
            del out[at : at + int(random.integers(1, 20))]
        elif kind == 2:
            out[at:at] = SCRAPS[random.integers(0, len(SCRAPS))]
        elif kind == 3:
            out[at:at] = out[at : at + int(random.integers(1, 200))]
        elif random.random() < 0.2:
            del out[at:]
    return bytes(out)


def csv(random: np.random.Generator) -> bytes:
    """A table gone wrong: cells, rows, columns, header, encoding, or anything at all."""
    lines = CSV.splitlines()
    rows = [line.split(",") for line in lines]
    kind = random.integers(0, 12)
    at = int(random.integers(1, len(rows)))
    if kind == 0:
        for _ in range(random.integers(1, 4)):
            row = rows[random.integers(0, len(rows))]
            row[random.integers(0, len(row))] = CELLS[random.integers(0, len(CELLS))]
    elif kind == 1:
        rows.insert(at, list(rows[random.integers(0, len(rows))]))
    elif kind == 2:
        rows[1:] = [rows[1 + k] for k in random.permutation(len(rows) - 1)]
    elif kind == 3:
        column = int(random.integers(0, len(rows[0])))
        rows = [row[:column] + row[column + 1 :] for row in rows]
    elif kind == 4:
        order = random.permutation(len(rows[0]))
        rows = [[row[k] for k in order] for row in rows]
    elif kind == 5:
        rows[at] = rows[at] + ["1"] * int(random.integers(1, 4)) if random.random() < 0.5 else rows[at][:-1]
    elif kind == 6:
        column, value = int(random.integers(0, 5)), CELLS[random.integers(0, len(CELLS))]
        rows[1:] = [[*row[:column], value, *row[column + 1 :]] for row in rows[1:]]
    elif kind == 7:
        rows = rows[: int(random.integers(0, 3))]
    elif kind == 8:
        rows[0][random.integers(0, 5)] = rows[0][random.integers(0, 5)]
    text = ("\r\n" if random.random() < 0.2 else "\n").join(",".join(row) for row in rows) + "\n"
    if kind == 9:
        return text.encode(("utf-16", "utf-8-sig", "utf-32", "utf-7")[random.integers(0, 4)])
    if kind == 10:
        return text.replace(",", ";|\t :"[random.integers(0, 5)]).encode()
    return scrambled(text.encode(), random) if kind == 11 else text.encode()


def toml(random: np.random.Generator) -> bytes:
    """A configuration gone wrong: values of other types, settings that do not exist, or no TOML at all."""
    lines = [str(line) for line in TOML.splitlines()]
    settings = [k for k, line in enumerate(lines) if "=" in line]
    at = settings[random.integers(0, len(settings))]
    name = lines[at].split("=")[0]
    kind = random.integers(0, 6)
    if kind <= 1:
        lines[at] = f"{name}= {TOML_VALUES[random.integers(0, len(TOML_VALUES))]}"
    elif kind == 2:
        lines.insert(at, f"{name.strip()}{'s' if random.random() < 0.5 else '.a'} = 1")
    elif kind == 3:
        lines.insert(at, f"[{('data', 'fits', 'a.b', '', 'fit.fit', 'run')[random.integers(0, 6)]}]")
    elif kind == 4:
        lines[at] = f"{name}= {'[' * 300 + ']' * 300 if random.random() < 0.3 else chr(92) * 3}"
    else:
        return scrambled(TOML.encode(), random)
    return "\n".join(lines).encode()


class Trap:
    """Whoever unpickles it, makes a folder."""

    def __init__(self, marker: str):
        self.marker = marker

    def __reduce__(self):
        import os

        return os.mkdir, (self.marker,)


def model(good: bytes, random: np.random.Generator, marker: str) -> bytes:
    """A model file cut, scrambled, with other entries, with a header that lies, or with a trap inside."""
    kind = random.integers(0, 7)
    if kind == 0:
        return good[: int(random.integers(0, len(good)))]
    if kind == 1:
        return scrambled(good, random)
    if kind == 2:
        return good + random.bytes(int(random.integers(1, 50)))
    if kind == 3:
        return random.bytes(int(random.integers(0, 400)))
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    names = list(entries)
    name = names[random.integers(0, len(names))]
    if kind == 4:
        trap = io.BytesIO()
        np.save(trap, np.array([Trap(marker)], dtype=object), allow_pickle=True)
        entries[name] = trap.getvalue() if random.random() < 0.7 else pickle.dumps(Trap(marker))
    elif kind == 5:
        # An array that says it is enormous.
        header = {"descr": "<f8", "fortran_order": False, "shape": (10 ** int(random.integers(3, 15)),)}
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, header)
        entries[name] = head.getvalue() + b"\0" * 64
    else:
        entries[name] = _other_header(entries["header.npy"], random) if random.random() < 0.7 else b""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for each, content in entries.items():
            archive.writestr(each, content)
    return out.getvalue()


def _other_header(stored: bytes, random: np.random.Generator) -> bytes:
    text = bytes(np.load(io.BytesIO(stored))).decode()
    fields = json.loads(text)
    name = list(fields)[random.integers(0, len(fields))]
    fields[name] = (None, [], {}, -1, 10**30, "x", [{"name": "a", "shape": [10**9], "dtype": "O"}])[
        random.integers(0, 7)
    ]
    out = io.BytesIO()
    np.save(out, np.frombuffer(json.dumps(fields).encode(), np.uint8))
    return out.getvalue()
