"""The documentation agrees with the code: blocks run, links resolve, settings, messages and numbers exist."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import typer

from twinfold._core._results import RESULTS
from twinfold.cli import app
from twinfold.workspace._config import Config, setting_names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
QUICK = ("api/data.md", "configuration.md", "data.md")  # the others are run with the slow tests
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def executed() -> list:
    marks = {True: (), False: (pytest.mark.slow,)}
    pages = [page for page in PAGES if BLOCK.search(page.read_text())]
    return [pytest.param(page, id=name_of(page), marks=marks[name_of(page) in QUICK]) for page in pages]


@pytest.mark.parametrize("page", executed())
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """All blocks of a page one after the other, in an empty folder, as a reader would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "twinfold_user_system", raising=False)
    text = page.read_text()
    # Line numbers of a failure are those of the page.
    code = "".join(
        "\n" * (text.count("\n", 0, block.start(1)) - text.count("\n", 0, before)) + block.group(1)
        for before, block in _with_ends(text)
    )
    exec(compile(code, str(page), "exec"), {"__name__": "page"})


def _with_ends(text: str) -> Iterator[tuple[int, re.Match]]:
    end = 0
    for block in BLOCK.finditer(text):
        yield end, block
        end = block.end(1)


def test_the_system_on_the_first_page_is_that_of_the_template():
    template = (ROOT / "twinfold/workspace/templates/pendulum/system.py").read_text()
    (shown,) = re.findall(r"^```py\n(.*?)^```", _page("start.md"), re.S | re.M)
    for line in shown.splitlines():
        assert line.partition("  #")[0] in template, line


def test_links_lead_somewhere():
    """Anchors are checked when the site is built."""
    for page in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", CODE.sub("", page.read_text())):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_navigation():
    listed = (ROOT / "mkdocs.yml").read_text()
    assert [name for name in map(name_of, PAGES) if name not in listed] == []


def test_every_setting_is_listed_with_its_default():
    rows = re.findall(r"^\| `([a-z_0-9]+\.[a-z_0-9]+)` \| .*? \| (\S.*?) \| \S", _page("configuration.md"), re.M)
    assert sorted(name for name, _ in rows) == sorted(setting_names())
    for name, shown in rows:
        section, _, key = name.partition(".")
        model: Any = Config.model_fields[section].annotation
        value = model.model_fields[key].get_default(call_default_factory=True)
        if name in ("data.files", "data.outputs"):
            assert shown == "required"
        elif value is None:
            assert shown == "-", name
        else:
            assert shown == f"`{tomlkit.item(value).as_string() or '{}'}`", name


def test_every_command_has_an_entry():
    text = _page("commands.md")
    commands = vars(typer.main.get_command(app))["commands"]
    for name in commands:
        assert f"twinfold {name}" in text, name


def test_every_outcome_of_a_step_has_an_entry():
    source = (ROOT / "twinfold/_core/_results.py").read_text().partition("\ndef ")[0]
    names = re.findall(r'^    (\w+) = (?:""|\()$', source, re.M)
    assert len(names) == len(RESULTS)
    for name in names:
        assert f"\n### {name}\n" in _page("messages.md"), name


def test_quoted_messages_exist():
    """Every message that is quoted in messages.md is one that the code can give."""
    texts = " ".join(text for path in (ROOT / "twinfold").rglob("*.py") for text in _texts(path))
    texts += " ".join(path.read_text() for path in (ROOT / "twinfold").rglob("*.c.j2"))
    text = re.sub(r"\s+", " ", CODE.sub("", _page("messages.md")))
    for quote in re.findall(r'"([^"]+)"', text):
        for part in quote.split("..."):
            words = part.strip(" .,")
            assert words in texts, f"no message contains '{words}' ({quote})"


def test_numbers_are_those_of_the_results():
    found = "".join(path.read_text() for path in (ROOT / "results").rglob("*.md"))
    for page in ("choosing.md", "battery.md", "trust.md"):
        text = BLOCK.sub("", _page(page))
        for number in re.findall(r"\b\d+(?:\.\d+)?e-?\d+\b|\b0\.\d+ V\b", text):
            plain = number.removesuffix(" V")
            assert plain in found or plain in ("1e-5", "1e8"), f"{page}: {number} is in no file of results/"


def test_extras_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for page in PAGES:
        for names in re.findall(r"twinfold\[([a-z,]+)\]", page.read_text()):
            for name in names.split(","):
                assert name in project["optional-dependencies"], f"{page.name}: twinfold[{name}]"


def _page(name: str) -> str:
    return (DOCS / name).read_text()


def _texts(path: Path) -> list[str]:
    """Every string in a file; f-strings without their values."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found
