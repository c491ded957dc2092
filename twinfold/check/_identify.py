"""Which parameters and which residual outputs the data cannot identify, from the sensitivities J of the rollout.

With the noise s of the outputs, and a residual believed to be of the size of the rates (its prior), the linearised
problem has the posterior covariance (J'J / s^2 + prior)^-1: what it leaves open, no training can tell.
"""

import jax
import numpy as np

from twinfold.check._finding import Finding, listing
from twinfold.check._sensitivity import Sensitivities, sensitivities
from twinfold.check._subject import Subject
from twinfold.check._words import combination
from twinfold.identify import uncertainty
from twinfold.identify._guard import CONFOUNDED
from twinfold.model import Network

LOOSE = 0.5  # standard error of a raw parameter (0.5 is about 50 %) from which on it is hardly told
UNMOVED = 0.5  # share of its prior uncertainty that a residual output keeps: the data do not tell it
UNSEEN = 1e-6  # effect of a whole residual, in units of the noise, squared: as good as none


def identifiable(subject: Subject) -> list[Finding]:
    """What the data leave open."""
    nodes = jax.tree.leaves(subject.twin, is_leaf=lambda node: isinstance(node, Network))
    if not subject.twin.unknowns() and not any(isinstance(node, Network) for node in nodes):
        return [Finding("identify", "ok", "There is nothing to be estimated.")]
    usable = [
        name
        for index, name in enumerate(subject.data.names)
        if subject.succeeded[index] >= int(subject.batch.length[index])
    ]
    if not usable:
        words = "What the data can identify was not looked at: the physics fails in every run."
        return [Finding("identify", "note", words)]
    known = sensitivities(subject, usable)
    return [*_parameters(known), *_beside(known)]


def _parameters(known: Sensitivities) -> list[Finding]:
    """The unknown parameters by themselves."""
    own = [place for place, column in enumerate(known.columns) if not column.part]
    if not own:
        return []
    names = [known.columns[place].name for place in own]
    jacobian = known.jacobian[..., own] / known.noise[:, None]
    effect = np.sqrt(np.sum(jacobian**2, axis=(0, 1)))
    found = []
    dead = [name for name, size in zip(names, effect, strict=True) if not size > 0]
    if dead:
        words = f"{listing(dead)}: no effect on what is measured, so the data cannot identify it. Fix its value."
        found.append(Finding("identify", "warning", words, {"unseen": dead}))
    live = [place for place, size in enumerate(effect) if size > 0]
    if not live:
        return found
    j, live_names = jacobian[..., live], [names[place] for place in live]
    residual = np.ones(j.shape[:2])  # in units of the noise
    sure = uncertainty(residual, j, live_names)
    positive = {known.columns[place].name: known.columns[place].positive for place in own}
    open_names: set[str] = set()
    for weak in sure.weak:
        raw = {name: share / effect[names.index(name)] for name, share in weak.items() if abs(share) > 1e-3}
        open_names |= set(raw)
        words = (
            f"The data cannot tell {' and '.join(raw)} apart: {combination(raw, positive)}. Fix one of them, measure "
            "something else, or give a prior (Unknown(spread=...), Loss(prior=...))."
        )
        found.append(Finding("identify", "warning", words, {"direction": raw, "parameters": list(raw)}))
    flat = j.reshape(-1, j.shape[-1])
    errors = dict(zip(live_names, np.sqrt(np.diag(np.linalg.pinv(flat.T @ flat, rcond=1e-12))), strict=True))
    loose = {name: float(error) for name, error in errors.items() if error > LOOSE and name not in open_names}
    if loose:
        said = [f"{name} to {error:.0%}" for name, error in loose.items()]
        words = f"The noise leaves hardly anything to be said of {listing(said)} (standard error): excite it more."
        found.append(Finding("identify", "warning", words, {"errors": loose}))
    told = [name for name in live_names if name not in loose and name not in open_names]
    if told:
        said = [f"{name} to {errors[name]:.1g}" for name in told]
        words = f"The data tell {listing(said)} (expected standard error, relative, of the physics alone)."
        found.append(Finding("identify", "ok", words, {"errors": {name: float(errors[name]) for name in told}}))
    return found


def _beside(known: Sensitivities) -> list[Finding]:
    """Residual outputs, and parameters beside them."""
    columns = known.columns
    parts = list(dict.fromkeys(column.part for column in columns if column.part))
    if not parts:
        return []
    flat = (known.jacobian / known.noise[:, None]).reshape(-1, len(columns)) * [column.size for column in columns]
    normal = flat.T @ flat
    own = [place for place, column in enumerate(columns) if not column.part]
    # Parameters have no prior: a ridge far below what any measurement says keeps the inverse finite.
    least = 1e-12 * max(np.trace(normal) / len(normal), 1e-300)
    ridge = [1.0 if column.part else least for column in columns]
    inverse = np.linalg.inv(normal + np.diag(ridge))
    found, unseen, blurred = [], [], {}
    for part in parts:
        place = next(k for k, column in enumerate(columns) if column.part == part and column.bias)
        mine = [k for k, column in enumerate(columns) if column.part == part]
        if sum(normal[k, k] for k in mine) < UNSEEN:
            unseen.append(part)
        elif np.sqrt(inverse[place, place]) > UNMOVED:
            shared = np.abs(inverse[place]) / np.sqrt(np.diag(inverse) * inverse[place, place])
            others = [columns[k].part or columns[k].name for k in np.argsort(-shared) if shared[k] > 0.3]
            blurred[part] = [name for name in dict.fromkeys(others) if name != part][:2]
    if unseen:
        words = (
            f"The residual on {listing(unseen)} has no effect on what is measured: the data cannot identify it. Leave "
            "it out (`adds_to`), or measure something that it changes."
        )
        found.append(Finding("identify", "warning", words, {"residual": unseen}))
    for part, others in blurred.items():
        words = f"The data cannot identify the residual on {part}"
        words += f" beside {' and '.join(others)}: " if others else " within the noise: "
        words += "what it adds is as uncertain after the fit as before. Leave it out, or measure more."
        found.append(Finding("identify", "warning", words, {"residual": [part], "beside": others}))
    alone = np.linalg.pinv(normal[np.ix_(own, own)], rcond=1e-12) if len(own) else np.zeros((0, 0))
    grown = {
        columns[k].name: float(np.sqrt(inverse[k, k] / alone[at, at]))
        for at, k in enumerate(own)
        if alone[at, at] > 0 and normal[k, k] > 0
    }
    taken = {name: times for name, times in grown.items() if times > CONFOUNDED}
    if taken:
        said = [f"{name} ({times:.0f} times less sure)" for name, times in taken.items()]
        words = (
            f"Beside the learned residual the data do not tell {listing(said)}: what it does, the residual can do as "
            "well. Its estimate will mean little, and predictions under other inputs may suffer (see `guarded_fit`)."
        )
        found.append(Finding("identify", "warning", words, {"inflation": taken}))
    clear = [part for part in parts if part not in unseen and part not in blurred]
    if clear:
        words = f"The residual on {listing(clear)} can be identified."
        found.append(Finding("identify", "ok", words, {"residual": clear}))
    return found
