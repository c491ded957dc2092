"""The wheel of twinfold: built, listed, installed with its dependencies into an empty environment, and used there."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path, **variables: str) -> str:
    # Without the variables that would let the repository in.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("twinfold-*.whl")
    return path


@pytest.mark.slow
def test_the_wheel_contains_the_library_only(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"twinfold"}
    for template in ("pendulum", "motor", "tank"):
        assert f"twinfold/workspace/templates/{template}/twinfold.toml" in names
    assert "twinfold/__init__.pyi" in names
    assert "twinfold/workspace/__init__.pyi" in names
    for word in ("studies", "nasa", "bench", "experiment", "results/", "tests/"):
        assert [name for name in names if word in name.lower()] == [], word
    assert wheel.stat().st_size < 1_000_000


@pytest.mark.slow
def test_the_installed_wheel_works_without_the_repository(wheel, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    run(binaries / "python", "-m", "pip", "install", "--quiet", f"{wheel}[all]", cwd=tmp_path)
    folder = tmp_path / "work"
    folder.mkdir()
    place = run(binaries / "python", "-c", "import twinfold; print(twinfold.__file__)", cwd=folder)
    assert place.startswith(str(tmp_path))

    def twinfold(*arguments: str, cwd: Path = folder / "plant") -> str:
        return run(binaries / "twinfold", *arguments, cwd=cwd, JAX_PLATFORMS="cpu")

    twinfold("new", "plant", "--template", "tank", cwd=folder)
    twinfold("check")
    settings = ("--set", "fit.seeds=1", "--set", "fit.lm_steps=20")
    twinfold("fit", "--quiet", *settings)
    assert "lm_steps 20" in twinfold("info")
    twinfold("report", *settings)
    twinfold("export", "--to", "c", *settings)
    run_folder = folder / "plant" / "runs" / "first"
    assert (run_folder / "report" / "index.html").stat().st_size > 10_000
    assert list((run_folder / "export" / "c").glob("*.c"))
    refused = subprocess.run([binaries / "twinfold", "bench", "list"], cwd=folder, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "twinfold-studies" in refused.stderr
