"""Quality flags of a discharge, computed from its log."""

import numpy as np

from twinfold_studies.nasa.cells import cutoff
from twinfold_studies.nasa.discharge import MIN_LOAD, Discharge, Flag

MIN_FULL = 4.1  # V at rest; a charged cell has 4.18 to 4.2
RESISTANCE = 0.1  # ohm, assumed for a log that begins under load and has no voltage at rest
MAX_ABOVE_CUTOFF = 0.2  # V; the load ends between two samples, so the last one may be above the cut-off
MAX_RISE = 0.005  # V from one row under load to the next
DROPOUT = 0.5  # V; a lower voltage is a loose contact
MIN_CAPACITY = 0.5  # Ah
MAX_SPREAD = 0.2  # relative standard deviation of a constant current; it reaches 0.1 at the end of a deep discharge
MIN_SWITCHES = 4  # of a square wave


def quality_flags(discharge: Discharge) -> tuple[Flag, ...]:
    """All flags of a discharge, including remarks."""
    if not discharge.carries_load:
        highest = float(np.abs(discharge.current).max())
        flags: list[Flag | None] = [
            Flag("no_load", f"no current above {MIN_LOAD} A in {len(discharge.time)} rows (highest {highest:.3g} A)")
        ]
    else:
        flags = [check(discharge) for check in _CHECKS]
    flags.append(_capacity_missing(discharge))
    return tuple(flag for flag in flags if flag is not None)


def _unloaded_start(discharge: Discharge) -> Flag | None:
    rows = discharge.first
    if rows == 0:
        return None
    seconds = discharge.time[rows] - discharge.time[0]
    return Flag("unloaded_start", f"the load begins at row {rows}, within {seconds:.0f} s", remark=True)


def _recovery_tail(discharge: Discharge) -> Flag | None:
    rows = len(discharge.time) - 1 - discharge.last
    if rows == 0:
        return None
    low, high = discharge.end_voltage, discharge.voltage[-1]
    return Flag("recovery_tail", f"{rows} rows after the load, {low:.2f} V to {high:.2f} V", remark=True)


def _partial_start(discharge: Discharge) -> Flag | None:
    voltage, current = discharge.voltage[0], discharge.current[0]
    if discharge.first > 0:
        lowest, measured = MIN_FULL, f"{voltage:.3f} V at rest"
    else:
        lowest, measured = MIN_FULL - RESISTANCE * current, f"{voltage:.3f} V under {current:.3g} A"
    if voltage >= lowest:
        return None
    return Flag("partial_start", f"starts at {measured}, below {lowest:.3g} V: not fully charged")


def _square_wave(discharge: Discharge) -> Flag | None:
    on = discharge.under_load[discharge.loaded]
    switches, share = int(np.count_nonzero(np.diff(on))), 1 - on.mean()
    if switches < MIN_SWITCHES or not 0.2 <= share <= 0.8 or _spread(discharge) > MAX_SPREAD:
        return None
    seconds = np.diff(discharge.time[discharge.loaded]).sum() / switches
    return Flag(
        "square_wave",
        f"{switches} switches, every {seconds:.0f} s, between 0 and {discharge.load_current:.3g} A",
    )


def _nonmonotonic_voltage(discharge: Discharge) -> Flag | None:
    rows = discharge.loaded
    if not discharge.under_load[rows].all() or _spread(discharge) > MAX_SPREAD:
        return None  # the load is not constant
    steps = np.diff(discharge.voltage[rows])
    up = steps > MAX_RISE
    if not up.any():
        return None
    row = discharge.first + 1 + int(up.argmax())
    return Flag(
        "nonmonotonic_voltage",
        f"rises {np.count_nonzero(up)} times by more than {1000 * MAX_RISE:.0f} mV under constant current, by at most "
        f"{1000 * steps.max():.0f} mV, first at row {row}",
    )


def _above_cutoff(discharge: Discharge) -> Flag | None:
    lowest, end = cutoff(discharge.cell), discharge.end_voltage
    if not end > lowest + MAX_ABOVE_CUTOFF:
        return None
    return Flag("above_cutoff", f"the load ends at {end:.2f} V, {end - lowest:.2f} V above the cut-off of {lowest} V")


def _voltage_dropout(discharge: Discharge) -> Flag | None:
    low = discharge.voltage < DROPOUT
    if not low.any():
        return None
    rows = np.flatnonzero(low)
    return Flag(
        "voltage_dropout",
        f"{len(rows)} rows below {DROPOUT} V, first row {rows[0]}, lowest {discharge.voltage.min():.2f} V",
    )


def _low_capacity(discharge: Discharge) -> Flag | None:
    if discharge.capacity >= MIN_CAPACITY:
        return None
    which = "integrated" if np.isnan(discharge.published) else "published"
    return Flag("low_capacity", f"{discharge.capacity:.3f} Ah ({which}), below {MIN_CAPACITY} Ah")


def _capacity_missing(discharge: Discharge) -> Flag | None:
    # No capacity of set #11 is published.
    if discharge.kind != "cycle" or not np.isnan(discharge.published):
        return None
    return Flag("capacity_missing", "no published capacity")


def _spread(discharge: Discharge) -> float:
    current = discharge.current[discharge.under_load]
    return float(current.std() / abs(np.median(current)))


_CHECKS = (
    _unloaded_start,
    _recovery_tail,
    _partial_start,
    _square_wave,
    _nonmonotonic_voltage,
    _above_cutoff,
    _voltage_dropout,
    _low_capacity,
)

FLAGS = (*(check.__name__[1:] for check in _CHECKS), "no_load", "capacity_missing")
