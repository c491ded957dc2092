"""Generators of hostile input: tables, configurations and model files, damaged or forged in many ways.

Each takes a random generator and returns bytes; the same seed gives the same bytes.
"""

import gzip
import io
import json
import pickle
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.io._model_info import checksum

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


# Names with the syntax of C, XML, HTML, shells, TOML and templates, and characters that some format cannot hold.
MARK = "/tmp/twinfold-campaign-executed"
MARK_IN_C = "/tmp/tw-c"
TRIGRAPH = (
    'a??/"};int creat();__attribute__((constructor))static void f(void)'
    f"{{char c[]={{{','.join(map(str, MARK_IN_C.encode()))},0}};creat(c,420);}}//"
)
NAMES = (
    TRIGRAPH,
    f'x"); system("touch {MARK}"); ("', f"*/ int y = system(\"touch {MARK}\"); /*", "ends in ??/", "back\\slash\\",
    "new\nline", "tab\there", "a\x00b", "\x1b[31mred", "\x7f", "\u2028", "\ud800", "\ufffe", "%s%n%x", "\u202egnp",
    "<script>alert(1)</script>", "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "]]>",
    "&lt;&amp;&#0;", "<?xml?>", "{{ 7 * 7 }}", "{% for x in y %}", "${jndi:x}", f"$(touch {MARK})", f"`touch {MARK}`",
    f"; touch {MARK} #", "| cat", "../../../etc/passwd", "/dev/zero", "C:\\nul", "CON", "'", '"', '\"\"\"', "a = 1",
    "[section]", "# comment", "=1+1", "@SUM(A1)", "NA", "nan", "null", "None", "-", "0", "1e5", "", " ", "  x  ",
    "a" * 500, "\u540d\u524d", "x\u0301", "\u00e9", "__class__", "__proto__", "constructor", "import os", "int", "for",
    "x,y", "x;y", "x|y",
)  # fmt: skip


# Names that some readers take for a missing value or a number.
WORDS = ("NA", "nan", "NaN", "null", "NULL", "None", "N/A", "<NA>", "-", "0", "007", "1e5", "1.0", "True", "inf")


def assert_nothing_executed(*marks: Path) -> None:
    """Fail if code in a name or a file was executed, which leaves a file."""
    for mark in (*marks, Path(MARK), Path(MARK_IN_C)):
        if mark.exists():
            mark.unlink() if mark.is_file() else mark.rmdir()
            raise AssertionError(f"code was executed: it created {mark}")


def pick(values: Any, random: np.random.Generator) -> Any:
    """One of several values."""
    return values[int(random.integers(0, len(values)))]


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
    kind = random.integers(0, 16)
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
    elif kind == 12:
        rows[0][random.integers(0, 5)] = pick(NAMES, random)
    elif kind == 13:
        names = {"a": pick((*NAMES, *WORDS), random), "b": pick(WORDS, random)}
        for row in rows[1:]:
            row[1] = names[row[1]]
    elif kind == 14:
        wide = int(10 ** random.uniform(2, 6))
        return ",".join(f"c{k}" for k in range(wide)).encode() + b"\n1\n"
    elif kind == 15:
        stamps = ("2024-01-01T00:00:{k:02d}", "2024-01-01T00:00:{k:02d}Z", "2024-01-01T00:00:{k:02d}+02:00", "{k}")
        for k, row in enumerate(rows[1:]):
            row[0] = pick(stamps, random).format(k=k)
    text = ("\r\n" if random.random() < 0.2 else "\n").join(",".join(row) for row in rows) + "\n"
    if kind == 9:
        return text.encode(("utf-16", "utf-8-sig", "utf-32", "utf-7")[random.integers(0, 4)])
    if kind == 10:
        return text.replace(",", ";|\t :"[random.integers(0, 5)]).encode()
    encoded = text.encode(errors="surrogatepass")
    return scrambled(encoded, random) if kind == 11 else encoded


def csv_gz(random: np.random.Generator) -> bytes:
    """A compressed table: damaged, cut, with other content, or one that expands to a gigabyte."""
    kind = random.integers(0, 5)
    if kind == 0:
        return _long_table(int(pick((100, 500, 2000), random)))
    packed = gzip.compress(csv(random), mtime=0)
    if kind == 1:
        return packed[: int(random.integers(0, len(packed)))]
    return scrambled(packed, random) if kind == 2 else packed


@cache
def _long_table(megabytes: int) -> bytes:
    """A table of equal rows, compressed."""
    rows, packer = b"0,a,0,0,0\n" * 100_000, zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(rows) for _ in range(megabytes)) + packer.flush()


@cache
def _constant_columns(rows: int) -> bytes:
    """A Parquet file of constant columns: kilobytes that stand for gigabytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = min(rows, 10**6)
    chunk = pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int8)), pa.array([0.0]))
    columns = {each: pa.chunked_array([chunk] * (rows // size)) for each in ("t", "u", "x", "v")}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=rows)
    return out.getvalue()


def parquet(random: np.random.Generator) -> bytes:
    """A Parquet file: damaged, of other types, with hostile names, nested, empty, or with very many rows."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = pd.read_csv(io.StringIO(CSV))
    kind = random.integers(0, 9)
    name = pick(list(frame.columns), random)
    columns: dict[str, Any] = {each: frame[each].tolist() for each in frame}
    if kind == 0:
        columns[name] = [pick(CELLS, random) for _ in range(len(frame))]
    elif kind == 1:
        columns[name] = [None if random.random() < 0.5 else value for value in columns[name]]
    elif kind == 2:
        other = [True, {"a": 1}, [1.0, 2.0], b"x", 2**63 - 1, "2024-01-01", None, float("inf"), 1 + 2**53]
        columns[name] = [pick(other, random)] * len(frame)
    elif kind == 3:
        columns = {pick(NAMES, random).encode(errors="replace").decode() if each == name else each: values
                   for each, values in columns.items()}  # fmt: skip
    elif kind == 4:
        columns["run"] = [pick(NAMES, random).encode(errors="replace").decode() for _ in range(len(frame))]
    elif kind == 5:
        rows = int(random.integers(0, 3))
        columns = {each: values[:rows] for each, values in columns.items()}
    elif kind == 6:
        columns["t"] = pd.to_datetime(frame["t"], unit="s").dt.tz_localize(pick((None, "UTC", "Asia/Tokyo"), random))
    elif kind == 7:
        return _constant_columns(int(pick((10**5, 10**7, 4 * 10**7), random)))
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression=pick(("snappy", "gzip", "none"), random))
    packed = out.getvalue()
    if kind == 8:
        return packed[: int(random.integers(0, len(packed)))] if random.random() < 0.3 else scrambled(packed, random)
    return packed


def mat(random: np.random.Generator) -> bytes:
    """A MATLAB file: damaged, of other types, with structs, cells and lies about sizes, or one that expands."""
    from scipy.io import savemat

    rows = [line.split(",") for line in CSV.splitlines()[1 : 1 + ROWS]]
    columns: dict[str, Any] = {
        name: np.array([float(row[k]) for row in rows]) for name, k in zip("tuxv", (0, 2, 3, 4), strict=True)
    }
    kind = random.integers(0, 8)
    name = pick("tuxv", random)
    if kind == 0:
        values = columns[name].copy()
        values[random.integers(0, ROWS)] = pick((np.nan, np.inf, -np.inf, 1e308, 5e-324, -999.0), random)
        columns[name] = values
    elif kind == 1:
        other = ("text", 1 + 2j, np.zeros((2, 3, 4)), np.array([], float), np.array([["a"], ["b"]], object), True)
        columns[name] = pick(other, random)
    elif kind == 2:
        columns[name] = columns[name].astype(pick(("int8", "uint16", "int64", "float32", "complex128", "bool"), random))
    elif kind == 3:
        columns = {"runs": [dict(columns), dict(columns)]} if random.random() < 0.5 else {"s": {"s": columns}}
    elif kind == 4:
        columns[name] = columns[name][: int(random.integers(0, ROWS))]
    elif kind == 5:
        columns["x" * int(random.integers(1, 31))] = columns.pop(name)
    out = io.BytesIO()
    savemat(
        out, columns, do_compression=bool(random.random() < 0.5), format=pick(("4", "5"), random) if kind == 0 else "5"
    )
    packed = out.getvalue()
    if kind == 6:
        return packed[: int(random.integers(0, len(packed)))] if random.random() < 0.3 else scrambled(packed, random)
    if kind == 7:
        bomb = zlib.compress(b"\0" * (1 << 20), 9) if random.random() < 0.5 else _zeros(1 << 30)
        return packed[:128] + np.array([15, len(bomb)], "<u4").tobytes() + bomb
    return packed


@cache
def _zeros(count: int) -> bytes:
    """Zeros, compressed."""
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(count >> 20)) + packer.flush()


def override(random: np.random.Generator) -> str:
    """A value for `--set` that is wrong, hostile or harmless."""
    settings = [line.split("=")[0].strip() for line in TOML.splitlines() if "=" in line]
    sections = ("system", "data", "fit", "loss", "run", "export", "", "fits", "data.data", '"a.b"', "__class__")
    name = f"{pick(sections, random)}.{pick(settings, random)}"
    values = (*TOML_VALUES, *NAMES, *(json.dumps(each) for each in NAMES), "[" * 2000, "9" * 5000, "a" * 20_000)
    form = pick(
        ("{name}={value}", "{name} = {value}", "{name}", "={value}", "{name}={value}=1", "{value}.{name}=1"), random
    )
    return form.format(name=name, value=pick(values, random))


def toml(random: np.random.Generator) -> bytes:
    """A configuration gone wrong: values of other types, settings that do not exist, or no TOML at all."""
    lines: list[str] = list(TOML.splitlines())
    settings = [k for k, line in enumerate(lines) if "=" in line]
    at = settings[random.integers(0, len(settings))]
    name = lines[at].split("=")[0]
    kind = random.integers(0, 8)
    if kind == 7:
        lines[at] = f"{name}= {json.dumps(pick(NAMES, random))}"
    elif kind == 6:
        lines[at] = f"{name}= [{json.dumps(pick(NAMES, random))}, {json.dumps(pick(NAMES, random))}]"
    elif kind <= 1:
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
    kind = random.integers(0, 10)
    if kind >= 7:
        return forged(good, random)
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


def forged(good: bytes, random: np.random.Generator) -> bytes:
    """A model file with other contents and a correct checksum."""
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        arrays = {name[:-4]: np.load(io.BytesIO(archive.read(name))) for name in archive.namelist()}
    fields = json.loads(arrays["header"].tobytes())
    about = fields["about"]
    kind = random.integers(0, 7)
    if kind <= 2:
        role = pick(("states", "inputs", "outputs"), random)
        about[role] = [pick(NAMES, random) for _ in range(max(len(about[role]), 1))]
    elif kind == 3:
        about["units"] = {pick(NAMES, random): pick(NAMES, random)}
    elif kind == 4:
        about[pick(list(about), random)] = pick((None, [], {}, -1, 10**30, "x", [None], [[1]], {"a": {}}, True), random)
    elif kind == 5:
        numbers = ("dt", "x0_example", "x_low", "x_high", "w_low", "w_high")
        about[pick(numbers, random)] = pick((-1.0, 0.0, 1e308, [1e308], [1.0] * 50, "nan", [None], 5e-324), random)
    else:
        fields[pick(("runs", "groups", "structure", "twinfold", "format", "arrays"), random)] = pick(
            (None, [], ["a"], "x", 1, [pick(NAMES, random)]), random
        )
    return rewritten(arrays, fields)


def rewritten(arrays: dict[str, np.ndarray], fields: dict[str, Any]) -> bytes:
    """A model file of these arrays and header fields, with a correct checksum."""
    stored = {name: array for name, array in arrays.items() if name != "checksum"}
    stored["header"] = np.frombuffer(json.dumps(fields).encode(), np.uint8)
    out = io.BytesIO()
    np.savez(out, **{"checksum": checksum(stored)} | stored)  # type: ignore[arg-type]
    return out.getvalue()
