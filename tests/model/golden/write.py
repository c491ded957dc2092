"""Write the golden model files of the current version from those of the last release.

    python tests/model/golden/write.py

Run it once for each release: every twin of the last release is loaded, saved in the current format, and simulated.
"""

import json
import runpy
from pathlib import Path

import numpy as np

import twinfold as tw

HERE = Path(__file__).parent


def write_release(folder: Path) -> None:
    """Write model file and prediction of each golden twin of the last release into `folder`."""
    latest = max(path for path in HERE.iterdir() if path.is_dir() and path != folder and path.name[0].isdigit())
    folder.mkdir()  # an error if it exists: golden files are never replaced
    for path in sorted(latest.glob("*.twin")):
        twin = tw.load_model(path, runpy.run_path(str(HERE / "systems" / f"{path.stem}.py"))["twin"]())
        question = json.loads(path.with_suffix(".json").read_text())
        x0, ts, w = (question[name] and np.array(question[name]) for name in ("x0", "ts", "w"))
        simulation = twin.simulate(x0, ts, w, run=question.get("run"))
        answer = question | {"xs": simulation.xs.tolist(), "ys": simulation.ys.tolist()}
        tw.save_model(folder / path.name, twin, about=tw.read_info(path))
        (folder / path.with_suffix(".json").name).write_text(json.dumps(answer) + "\n")


if __name__ == "__main__":
    tw.enable_x64()
    write_release(HERE / tw.__version__)
