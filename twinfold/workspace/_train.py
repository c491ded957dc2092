"""The training of a workspace's twin: a fit that held-out runs judge, and the refit on all of them if it is wanted."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from twinfold.train import Fit
from twinfold.workspace import _files as files
from twinfold.workspace._data import DataSplit
from twinfold.workspace._folds import Folds
from twinfold.workspace._refit import refit, wants_refit
from twinfold.workspace._run_fit import run_fit
from twinfold.workspace._system import System
from twinfold.workspace._workspace import Workspace

NO_FINITE_SEED = (
    "Every seed became non-finite. `twinfold check` shows whether the physics runs and the step is stable; a smaller "
    "fit.learning_rate, short windows (fit.window) or zero_last=True in the networks can help."
)


class Diverged(ValueError):
    """No seed of a fit is finite."""


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of `train_workspace`: the final `fit`; `split`, the data as its twin has seen them.

    `judged`: the fit to the training runs alone, which was judged on the validation runs. It is the same as `fit`
    without a refit; after one, `note` says so, and the validation runs are training runs in `split`.

    **Example:** see `train_workspace`, which returns it.

    ```python
    from dataclasses import fields

    [field.name for field in fields(tw.workspace.Trained)]  # ["fit", "split", "judged", "note"]
    ```
    """

    fit: Fit
    split: DataSplit
    judged: Fit
    note: str = ""


def train_workspace(
    workspace: Workspace,
    system: System | None = None,
    folds: Folds | None = None,
    *,
    progress: bool | Callable[[float, str], None] = False,
) -> Trained:
    """Train the twin of a workspace as `fit_workspace` does, without checks, baselines and a model file.

    **Arguments:** `workspace`; `system` and `folds`, if they were loaded before; `progress`, see `twinfold.fit`.

    **Raises:** `KeyboardInterrupt`, after which the same call resumes from the checkpoints in the run folder;
    `ValueError` if no seed is finite.

    **Example:**

    ```python
    from pathlib import Path

    Path("system.py").write_text(
        "import twinfold as tw\\n\\n\\ndef twin():\\n"
        "    return tw.Twin(lambda x, p: -p['k'] * x, params={'k': tw.Unknown(1.0, positive=True)})\\n"
    )
    Path("twinfold.toml").write_text('[data]\\nfiles = ["decay.csv"]\\noutputs = ["x"]\\nblocks = 4\\n')
    tw.io.write_csv("decay.csv", [{"t": t, "x": np.exp(-0.7 * t)} for t in np.linspace(0, 2, 41)])
    workspace = tw.workspace.open_workspace(".", ["fit.lm_steps=5", "fit.refit=true", "fit.folds=2"])
    trained = tw.workspace.train_workspace(workspace)
    trained.note  # "Refit: ..."
    ```
    """
    system = workspace.load_system() if system is None else system
    folds = workspace.load_folds() if folds is None else folds
    split = folds.given
    done = run_fit(workspace, system.twin, split, progress=progress)
    files.write_history(workspace.run_folder, done)
    if done.interrupted:
        raise KeyboardInterrupt
    if not np.isfinite(done.scores).any():
        raise Diverged(NO_FINITE_SEED)
    if not wants_refit(workspace, split):
        return Trained(done, split, done)
    choice, final = refit(workspace, system, folds, done, progress=progress)
    return Trained(final, folds.everything, done, choice.sentence())
