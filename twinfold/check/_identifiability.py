"""Which parameters and residual outputs the data cannot identify, from the sensitivities J of the rollout.

With the noise s of the outputs, and a residual whose prior is the size of the rates, the linearised problem has the
posterior covariance (J'J / s^2 + prior)^-1: no training determines what it leaves open.
"""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from twinfold.check._finding import Finding, join_names
from twinfold.check._quick_fit import explains_nothing
from twinfold.check._sensitivity import MIN_NOISE, Column, Sensitivities, compute_sensitivities
from twinfold.check._subject import Subject
from twinfold.identify import uncertainty
from twinfold.identify._guard import CONFOUNDED
from twinfold.model import Network

MAX_ERROR = 0.5  # standard error of a raw parameter (about 50 %)
MAX_PRIOR_SHARE = 0.5  # of the prior standard deviation of a residual output that may remain
MIN_EFFECT = 1e-6  # of a residual on the outputs, in units of the noise, squared
INTEGER_TOLERANCE = 0.02  # relative, within which exponents are rounded to integers
MAX_EXPONENT = 5


def check_identifiability(subject: Subject) -> list[Finding]:
    """What the data do not determine."""
    nodes = jax.tree.leaves(subject.physics, is_leaf=lambda node: isinstance(node, Network))
    if not subject.physics.unknowns() and not any(isinstance(node, Network) for node in nodes):
        return [Finding("identify", "ok", "There is nothing to estimate.")]
    usable = [
        name
        for name, valid, length in zip(
            subject.data.names, subject.valid_samples, np.asarray(subject.batch.length), strict=True
        )
        if valid >= int(length)
    ]
    if not usable:
        message = "Identifiability was not checked, since the physics fails in every run (see physics)."
        return [Finding("identify", "note", message)]
    if not subject.samples_are_states and explains_nothing(subject):
        message = (
            "Identifiability was not checked, since the physics explains nothing of the outputs (see physics): how "
            "they change along runs that go elsewhere means nothing."
        )
        return [Finding("identify", "note", message)]
    sensitivities = compute_sensitivities(subject, usable)
    return [*_check_parameters(sensitivities), *_check_residuals(sensitivities)]


def _check_parameters(sensitivities: Sensitivities) -> list[Finding]:
    """The unknown parameters, without learned parts."""
    parameters = [(index, column) for index, column in enumerate(sensitivities.columns) if not column.part]
    names, positive = [column.name for _, column in parameters], {each.name: each.positive for _, each in parameters}
    starts = {each.name: each for _, each in parameters if each.start}
    jacobian = sensitivities.jacobian[..., [index for index, _ in parameters]] / sensitivities.noise[:, None]
    effect = np.sqrt(np.sum(jacobian**2, axis=(0, 1)))
    found = []
    dead = [name for name, size in zip(names, effect, strict=True) if not size > 0]
    unused = [name for name in dead if name not in starts]
    if unused:
        message = f"{join_names(unused)}: no effect on the outputs, so the data cannot identify it. Fix its value."
        found.append(Finding("identify", "warning", message, {"no_effect": unused}))
    if len(dead) == len(names):
        return found
    j, effect, names = jacobian[..., effect > 0], effect[effect > 0], [name for name in names if name not in dead]
    confounded: set[str] = set()
    for weak in uncertainty(np.ones(j.shape[:2]), j, names).weak:  # residuals in units of the noise
        direction = {name: share / effect[names.index(name)] for name, share in weak.items() if abs(share) > 1e-3}
        confounded |= set(direction)
        if direction.keys() <= starts.keys():
            continue  # said once for all of them, below
        message = (
            f"The data cannot separate {_describe_confounded(direction, positive, starts)}. Fix one of them, measure "
            "another output, or give a prior (Unknown(spread=...), Loss(prior=...)). Predictions under loads like "
            "these do not depend on the choice."
        )
        found.append(Finding("identify", "warning", message, {"direction": direction, "parameters": list(direction)}))
    flat = j.reshape(-1, j.shape[-1])
    variances = np.diag(np.linalg.pinv(flat.T @ flat, rcond=1e-12))
    errors = {
        name: float(error) for name, error in zip(names, np.sqrt(variances), strict=True) if name not in confounded
    }
    blurred = [name for name in starts if name in dead or errors.pop(name, np.inf) > MAX_ERROR]
    found += _check_starts([starts[name] for name in blurred])
    loose = {name: error for name, error in errors.items() if error > MAX_ERROR}
    determined = {name: error for name, error in errors.items() if name not in loose}
    if loose:
        listed = join_names([f"{name} to {error:.0%}" for name, error in loose.items()])
        message = f"With this noise the data hardly determine {listed} (standard error): excite it more."
        found.append(Finding("identify", "warning", message, {"errors": loose}))
    if determined:
        listed = join_names([f"{name} to {error:.1g}" for name, error in determined.items()])
        message = f"The data determine {listed} (expected relative standard error, for the physics alone)."
        if not sensitivities.noise_is_known:
            message += f" Their noise is unknown: {MIN_NOISE:.1%} of the spread is assumed, which may be too little."
        found.append(Finding("identify", "ok", message, {"errors": determined}))
    return found


def _check_starts(loose: Sequence[Column]) -> list[Finding]:
    """The initial states of runs that the data hardly determine."""
    if not loose:
        return []
    states = list(dict.fromkeys(column.start for column in loose))
    message = (
        f"The data say little about {join_names(states)} at the start of a run. That does no harm where the twin soon "
        "forgets it; otherwise measure it, or give the initial state (x0)."
    )
    return [Finding("identify", "note", message, {"starts": [column.name for column in loose]})]


def _check_residuals(sensitivities: Sensitivities) -> list[Finding]:
    """The residual outputs, and the parameters beside them."""
    columns = sensitivities.columns
    parts = list(dict.fromkeys(column.part for column in columns if column.part))
    if not parts:
        return []
    jacobian = (sensitivities.jacobian / sensitivities.noise[:, None]).reshape(-1, len(columns))
    jacobian = jacobian * [column.size for column in columns]
    normal = jacobian.T @ jacobian
    # Parameters have no prior: a ridge far below the information of any measurement keeps the inverse finite.
    ridge = 1e-12 * max(np.trace(normal) / len(normal), 1e-300)
    inverse = np.linalg.inv(normal + np.diag([1.0 if column.part else ridge for column in columns]))
    found, no_effect, uncertain = [], [], {}
    for part in parts:
        mine = [k for k, column in enumerate(columns) if column.part == part]
        bias = next(k for k in mine if columns[k].bias)
        if sum(normal[k, k] for k in mine) < MIN_EFFECT:
            no_effect.append(part)
        elif np.sqrt(inverse[bias, bias]) > MAX_PRIOR_SHARE:
            correlation = np.abs(inverse[bias]) / np.sqrt(np.diag(inverse) * inverse[bias, bias])
            others = [columns[k].part or columns[k].name for k in np.argsort(-correlation) if correlation[k] > 0.3]
            uncertain[part] = [name for name in dict.fromkeys(others) if name != part][:2]
    if no_effect:
        message = (
            f"The residual on {join_names(no_effect)} has no effect on the outputs, so the data cannot identify it. "
            "Leave it out (`adds_to`), or measure an output that it changes."
        )
        found.append(Finding("identify", "warning", message, {"residual": no_effect}))
    for part, others in uncertain.items():
        beside = f"beside {' and '.join(others)}" if others else "within the noise"
        message = (
            f"The data do not determine the constant part of the residual on {part} {beside}: how the fit divides an "
            "effect between them means nothing. Predictions under loads like these do not depend on it: keep the "
            "residual if it lowers the held-out error (`twinfold fit` compares), and do not read it as a law."
        )
        found.append(Finding("identify", "warning", message, {"residual": [part], "beside": others}))
    confounded = {
        name: ratio for name, ratio in _inflation(sensitivities, normal, inverse).items() if ratio > CONFOUNDED
    }
    if confounded:
        listed = join_names([f"{name} (standard error {ratio:.0f} times larger)" for name, ratio in confounded.items()])
        message = (
            f"The data cannot separate {listed} from the learned residual, which can imitate it. Its estimate will "
            "mean little; predictions under loads like these are as good either way, so this alone is no reason to "
            "remove the residual. For other loads, or to read the parameter, fix it or see `guarded_fit`."
        )
        found.append(Finding("identify", "warning", message, {"inflation": confounded}))
    clear = [part for part in parts if part not in no_effect and part not in uncertain]
    if clear:
        message = f"The residual on {join_names(clear)} can be identified."
        found.append(Finding("identify", "ok", message, {"residual": clear}))
    return found


def _inflation(sensitivities: Sensitivities, normal: np.ndarray, inverse: np.ndarray) -> dict[str, float]:
    """By which factor the standard error of each parameter grows beside the learned parts; starts of runs aside."""
    own = [k for k, column in enumerate(sensitivities.columns) if not column.part]
    alone = np.diag(np.linalg.pinv(normal[np.ix_(own, own)], rcond=1e-12)) if own else np.zeros(0)
    return {
        sensitivities.columns[k].name: float(np.sqrt(inverse[k, k] / variance))
        for k, variance in zip(own, alone, strict=True)
        if variance > 0 and normal[k, k] > 0 and not sensitivities.columns[k].start
    }


def _describe_confounded(
    direction: Mapping[str, float], positive: Mapping[str, bool], starts: Mapping[str, Column]
) -> str:
    """The parameters that only act together, and how; of starts, the states alone, without their runs."""
    states = list(dict.fromkeys(starts[name].start for name in direction if name in starts))
    if not states:
        return f"{' and '.join(direction)}: {describe_direction(direction, positive)}"
    own = [name for name in direction if name not in starts]
    return f"{' and '.join(own)} from {' and '.join(states)} at the start of a run"


def describe_direction(direction: Mapping[str, float], positive: Mapping[str, bool]) -> str:
    """Return which change of parameters has no effect; for two positive ones, the product of powers that matters."""
    names, values = list(direction), np.array(list(direction.values()))
    values = values / np.abs(values).max() * (np.sign(values[0]) or 1.0)
    if all(positive[name] for name in names) and len(names) == 2:
        # Along (u, v) in the logarithms, v log a - u log b does not change.
        powers = np.array([-values[1], values[0]])
        powers = powers / np.abs(powers).min() if np.abs(powers).min() > 0 else powers
        powers = powers * (np.sign(powers[0]) or 1.0)
        rounding, largest = np.abs(powers - np.round(powers)).max(), np.abs(powers).max()
        if rounding < INTEGER_TOLERANCE * largest and largest < MAX_EXPONENT:
            return f"only {_format_powers(names, np.round(powers).astype(int))} matters"
    changes = [
        f"{name} by {100 * np.expm1(step):+.1f} %" if positive[name] else f"{name} by {step:+.2g} (of its first guess)"
        for name, step in zip(names, 0.1 * values, strict=True)
    ]
    return f"changing {' and '.join(changes)} together changes no output"


def _format_powers(names: list[str], powers: np.ndarray) -> str:
    factors = [name if abs(power) == 1 else f"{name}^{abs(power)}" for name, power in zip(names, powers, strict=True)]
    above = " * ".join(factor for factor, power in zip(factors, powers, strict=True) if power > 0)
    below = " / ".join(factor for factor, power in zip(factors, powers, strict=True) if power < 0)
    return f"the ratio {above} / {below}" if below else f"the product {above}"
