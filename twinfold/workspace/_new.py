"""Create a project: a folder with a system, a configuration and measurements, ready to run."""

from importlib import resources
from pathlib import Path

from twinfold.io import unknown_name, write_text
from twinfold.workspace._samples import SAMPLES

FILES = ("system.py", "twinfold.toml", "README.md")


def new_project(folder: str | Path, template: str = "pendulum") -> list[Path]:
    """Create a project in a new or empty folder.

    **Arguments:** `folder`, whose name becomes that of the project; `template`: `"pendulum"` (a constraint, an input,
    hidden velocities), `"motor"` (a hidden speed), `"tank"` (all states measured, missing values) or `"battery"` (a
    lithium-ion cell whose network is fitted already).

    **Returns:** the files. **Raises:** `ValueError` for an unknown template; `FileExistsError` if the folder is not
    empty.

    **Example:**

    ```python
    tw.workspace.new_project("swing")  # swing/system.py, twinfold.toml, README.md, data/sample.csv
    ```
    """
    folder = Path(folder)
    if template not in SAMPLES:
        raise ValueError(f"there is no template {unknown_name(template, SAMPLES)}")
    source = resources.files("twinfold.workspace") / "templates" / template
    texts = {name: (source / name).read_text(encoding="utf-8") for name in FILES}
    texts["README.md"] = texts["README.md"].replace("{name}", folder.resolve().name)
    texts["data/sample.csv"] = SAMPLES[template]()
    if folder.exists() and not _is_new(folder, texts):
        raise FileExistsError(f"{folder} exists and is not empty; nothing was written. Choose another name.")
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def _is_new(folder: Path, texts: dict[str, str]) -> bool:
    """Whether a folder is empty, or contains a part of the project and nothing else: a call was killed there."""
    if not folder.is_dir():
        return False
    written = 0
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name in texts and path.is_file() and path.read_bytes() == texts[name].encode():
            written += 1
        elif name != "data" and not any(path.match(f"{each}.*.part") for each in texts):
            return False
    return written < len(texts)
