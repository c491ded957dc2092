"""Protocol `paper`: the first two clean discharges of every cell, raw data, Adam 1e-3 for 100 epochs; split by cell.

Inputs are not scaled, and all parameters are shared by the cells. Every fourth cell is held out. Not given in the paper
and chosen here: batches of four discharges, a learning rate halved after 25 epochs without improvement, samples about
18 s apart, a weight of 0.1 on the differential equations of the PINN.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twinfold.model import Twin
from twinfold.train import Adam, LevenbergMarquardt, Loss, fit
from twinfold_studies.battery.cells import SAMPLE_INTERVAL, Cells, load_group, runs_of
from twinfold_studies.battery.models import (
    LARGE,
    SMALL,
    black_box,
    constant,
    fitted_physics,
    pinn,
    plain_physics,
    replacement,
)
from twinfold_studies.battery.scores import Scores, score, score_rows, score_rule
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.store import Store
from twinfold_studies.nasa import Discharge

HELD_OUT = 4  # every fourth cell
METHOD = Adam(100, learning_rate=1e-3, batch_size=4, plateau=(0.5, 25))
LOSS = Loss(scale="off")
SCALAR_METHOD = LevenbergMarquardt(40)
MODELS: dict[str, Callable[[], Twin]] = {
    "physics_fitted": lambda: fitted_physics(False, start="full"),
    "hrpinn_large": lambda: replacement(False, LARGE, raw=True, start="full"),
    "hrpinn_small": lambda: replacement(False, SMALL, raw=True, start="full"),
    "pinn": pinn,
    "node": lambda: black_box(raw=True),
    "node_scaled": lambda: black_box(),
}


def split(cells: Cells) -> tuple[list[Discharge], list[Discharge]]:
    """The clean ones among the first two discharges of every cell: those of training cells, and of held-out cells."""
    clean = cells.collection.select(kind="cycle", clean=True, first=2)
    held = set(clean.cells[HELD_OUT - 1 :: HELD_OUT])
    return [each for each in clean if each.cell not in held], [each for each in clean if each.cell in held]


def paper_protocol(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows of the four models of the paper, of a NODE with scaled inputs, and of the baselines."""
    training, held_out = split(cells)
    train, test = runs_of(training, interval=SAMPLE_INTERVAL), runs_of(held_out)
    groups = {each.cell: load_group(each) for each in held_out}
    rows: list[dict[str, Any]] = []
    plain = {
        "constant": score_rule(constant(train.runs), test),
        "physics": score(plain_physics(), test),
    }
    for name, scores in plain.items():
        if name in models:
            rows += score_rows("paper", "unseen", name, scores, groups)

    def trained(name: str) -> Scores:
        loss = Loss(scale="off", collocation=0.1) if name == "pinn" else LOSS
        # Two scalars are fitted without seeds and without Adam.
        method, count = (SCALAR_METHOD, 1) if name == "physics_fitted" else (METHOD, seeds)
        fitted = fit(MODELS[name](), train, seeds=count, method=method, loss=loss, progress=False)
        return score(fitted, test, train_s=fitted.seconds, parameters=fitted.parameters)

    for name in MODELS:
        if name in models:
            log(f"battery paper: {name}")
            settings = [train.fingerprint(), test.fingerprint(), seeds, str(METHOD)]
            with record_skips(store):
                scores = cached(store, f"battery-paper-{name}", settings, lambda name=name: vars(trained(name)))
                rows += score_rows("paper", "unseen", name, Scores(**scores), groups)
    return rows
