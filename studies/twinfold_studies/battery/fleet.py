"""Cells that were never measured: a SYNTHETIC fleet from the battery's own physics, in the form of NASA's.

So that every command runs on a machine without data. The physics is Daigle & Kulkarni's with two things that it does
not know (a smooth error of V_INT, and one that follows the load), so that a residual has something to learn. Charge and
resistance age from cycle to cycle. Every name begins with "SYN", every discharge says in its notes what it is and which
q_max and R_o it has.
"""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.model import Twin
from twinfold.model._simulation import simulate_unchecked
from twinfold.numerics import Heun
from twinfold.systems import Interaction, battery, charged
from twinfold_studies.nasa.collection import Collection
from twinfold_studies.nasa.discharge import Discharge, Kind
from twinfold_studies.nasa.quality import flags_of

COUNTED = 2.7  # V: NASA's published capacity is the charge to the first row below, whatever the cell's cut-off
REST, TAIL = 2, 15  # rows before the load and after it
SWITCHED = 0.7  # s from a logged row until the load comes on or goes off
TURN = 60.0  # s between the changes of a random walk
FEW = 8  # cycles, at most, of cells other than the first group: they are not followed over their life
COOLING, PER_WATT, LOSS = 850.0, 12.0, 0.2  # s; K/W; V lost in the reactions: the thermal law


@dataclasses.dataclass(frozen=True)
class Make:
    """What the cells of a group have in common.

    **Arguments:** `label` in their names; `load` [A], `ambient` [deg C], `cutoff` [V] of the test; `R_o` [ohm] and
    `k_p` [A/m2] at that temperature; `step` [s] between rows; `kinds` of discharge that they go through.
    """

    label: str
    load: float
    ambient: float
    cutoff: float
    R_o: float
    k_p: float
    step: float
    kinds: tuple[Kind, ...] = ("cycle",)


MAKES = (
    Make("2A", 2.01, 24.0, 2.6, 0.11, 2e4, 19.0),
    Make("4A", 4.02, 24.0, 2.0, 0.11, 2e4, 10.0),
    Make("43C", 4.02, 43.0, 2.2, 0.08, 4e4, 10.0),
    Make("4C-1A", 1.01, 4.0, 2.0, 0.22, 5e3, 19.0),
    Make("4C-2A", 2.01, 4.0, 2.0, 0.22, 5e3, 14.0),
    Make("WAVE", 4.02, 24.0, 2.0, 0.11, 2e4, 10.0),
    Make("WALK", 1.0, 40.0, 3.2, 0.09, 3e4, 20.0, ("reference", "walk")),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Specimen:
    """One cell: its make, and what it is at each of its cycles: q_max [C], R_o [ohm], offset of the filling."""

    name: str
    make: Make
    q_max: np.ndarray
    R_o: np.ndarray
    offset: np.ndarray


def synthetic_fleet(
    *, cells: int = 3, cycles: int = 100, fade: float = 0.004, noise: float = 5e-4, misfit: float = 1.0, seed: int = 0
) -> Collection:
    """A SYNTHETIC fleet: cells of every group, one of them with random loads.

    **Arguments:** `cells` of each group; `cycles` of those at 2 A and room temperature (the others have 8 at most);
    `fade`, the share of q_max lost per cycle; `noise` of voltage [V] and current [A]; `misfit`, how much there is
    of what the physics does not know; `seed`.
    """
    rng = np.random.default_rng(seed)
    specimens = [
        specimen(make, place + 1, cycles if make is MAKES[0] else min(cycles, FEW), fade, rng)
        for make in MAKES
        for place in range(1 if "walk" in make.kinds else cells)
    ]
    return simulated(specimens, noise=noise, misfit=misfit, rng=rng)


def healthy_fleet(
    *, cells: int = 10, cycles: int = 40, noise: float = 5e-4, misfit: float = 1.0, seed: int = 1
) -> Collection:
    """SYNTHETIC cells at 2 A and room temperature that vary from cycle to cycle but do not age.

    **Arguments:** as for `synthetic_fleet`.
    """
    rng = np.random.default_rng(seed)
    specimens = [specimen(MAKES[0], place + 1, cycles, 0.0, rng, "SYN-HEALTHY") for place in range(cells)]
    return simulated(specimens, noise=noise, misfit=misfit, rng=rng)


def specimen(
    make: Make, place: int, cycles: int, fade: float, rng: np.random.Generator, prefix: str = "SYN"
) -> Specimen:
    """A cell drawn at random, with its whole life; every second one regains some charge now and then.

    **Arguments:** `make`; its `place` among those of its make; `cycles`; `fade` per cycle; `rng`; `prefix` of its name.
    """
    age = np.arange(cycles)
    rate = fade * rng.uniform(0.8, 1.2)
    lost = rate * age * (1 + 0.15 * rng.uniform(-1, 1) * age / max(cycles - 1, 1))
    regained = np.zeros(cycles)
    if fade > 0 and place % 2 == 0:
        for start in rng.choice(cycles, max(cycles // 25, 1), replace=False):
            regained[start:] += rng.uniform(0.5, 1.5) * 4 * rate * np.exp(-(age[start:] - start) / 5)
    q_max = 1.3e4 * rng.uniform(0.92, 1.05) * (1 - lost + regained) * (1 + 1e-3 * rng.normal(size=cycles))
    R_o = make.R_o * rng.uniform(0.85, 1.15) * (1 + 1.2 * lost) * (1 + 5e-3 * rng.normal(size=cycles))
    offset = 0.004 * rng.normal() + 5e-4 * rng.normal(size=cycles)
    return Specimen(f"{prefix}-{make.label}-{place}", make, q_max, R_o, offset)


def simulated(specimens: Sequence[Specimen], *, noise: float, misfit: float, rng: np.random.Generator) -> Collection:
    """What would be logged of these cells, with flags computed as for measured ones.

    **Arguments:** `specimens`; `noise` of voltage [V] and current [A]; `misfit`, see `synthetic_fleet`; `rng`.
    """
    planned: list[tuple[Specimen, Kind, int]] = [
        (each, kind, index) for each in specimens for kind in each.make.kinds for index in range(len(each.q_max))
    ]
    rows = max(_rows(each.make) for each in specimens) + TAIL
    time = np.stack([_times(each.make, rows, rng) for each, _, _ in planned])
    current = np.stack([_load(each.make, kind, at, rng) for (each, kind, _), at in zip(planned, time, strict=True)])
    own = {
        "q_max": np.array([each.q_max[index] for each, _, index in planned]),
        "R_o": np.array([each.R_o[index] for each, _, index in planned]),
        "offset": np.array([each.offset[index] for each, _, index in planned]),
        "k_p": np.array([each.make.k_p for each, _, _ in planned]),
    }
    ambient = np.array([each.make.ambient for each, _, _ in planned]) + 0.5 * rng.normal(size=len(planned))
    cutoff = np.array([each.make.cutoff for each, _, _ in planned])
    twin = battery(positive=Interaction(_Misfit(misfit), sees=("x", "i"), raw=True), integrator=Heun(4))

    def voltages(current: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        warm = _temperature(time, current, own["R_o"], ambient)
        w = jnp.asarray(np.stack([current, warm], axis=2))
        return np.asarray(_simulate(twin, jnp.asarray(time), w, jax.tree.map(jnp.asarray, own))), warm

    # The load is cut after the first row below the cut-off: once to find that row, once with the load cut there.
    voltage, _ = voltages(current)
    logged = np.stack([_logged(each.make, kind, rows) for each, kind, _ in planned])
    low = (voltage < cutoff[:, None]) & (current > 0) & logged
    last = np.where(low.any(axis=1), low.argmax(axis=1), rows - TAIL - 1)
    current = np.where(np.arange(rows) <= last[:, None], current, 0.0)
    voltage, warm = voltages(current)
    published = _charge_to(COUNTED, time, voltage, current)
    read = [series + noise * rng.normal(size=series.shape) for series in (voltage, current)]
    discharges = []
    for row, (each, kind, index) in enumerate(planned):
        kept = np.flatnonzero(logged[row, : last[row] + 1 + (TAIL if kind == "cycle" else 0)])
        log = Discharge(
            cell=each.name,
            index=index,
            kind=kind,
            time=time[row, kept],
            voltage=read[0][row, kept],
            current=read[1][row, kept],
            temperature=warm[row, kept],
            ambient=each.make.ambient,
            published=float(published[row]) if kind == "cycle" else float("nan"),
            start=None,
            file="synthetic",
            cycle=None,
            notes=(f"SYNTHETIC, not measured: q_max {own['q_max'][row]:.1f} C, R_o {own['R_o'][row]:.5f} ohm",),
        )
        discharges.append(dataclasses.replace(log, flags=flags_of(log)))
    return Collection(tuple(discharges))


class _Misfit(eqx.Module):
    """What the physics does not know of V_INT, in V: a wave along the mole fraction, a loss that grows with the load.

    Nearly nothing at rest and full charge, so that a charged cell stands at 4.19 V as measured ones do.
    """

    size: float = eqx.field(static=True)

    def __call__(self, u: Float[Array, "2"]) -> Float[Array, "1"]:
        x, i = u
        along = (x - 0.4) / 0.6
        wave = 0.025 * jnp.sin(1.5 * jnp.pi * along) * along
        return self.size * jnp.atleast_1d(wave - 0.012 * jnp.tanh(i / 3) * (1 + 2 * along**2))


@eqx.filter_jit
def _simulate(
    twin: Twin, time: Float[Array, "N T"], w: Float[Array, "N T 2"], own: dict[str, Float[Array, " N"]]
) -> Float[Array, "N T"]:
    def one(ts: Array, w: Array, own: dict[str, Array]) -> Float[Array, " T"]:
        p = twin.parameters() | own
        x0 = charged(p["x_n"] + p["offset"], p, w[0, 0] * p["R_o"])
        return simulate_unchecked(twin, x0, ts, w, p, None).ys[:, 0]

    return jax.vmap(one)(time, w, own)


def _rows(make: Make) -> int:
    """Rows that are enough to empty a cell of this make."""
    share = 4 if make.label == "WAVE" else 1  # half the time no load, and half of the rows those of a switch
    return int(0.62 * 1.4e4 * share / (make.load * make.step)) + REST


def _switches(make: Make) -> slice:
    """The rows at which the load comes on or goes off."""
    return slice(REST, None, 2) if make.label == "WAVE" else slice(REST, REST + 1)


def _logged(make: Make, kind: Kind, rows: int) -> np.ndarray:
    """Which rows are in the log: it has none for the moment at which the load changes."""
    there = np.ones(rows, bool)
    if kind == "cycle":
        there[_switches(make)] = False
    return there


def _times(make: Make, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Irregular as in the logs, but where loads change on time."""
    steps = np.full(rows - 1, make.step)
    if "walk" not in make.kinds:
        steps = steps + 0.4 * rng.uniform(-1, 1, rows - 1)
        steps[0] -= 0.1 * make.step
        steps[np.arange(rows)[_switches(make)] - 1] = SWITCHED
    return np.concatenate([[0.0], np.cumsum(steps)])


def _load(make: Make, kind: Kind, time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The current of each row, held until the next."""
    if kind == "walk":
        turn = (time / TURN + 1e-9).astype(int)
        return (0.5 * rng.integers(1, 11, turn[-1] + 1))[turn]
    current = np.full(len(time), make.load)
    if kind == "reference":
        return current
    if make.label == "WAVE":
        current[REST + 2 :: 4] = current[REST + 3 :: 4] = 0.0
    current[:REST] = 0.0
    return current


def _temperature(time: np.ndarray, current: np.ndarray, R_o: np.ndarray, ambient: np.ndarray) -> np.ndarray:
    """dT/dt = (PER_WATT (LOSS |i| + R_o i^2) - (T - ambient)) / COOLING, exactly between rows."""
    goal = PER_WATT * (LOSS * np.abs(current) + R_o[:, None] * current**2)
    forgotten = np.exp(-np.diff(time, axis=1) / COOLING)
    above = np.zeros_like(time)
    for row in range(time.shape[1] - 1):
        above[:, row + 1] = goal[:, row] + (above[:, row] - goal[:, row]) * forgotten[:, row]
    return ambient[:, None] + above


def _charge_to(volt: float, time: np.ndarray, voltage: np.ndarray, current: np.ndarray) -> np.ndarray:
    """Ah until the first row under load below a voltage; all where there is none."""
    taken = np.cumsum(np.diff(time, axis=1) * current[:, :-1], axis=1) / 3600
    taken = np.concatenate([np.zeros((len(time), 1)), taken], axis=1)
    below = (voltage < volt) & (current > 0)
    row = np.where(below.any(axis=1), below.argmax(axis=1), time.shape[1] - 1)
    return taken[np.arange(len(time)), row]
