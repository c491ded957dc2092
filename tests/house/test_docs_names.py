"""The pages use what a user has: public names in Python code, existing commands, options and settings in the shell."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import twinfold as tw
from twinfold.cli import app
from twinfold.workspace._config import setting_names

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
STUDY_PAGES = ("battery.md", "CONTRIBUTING.md")  # on the benchmarks: they may import twinfold_studies
PYTHON = re.compile(r"^```py(?:thon)?\n(.*?)^```", re.S | re.M)
SHELL = re.compile(r"^```(?:sh|bash|shell|console)\n(.*?)^```", re.S | re.M)
INLINE = re.compile(r"`((?:\.venv/bin/)?twinfold [^`\n]+)`")
PLACEHOLDERS = ("A.B", "section.name")  # of a setting
SEPARATORS = ("&&", "||", ";", "|", ">")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@each_page
def test_python_blocks_use_public_names(page):
    for block in PYTHON.findall(page.read_text()):
        if re.search(r"\b(twinfold|tw)\b", block):
            for path in sorted(twinfold_paths(ast.parse(block))):
                assert is_public(path, studies=page.name in STUDY_PAGES), f"{page.name}: {path} is not public"


def test_private_names_are_detected():
    paths = twinfold_paths(
        ast.parse(
            "import twinfold as tw\n"
            "from twinfold.numerics._cell import Cell\n"
            "from twinfold.train import Adam, prepared\n"
            "from twinfold_studies import systems\n"
            "tw.Dataset.from_arrays(tw.model.Hidden, tw.Dataset.from_excel)\n"
        )
    )
    assert {path for path in paths if not is_public(path, studies=True)} == {
        "twinfold.numerics._cell.Cell",
        "twinfold.train.prepared",
        "twinfold.model.Hidden",
        "twinfold.Dataset.from_excel",
    }
    assert not is_public("twinfold_studies.systems", studies=False)


@each_page
def test_commands_options_and_settings_exist(page):
    text = page.read_text()
    lines = "\n".join(SHELL.findall(text)).replace("\\\n", " ").splitlines()
    for line in [*lines, *INLINE.findall(SHELL.sub("", text))]:
        for words in twinfold_commands(line):
            assert (problem := command_problem(words)) is None, f"{page.name}: {shlex.join(words)}: {problem}"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("cd x && twinfold fit --sets a  # comment", "no option --sets"),
        ("twinfold monitor today.csv --rate 0.1", "no option --rate"),
        ("twinfold fti", "no command fti"),
        ("twinfold data nasa --from x", "no command nasa"),
        ("twinfold fit --set fit.adam=1", "no setting fit.adam"),
        ("twinfold fit -C here --set fit.seeds=5 -q", None),
        ("twinfold simulate a.csv --x0=-1,0", None),
        ("twinfold data nasa-battery --from PATH", None),
        ("twinfold COMMAND --help", None),
    ],
)
def test_wrong_commands_are_detected(line, problem):
    (words,) = twinfold_commands(line)
    assert command_problem(words) == problem


def twinfold_paths(tree: ast.Module) -> set[str]:
    """The dotted paths of twinfold in a block: its imports, and attributes of the packages that it imports."""
    paths, packages = set(), {"tw": "twinfold"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("twinfold"):
                    paths.add(alias.name)
                    top = alias.name.partition(".")[0]
                    packages |= {alias.asname: alias.name} if alias.asname else {top: top}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("twinfold"):
            paths |= {f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        names, part = [], node
        while isinstance(part, ast.Attribute):
            names.insert(0, part.attr)
            part = part.value
        if names and isinstance(part, ast.Name) and part.id in packages:
            paths.add(".".join([packages[part.id], *names]))
    return paths


def is_public(path: str, *, studies: bool) -> bool:
    """Whether the rooms list each name of the path; after a public object, whether the attribute exists."""
    package, *names = path.split(".")
    if any(name.startswith("_") and name != "__version__" for name in names):
        return False
    if package == "twinfold_studies":
        return studies
    place: Any = tw
    for name in names:
        listed = dir(place) if place is tw else getattr(place, "__all__", None)
        if (listed is not None and name not in listed) or not hasattr(place, name):
            return False
        place = getattr(place, name)
    return True


def twinfold_commands(line: str) -> Iterator[list[str]]:
    """The words of each call of twinfold in a line of shell, without the program."""
    words = shlex.split(line, comments=True)
    for start, word in enumerate(words):
        if word in ("twinfold", ".venv/bin/twinfold"):
            ends = [k for k in range(start, len(words)) if words[k] in SEPARATORS]
            yield words[start + 1 : ends[0] if ends else None]


def command_problem(words: list[str]) -> str | None:
    """What is wrong with the words after `twinfold`; a name in capitals stands for any."""
    command: Any = typer.main.get_command(app)
    for before, word in zip(["", *words], words, strict=False):
        subcommands = getattr(command, "commands", {})
        if word.startswith("-"):
            visible = [option for option in command.params if not getattr(option, "hidden", False)]
            options = {name for option in visible for name in (*option.opts, *option.secondary_opts)}
            if word.partition("=")[0] not in options | {"--help", "-h"}:
                return f"no option {word}"
        elif before == "--set":
            setting = word.partition("=")[0]
            if setting not in (*setting_names(), *PLACEHOLDERS) and not setting.startswith("model."):
                return f"no setting {setting}"
        elif subcommands and not (word.isupper() or word == "..."):
            if word not in subcommands:
                return f"no command {word}"
            command = subcommands[word]
    return None
