"""Protocol `paper`: the first two clean discharges of every cell, raw data, Adam 1e-3 for 100 epochs; split by battery.

The networks see raw numbers and no cell has parameters of its own. Every fourth cell is held out. What the paper does
not give: batches of four discharges, a plateau schedule of half after 25 epochs, samples about 18 s apart, a weight of
0.1 on the PINN's differential equations.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twinfold.bench.battery.cells import EVERY, Cells, group_of, runs_of
from twinfold.bench.battery.models import (
    LARGE,
    SMALL,
    black_box,
    constant,
    fitted_physics,
    informed,
    plain_physics,
    replaced,
)
from twinfold.bench.battery.scores import Scores, rows_of, scores_of, scores_of_rule
from twinfold.bench.kept import kept, unless_left
from twinfold.bench.store import Store
from twinfold.data.nasa import Discharge
from twinfold.train.fit import fit
from twinfold.train.gradient import Adam
from twinfold.train.levenberg import LevenbergMarquardt
from twinfold.train.loss import Loss
from twinfold.twin import Twin

HELD_OUT = 4  # every fourth cell
METHOD = Adam(100, rate=1e-3, batch_size=4, plateau=(0.5, 25))
LOSS = Loss(scale="off")
MODELS: dict[str, Callable[[], Twin]] = {
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
    train, test = (runs_of(part, every=EVERY) for part in split(cells))
    exact = runs_of(split(cells)[1])
    groups = {each.cell: group_of(each) for each in split(cells)[1]}
    rows: list[dict[str, Any]] = []
    physics = fit(fitted_physics(False, start="full"), train, method=LevenbergMarquardt(40), loss=LOSS, progress=False)
    plain = {
        "constant": scores_of_rule(constant(train.runs), exact),
        "physics": scores_of(plain_physics(), exact),
        "physics_fitted": scores_of(physics, exact, train_s=physics.seconds, parameters=physics.parameters),
    }
    for name, scores in plain.items():
        if name in models:
            rows += rows_of("paper", "unseen", name, scores, groups)

    def trained(name: str) -> Scores:
        loss = Loss(scale="off", collocation=0.1) if name == "pinn" else LOSS
        found = fit(MODELS[name](), train, seeds=seeds, method=METHOD, loss=loss, progress=False)
        return scores_of(found, exact, train_s=found.seconds, parameters=found.parameters)

    for name in MODELS:
        if name in models:
            tell(f"battery paper: {name}")
            settings = [train.fingerprint(), test.fingerprint(), seeds, str(METHOD)]
            with unless_left(store):
                made = kept(store, f"battery-paper-{name}", settings, lambda name=name: vars(trained(name)))
                rows += rows_of("paper", "unseen", name, Scores(**made), groups)
    return rows
