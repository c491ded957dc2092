"""Names come from model files, which may be forged: they are text in every export, or they are refused."""

import ctypes
import dataclasses
from xml.etree import ElementTree

import numpy as np
import pytest
from support.exports import lag, needs_compiler

import twinfold as tw
from twinfold.export import export_c, export_fmu
from twinfold.export._c.compiled import build, find_compiler
from twinfold.export._c.writer import string_literal
from twinfold.export._fmu.export import _contents
from twinfold.export._fmu.variables import fmu_variables
from twinfold.export._step import build_step, precision
from twinfold.io._names import MAX_NAME_LENGTH, check_name

FORGED = 'a??/"}; __attribute__((constructor)) static void evil(void) { __builtin_trap(); } const char *b[] = {"//'
HARMLESS = ["innocent??/", "*/", 'quote" and \\', "100 %s", "Größe", '<a b="c">&amp;</a>', "]]>", "time", "x" * 200]
FORBIDDEN = {
    "empty": "",
    "blank": "  ",
    "long": "x" * (MAX_NAME_LENGTH + 1),
    "NUL": "a\0b",
    "line feed": "a\nb",
    "escape": "\x1b[2J",
    "C1": "a\x85b",
    "line separator": "a\u2028b",
    "surrogate": "a\ud800",
    "not in XML": "a\uffff",
}


@needs_compiler
@pytest.mark.parametrize("name", [FORGED, "innocent??/"])
def test_a_name_does_not_execute(name, tmp_path):
    """The compiled check loads the library, so a constructor in it would run and the check would fail."""
    twin, spec = lag([name])
    c = export_c(twin, spec, tmp_path, samples=5, horizon=5)
    fmu = export_fmu(twin, spec, tmp_path, horizon=5)
    assert c.checked, c.messages
    assert fmu.checked, fmu.messages
    library = build(find_compiler() or "", [tmp_path / "lag.c"], tmp_path / "lag.so")
    names = (ctypes.c_char_p * 1).in_dll(ctypes.CDLL(str(library)), "lag_state_names")
    assert names[0] == name.encode()


@needs_compiler
def test_every_text_is_the_same_text_in_c(tmp_path):
    """Also those that names may not contain: all of ASCII, each with what could begin an escape before and after it."""
    texts = [FORGED, *HARMLESS, *(f"??/{chr(code)}{chr(code)}7\\" for code in range(1, 128))]
    listed = ",\n".join(map(string_literal, texts))
    (tmp_path / "texts.c").write_text(f'__attribute__((visibility("default"))) const char *texts[] = {{{listed}}};')
    library = build(find_compiler() or "", [tmp_path / "texts.c"], tmp_path / "texts.so")
    found = (ctypes.c_char_p * len(texts)).in_dll(ctypes.CDLL(str(library)), "texts")
    assert list(found) == [text.encode() for text in texts]


def test_names_and_units_are_the_same_text_in_xml():
    """All harmless names at once, as states, inputs, outputs, parameters and units of one FMU."""
    roles = {role: [f"{role}{name}"[:200] for name in HARMLESS] for role in ("x", "u", "p")}
    n = len(HARMLESS)
    twin = tw.Twin(
        lambda x, w, p: w - x * p[roles["p"][0]], params={name: float(k) for k, name in enumerate(roles["p"])}
    )
    units = dict(zip(roles["x"], HARMLESS, strict=True))
    spec = tw.export.ExportSpec("names", roles["x"], roles["u"], HARMLESS, 0.1, np.ones(n), units=units)
    with precision(np.float64):
        step = build_step(twin, spec)
    variables = fmu_variables(step)
    files, _ = _contents(step, variables, False)
    root = ElementTree.fromstring(files["modelDescription.xml"])
    assert [entry.get("name") for entry in root.iter("ScalarVariable")] == [variable.name for variable in variables]
    assert {variable.name for variable in variables} >= {*roles["x"], *roles["u"], *roles["p"], *HARMLESS} - {"time"}
    assert {entry.get("name") for entry in root.iter("Unit")} == set(HARMLESS)


@pytest.mark.parametrize("name", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_what_a_format_cannot_hold_is_refused(name):
    with pytest.raises(ValueError, match=r"^here: (a|the) name") as error:
        check_name(name, "here")
    assert str(error.value).isprintable()
    _, spec = lag()
    for role in ("states", "inputs", "outputs"):
        with pytest.raises(ValueError, match=rf"ExportSpec\({role}=\.\.\.\): (a|the) name"):
            dataclasses.replace(spec, **{role: [name]})
    if name:  # no unit
        with pytest.raises(ValueError, match=r"ExportSpec\(units=\.\.\.\)"):
            dataclasses.replace(spec, units={"x": name})
        with pytest.raises(ValueError, match="export: parameters"), precision(np.float64):
            build_step(tw.Twin(lambda x, w: w - x, params={name: 1.0}), spec)


def test_the_name_of_the_export_becomes_file_names():
    with pytest.raises(ValueError, match="at most 200"):
        dataclasses.replace(lag()[1], name="a" * 201)


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_are_allowed(name):
    assert check_name(name, "here") == name
