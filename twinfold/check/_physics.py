"""Does the physics run along the data, learned parts at zero, and are its steps short enough?"""

import traceback
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from twinfold._core import RESULTS
from twinfold.check._finding import Finding, listing
from twinfold.check._subject import BlockedError, Subject, with_last_layers
from twinfold.model import BlackBox, Network, Twin
from twinfold.model._learned.base import learned_parts
from twinfold.numerics._stiffness import unstable_step

SIZES = 1e4  # ratio of the sizes of states beyond which one should say something


def runs(subject: Subject) -> list[Finding]:
    """Which run fails when and why, and how much of the outputs the physics explains by itself."""
    try:
        trajectory, ys = subject.rolled
    except BlockedError as error:
        words = f"The twin does not run on these data{_where(error.__cause__)}: {error}"
        return [Finding("physics", "problem", words, {"error": type(error.__cause__).__name__})]
    found = [*_names_fit(subject), *_words_about_parts(subject)]
    length, ts = np.asarray(subject.batch.length), np.asarray(subject.batch.ts)
    failed = []
    for index, name in enumerate(subject.data.names):
        stop = int(subject.succeeded[index])
        if stop < length[index]:
            code = jax.tree.map(lambda leaf, at=(index, stop): jnp.asarray(leaf)[at], trajectory.result)
            why = RESULTS[code] or "The output is not finite."
            failed.append({"run": name, "t": float(ts[index, stop]), "sample": stop, "why": why})
    if failed:
        named = [f"run '{each['run']}' at t = {each['t']:.6g}" for each in failed]
        words = f"The physics, its learned parts at zero, fails in {len(failed)} of {len(length)} runs: "
        words += f"{listing(named)}. {failed[0]['why']}"
        found.append(Finding("physics", "problem", words, {"failed": failed}))
        return found
    explained = _explained(subject, ys)
    said = [f"{name} {share:.0%}" for name, share in explained.items()]
    words = (
        f"The physics, its learned parts at zero, runs through all {len(length)} runs. Of the variation of the outputs "
        f"it explains by itself: {listing(said, 12)}."
    )
    found.append(Finding("physics", "ok", words, {"explained": explained}))
    return found


def _where(error: BaseException | None) -> str:
    """The line outside this package that an error comes from, where it is none of our own messages."""
    if error is None or isinstance(error, ValueError):
        return ""
    package, installed = str(Path(__file__).parents[1]), ("site-packages", "dist-packages")
    lines = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(package) and not any(place in frame.filename for place in installed)
    ]
    name = type(error).__name__
    return f" ({name} in {Path(lines[-1][0]).name}, line {lines[-1][1]})" if lines else f" ({name})"


def _explained(subject: Subject, ys: np.ndarray) -> dict[str, float]:
    """1 - (mean squared error / variance) of each output; 0 where it is worse than the mean."""
    mask, y = np.asarray(subject.batch.mask), np.asarray(subject.batch.y)
    error = np.sqrt(np.nanmean(np.where(mask, ys - y, np.nan) ** 2, axis=(0, 1)))
    share = np.maximum(1 - (error / subject.spread) ** 2, 0.0)
    return dict(zip(subject.data.output_names, share.tolist(), strict=True))


def _names_fit(subject: Subject) -> list[Finding]:
    if subject.states is None or len(subject.states) == subject.count:
        return []
    words = f"states: {len(subject.states)} names ({listing(subject.states)}) for {subject.count} states."
    return [Finding("shapes", "problem", words, {"states": subject.count})]


def _words_about_parts(subject: Subject) -> list[Finding]:
    """What "at zero" means where a learned part is not a network, or is all there is."""
    parts = learned_parts(subject.twin)
    loose = [type(part).__name__ for part in parts if not _networks(part)]
    found = []
    if isinstance(subject.given.field, BlackBox):
        found.append(Finding("physics", "note", "The field is learned altogether: there is no physics to be tried."))
    if loose:
        words = f"{listing(loose)}: a learned part without a network; it is tried as it starts, not at zero."
        found.append(Finding("physics", "note", words))
    return found


def _networks(part: object) -> bool:
    nodes = jax.tree.leaves(part, is_leaf=lambda node: isinstance(node, Network))
    return any(isinstance(node, Network) for node in nodes)


def stability(subject: Subject) -> list[Finding]:
    """Whether the explicit step is short enough for the fastest decay, at states along the data."""
    along, twin, data = subject.along, subject.twin, subject.data
    longest = [float(np.diff(run.ts).max()) for run in data.runs]
    near: str | None = None
    for at, run in enumerate(along.run):
        p = twin.parameters(subject.batch.run[run])
        x, w = jnp.asarray(along.x[at]), None if along.w is None else jnp.asarray(along.w[at])
        t, level = jnp.asarray(along.t[at]), jnp.asarray(along.level[at])
        where = f"at t = {along.t[at]:.6g} of run '{data.names[run]}'"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            wrong = unstable_step(twin.cell, t, x, w, p, level, longest[run], where=where)
        if wrong is not None:
            return [Finding("stability", "problem", wrong, {"run": data.names[run], "t": float(along.t[at])})]
        near = near or next((str(each.message) for each in said), None)
    if near is not None:
        return [Finding("stability", "warning", near)]
    return [Finding("stability", "ok", f"The step is stable at {len(along.t)} states along the data.")]


def inputs(subject: Subject) -> list[Finding]:
    """Inputs that nothing in the twin looks at."""
    along, names = subject.along, subject.data.input_names
    if not names or along.w is None:
        return []
    rng = np.random.default_rng(subject.seed)
    stirred = with_last_layers(subject.drawn, lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype))
    slopes = np.zeros(len(names))
    for at in range(0, len(along.t), 6):
        slopes += np.nan_to_num(np.asarray(_input_slopes(stirred, subject, at)))
    unused = [name for name, slope in zip(names, slopes, strict=True) if slope == 0]
    if unused:
        words = f"Nothing in the twin looks at the input {listing(unused)}: neither the physics nor a learned part."
        return [Finding("inputs", "warning", words, {"unused": unused})]
    return [Finding("inputs", "ok", "The twin uses every input.")]


def _input_slopes(twin: Twin, subject: Subject, at: int) -> Array:
    along = subject.along
    assert along.w is not None
    p = twin.parameters(subject.batch.run[along.run[at]])
    return _slopes(twin, p, *(jnp.asarray(part[at]) for part in (along.t, along.x, along.w, along.level)))


@eqx.filter_jit
def _slopes(twin: Twin, p: dict, t: Array, x: Array, w: Array, level: Array) -> Array:
    def seen(w: Array) -> Array:
        return jnp.concatenate([twin.cell.rate(t, x, w, p, level), twin.outputs(t, x, w, p)])

    return jnp.sum(jnp.abs(jax.jacfwd(seen)(w)), axis=0)


def sizes(subject: Subject) -> list[Finding]:
    """States of very different size: a nearest point in such units moves the large ones only."""
    x = np.sqrt(np.mean(subject.along.x**2, axis=0))
    large, small = int(np.argmax(x)), int(np.argmin(np.where(x > 0, x, np.inf)))
    if not x[large] > SIZES * x[small] or not subject.constrained:
        return []
    names = subject.state_names
    words = (
        f"{names[large]} is {x[large] / x[small]:.1g} times as large as {names[small]}: a projection to the nearest "
        "state moves the small ones as far as the large ones; give it a metric (Newton(metric=...))."
    )
    return [Finding("sizes", "note", words, {"sizes": dict(zip(names, x.tolist(), strict=True))})]
