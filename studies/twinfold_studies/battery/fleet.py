"""A SYNTHETIC fleet: simulated cells in the format of NASA's, so that every command runs on a machine without data.

The physics is that of Daigle & Kulkarni with two unmodelled effects (a smooth error of V_INT, and one that depends on
the load), which a residual can learn. Charge and resistance age from cycle to cycle. All names begin with "SYN", and
the notes of every discharge say that it is synthetic and give its q_max and R_o.
"""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.model import Twin, simulate_unchecked
from twinfold.numerics import Heun
from twinfold.systems import Interaction, battery, charged
from twinfold_studies.nasa.collection import Collection
from twinfold_studies.nasa.discharge import Discharge, Kind
from twinfold_studies.nasa.quality import quality_flags

CAPACITY_VOLTAGE = 2.7  # V; NASA's published capacity is the charge to the first row below, whatever the cut-off
REST, TAIL = 2, 15  # rows before and after the load
SWITCH_DELAY = 0.7  # s from a logged row until the load is switched on or off
WALK_STEP = 60.0  # s between load changes of a random walk
MAX_CYCLES = 8  # of the groups whose ageing is not studied: all but the first
# The thermal law: time constant [s], thermal resistance [K/W], voltage loss of the reactions [V].
COOLING, PER_WATT, LOSS = 850.0, 12.0, 0.2


@dataclasses.dataclass(frozen=True)
class Make:
    """A type of cell and test.

    **Arguments:** `label` in their names; `load` [A], `ambient` [deg C], `cutoff` [V] of the test; `R_o` [ohm] and
    `k_p` [A/m2] at that temperature; `step` [s] between rows; `kinds` of discharge.
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
    """One cell: its make, and for each cycle q_max [C], R_o [ohm] and the offset of the mole fraction."""

    name: str
    make: Make
    q_max: np.ndarray
    R_o: np.ndarray
    offset: np.ndarray


def synthetic_fleet(
    *, cells: int = 3, cycles: int = 100, fade: float = 0.004, noise: float = 5e-4, misfit: float = 1.0, seed: int = 0
) -> Collection:
    """A SYNTHETIC fleet: cells of every group, and one with random loads.

    **Arguments:** `cells` of each group; `cycles` of those at 2 A and room temperature (at most 8 of the others);
    `fade`, the share of q_max lost per cycle; `noise` of voltage [V] and current [A]; `misfit`, a factor on the
    unmodelled effects; `seed`.
    """
    rng = np.random.default_rng(seed)
    specimens = [
        specimen(make, number + 1, cycles if make is MAKES[0] else min(cycles, MAX_CYCLES), fade, rng)
        for make in MAKES
        for number in range(1 if "walk" in make.kinds else cells)
    ]
    return simulated(specimens, noise=noise, misfit=misfit, rng=rng)


def healthy_fleet(
    *, cells: int = 10, cycles: int = 40, noise: float = 5e-4, misfit: float = 1.0, seed: int = 1
) -> Collection:
    """SYNTHETIC cells at 2 A and room temperature that vary from cycle to cycle, but do not age.

    **Arguments:** as for `synthetic_fleet`.
    """
    rng = np.random.default_rng(seed)
    specimens = [specimen(MAKES[0], number + 1, cycles, 0.0, rng, "SYN-HEALTHY") for number in range(cells)]
    return simulated(specimens, noise=noise, misfit=misfit, rng=rng)


def specimen(
    make: Make, number: int, cycles: int, fade: float, rng: np.random.Generator, prefix: str = "SYN"
) -> Specimen:
    """A random cell over its whole life; cells with an even number occasionally regain charge.

    **Arguments:** `make`; `number` within the make; `cycles`; `fade` per cycle; `rng`; `prefix` of the name.
    """
    age = np.arange(cycles)
    rate = fade * rng.uniform(0.8, 1.2)
    lost = rate * age * (1 + 0.15 * rng.uniform(-1, 1) * age / max(cycles - 1, 1))
    regained = np.zeros(cycles)
    if fade > 0 and number % 2 == 0:
        for start in rng.choice(cycles, max(cycles // 25, 1), replace=False):
            regained[start:] += rng.uniform(0.5, 1.5) * 4 * rate * np.exp(-(age[start:] - start) / 5)
    q_max = 1.3e4 * rng.uniform(0.92, 1.05) * (1 - lost + regained) * (1 + 1e-3 * rng.normal(size=cycles))
    R_o = make.R_o * rng.uniform(0.85, 1.15) * (1 + 1.2 * lost) * (1 + 5e-3 * rng.normal(size=cycles))
    offset = 0.004 * rng.normal() + 5e-4 * rng.normal(size=cycles)
    return Specimen(f"{prefix}-{make.label}-{number}", make, q_max, R_o, offset)


def simulated(specimens: Sequence[Specimen], *, noise: float, misfit: float, rng: np.random.Generator) -> Collection:
    """The logs of these cells, with flags computed as for measured ones.

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
    twin = battery(positive=Interaction(_Misfit(misfit), inputs=("x", "i"), raw=True), integrator=Heun(4))

    def voltages(current: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        celsius = _temperature(time, current, own["R_o"], ambient)
        w = jnp.asarray(np.stack([current, celsius], axis=2))
        return np.asarray(_simulate(twin, jnp.asarray(time), w, jax.tree.map(jnp.asarray, own))), celsius

    # The load ends after the first row below the cut-off: simulate once to find that row, and again with the load cut.
    voltage, _ = voltages(current)
    logged = np.stack([_logged(each.make, kind, rows) for each, kind, _ in planned])
    low = (voltage < cutoff[:, None]) & (current > 0) & logged
    last = np.where(low.any(axis=1), low.argmax(axis=1), rows - TAIL - 1)
    current = np.where(np.arange(rows) <= last[:, None], current, 0.0)
    voltage, temperature = voltages(current)
    published = _charge_to(CAPACITY_VOLTAGE, time, voltage, current)
    noisy = [series + noise * rng.normal(size=series.shape) for series in (voltage, current)]
    discharges = []
    for row, (each, kind, index) in enumerate(planned):
        used = np.flatnonzero(logged[row, : last[row] + 1 + (TAIL if kind == "cycle" else 0)])
        log = Discharge(
            cell=each.name,
            index=index,
            kind=kind,
            time=time[row, used],
            voltage=noisy[0][row, used],
            current=noisy[1][row, used],
            temperature=temperature[row, used],
            ambient=each.make.ambient,
            published=float(published[row]) if kind == "cycle" else float("nan"),
            start=None,
            file="synthetic",
            cycle=None,
            notes=(f"SYNTHETIC, not measured: q_max {own['q_max'][row]:.1f} C, R_o {own['R_o'][row]:.5f} ohm",),
        )
        discharges.append(dataclasses.replace(log, flags=quality_flags(log)))
    return Collection(tuple(discharges))


class _Misfit(eqx.Module):
    """The unmodelled part of V_INT, in V: a wave in the mole fraction, and a loss that grows with the load.

    It nearly vanishes at rest and full charge, so that a charged cell has 4.19 V, as measured ones do.
    """

    size: float = eqx.field(static=True)

    def __call__(self, u: Float[Array, "2"]) -> Float[Array, "1"]:
        x, i = u
        s = (x - 0.4) / 0.6
        wave = 0.025 * jnp.sin(1.5 * jnp.pi * s) * s
        return self.size * jnp.atleast_1d(wave - 0.012 * jnp.tanh(i / 3) * (1 + 2 * s**2))


@eqx.filter_jit
def _simulate(
    twin: Twin, time: Float[Array, "N T"], w: Float[Array, "N T 2"], own: dict[str, Float[Array, " N"]]
) -> Float[Array, "N T"]:
    def one(ts: Array, w: Array, own: dict[str, Array]) -> Float[Array, " T"]:
        p = twin.parameters() | own
        x0 = charged(p["x_n"] + p["offset"], p, w[0, 0] * p["R_o"])
        return simulate_unchecked(twin, x0, ts, w, p).ys[:, 0]

    return jax.vmap(one)(time, w, own)


def _rows(make: Make) -> int:
    """A number of rows that suffices to discharge a cell of this make."""
    share = 4 if make.label == "WAVE" else 1  # half of the time without load, and half of the rows at switches
    return int(0.62 * 1.4e4 * share / (make.load * make.step)) + REST


def _switches(make: Make) -> slice:
    """The rows at which the load is switched."""
    return slice(REST, None, 2) if make.label == "WAVE" else slice(REST, REST + 1)


def _logged(make: Make, kind: Kind, rows: int) -> np.ndarray:
    """Which rows the log has: none at the moments at which the load is switched."""
    logged = np.ones(rows, bool)
    if kind == "cycle":
        logged[_switches(make)] = False
    return logged


def _times(make: Make, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Irregular times as in measured logs; regular ones for random walks."""
    steps = np.full(rows - 1, make.step)
    if "walk" not in make.kinds:
        steps = steps + 0.4 * rng.uniform(-1, 1, rows - 1)
        steps[0] -= 0.1 * make.step
        steps[np.arange(rows)[_switches(make)] - 1] = SWITCH_DELAY
    return np.concatenate([[0.0], np.cumsum(steps)])


def _load(make: Make, kind: Kind, time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The current at each row, constant until the next."""
    if kind == "walk":
        step = (time / WALK_STEP + 1e-9).astype(int)
        return (0.5 * rng.integers(1, 11, step[-1] + 1))[step]
    current = np.full(len(time), make.load)
    if kind == "reference":
        return current
    if make.label == "WAVE":
        current[REST + 2 :: 4] = current[REST + 3 :: 4] = 0.0
    current[:REST] = 0.0
    return current


def _temperature(time: np.ndarray, current: np.ndarray, R_o: np.ndarray, ambient: np.ndarray) -> np.ndarray:
    """dT/dt = (PER_WATT (LOSS |i| + R_o i^2) - (T - ambient)) / COOLING, solved exactly between rows."""
    equilibrium = PER_WATT * (LOSS * np.abs(current) + R_o[:, None] * current**2)
    decay = np.exp(-np.diff(time, axis=1) / COOLING)
    above = np.zeros_like(time)
    for row in range(time.shape[1] - 1):
        above[:, row + 1] = equilibrium[:, row] + (above[:, row] - equilibrium[:, row]) * decay[:, row]
    return ambient[:, None] + above


def _charge_to(volt: float, time: np.ndarray, voltage: np.ndarray, current: np.ndarray) -> np.ndarray:
    """The charge [Ah] to the first row under load below a voltage; the total charge if there is none."""
    charge = np.cumsum(np.diff(time, axis=1) * current[:, :-1], axis=1) / 3600
    charge = np.concatenate([np.zeros((len(time), 1)), charge], axis=1)
    below = (voltage < volt) & (current > 0)
    row = np.where(below.any(axis=1), below.argmax(axis=1), time.shape[1] - 1)
    return charge[np.arange(len(time)), row]
