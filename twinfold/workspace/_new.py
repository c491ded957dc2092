"""A new project: a folder with a system, a configuration and measurements, small enough to read and to run at once."""

from importlib import resources
from pathlib import Path

from twinfold.io import atomic_write, unknown_name
from twinfold.workspace._samples import SAMPLES

FILES = ("system.py", "twinfold.toml", "README.md")
DEFAULT = "pendulum"


def new_project(folder: str | Path, template: str = DEFAULT) -> list[Path]:
    """Write a project into a folder that is not there yet, or is empty.

    **Arguments:** `folder`, whose name is that of the project; `template`: `"pendulum"` (a constraint, an input, hidden
    velocities), `"motor"` (a hidden speed) or `"tank"` (all states measured, missing values).

    **Returns:** the files. **Raises:** `ValueError` for an unknown template; `FileExistsError` where something is
    there already.
    """
    folder = Path(folder)
    if template not in SAMPLES:
        raise ValueError(f"there is no template {unknown_name(template, SAMPLES)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is there already and not empty; nothing was written. Give another name.")
    source = resources.files("twinfold.workspace") / "templates" / template
    texts = {name: (source / name).read_text(encoding="utf-8") for name in FILES}
    texts["README.md"] = texts["README.md"].replace("{name}", folder.resolve().name)
    texts["data/sample.csv"] = SAMPLES[template]()
    written = []
    for name, text in texts.items():
        with atomic_write(folder / name) as file:
            file.write(text.encode())
        written.append(folder / name)
    return written
