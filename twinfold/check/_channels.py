"""The data by themselves: shapes, units, sampling, gaps, missing values, outliers, channels that say nothing."""

from collections import Counter

import numpy as np

from twinfold.check._finding import Finding, listing
from twinfold.check._noise import spikes
from twinfold.check._subject import Subject
from twinfold.data import Run
from twinfold.io import unknown_name

GAP = 5.0  # times the usual step
FAR = 20.0  # times the range of the middle half: no noise reaches that far
LISTED = 50  # places that are named one by one


def shapes(subject: Subject) -> list[Finding]:
    """What there is, and in which units."""
    data = subject.data
    samples = [len(run.ts) for run in data.runs]
    words = (
        f"{len(data)} run{'s' if len(data) > 1 else ''} of {min(samples)} to {max(samples)} samples "
        f"({sum(samples)} in all). Outputs: {_labelled(subject, data.output_names)}. "
        f"Inputs: {_labelled(subject, data.input_names) or 'none'}. "
    )
    words += f"Initial states: {'given (x0)' if data.runs[0].states else 'not given'}."
    known = {*data.output_names, *data.input_names, *subject.state_names, "t", "time"}
    found = [
        Finding(
            "shapes",
            "ok",
            words,
            {
                "runs": len(data),
                "samples": samples,
                "outputs": data.output_names,
                "inputs": data.input_names,
                "units": subject.units,
            },
        )
    ]
    for name in subject.units:
        if name not in known:
            found.append(Finding("shapes", "warning", f"units: there is no quantity {unknown_name(name, known)}"))
    return found


def sampling(subject: Subject) -> list[Finding]:
    """The step between samples, and where it is far longer than usual."""
    runs = subject.data.runs
    steps = np.concatenate([np.diff(run.ts) for run in runs])
    low, middle, high = np.quantile(steps, [0.05, 0.5, 0.95])
    regular = bool(high - low <= 0.01 * middle)
    detail = {"step": float(middle), "shortest": float(steps.min()), "longest": float(steps.max()), "regular": regular}
    words = f"Sampled every {middle:.4g}{subject.unit('t', 'time')}, regularly."
    if not regular:
        words = (
            f"Sampled irregularly: every {middle:.4g}{subject.unit('t', 'time')} in the middle, 90 % of the steps "
            f"between {low:.4g} and {high:.4g}. That is taken as it is."
        )
    found = [Finding("sampling", "ok" if regular else "note", words, detail)]
    gaps = []
    for run in runs:
        own = np.diff(run.ts)
        long = np.flatnonzero(own > GAP * max(np.quantile(own, 0.9), np.median(own)))
        gaps += [{"run": run.name, "from": float(run.ts[k]), "to": float(run.ts[k + 1])} for k in long]
    if gaps:
        named = [f"run '{gap['run']}' from t = {gap['from']:.6g} to {gap['to']:.6g}" for gap in gaps]
        words = (
            f"{len(gaps)} gap{'s' if len(gaps) > 1 else ''} in the samples: {listing(named)}. The twin steps across in "
            "one step, with the input held or interpolated: split the run there, or give the integrator substeps."
        )
        found.append(Finding("gaps", "warning", words, {"gaps": gaps[:LISTED], "count": len(gaps)}))
    return found


def missing(subject: Subject) -> list[Finding]:
    """What was not measured of each output."""
    data = subject.data
    y = np.concatenate([run.y for run in data.runs])
    share = np.isnan(y).mean(axis=0)
    longest = [max(_longest(np.isnan(run.y[:, index])) for run in data.runs) for index in range(y.shape[1])]
    detail = {
        name: {"share": float(part), "longest": length}
        for name, part, length in zip(data.output_names, share, longest, strict=True)
    }
    if not share.any():
        return [Finding("missing", "ok", "No output is missing anywhere.", detail)]
    parts = [
        f"{name} {part:.1%} (at most {length} samples in a row)"
        for name, part, length in zip(data.output_names, share, longest, strict=True)
        if part
    ]
    severity = "problem" if share.max() == 1 else "warning" if share.max() > 0.5 else "note"
    found = [Finding("missing", severity, f"Missing values: {listing(parts)}. They are left out of the loss.", detail)]
    late = [run.name for run in data.runs if np.isnan(run.y[0]).any()]
    if late and subject.twin.initial is None and not data.runs[0].states:
        words = (
            f"The first sample of run {listing(late)} is not measured in full, so it cannot be the initial state: give "
            "x0, leave out the samples before, or give the twin initial=Unknown(guess, per_run=True)."
        )
        found.append(Finding("missing", "problem", words, {"runs": late}))
    return found


def outliers(subject: Subject) -> list[Finding]:
    """Single samples that stick out of the signal, and values that are no measurement at all."""
    data = subject.data
    places, sentinels = [], []
    for index, name in enumerate(data.output_names):
        values = np.concatenate([run.y[:, index] for run in data.runs])
        values = values[np.isfinite(values)]
        if not values.size:
            continue
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        far = FAR * (high - low) if high > low else np.inf
        for value, count in Counter(values[np.abs(values - middle) > far].tolist()).items():
            if count >= 2:
                sentinels.append({"output": name, "value": value, "count": count})
        marked = [each["value"] for each in sentinels if each["output"] == name]
        for run in data.runs:
            y = np.where(np.isin(run.y[:, index], marked), np.nan, run.y[:, index])
            places += [
                {"run": run.name, "output": name, "sample": int(k), "t": float(run.ts[k]), "value": float(y[k])}
                for k in spikes(run.ts, y)
            ]
    found = []
    for each in sentinels:
        words = (
            f"{each['output']} is exactly {each['value']:g} {each['count']} times, far from all else: it looks like a "
            "mark for a missing value. Say so (`missing` in the configuration), or it will be trained on."
        )
        found.append(Finding("outliers", "problem", words, each))
    if places:
        named = [f"{p['output']} of run '{p['run']}' at t = {p['t']:.6g} ({p['value']:.4g})" for p in places]
        words = (
            f"{len(places)} outlier{'s' if len(places) > 1 else ''}: {listing(named)}. Take them out, or train with "
            "a robust loss (Loss(huber=...))."
        )
        found.append(Finding("outliers", "warning", words, {"places": places[:LISTED], "count": len(places)}))
    return found or [Finding("outliers", "ok", "No outliers in the outputs.", {"count": 0})]


def noise(subject: Subject) -> list[Finding]:
    """The noise of each output beside its spread."""
    levels = dict(zip(subject.data.output_names, subject.noise.tolist(), strict=True))
    shares = {name: level / spread for (name, level), spread in zip(levels.items(), subject.spread, strict=True)}
    said = [f"{name} {share:.2g}" for name, share in shares.items() if np.isfinite(share)]
    words = f"Noise, as a share of the spread of each output: {listing(said, 12) or 'too few samples to say'}."
    loud = [name for name, share in shares.items() if share > 0.5]
    if loud:
        words += f" {listing(loud)}: most of it is noise, or it changes from one sample to the next."
    return [Finding("noise", "warning" if loud else "ok", words, {"noise": levels, "share": shares})]


def idle(subject: Subject) -> list[Finding]:
    """Channels that never change, or that say the same as another."""
    data, found = subject.data, []
    columns = {name: [run.y[:, k] for run in data.runs] for k, name in enumerate(data.output_names)}
    columns |= {name: [_column(run, k) for run in data.runs] for k, name in enumerate(data.input_names)}
    flat = {name: np.concatenate(parts) for name, parts in columns.items()}
    still = [name for name, values in flat.items() if np.nanstd(values) <= 1e-12 * np.nanmax(np.abs(values))]
    for name in still:
        what = "what it does cannot be learned" if name in data.input_names else "it has nothing to fit"
        found.append(Finding("constant", "warning", f"{name} never changes: {what}.", {"channel": name}))
    moving = [name for name in flat if name not in still]
    for place, one in enumerate(moving):
        for other in moving[place + 1 :]:
            gap = np.nanstd(flat[one] - flat[other])
            if gap <= 1e-9 * np.nanstd(flat[one]):
                words = f"{one} and {other} are the same channel twice."
                found.append(Finding("duplicated", "warning", words, {"channels": [one, other]}))
    return found or [Finding("constant", "ok", "No channel is constant or there twice.")]


def _column(run: Run, index: int) -> np.ndarray:
    assert run.w is not None
    return run.w[:, index]


def _longest(flags: np.ndarray) -> int:
    """The longest stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _labelled(subject: Subject, names: tuple[str, ...]) -> str:
    return listing([f"{name}{subject.unit(name)}" for name in names], 20)
