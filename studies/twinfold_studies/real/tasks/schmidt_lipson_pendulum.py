"""Schmidt and Lipson's pendulum under the protocol of Hamiltonian neural networks (Greydanus et al. 2019).

x = (angle, velocity) as recorded; dx = (x[k+1] - x[k]) / (t[k+1] - t[k]) at x[k]; the first 80 % of these pairs are for
training, the last 20 % for the test, in order.

- Test loss: mean square of dx - dx^ over both components. For a model of differential equations dx^ is its mean rate
  over the same interval, from x[k]: what the difference quotient measures. (The published models are functions of x[k]
  that were trained on the quotients; the field of an integrated model at x[k] would differ from them by its curvature.)
- Energy error: a free run from the first state of the test over its times; the mean square difference between its
  energy and that of the record, H = 2.4 (1 - cos q) + p^2.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import twinfold as tw
from twinfold_studies.real.figures.schmidt_lipson_pendulum import draw
from twinfold_studies.real.loaders.schmidt_lipson import load
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import StateSpace
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Metric, Model, Outcome, Task

SHARE = 0.8  # of the pairs that are for training
STEP = 1 / 6  # between samples, apart from a few gaps
HNN = "Greydanus et al. 2019, README of their repository"
LOSS, ENERGY = 2.1864e-3, 1.4477e-2  # published: that of their baseline network, and that of their HNN
SPEEDS = np.linspace(-1.5, 1.5, 61)

States = Float[np.ndarray, "T 2"]
# Predicted states at these times, from the first one.
FreeRun = Callable[[Float[np.ndarray, " T"], Float[np.ndarray, " 2"]], States]


def parts(records: Records) -> tuple[tuple[np.ndarray, States], tuple[np.ndarray, States]]:
    """Times and states for training and for the test; both have the state after their last pair."""
    record = records["swing"]
    t, x = record["t"], np.stack([record["theta"], record["omega"]], 1)
    split = int(SHARE * (len(t) - 1))
    return (t[: split + 1], x[: split + 1]), (t[split:], x[split:])


def energy(x: Float[np.ndarray, "... 2"]) -> Float[np.ndarray, "..."]:
    """That of the published protocol."""
    return 2.4 * (1 - np.cos(x[..., 0])) + x[..., 1] ** 2


def scores(t: np.ndarray, x: States, next_states: States, free: States) -> dict[str, float]:
    """Test loss and energy error, from the predictions of x[k+1] and of the whole run (without its last state)."""
    rate = (next_states - x[1:]) / np.diff(t)[:, None]
    found = {"loss": np.mean(rate**2), "energy": np.mean((energy(free) - energy(x[:-1])) ** 2)}
    return {name: float(value) if np.isfinite(value) else float("inf") for name, value in found.items()}


def outcome(t: np.ndarray, x: States, next_states: States, free: States) -> Outcome:
    return {
        "metrics": scores(t, x, next_states, free),
        "t": t[:-1].tolist(),
        "angle": free[:, 0].tolist(),
        "energy": energy(free).tolist(),
    }


def with_twin(twin: tw.Twin, t: np.ndarray, x: States) -> Outcome:
    """The outcome of a twin on a record."""
    pairs = tw.Dataset.from_arrays([t[k : k + 2] for k in range(len(t) - 1)], [x[k : k + 2] for k in range(len(t) - 1)])
    whole = tw.Dataset.from_arrays(t[:-1], x[None, :-1])
    after = np.asarray(tw.predict(twin, pairs).predicted).reshape(len(t) - 1, 2, 2)[:, 1]
    return outcome(t, x, after, np.asarray(tw.predict(twin, whole).predicted).reshape(len(t) - 1, 2))


def with_steps(t: np.ndarray, x: States, simulate: Callable[[Any, Any], States]) -> Outcome:
    """The outcome of a model of equal steps on a record, from one state each time; a gap is several steps."""
    steps = np.round((t - t[0]) / STEP).astype(int)

    def run(count: int, first: np.ndarray) -> States:
        return simulate(np.zeros((count, 0)), first[None])

    after = [run(1 + steps[k + 1] - steps[k], x[k])[-1] for k in range(len(t) - 1)]
    return outcome(t, x, np.array(after), run(1 + steps[-2], x[0])[steps[:-1]])


def pendulum(*, friction: Any, viscous: bool) -> tw.Twin:
    """q' = a p, p' = -b sin q - c p, with a network beside it or not; the file's velocity is not quite q'."""

    def physics(x, p):
        return jnp.stack([p["a"] * x[1], -p["b"] * jnp.sin(x[0]) - p["c"] * x[1]])

    params = {"a": tw.Unknown(1.0, positive=True), "b": tw.Unknown(1.2, positive=True)}
    params |= {"c": tw.Unknown(0.02, positive=True)} if viscous else {"c": 0.0}
    return tw.Twin(physics if friction is None else tw.GreyBox(physics, friction), params=params, integrator=RK)


RK = tw.RK4(substeps=2)


def friction_network(sees: str) -> tw.MLP:
    """Friction as a function of the velocity, or of velocity and angle; it never drives the pendulum."""
    states, structure = ([1], ("odd", "dissipative")) if sees == "velocity" else ([1, 0], ("dissipative",))
    return tw.MLP(states=states, adds_to=[1], width=6, depth=1, structure=structure, zero_last=True)


def fit_part(twin: tw.Twin, t: np.ndarray, x: States, seed: int, *, window: int, l2: float, quick: bool) -> tw.Fit:
    """Fit to windows whose first states are estimated, with continuity between them."""
    return tw.fit(
        twin,
        tw.Dataset.from_arrays(t, x[None]),
        seeds=[seed],
        method=tw.LevenbergMarquardt(15 if quick else 150),
        loss=tw.Loss(l2=l2),
        window=window,
        shooting=True,
        progress=False,
    )


def design_twin(design: dict[str, Any]) -> tw.Twin:
    return pendulum(friction=friction_network(design["sees"]), viscous=True)


def designs() -> dict[str, dict[str, Any]]:
    return {
        f"friction of {sees}, windows of {window}, l2 {l2:g}": {"sees": sees, "window": window, "l2": l2}
        for sees in ("velocity", "velocity and angle")
        for window in (37, 111)
        for l2 in (1e-4, 1e-5)
    }


def validate(records: Records, design: dict[str, Any], quick: bool) -> float:
    """Loss and energy error, each over the published one, on the last fifth of the training part."""
    (t, x), _ = parts(records)
    split = int(SHARE * (len(t) - 1))
    settings = {"window": design["window"], "l2": design["l2"]}
    twin = fit_part(design_twin(design), t[: split + 1], x[: split + 1], 0, quick=quick, **settings).twin
    found = with_twin(twin, t[split:], x[split:])["metrics"]
    return found["loss"] / LOSS + found["energy"] / ENERGY


def twin(records: Records, design: dict[str, Any], seed: int, quick: bool) -> Outcome:
    (t, x), test = parts(records)
    settings = {"window": design["window"], "l2": design["l2"]}
    fit = fit_part(design_twin(design), t, x, seed, quick=quick, **settings)
    data = tw.Dataset.from_arrays(t, x[None])

    def law(each: tw.Twin):
        rates = [each.field(0.0, jnp.array([0.0, v]), None, None, each.parameters())[1] for v in SPEEDS]
        return -jnp.stack(rates)  # at the lowest point gravity has no moment

    band = tw.identify.posterior(fit, data, loss=tw.Loss(l2=design["l2"])).spread_of(law)
    return with_twin(fit.twin, *test) | {"law": np.asarray(law(fit.twin)).tolist(), "band": band.tolist()}


def fitted_physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design
    train, test = parts(records)
    fit = fit_part(pendulum(friction=None, viscous=True), *train, seed, window=111, l2=0.0, quick=quick)
    c = float(fit.twin.parameters()["c"])
    return with_twin(fit.twin, *test) | {"law": (c * SPEEDS).tolist()}


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """The equations of motion of the published energy: q' = p, p' = -1.2 sin q."""
    del design, seed, quick
    known = tw.Twin(lambda x: jnp.stack([x[1], -1.2 * jnp.sin(x[0])]), integrator=RK)
    return with_twin(known, *parts(records)[1])


def one_step(records: Records, model: tw.Twin, seed: int, quick: bool) -> Outcome:
    """Fit as the published models were: to each pair by itself."""
    (t, x), test = parts(records)
    count = len(t) - 1
    pairs = tw.Dataset.from_arrays([t[k : k + 2] for k in range(count)], [x[k : k + 2] for k in range(count)])
    method = [tw.Adam(20 if quick else 300), tw.LevenbergMarquardt(5 if quick else 60)]
    fit = tw.fit(model, pairs, seeds=[seed], method=method, loss=tw.Loss(l2=1e-5), progress=False)
    return with_twin(fit.twin, *test)


def node(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design
    return one_step(records, tw.node(tw.MLP(width=12, depth=1, outside="free"), integrator=RK), seed, quick)


def hnn(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design
    return one_step(records, tw.model.hnn(tw.model.Energy(width=12, depth=1), integrator=RK), seed, quick)


def at_steps(t: np.ndarray, x: States) -> States:
    """The states at equal steps; the few that are missing are interpolated."""
    return np.stack([np.interp(np.arange(t[0], t[-1] + STEP / 2, STEP), t, column) for column in x.T], 1)


def state_space(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    train, test = parts(records)
    y = at_steps(*train)
    model = StateSpace.identify([(np.zeros((len(y), 0)), y)], order=2, block_rows=10)
    return with_steps(*test, model.simulate)


def narx(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    train, test = parts(records)
    y = at_steps(*train)
    return with_steps(*test, Narx.identify([(np.zeros((len(y), 0)), y)], lags=1, degree=3, terms=8).simulate)


def persistence(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """The state stays as it is."""
    del design, seed, quick
    t, x = parts(records)[1]
    return outcome(t, x, x[:-1], np.broadcast_to(x[0], (len(t) - 1, 2)))


TASK = Task(
    "schmidt_lipson_pendulum",
    "schmidt_lipson",
    "Schmidt and Lipson's pendulum",
    load,
    {
        "loss": Metric(
            "HNN's split, last 20 %", "test loss on time derivatives", "1", LOSS, f"baseline network, {HNN}"
        ),
        "energy": Metric("HNN's split, last 20 %", "mean square energy error", "1", ENERGY, f"HNN, {HNN}"),
    },
    [
        Model("twin", twin, designs(), validate, note="pendulum with viscous friction and a dissipative network"),
        Model("fitted physics", fitted_physics, seeded=False, note="q' = a p, p' = -b sin q - c p"),
        Model("physics", physics, seeded=False, note="q' = p, p' = -1.2 sin q"),
        Model("black box", node, note="NODE of 12 units, fitted to single steps"),
        Model("HNN", hnn, note="12 units, fitted to single steps"),
        Model("linear state space", state_space, seeded=False, note="N4SID, order 2"),
        Model("NARX", narx, seeded=False, note="FROLS, 1 lag, degree 3, 8 terms"),
        Model("persistence", persistence, seeded=False),
    ],
    draw,
)
