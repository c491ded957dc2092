"""A fit of the project in the current folder that prints a line after its first epoch and is interrupted there.

The next call resumes it; `benchmarks.commands` measures when the line comes.
"""

from pathlib import Path

from twinfold._core import enable_compilation_cache, enable_x64
from twinfold.workspace import fit_workspace, open_workspace


def main() -> None:
    enable_x64()
    enable_compilation_cache()
    told = []

    def interrupt(fraction: float, line: str) -> None:
        if not told:
            print(line, flush=True)
        told.append(fraction)
        raise KeyboardInterrupt

    # A folder of its own: that of the project may hold a fit that is complete.
    fit_workspace(open_workspace(Path(), ['run.folder="runs/interrupted"']), progress=interrupt)


if __name__ == "__main__":
    main()
