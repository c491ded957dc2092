"""Protocol `paper`: the first two clean discharges of every cell, raw data, Adam 1e-3 for 100 epochs; split by battery.

The networks see raw numbers and no cell has parameters of its own. Every fourth cell is held out. What the paper does
not give: batches of four discharges, a plateau schedule of half after 25 epochs, samples about 18 s apart, a weight of
0.1 on the PINN's differential equations.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twinfold.model import Twin
from twinfold.train import Adam, LevenbergMarquardt, Loss, fit
from twinfold_studies.battery.cells import EVERY, Cells, group_of, runs_of
from twinfold_studies.battery.models import (
    LARGE,
    SMALL,
    black_box,
    constant,
    fitted_physics,
    informed,
    plain_physics,
    replaced,
)
from twinfold_studies.battery.scores import Scores, rows_of, scores_of, scores_of_rule
from twinfold_studies.bench.kept import kept, unless_left
from twinfold_studies.bench.store import Store
from twinfold_studies.nasa import Discharge

HELD_OUT = 4  # every fourth cell
METHOD = Adam(100, learning_rate=1e-3, batch_size=4, plateau=(0.5, 25))
LOSS = Loss(scale="off")
SCALARS = LevenbergMarquardt(40)
MODELS: dict[str, Callable[[], Twin]] = {
    "physics_fitted": lambda: fitted_physics(False, start="full"),
    "hrpinn_large": lambda: replaced(False, LARGE, raw=True, start="full"),
    "hrpinn_small": lambda: replaced(False, SMALL, raw=True, start="full"),
    "pinn": informed,
    "node": lambda: black_box(raw=True),
    "node_scaled": lambda: black_box(),
}


def split(cells: Cells) -> tuple[list[Discharge], list[Discharge]]:
    """The clean ones among the first two discharges of every cell: training, and those of the cells held out."""
    clean = cells.collection.select(kind="cycle", clean=True, first=2)
    held = set(clean.cells[HELD_OUT - 1 :: HELD_OUT])
    return [each for each in clean if each.cell not in held], [each for each in clean if each.cell in held]


def as_in_the_paper(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows of the paper's four models, of a NODE with scaled inputs, and of the plain baselines."""
    seen, held_out = split(cells)
    train, test = runs_of(seen, every=EVERY), runs_of(held_out)
    groups = {each.cell: group_of(each) for each in held_out}
    rows: list[dict[str, Any]] = []
    plain = {
        "constant": scores_of_rule(constant(train.runs), test),
        "physics": scores_of(plain_physics(), test),
    }
    for name, scores in plain.items():
        if name in models:
            rows += rows_of("paper", "unseen", name, scores, groups)

    def trained(name: str) -> Scores:
        loss = Loss(scale="off", collocation=0.1) if name == "pinn" else LOSS
        # Two scalars need neither seeds nor a rate of learning.
        method, count = (SCALARS, 1) if name == "physics_fitted" else (METHOD, seeds)
        found = fit(MODELS[name](), train, seeds=count, method=method, loss=loss, progress=False)
        return scores_of(found, test, train_s=found.seconds, parameters=found.parameters)

    for name in MODELS:
        if name in models:
            tell(f"battery paper: {name}")
            settings = [train.fingerprint(), test.fingerprint(), seeds, str(METHOD)]
            with unless_left(store):
                made = kept(store, f"battery-paper-{name}", settings, lambda name=name: vars(trained(name)))
                rows += rows_of("paper", "unseen", name, Scores(**made), groups)
    return rows
