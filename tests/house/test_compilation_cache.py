"""What commands compile is kept, in a folder of the user's own, within limits, and can be turned off."""

import os
import subprocess
import sys

import pytest

from twinfold._core import _compilation_cache as cache

PROGRAM = """
import jax, jax.numpy as jnp, twinfold as tw
tw.enable_x64()
folder = tw.enable_compilation_cache()
value = float(jax.jit(lambda x: jnp.sin(x) ** 2)(0.5))
print(folder, value, sum(1 for _ in folder.iterdir()) if folder else 0)
"""


def run(folder, **variables):
    hidden = {"JAX_COMPILATION_CACHE_DIR", cache.VARIABLE}
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | variables
    environment["XDG_CACHE_HOME"] = str(folder)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split(), done.stderr


def test_programs_are_kept_read_again_and_a_damaged_entry_is_compiled_again(tmp_path):
    (folder, value, count), _ = run(tmp_path)
    assert folder.startswith(str(tmp_path / "twinfold" / "compiled"))
    assert int(count) > 0
    (_, again, same), _ = run(tmp_path)
    assert (again, same) == (value, count)
    for path in (tmp_path / "twinfold").rglob("*-cache"):
        path.write_bytes(path.read_bytes()[:50])
    (_, again, _), errors = run(tmp_path)
    assert again == value
    assert "Traceback" not in errors


def test_it_can_be_turned_off_or_moved(tmp_path):
    (folder, _, _), _ = run(tmp_path, TWINFOLD_CACHE="off")
    assert folder == "None"
    assert not (tmp_path / "twinfold").exists()
    (folder, _, _), _ = run(tmp_path, TWINFOLD_CACHE=str(tmp_path / "here"))
    assert folder.startswith(str(tmp_path / "here"))


@pytest.mark.skipif(os.name != "posix", reason="permissions of files are those of POSIX")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path):
    """Compiled programs are code."""
    (folder, _, _), _ = run(tmp_path)
    os.chmod(folder, 0o777)
    (used, _, _), errors = run(tmp_path)
    assert used == "None"
    assert "others can write to" in errors


def test_the_oldest_entries_are_removed_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MAX_BYTES", 250)
    for age, name in enumerate(("new", "old", "oldest")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    cache._prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]
