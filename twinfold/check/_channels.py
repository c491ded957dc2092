"""Checks of the data alone: shapes, units, sampling, gaps, missing values, outliers, constant channels."""

import itertools

import numpy as np

from twinfold.check._finding import Finding, Severity, join_names
from twinfold.check._outliers import find_outliers
from twinfold.check._subject import Subject
from twinfold.data._duplicates import find_duplicates
from twinfold.io import unknown_name

MIN_GAP = 5.0  # times the usual step
MIN_SENTINEL = 3.0  # times the range of all other values, from the nearest of them: beyond any signal
MAX_NOISE = 0.5  # of the spread of an output
MAX_DETAILS = 50  # gaps and outliers listed in the detail of a finding


def check_shapes(subject: Subject) -> list[Finding]:
    """Runs, samples, channels and units."""
    data = subject.data
    samples = [len(run.ts) for run in data.runs]
    outputs, inputs = (
        join_names([f"{name}{subject.unit(name)}" for name in names], 20)
        for names in (data.output_names, data.input_names)
    )
    each = f"{min(samples)} to {max(samples)}" if min(samples) < max(samples) else f"{samples[0]}"
    message = (
        f"{len(data)} run{'s' if len(data) > 1 else ''} of {each} samples ({sum(samples)} in total). "
        f"Outputs: {outputs}. Inputs: {inputs or 'none'}. "
        f"Initial states: {'given (x0)' if data.runs[0].states else 'not given'}."
    )
    detail = {
        "runs": len(data),
        "samples": samples,
        "outputs": data.output_names,
        "inputs": data.input_names,
        "units": subject.units,
    }
    known = {*data.output_names, *data.input_names, *subject.state_names, "t", "time"}
    return [Finding("shapes", "ok", message, detail)] + [
        Finding("shapes", "warning", f"units: there is no quantity {unknown_name(name, known)}")
        for name in subject.units
        if name not in known
    ]


def check_sampling(subject: Subject) -> list[Finding]:
    """The step between samples, and gaps."""
    runs = subject.data.runs
    steps = np.concatenate([np.diff(run.ts) for run in runs])
    low, median, high = np.quantile(steps, [0.05, 0.5, 0.95])
    regular = bool(high - low <= 0.01 * median)
    detail = {"step": float(median), "shortest": float(steps.min()), "longest": float(steps.max()), "regular": regular}
    message = f"Sampled every {median:.4g}{subject.unit('t', 'time')}, regularly."
    if not regular:
        message = (
            f"Sampled irregularly: median step {median:.4g}{subject.unit('t', 'time')}, 90 % of the steps between "
            f"{low:.4g} and {high:.4g}. The data are used without resampling."
        )
    found = [Finding("sampling", "ok" if regular else "note", message, detail)]
    gaps = []
    for run in runs:
        own = np.diff(run.ts)
        long = np.flatnonzero(own > MIN_GAP * max(np.quantile(own, 0.9), np.median(own)))
        gaps += [{"run": run.name, "from": float(run.ts[k]), "to": float(run.ts[k + 1])} for k in long]
    if gaps:
        named = [f"run '{gap['run']}' from t = {gap['from']:.6g} to {gap['to']:.6g}" for gap in gaps]
        message = (
            f"{len(gaps)} gap{'s' if len(gaps) > 1 else ''} in the samples: {join_names(named)}. The twin crosses "
            "a gap in one step, with held or interpolated input: split the run there, or give the integrator substeps."
        )
        found.append(Finding("gaps", "warning", message, {"gaps": gaps[:MAX_DETAILS], "count": len(gaps)}))
    return found


def check_missing(subject: Subject) -> list[Finding]:
    """Missing values of each output."""
    data = subject.data
    detail = {}
    for name in data.output_names:
        missing = [np.isnan(series) for series in subject.channels[name]]
        lengths = [len(list(group)) for flags in missing for flag, group in itertools.groupby(flags) if flag]
        detail[name] = {"share": float(np.concatenate(missing).mean()), "longest": max(lengths, default=0)}
    incomplete = {name: each for name, each in detail.items() if each["share"]}
    if not incomplete:
        return [Finding("missing", "ok", "No output has missing values.", detail)]
    parts = [f"{name} {each['share']:.1%} (at most {each['longest']} in a row)" for name, each in incomplete.items()]
    largest = max(each["share"] for each in incomplete.values())
    severity: Severity = "problem" if largest == 1 else "warning" if largest > 0.5 else "note"
    message = f"Missing values: {join_names(parts)}. They are left out of the loss."
    found = [Finding("missing", severity, message, detail)]
    late = [run.name for run in data.runs if np.isnan(run.y[0]).any()]
    if late and subject.physics.initial is None and not data.runs[0].states:
        message = (
            f"The first sample of run {join_names(late)} is incomplete, so it cannot be the initial state: give x0, "
            "drop the samples before the first complete one, or give the twin initial=Unknown(guess, per_run=True)."
        )
        found.append(Finding("missing", "problem", message, {"runs": late}))
    return found


def check_outliers(subject: Subject) -> list[Finding]:
    """Single samples that stick out of the signal, and values that mark missing ones."""
    data = subject.data
    outliers, sentinels = [], []
    for name in data.output_names:
        series = subject.channels[name]
        marks = find_sentinels(np.concatenate(series))
        sentinels += [{"output": name, "value": value, "count": count} for value, count in marks.items()]
        for run, y in zip(data.runs, series, strict=True):
            outliers += [
                {"run": run.name, "output": name, "sample": int(k), "t": float(run.ts[k]), "value": float(y[k])}
                for k in find_outliers(run.ts, np.where(np.isin(y, list(marks)), np.nan, y), run.w)
            ]
    found = []
    for each in sentinels:
        message = (
            f"{each['output']} is exactly {each['value']:g} {each['count']} times, far from all other values: it looks "
            "like a code for a missing value. Name it as such (`missing` in the configuration), or it is trained on."
        )
        found.append(Finding("outliers", "problem", message, each))
    if outliers:
        named = [
            f"{each['output']} of run '{each['run']}' at t = {each['t']:.6g} ({each['value']:.4g})" for each in outliers
        ]
        message = (
            f"{len(outliers)} outlier{'s' if len(outliers) > 1 else ''}: {join_names(named)}. Each is a single sample "
            "far from its neighbours that no input explains. If it is an error of the sensor, mark it as missing, or "
            "train with a robust loss (Loss(huber=...))."
        )
        detail = {"places": outliers[:MAX_DETAILS], "count": len(outliers)}
        found.append(Finding("outliers", "warning", message, detail))
    return found or [Finding("outliers", "ok", "No outliers in the outputs.", {"count": 0})]


def find_sentinels(values: np.ndarray) -> dict[float, int]:
    """Return values that occur at least twice, far beyond all others, and how often: codes for a missing value."""
    values = values[np.isfinite(values)]
    found: dict[float, int] = {}
    # At most one code beyond either end, and both may be in use.
    for _ in range(2):
        kinds, counts = np.unique(values, return_counts=True)
        if len(kinds) < 4:
            break
        rest = {0: (kinds[1], kinds[-1]), -1: (kinds[0], kinds[-2])}
        for end, (low, high) in rest.items():
            gap = max(low - kinds[end], kinds[end] - high)
            if 2 <= counts[end] < values.size / 2 and gap > MIN_SENTINEL * (high - low):
                found[float(kinds[end])] = int(counts[end])
        values = values[~np.isin(values, list(found))]
    return found


def check_noise(subject: Subject) -> list[Finding]:
    """The noise of each output relative to its spread."""
    levels = dict(zip(subject.data.output_names, subject.noise.tolist(), strict=True))
    shares = {name: level / spread for (name, level), spread in zip(levels.items(), subject.spread, strict=True)}
    known = [f"{name} {share:.2g}" for name, share in shares.items() if np.isfinite(share)]
    message = f"Noise relative to the spread of each output: {join_names(known, 12) or 'unknown, too few samples'}."
    loud = [name for name, share in shares.items() if share > MAX_NOISE]
    if loud:
        message += f" {join_names(loud)}: mostly noise, or sampled too slowly for its changes."
    return [Finding("noise", "warning" if loud else "ok", message, {"noise": levels, "share": shares})]


def check_constant(subject: Subject) -> list[Finding]:
    """Channels that are constant, or equal to another one; runs that are copies of another one."""
    found, data = [], subject.data
    flat = {name: np.concatenate(series) for name, series in subject.channels.items()}
    constant = [name for name, values in flat.items() if np.nanstd(values) <= 1e-12 * np.nanmax(np.abs(values))]
    nothing_to_fit = set(data.output_names) <= set(constant)
    for name in constant:
        is_input = name in data.input_names
        effect = "its effect cannot be learned" if is_input else "there is nothing to fit"
        severity: Severity = "problem" if nothing_to_fit and not is_input else "warning"
        found.append(Finding("constant", severity, f"{name} is constant: {effect}.", {"channel": name}))
    for one, other in itertools.combinations([name for name in flat if name not in constant], 2):
        if np.nanstd(flat[one] - flat[other]) <= 1e-9 * np.nanstd(flat[one]):
            message = f"{one} and {other} are the same channel: remove one."
            found.append(Finding("duplicated", "warning", message, {"channels": [one, other]}))
    copies = [(data.names[a], data.names[b]) for a, b in find_duplicates(data)]
    if copies:
        named = join_names([f"'{one}' and '{other}'" for one, other in copies])
        message = f"Runs {named} contain the same measurements: remove the copies."
        found.append(Finding("duplicated", "warning", message, {"runs": copies[:MAX_DETAILS], "count": len(copies)}))
    return found or [Finding("constant", "ok", "No channel is constant, no channel or run is duplicated.")]
