"""EMPS: a free run over the whole official test record under its voltage; its first 20 samples give the start.

Designs are chosen within the training record: fitted to its first half they predict the second, and fitted to three
quarters the last one. The reference of the controller is not used: with its gains, which are published, it would give
the position away.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import twinfold as tw
from twinfold_studies.real.drive import FIRST, PLACE, Design, Drive, build, dataset, error, free_run, published, thinned
from twinfold_studies.real.figures.emps import draw
from twinfold_studies.real.loaders.emps import load
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import StateSpace
from twinfold_studies.real.table import Record, Records
from twinfold_studies.real.task import Metric, Model, Outcome, Task

EVERY = 5  # samples of 1 ms in a step of the fit
SPEEDS = np.linspace(-0.13, 0.13, 105)  # m/s
SHOWN = 50  # one sample in so many is kept for the figures
SPLITS = (1 / 2, 3 / 4)
SHIFT, END = 0.02, 1000  # m; the samples at the end over which it is averaged
DYNONET = "dynoNet, Forgione and Piga 2021 (printed as 2.64e-3 mm; 96.8 % fit of 0.0827 m make it mm)"


def designs() -> dict[str, Design]:
    found = {"asymmetric, drift, no network": Design(0, drift=True, asymmetric=True)}
    for sees, feature in ((1, "v"), (2, "v and q")):
        for l2 in (1e-5, 1e-6):
            found[f"asymmetric, drift, network of {feature}, l2 {l2:g}"] = Design(sees, True, True, l2)
    return found | {"asymmetric, network of v and q, l2 1e-06": Design(2, drift=False, asymmetric=True, l2=1e-6)}


def fit_rows(records: Records, design: Design, rows: slice, seed: int, *, quick: bool) -> tw.Fit:
    """Fit a design to part of the training record, in one free run: the physics alone first, then with its network."""
    data = dataset(thinned(records["train"], EVERY, rows))
    method = tw.LevenbergMarquardt(3 if quick else 80, tolerance=1e-6)
    options = {"seeds": [seed], "method": method, "loss": tw.Loss(l2=design.l2), "progress": False}
    alone = tw.fit(build(design._replace(sees=0), warmup=FIRST // EVERY), data, **options)
    if not design.sees:
        return alone
    guess = {name: float(value) for name, value in alone.twin.parameters().items()}
    return tw.fit(build(design, warmup=FIRST // EVERY, guess=guess), data, **options)


def validate(records: Records, design: Design, quick: bool) -> float:
    """The mean error [mm] on the part of the training record that follows the one it was fitted to."""
    count, errors = len(records["train"]["t"]), []
    for share in SPLITS:
        split = int(share * count)
        fit = fit_rows(records, design, slice(0, split), 0, quick=quick)
        rest: Record = {name: values[split:] for name, values in records["train"].items()}
        errors.append(error(free_run(fit.twin, rest), rest))
    return float(np.mean(errors))


def outcome(records: Records, predicted: Float[np.ndarray, " T"]) -> Outcome:
    record = records["test"]
    return {
        "metrics": {"rmse": error(predicted, record)},
        "t": record["t"][::SHOWN].tolist(),
        "position": predicted[::SHOWN].tolist(),
    }


def memory(free: Callable[[Record], Float[np.ndarray, " T"]], record: Record) -> float:
    """What is left at the end of a free run of a start that is shifted by `SHIFT`: all of it, for a drive.

    A screw does not know where zero is. The test record follows the same reference as the training record, so a model
    that is drawn to the positions of the training record is right there for another reason.
    """
    shifted = record | {"position": record["position"] + SHIFT}
    left = float(np.mean((free(shifted) - free(record))[-END:])) / SHIFT
    return left if np.isfinite(left) else float("nan")


def twin(records: Records, design: Design, seed: int, quick: bool) -> Outcome:
    """The free run, and the law of friction in the middle of the stroke with its band."""
    fit = fit_rows(records, design, slice(None), seed, quick=quick)
    data = dataset(thinned(records["train"], EVERY))

    band = tw.identify.posterior(fit, data, loss=tw.Loss(l2=design.l2)).spread_of(law)
    found = outcome(records, free_run(fit.twin, records["test"]))
    found["metrics"]["train"] = error(free_run(fit.twin, records["train"]), records["train"])
    found["metrics"]["memory"] = memory(lambda record: free_run(fit.twin, record), records["train"])
    values = {name: float(value) for name, value in fit.twin.parameters().items()}
    return found | {"law": np.asarray(law(fit.twin)).tolist(), "band": band.tolist(), "parameters": values}


def diagnosis(records: Records, design: Design, seed: int, quick: bool) -> Outcome:
    """The twin, and viscous friction estimated once more from the test record itself: by how much it has changed."""
    fit = fit_rows(records, design, slice(None), seed, quick=quick)
    record = thinned(records["test"], EVERY)
    found = tw.identify.reestimate(fit.twin, dataset(record), ["viscous"])
    residual = found.residual[0, FIRST // EVERY :, 0]
    change = float(found.values[0, 0]) - float(fit.twin.parameters()["viscous"])
    return {"metrics": {"rmse": 1000 * float(np.sqrt(np.nanmean(residual**2))), "change": change}}


def law(twin: tw.Twin) -> Float[Array, " K"]:
    """F(q, v) [N] in the middle of the stroke, at all `SPEEDS`."""
    field, p = twin.field, twin.parameters()
    assert isinstance(field, Drive)
    return jax.vmap(lambda v: field.friction(jnp.asarray(PLACE), v, p))(jnp.asarray(SPEEDS))


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    known = published()
    found = outcome(records, free_run(known, records["test"]))
    found["metrics"]["train"] = error(free_run(known, records["train"]), records["train"])
    return found | {"law": np.asarray(law(known)).tolist()}


def at_steps(records: Records, every: int, run: Callable[[Record, int], np.ndarray]) -> Outcome:
    """The outcome of a model of longer steps; between them its positions are interpolated."""

    def fine(record: Record) -> np.ndarray:
        coarse = thinned(record, every)
        with np.errstate(invalid="ignore"):  # a model that diverges is infinite
            return np.interp(record["t"], coarse["t"], run(coarse, max(FIRST // every, 1)))

    found = outcome(records, fine(records["test"]))
    found["metrics"]["train"] = error(fine(records["train"]), records["train"])
    found["metrics"]["memory"] = memory(fine, records["train"])
    return found


def node(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """Both rates as a network of position, hidden velocity and voltage, fitted to windows of two seconds."""
    del design
    every = 20
    network = tw.MLP(states=[0, 1], inputs=[0], width=12, depth=1, outside="free")
    model = tw.node(network, observe=lambda x: x[:1], initial=lambda y: jnp.append(y, 0.0), warmup=1)
    data = dataset(thinned(records["train"], every))
    method = [tw.Adam(3 if quick else 400), tw.LevenbergMarquardt(2 if quick else 60)]
    fit = tw.fit(model, data, seeds=[seed], method=method, loss=tw.Loss(l2=1e-5), window=100, progress=False)

    def run(record: Record, seen: int) -> np.ndarray:
        return np.asarray(tw.predict(fit.twin, dataset(record, seen=seen)).predicted).reshape(-1)

    return at_steps(records, every, run)


def state_space(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    train = thinned(records["train"], 10)
    model = StateSpace.identify([(train["voltage"][:, None], train["position"][:, None])], order=3, block_rows=20)
    return at_steps(
        records,
        10,
        lambda record, seen: model.simulate(record["voltage"][:, None], record["position"][:seen, None])[:, 0],
    )


def narx(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    train = thinned(records["train"], 10)
    runs = [(train["voltage"][:, None], train["position"][:, None])]
    model = Narx.identify(runs, lags=2, degree=2, terms=6)
    return at_steps(
        records,
        10,
        lambda record, seen: model.simulate(record["voltage"][:, None], record["position"][:seen, None])[:, 0],
    )


def constant(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """The mean position of the training record."""
    del design, seed, quick
    return outcome(records, np.full(len(records["test"]["t"]), records["train"]["position"].mean()))


def fixed(name: str, design: Design, note: str, *, seeded: bool) -> Model:
    """A design of its own, which is not chosen."""
    return Model(name, twin, {"": design}, seeded=seeded, note=note)


TASK = Task(
    "emps",
    "emps",
    "EMPS, a positioning drive",
    load,
    {
        "rmse": Metric("free run over the test record", "RMSE", "mm", 2.64, DYNONET),
        "train": Metric("free run over the training record", "RMSE", "mm"),
        "change": Metric("viscous friction of the test record", "more than in the training record", "%"),
        "memory": Metric(
            "start shifted by 20 mm, training record", "share of the shift at the end; 1 for a drive", "1"
        ),
    },
    [
        Model(
            "twin",
            twin,
            designs(),
            validate,
            note="Coulomb and asymmetric viscous friction, drifting offset, dissipative network",
        ),
        Model(
            "twin, viscous friction of the test record",
            diagnosis,
            {"": Design(2, drift=True, asymmetric=True)},
            note="a diagnosis, no prediction: one parameter is estimated from the test record",
        ),
        fixed(
            "twin without drift",
            Design(2, drift=False, asymmetric=True),
            "the same, constant offset; not chosen",
            seeded=True,
        ),
        fixed(
            "fitted physics with drift",
            Design(0, drift=True, asymmetric=False),
            "Coulomb, viscous, drifting offset",
            seeded=False,
        ),
        fixed(
            "fitted physics",
            Design(0, drift=False, asymmetric=False),
            "Coulomb, viscous, offset, mass fitted",
            seeded=False,
        ),
        Model("physics", physics, seeded=False, note="published parameters (IDIM-LS)"),
        Model("black box", node, note="NODE of 12 units, hidden velocity, steps of 20 ms"),
        Model("linear state space", state_space, seeded=False, note="N4SID, order 3, steps of 10 ms"),
        Model("NARX", narx, seeded=False, note="FROLS, 2 lags, degree 2, 6 terms, steps of 10 ms"),
        Model("constant", constant, seeded=False, note="mean of the training record"),
    ],
    draw,
)
