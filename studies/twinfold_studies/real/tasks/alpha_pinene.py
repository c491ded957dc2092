"""Alpha-pinene: five rates by least squares, the mass balance held; beside a black box and no chemistry at all.

    y1' = -(a + b) y1,  y2' = a y1,  y3' = b y1 - (c + d) y3 + e y5,  y4' = c y3,  y5' = d y3 - e y5

The start is fixed at (100, 0, 0, 0, 0) %. Nothing is held out in the published task: the sum of squares is that of the
data the rates are fitted to. So each time is left out in turn as well, which a black box does not survive.
"""

import jax.numpy as jnp
import numpy as np

import twinfold as tw
from twinfold_studies.real.figures.alpha_pinene import draw
from twinfold_studies.real.loaders.alpha_pinene import SPECIES, load
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Metric, Model, Outcome, Task

GUESS = 5.0  # of all five rates, in 1e-5 / min
PUBLISHED = (5.926, 2.963, 2.047, 27.45, 3.998)  # Box et al. 1973, 1e-5 / min
SUBSTEPS = 60  # the longest interval is ten times the time constant of the fastest reaction
COPS = "least-squares optimum, COPS benchmark (Box et al. 1973)"


def reactions(x, p):
    """The rates of change [%/min] under the rates p["k"] [1e-5/min]."""
    a, b, c, d, e = 1e-5 * p["k"]
    dimer = d * x[2] - e * x[4]
    return jnp.stack([-(a + b) * x[0], a * x[0], b * x[0] - c * x[2] - dimer, c * x[2], dimer])


def chemistry(*, balanced: bool) -> tw.Twin:
    """The reactions with five unknown rates; with the mass balance held at each step, or not."""
    held = {"constraint": tw.Constraint(lambda x: (jnp.sum(x) - 100.0)[None] / 100), "projection": tw.Newton()}
    return tw.Twin(
        reactions,
        params={"k": tw.Unknown(np.full(5, GUESS), positive=True)},
        integrator=tw.RK4(substeps=SUBSTEPS),
        **(held if balanced else {}),
    )


def black_box() -> tw.Twin:
    """A network for all five rates of change."""
    return tw.node(tw.MLP(width=4, depth=1), integrator=tw.RK4(substeps=SUBSTEPS))


def dataset(records: Records, *, without: int | None = None) -> tw.Dataset:
    """The record as one run, perhaps without one of its rows."""
    record = records["batch"]
    kept = np.arange(len(record["t"])) != without
    return tw.Dataset.from_arrays(record["t"][kept], np.stack([record[name] for name in SPECIES], 1)[None, kept])


def fitted(twin: tw.Twin, data: tw.Dataset, seed: int, *, quick: bool) -> tw.Twin:
    """The twin after least squares."""
    method = tw.LevenbergMarquardt(20 if quick else 200, tolerance=1e-12)
    return tw.fit(twin, data, seeds=[seed], method=method, loss=tw.Loss(scale="off"), progress=False).twin


def outcome(twin: tw.Twin, records: Records) -> Outcome:
    """The errors of a twin on the rows it was fitted to, and its course on a fine grid."""
    data = dataset(records)
    run = data.runs[0]
    ts = np.concatenate([np.linspace(a, b, 5)[:-1] for a, b in zip(run.ts, run.ts[1:], strict=False)] + [run.ts[-1:]])
    x0 = jnp.asarray(run.y[0])
    ys = np.asarray(twin.simulate(x0, run.ts).ys)
    fine = np.asarray(twin.simulate(x0, ts).ys)
    return {
        "metrics": {
            "sse": float(np.sum((ys - run.y) ** 2)),
            "balance": float(np.max(np.abs(fine.sum(1) - 100)) / 100),
        },
        "t": ts.tolist(),
        "y": fine.tolist(),
        "k": np.asarray(twin.parameters()["k"]).tolist() if "k" in twin.params else [],
    }


def fit_model(build, records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """Fit to all rows, and once more without each of them."""
    del design
    whole = dataset(records).runs[0]
    predicted = []
    for row in range(1, len(whole.ts)):
        twin = fitted(build(), dataset(records, without=row), seed, quick=quick)
        predicted.append(np.asarray(twin.simulate(jnp.asarray(whole.y[0]), whole.ts).ys)[row])
    found = outcome(fitted(build(), dataset(records), seed, quick=quick), records)
    found["metrics"]["left_out"] = rmse(np.array(predicted), whole.y[1:])
    return found


def rmse(predicted: np.ndarray, measured: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - measured) ** 2)))


def twin(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    return fit_model(lambda: chemistry(balanced=True), records, design, seed, quick)


def fitted_physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    return fit_model(lambda: chemistry(balanced=False), records, design, seed, quick)


def node(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    return fit_model(black_box, records, design, seed, quick)


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """The reactions at the published rates."""
    del design, seed, quick
    known = tw.Twin(reactions, params={"k": np.array(PUBLISHED)}, integrator=tw.RK4(substeps=SUBSTEPS))
    return outcome(known, records)


def interpolation(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """No model: a time that is left out is interpolated between its neighbours (the last one: the row before it)."""
    del design, seed, quick
    run = dataset(records).runs[0]
    rows = []
    for row in range(1, len(run.ts)):
        kept = np.arange(len(run.ts)) != row
        rows.append([np.interp(run.ts[row], run.ts[kept], run.y[kept, i]) for i in range(5)])
    return {"metrics": {"left_out": rmse(np.array(rows), run.y[1:])}}


TASK = Task(
    "alpha_pinene",
    "alpha_pinene",
    "Alpha-pinene, five species at nine times",
    load,
    {
        "sse": Metric("least squares", "sum of squared errors", "%^2", 19.872, COPS),
        "balance": Metric("least squares", "largest violation of the mass balance, relative", "1"),
        "left_out": Metric("each time left out in turn", "RMSE", "%"),
    },
    [
        Model("twin", twin, seeded=False, note="five rates, mass balance projected; one start, rates of 5e-5/min"),
        Model("fitted physics", fitted_physics, seeded=False, note="five rates, no projection"),
        Model("physics", physics, seeded=False, note="published rates"),
        Model("black box", node, note="NODE, 4 units, 45 weights for 40 numbers"),
        Model("interpolation", interpolation, seeded=False, note="no model"),
    ],
    draw,
)
