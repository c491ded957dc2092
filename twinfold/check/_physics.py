"""Checks of the physics along the data, with learned parts at zero: does it run, and is its step short enough?"""

import traceback
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from twinfold._core import RESULTS, quick_jit, tree_take
from twinfold.check._finding import Finding, join_names
from twinfold.check._quick_fit import MIN_EXPLAINED, explained_after_fit, explained_at_guess
from twinfold.check._subject import BlockedError, Subject, with_last_layers
from twinfold.data._taps import is_tap_of
from twinfold.model import BlackBox, Network, Twin
from twinfold.model._learned.base import learned_parts
from twinfold.numerics._stability import stability_problem

MIN_FITTED = 0.5  # of the same, after a quick fit
MAX_SIZE_RATIO = 1e4  # of the states, above which a projection needs a metric


def check_simulation(subject: Subject) -> list[Finding]:
    """Which runs fail, when and why; and the share of the outputs' variance that the physics explains alone."""
    try:
        trajectory, _ = subject.simulated
    except BlockedError as error:
        message = f"The twin does not run on these data{_source_of(error.__cause__)}: {error}"
        return [Finding("physics", "problem", message, {"error": type(error.__cause__).__name__})]
    found = [*_check_state_names(subject), *_describe_learned_parts(subject)]
    length, ts = np.asarray(subject.batch.length), np.asarray(subject.batch.ts)
    failed = []
    for index, name in enumerate(subject.data.names):
        stop = int(subject.valid_samples[index])
        if stop < length[index]:
            code = jax.tree.map(lambda leaf, at=(index, stop): jnp.asarray(leaf)[at], trajectory.result)
            reason = RESULTS[code] or "The output is not finite."
            failed.append({"run": name, "t": float(ts[index, stop]), "sample": stop, "reason": reason})
    if failed:
        named = [f"run '{each['run']}' at t = {each['t']:.6g}" for each in failed]
        message = (
            f"The physics (learned parts at zero) fails in {len(failed)} of {len(length)} runs: {join_names(named)}. "
            f"{failed[0]['reason']}"
        )
        return [*found, Finding("physics", "problem", message, {"failed": failed})]
    message = f"The physics (learned parts at zero) completes all {len(length)} runs."
    if isinstance(subject.given.field, BlackBox):
        return [*found, Finding("physics", "ok", message)]
    explained = explained_at_guess(subject)
    shares = [f"{name} {share:.0%}" for name, share in explained.items()]
    message += f" Variance explained by the physics alone: {join_names(shares, 12)}."
    wrong = [name for name, share in explained.items() if share < MIN_EXPLAINED]
    found.append(Finding("physics", "note" if wrong else "ok", message, {"explained": explained}))
    return [*found, *_check_unexplained(subject, wrong)] if wrong else found


def _check_unexplained(subject: Subject, wrong: list[str]) -> list[Finding]:
    """Outputs of which the physics explains nothing at its first guess, and whether a quick fit does."""
    fitted = explained_after_fit(subject)
    shares = join_names([f"{name} {fitted[name]:.0%}" for name in wrong])
    detail = {"outputs": wrong, "fitted": fitted}
    if min(fitted[name] for name in wrong) >= MIN_FITTED:
        message = (
            f"At the first guess the physics explains nothing of {join_names(wrong)}; quickly fitted it "
            f"explains {shares}. The fit can start from here; a better guess of the parameters or of the "
            "initial state makes it safer."
        )
        return [Finding("physics", "note", message, detail)]
    message = (
        f"The physics predicts {join_names(wrong)} no better than its mean, and quickly fitted it explains {shares}. "
        "Look for a wrong sign, unit, column, initial state or first guess: a network should not have to learn what "
        "the physics gets wrong."
    )
    return [Finding("physics", "warning", message, detail)]


def _source_of(error: BaseException | None) -> str:
    """The line of user code that raised an error; nothing for the messages of this package."""
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


def _check_state_names(subject: Subject) -> list[Finding]:
    if subject.states is None or len(subject.states) == subject.state_count:
        return []
    message = (
        f"states: {len(subject.states)} names ({join_names(subject.states)}) for {subject.state_count} states; give "
        "one for each."
    )
    return [Finding("shapes", "problem", message, {"states": subject.state_count})]


def _describe_learned_parts(subject: Subject) -> list[Finding]:
    """What "at zero" means if a learned part is not a network, or if the field is learned entirely."""
    without_network = [
        type(part).__name__
        for part in learned_parts(subject.physics)
        if not any(isinstance(node, Network) for node in jax.tree.leaves(part, is_leaf=_is_network))
    ]
    found = []
    if isinstance(subject.given.field, BlackBox):
        found.append(Finding("physics", "note", "The field is learned entirely: there is no physics to check."))
    if without_network:
        message = (
            f"{join_names(without_network)}: a learned part without a network is checked at its start, not at zero."
        )
        found.append(Finding("physics", "note", message))
    return found


def _is_network(node: object) -> bool:
    return isinstance(node, Network)


def check_stability(subject: Subject) -> list[Finding]:
    """Whether the explicit step is short enough for the fastest decay, at states along the data."""
    samples, twin, data = subject.samples, subject.physics, subject.data
    longest = [float(np.diff(run.ts).max()) for run in data.runs]
    warning: str | None = None
    for index, run in enumerate(samples.run):
        p = twin.parameters(subject.batch.run[run])
        t, x, w, level = tree_take((samples.t, samples.x, samples.w, samples.level), index)
        where = f"at {samples.describe(index, data.names)}"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            problem = stability_problem(twin.cell, t, x, w, p, level, longest[run], where=where)
        if problem is not None:
            detail = {"run": data.names[run], "t": float(samples.t[index])}
            return [Finding("stability", "problem", problem, detail)]
        warning = warning or next((str(each.message) for each in caught), None)
    if warning is not None:
        return [Finding("stability", "warning", warning)]
    return [Finding("stability", "ok", f"The step is stable at {len(samples.t)} states along the data.")]


def check_inputs(subject: Subject) -> list[Finding]:
    """Inputs that nothing in the twin depends on."""
    samples, names = subject.samples, subject.data.input_names
    if not names or samples.w is None:
        return []
    rng = np.random.default_rng(subject.seed)
    # Networks start at zero: random last layers show which inputs they take.
    twin = with_last_layers(
        subject.initialised, lambda leaf: jax.device_put(rng.normal(size=leaf.shape).astype(leaf.dtype))
    )
    effect = np.zeros(len(names))
    for index in range(0, len(samples.t), 6):
        p = twin.parameters(tree_take(subject.batch.run, samples.run[index]))
        at = tree_take((samples.t, samples.x, samples.w, samples.level), index)
        effect += np.nan_to_num(np.asarray(_input_effect(twin, p, *at)))
    used = [name for name, size in zip(names, effect, strict=True) if size > 0]
    unused = [name for name in names if name not in used and not any(is_tap_of(tap, name) for tap in used)]
    if unused:
        message = (
            f"Nothing in the twin depends on the input {join_names(unused)}, neither the physics nor a learned part: "
            "use it, or remove it from the inputs."
        )
        return [Finding("inputs", "warning", message, {"unused": unused})]
    return [Finding("inputs", "ok", "The twin uses every input.")]


@quick_jit
def _input_effect(twin: Twin, p: dict, t: Array, x: Array, w: Array, level: Array) -> Array:
    """The summed derivatives of field and outputs with respect to each input."""

    def respond(w: Array) -> Array:
        return jnp.concatenate([twin.cell.rate(t, x, w, p, level), twin.outputs(t, x, w, p)])

    return jnp.sum(jnp.abs(jax.jacfwd(respond)(w)), axis=0)


def check_state_sizes(subject: Subject) -> list[Finding]:
    """States of very different size: the nearest point is then determined by the large ones."""
    x = np.sqrt(np.mean(subject.samples.x**2, axis=0))
    large, small = int(np.argmax(x)), int(np.argmin(np.where(x > 0, x, np.inf)))
    if not x[large] > MAX_SIZE_RATIO * x[small] or not subject.constrained:
        return []
    names = subject.state_names
    message = (
        f"{names[large]} is {x[large] / x[small]:.1g} times as large as {names[small]}: a projection to the nearest "
        "state moves both by similar amounts. Give it a metric (Newton(metric=...))."
    )
    return [Finding("sizes", "note", message, {"sizes": dict(zip(names, x.tolist(), strict=True))})]
