"""Importing the library is quick and brings no extra along."""

import json
import subprocess
import sys

EXTRAS = ("matplotlib", "pandas", "polars", "dtaidistance", "typer", "rich", "torch", "scipy")
IMPORT = "import json, sys, time; start = time.perf_counter(); {}; took = time.perf_counter() - start"


def run(statement: str, then: str) -> str:
    code = f"{IMPORT.format(statement)}; print(json.dumps({then}))"
    return json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def test_no_extra_is_imported():
    loaded = run("import twinfold", f"[name for name in {EXTRAS!r} if name in sys.modules]")
    assert loaded == [], loaded


def test_the_import_is_quick():
    """Under 2 s more than importing what it stands on; the best of three, other work on the machine left aside."""
    below = min(float(run("import jax, equinox, diffrax", "took")) for _ in range(3))
    whole = min(float(run("import twinfold", "took")) for _ in range(3))
    assert whole - below < 2, (whole, below)
