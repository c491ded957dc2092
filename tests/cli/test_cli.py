"""The command line starts quickly, works without the studies, survives broken plugins and explains old options."""

import json
import os
import re
import resource
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from twinfold._version import __version__
from twinfold.cli import _commands, app
from twinfold.cli._plugins import STUDY_COMMANDS, add_plugin_commands
from twinfold.export._formats import EXPORTERS

MODEL = Path(__file__).parents[1] / "model" / "golden" / "0.1.0" / "tank.twin"
HEAVY = ("jax", "jaxlib", "equinox", "diffrax", "optax", "matplotlib", "pandas", "scipy")


def modules_after(*arguments: str, cwd: Path) -> list[str]:
    """The heavy packages that a command imports."""
    code = (
        "import json, sys\n"
        f"sys.argv = ['twinfold', *{list(arguments)!r}]\n"
        "from twinfold.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code, done.code\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("fit", "--help"), ("new", "plant")])
def test_help_and_new_import_no_jax(arguments, tmp_path):
    assert modules_after(*arguments, cwd=tmp_path) == []


def test_info_imports_no_jax(tmp_path):
    assert modules_after("info", str(MODEL), cwd=tmp_path) == []
    assert modules_after("info", str(MODEL), "--json", cwd=tmp_path) == []
    CliRunner().invoke(app, ["new", str(tmp_path / "plant")])
    run = tmp_path / "plant" / "runs" / "first"
    run.mkdir(parents=True)
    (run / "model.twin").write_bytes(MODEL.read_bytes())
    assert modules_after("info", "-C", "plant", "--set", "fit.seeds=5", cwd=tmp_path) == []


INTERRUPT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == sys.argv[0]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
from twinfold.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "module", ["twinfold.cli", "typer", "pydantic", "twinfold.workspace._check", "jax", "jax.numpy", "pandas"]
)
def test_ctrl_c_during_the_start_shows_no_traceback(module, tmp_path):
    CliRunner().invoke(app, ["new", str(tmp_path / "plant")])
    code = f"import sys; sys.argv = [{module!r}, 'check', '-C', 'plant']\n{INTERRUPT}"
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": ""}  # reading from it can be logged
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n"), done.stderr


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output == f"twinfold {__version__}\n"


def test_help_is_quick(tmp_path):
    """Under half a second of computing time, the best of three: on an idle machine that is the time it takes."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "twinfold", "--help"], cwd=tmp_path, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


def application(*entries: EntryPoint) -> typer.Typer:
    found = typer.Typer()
    found.command("first")(lambda: typer.echo("first"))
    add_plugin_commands(found, entries)
    return found


@pytest.mark.parametrize("name", STUDY_COMMANDS)
def test_without_the_studies_their_commands_say_where_they_are(name):
    for arguments in ((name,), (name, "list", "--quick"), (name, "--help")):
        done = CliRunner().invoke(application(), arguments)
        assert done.exit_code == 2
        assert done.stderr.count("\n") == 1
        assert f"`twinfold {name}` is in the distribution twinfold-studies" in done.stderr
        assert "pip install -e ./studies" in done.stderr
    assert name not in CliRunner().invoke(application(), ["--help"]).stdout


@pytest.mark.parametrize("value", ["no_such_module:add", "json:no_such_function", "json:loads"])
def test_a_broken_plugin_is_reported_in_one_line(value, capsys):
    found = application(EntryPoint("broken", value, "twinfold.commands"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"Cannot load the commands of {value} (")
    done = CliRunner().invoke(found, ["--help"])
    assert done.exit_code == 0
    assert "first" in done.stdout


def test_the_studies_are_installed_here():
    commands = vars(typer.main.get_command(app))["commands"]
    assert set(STUDY_COMMANDS) <= set(commands)
    assert not any(commands[name].hidden for name in STUDY_COMMANDS)


def test_an_old_option_is_refused_with_the_new_one():
    done = CliRunner().invoke(app, ["monitor", "new.csv", "--rate", "0.1"])
    assert done.exit_code == 2
    assert "--rate is now called --false-alarm-rate" in re.sub(r"[\s│╭╮╰╯─]+", " ", done.output)
    assert "--rate" not in CliRunner().invoke(app, ["monitor", "--help"]).output.replace("--false-alarm-rate", "")


def test_every_export_can_be_named():
    assert list(EXPORTERS) == list(_commands.TARGETS)
