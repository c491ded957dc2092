"""`python -m campaign.defects`: put known defects back, one at a time, and see that the campaign finds each."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Defect:
    """A defect: replacements (file, present text, text with the defect), and the group that must find it."""

    title: str
    group: str
    scale: float
    changes: tuple[tuple[str, str, str], ...]


DEFECTS = (
    Defect(
        "names are written into C with trigraphs",
        "export",
        0.03,
        (
            ("twinfold/export/_c/writer.py", "chr(byte) in SAFE_IN_STRING", "chr(byte) not in '\"\\\\'"),
            ("twinfold/export/_c/writer.py", 'else f"\\\\{byte:03o}"', 'else "\\\\" + chr(byte)'),
        ),
    ),
    Defect(
        "a folder that was claimed by half is blocked",
        "kills",
        0.1,
        (("twinfold/io/_run_folder.py", 'incomplete = (f"{CLAIM}.*.part", *LOCK_FILES)', "incomplete = LOCK_FILES"),),
    ),
    Defect(
        "two fits in one folder",
        "kills",
        0.1,
        (("twinfold/io/_lock.py", "        lock.acquire(timeout=0)\n", "        pass\n"),),
    ),
    Defect(
        "loading is quadratic in the number of runs",
        "csv",
        0.01,
        (
            (
                "twinfold/data/_dataset.py",
                "def _check_distinct(names: Sequence[str], argument: str, kind: str) -> None:\n",
                "def _check_distinct(names: Sequence[str], argument: str, kind: str) -> None:\n"
                "    [names.count(name) for name in names]\n",
            ),
        ),
    ),
    Defect(
        "fmi2DoStep of infinite length never returns",
        "fmu",
        0.02,
        (
            ("twinfold/export/templates/fmi2.c.j2", "if (!(length > 0 && isfinite(length)))", "if (!(length > 0))"),
            ("twinfold/export/templates/fmi2.c.j2", "if (!(count <= MAX_STEPS))", "if (0)"),
            ("twinfold/export/templates/fmi2.c.j2", "fabs(ratio - count) > MULTIPLE", "0"),
            (
                "twinfold/export/templates/fmi2.c.j2",
                "for (int k = 0; k < (int)count; k++)",
                "for (double k = 0; k < count; k++)",
            ),
        ),
    ),
    Defect(
        "fit does not repeat what check knows",
        "findings",
        1.0,
        (
            (
                "twinfold/workspace/_fit.py",
                "            findings = examine_workspace(system, split).serious\n",
                "            findings = ()\n",
            ),
        ),
    ),
    Defect(
        "a missing first measurement is taken for divergence",
        "findings",
        1.0,
        (("twinfold/data/_rows.py", "    if not bad.any():\n        return\n    missing", "    return\n    missing"),),
    ),
    Defect(
        "a run called NA is no run",
        "csv",
        0.01,
        (("twinfold/data/_readers/csv_file.py", '("",) if name in text_columns else EMPTY', "EMPTY"),),
    ),
    Defect(
        "a pipe in place of a table is opened",
        "export",
        0.02,
        (("twinfold/data/_readers/files.py", '    check_regular_file(path, f"files: {path}")\n', ""),),
    ),
    Defect(
        "names with control characters reach XML",
        "export",
        0.2,
        (("twinfold/io/_names.py", "if found := _FORBIDDEN.search(name):", "if found := None:"),),
    ),
    Defect(
        "Ctrl-C during the start shows a traceback",
        "interrupts",
        0.3,
        (("twinfold/cli/_common.py", "        except KeyboardInterrupt:\n", "        except ZeroDivisionError:\n"),),
    ),
    Defect(
        "a full disk does not name the file",
        "disk",
        0.1,
        (
            (
                "twinfold/io/_atomic.py",
                "        raise type(error)(error.errno, reason, str(path)) from error\n",
                "        raise\n",
            ),
        ),
    ),
)


def try_defect(defect: Defect) -> list[str]:
    """The failures that the campaign finds in a copy of the repository with the defect."""
    with tempfile.TemporaryDirectory(prefix="campaign-defect-") as scratch:
        copy = Path(scratch) / "repository"
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file() and not name.startswith("results/"):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
        for name, present, changed in defect.changes:
            text = (copy / name).read_text(encoding="utf-8")
            assert text.count(present) == 1, f"{name} does not contain once: {present}"
            (copy / name).write_text(text.replace(present, changed), encoding="utf-8")
        summary = Path(scratch) / "summary.json"
        command = [sys.executable, "-m", "campaign", defect.group, "--scale", str(defect.scale), "--out", str(summary)]
        environment = os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{copy / 'studies'}"}
        subprocess.run(command, cwd=copy, env=environment, check=False, stdout=subprocess.DEVNULL)
        failures = json.loads(summary.read_text())["groups"][defect.group]["failures"]
        return [f"{each['case']}: {each['reason']}" for each in failures]


def main() -> int:
    """Try every defect; the exit code is 1 if one is not found."""
    wanted = sys.argv[1:]
    missed = 0
    for defect in DEFECTS:
        if wanted and not any(word in defect.title for word in wanted):
            continue
        found = try_defect(defect)
        missed += not found
        print(f"{'found' if found else 'MISSED'}: {defect.title} ({defect.group}, {len(found)} cases)", flush=True)
        for line in found[:2]:
            print(f"    {line[:200]}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
