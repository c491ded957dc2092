"""Every sentence of the checks: said of data made so that it is true, and not of data made so that it is false.

A `Finding` that is added to the room without a line in the table fails the first test.
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support.check_cases import NET, TS, look, spring, spring_data, spring_twin

import twinfold.check
from twinfold.check import examine
from twinfold.check._channels import (
    check_constant,
    check_missing,
    check_noise,
    check_outliers,
    check_sampling,
    check_shapes,
)
from twinfold.check._examination import _run_check
from twinfold.check._figures import draw_figures
from twinfold.check._identifiability import check_identifiability
from twinfold.check._invariant import check_invariants
from twinfold.check._manifold import check_initial_states, check_rank
from twinfold.check._physics import check_inputs, check_simulation, check_stability, check_state_sizes
from twinfold.check._saturation import check_saturation
from twinfold.check._subject import BlockedError, Subject
from twinfold.check._timing import check_timing
from twinfold.data._dataset import Dataset
from twinfold.model._constraint.base import Conserved, Constraint, Stack
from twinfold.model._constraint.bounds import Bounds
from twinfold.model._constraint.slack import Slack
from twinfold.model._fields import BlackBox, GreyBox
from twinfold.model._learned.base import AbstractLearned
from twinfold.model._learned.mlp import MLP
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown
from twinfold.numerics._project.tangent import Tangent

CHANNELS = (check_shapes, check_sampling, check_missing, check_outliers, check_noise, check_constant, check_saturation)
SHORT = np.linspace(0, 2, 41)


def findings(checks, twin, data, **options):
    return [each for check in checks for each in look(check, twin, data, **options)]


# Channels


@cache
def clean():
    ys, ws = spring()
    return findings(CHANNELS, spring_twin(), spring_data(ys, ws), units={"x": "m"})


@cache
def dirty():
    ys, ws = (part.copy() for part in spring())
    ys[0, 60, 0] += 2.0
    ys[0, [7, 9, 90], 1] = -999.0
    ys[1, 0, 0] = np.nan
    noise = np.random.default_rng(0).normal(size=(2, len(TS), 1))
    clipped = np.clip(np.sin(3 * TS), -1, 0.8)[None, :, None] * np.ones((2, 1, 1))
    ys = np.concatenate([ys, 0 * noise + 7, noise, clipped, clipped], axis=-1)
    limited = np.clip(2 * np.cos(2 * TS) + 0.1 * np.sin(11 * TS), -1.5, 9)[None, :, None] * np.ones((2, 1, 1))
    ts = np.where(TS > 5, TS + 40, TS + 0.02 * np.sin(40 * TS))
    data = Dataset.from_arrays(
        [ts, ts, ts],
        [ys[0], ys[1], ys[0]],
        inputs=[np.concatenate([ws[k], limited[k]], axis=1) for k in (0, 1, 0)],
        output_names=["x", "v", "still", "noise", "clipped", "copy"],
        input_names=["u", "limited"],
    )
    return findings(CHANNELS, spring_twin(), data, units={"volt": "V"})


@cache
def uneven(length):
    """A run of 21 samples, and one of this length."""
    ts = np.linspace(0, 2, 21)
    data = Dataset.from_arrays([ts, ts[:length]], [np.sin(ts), np.cos(ts[:length])])
    return look(check_shapes, Twin(lambda x: -x), data)


@cache
def few_samples():
    return look(check_noise, Twin(lambda x: -x), Dataset.from_arrays(np.arange(5.0), [np.arange(5.0)]))


# Physics


def decay(x, p):
    return -p["k"] * x


def decaying(scale=1.0):
    return Dataset.from_arrays(SHORT, [scale * np.exp(-SHORT)[:, None], 2 * scale * np.exp(-SHORT)[:, None]])


@cache
def good_physics():
    twin = Twin(decay, params={"k": Unknown(1.1, positive=True)})
    checks = (check_simulation, check_stability, check_initial_states, check_state_sizes)
    return findings((*checks, check_identifiability), twin, decaying())


@cache
def bad_guess():
    return look(check_simulation, Twin(decay, params={"k": Unknown(-2.0)}), decaying())


@cache
def wrong_frequency():
    """Five periods of an oscillation of hidden speed, from a first guess that is off by a fifth."""
    ts = np.linspace(0, 15, 301)
    y = np.cos(2 * ts)[:, None] + 0.01 * np.random.default_rng(0).normal(size=(len(ts), 1))
    twin = Twin(
        lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]),
        params={"k": Unknown(6.0, positive=True)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([y[0], jnp.zeros_like(y[0])]),
    )
    return look(check_simulation, twin, Dataset.from_arrays(ts, [y]))


@cache
def wrong_sign():
    return look(check_simulation, Twin(lambda x: x), decaying(), states=("a", "b"))


@cache
def does_not_run():
    return findings((check_simulation,), Twin(lambda x, p: p["missing"] * x), decaying())


@cache
def few_samples_of_decay():
    data = Dataset.from_arrays(SHORT[::10], [np.exp(-SHORT[::10])[:, None]])
    return look(check_identifiability, Twin(decay, params={"k": Unknown(1.1, positive=True)}), data)


@cache
def hopeless():
    """A hidden state that runs away, whatever its parameter is."""
    ts = np.linspace(0, 10, 101)
    twin = Twin(
        lambda x, p: jnp.stack([x[1], 9.0 * x[0] + jnp.exp(p["k"])]),
        params={"k": Unknown(1.0)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([y[0] + 1.0, jnp.ones_like(y[0])]),
    )
    return look(check_identifiability, twin, Dataset.from_arrays(ts, [np.sin(ts)[:, None]]))


@cache
def start_for_parameter():
    """An offset of the sensor, and a start that is estimated: only their sum is seen."""
    ts = np.linspace(0, 5, 51)
    y = 1.5 + 0.1 * ts + 0.01 * np.random.default_rng(0).normal(size=len(ts))
    twin = Twin(
        lambda x: jnp.stack([jnp.full_like(x[0], 0.1)]),
        params={"offset": Unknown(0.5), "gain": Unknown(1.1)},
        observe=lambda x, p: p["gain"] * (x + p["offset"]),
        initial=Unknown([1.0], per_run=True),
    )
    return look(check_identifiability, twin, Dataset.from_arrays(ts, [y[:, None]]), states=("level",))


@cache
def fails_late():
    twin = Twin(lambda x, p: p["a"] * x**2 * 0 + x**2, params={"a": Unknown(1.0)})
    ones = Dataset.from_arrays(SHORT, np.ones((1, len(SHORT), 1)))
    return findings((check_simulation, check_identifiability), twin, ones)


@cache
def too_fast():
    return look(check_stability, Twin(lambda x: -60.0 * x), decaying())


@cache
def nearly_too_fast():
    return look(check_stability, Twin(lambda x: -50.0 * x), decaying())


class Gain(AbstractLearned):
    """A learned part that is not a network."""

    value: Array | None = None

    def check(self, context):
        pass

    def initialise(self, key, context):
        return Gain(-jnp.ones((), context.dtype))

    def __call__(self, x):
        return self.value * x


@cache
def no_network():
    return look(check_simulation, Twin(Gain()), decaying())


@cache
def black_box():
    return look(check_simulation, Twin(BlackBox(MLP(**NET))), decaying())


@cache
def inputs_used():
    return look(check_inputs, spring_twin(), spring_data(*spring(runs=1)))


@cache
def input_unused():
    return look(check_inputs, Twin(lambda x: jnp.stack([x[1], -x[0]])), spring_data(*spring(runs=1)))


@cache
def only_its_tap_used():
    twin = Twin(lambda x, w: jnp.stack([x[1], w[1] - x[0]]))
    return look(check_inputs, twin, spring_data(*spring(runs=1)).with_taps({"u": [0.1]}))


@cache
def tap_unused():
    return look(check_inputs, spring_twin(), spring_data(*spring(runs=1)).with_taps({"u": [0.1]}))


# Inputs between samples


def response(linear, wave):
    ts = 0.2 * np.arange(121)
    u = wave(ts)
    y, x = [0.0], 0.0
    for k in range(len(ts) - 1):
        for i in range(20):
            w = u[k] + linear * (i + 0.5) / 20 * (u[k + 1] - u[k])
            x += 0.01 * (w - x)
        y.append(x)
    return Dataset.from_arrays(ts, [np.array(y)[:, None]], inputs=[u[:, None]], input_names=["u"])


@cache
def timing(linear, fast=True):
    wave = (lambda t: np.random.default_rng(0).normal(size=len(t))) if fast else lambda t: 0.01 * t
    data = response(linear, wave)
    noisy = [run.y + 0.01 * np.random.default_rng(1).normal(size=run.y.shape) for run in data.runs]
    data = Dataset.from_arrays(
        data.runs[0].ts, noisy, inputs=[run.w for run in data.runs], input_names=["u"], x0=[[0.0]]
    )
    return look(check_timing, Twin(lambda x, w: w - x), data)


# Constraints


def turning(x, p):
    return jnp.stack([-x[1], x[0]]) * 1.0


def circle(radius=1.0, noise=0.001, start=None):
    rng = np.random.default_rng(0)
    ys = [radius * np.stack([np.cos(SHORT), np.sin(SHORT)], axis=1) for _ in range(2)]
    ys = [y + noise * rng.normal(size=y.shape) for y in ys]
    return Dataset.from_arrays(SHORT, ys, x0=None if start is None else [start, start])


UNIT = Constraint(lambda x: x @ x - 1)
MANIFOLD = (check_initial_states, check_rank, check_invariants, check_state_sizes)


@cache
def holds():
    within = Bounds(lambda x: x[:1], lower=-2.0)
    twin = Twin(turning, constraint=Stack([UNIT, within]), projection=Tangent())
    return findings(MANIFOLD, twin, circle(start=[1.0, 0.0]))


@cache
def contradicted():
    outside = Bounds(lambda x: x[:1], lower=0.5)
    sized = Constraint(lambda x: (x @ x - 1.0) * 2)
    twin = Twin(turning, constraint=Stack([UNIT, sized, outside]))
    return findings(MANIFOLD, twin, circle(radius=1.3, start=[-1.3, 0.2]))


@cache
def loosely(radius):
    """A constraint with slack beside an exact one, which the data confirm."""
    exact = Constraint(lambda x: x @ x - radius**2)
    return look(check_invariants, Twin(turning, constraint=Stack([Slack(UNIT), exact])), circle(radius=radius))


@cache
def guessed_radius():
    twin = Twin(turning, params={"r": Unknown(1.2)}, constraint=Constraint(lambda x, p: x @ x - p["r"] ** 2))
    return look(check_invariants, twin, circle())


@cache
def singular():
    ts = np.linspace(-1, 1, 21)
    data = Dataset.from_arrays(ts, [np.stack([ts, ts], 1)])
    cross = Twin(lambda x: jnp.ones_like(x), constraint=Constraint(lambda x: x[0] * x[1] - x[0] ** 2))
    return look(check_rank, cross, data)


@cache
def not_smooth():
    ts = np.linspace(0, 1, 21)
    data = Dataset.from_arrays(ts, [np.stack([ts, ts], 1)])
    root = Twin(lambda x: jnp.ones_like(x), constraint=Constraint(lambda x: jnp.sqrt(x[0]) - jnp.sqrt(x[1])))
    return look(check_rank, root, data)


@cache
def nearly_dependent():
    near = Stack([UNIT, Constraint(lambda x: x @ x - 1 + 2e-7 * x[0])])
    return look(check_rank, Twin(turning, constraint=near), circle())


@cache
def hidden_constraint():
    ys = [run.y[:, :1] for run in circle().runs]
    data = Dataset.from_arrays(SHORT, ys, x0=[[1.0, 0.0]] * 2)
    return look(check_invariants, Twin(turning, observe=lambda x: x[:1], constraint=UNIT), data)


@cache
def sizes():
    data = Dataset.from_arrays(SHORT, [np.stack([np.cos(SHORT), 1e6 * np.sin(SHORT)], axis=1)])
    twin = Twin(lambda x: jnp.stack([-1e-6 * x[1], 1e6 * x[0]]), constraint=Conserved(lambda x: x[0] ** 2))
    return look(check_state_sizes, twin, data)


# Identifiability


@cache
def nothing_to_estimate():
    return look(check_identifiability, Twin(lambda x: -x), decaying())


@cache
def not_identified():
    rng = np.random.default_rng(0)
    data = Dataset.from_arrays(SHORT, [np.exp(-SHORT)[:, None] + 0.3 * rng.normal(size=(len(SHORT), 1))])
    params = {"dead": Unknown(1.0), "a": Unknown(1.0, positive=True), "b": Unknown(1.0, positive=True)}
    params |= {"weak": Unknown(1.0)}
    twin = Twin(lambda x, p: -p["a"] * p["b"] * x + 1e-3 * p["weak"] * x**2, params=params)
    return look(check_identifiability, twin, data)


@cache
def residual_identified():
    return look(check_identifiability, spring_twin(), spring_data(*spring()))


@cache
def residual_not_identified():
    rng = np.random.default_rng(0)
    net = GreyBox(lambda x, p: jnp.stack([x[1], -p["k"] * x[0], -x[2]]), MLP(states=[0], adds_to=[0, 1, 2], **NET))
    twin = Twin(
        net,
        params={"k": Unknown(1.0, positive=True)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([y[0], jnp.zeros_like(y[0]), jnp.zeros_like(y[0])]),
    )
    y = np.cos(SHORT) + 0.5 * rng.normal(size=len(SHORT))
    return look(check_identifiability, twin, Dataset.from_arrays(SHORT, [y[:, None]]), states=("q", "v", "unseen"))


@cache
def estimated_start(hidden):
    """Runs that begin in an estimated state: one of which the outputs forget the start at once, or one measured."""
    ys = np.exp(-SHORT)[:, None] + 0.01 * np.random.default_rng(0).normal(size=(2, len(SHORT), 1))

    def field(x, p):
        return jnp.stack([-p["k"] * x[0] + hidden * 1e-3 * x[1], -4.0 * x[1]])

    twin = Twin(
        field,
        params={"k": Unknown(1.1, positive=True)},
        observe=(lambda x: x[:1]) if hidden else None,
        initial=Unknown([1.0, 0.5], per_run=True),
    )
    both = np.concatenate([ys, 0.5 * np.exp(-4.0 * SHORT)[None, :, None] * np.ones((2, 1, 1))], axis=-1)
    data = Dataset.from_arrays(SHORT, ys if hidden else both)
    return look(check_identifiability, twin, data, states=("level", "lost"))


# Checks that do not run


SUBJECT = Subject(Twin(lambda x: -x), decaying(), None, {}, 0)


def _raise(error):
    raise error


@cache
def blocked():
    return _run_check("kind", lambda _: _raise(BlockedError("no")), SUBJECT)


@cache
def crashed():
    return _run_check("kind", lambda _: _raise(KeyError("k")), SUBJECT)


def figures(error=None):
    with pytest.MonkeyPatch.context() as patch:
        if error is not None:
            patch.setattr("twinfold.check._figures.draw_overview", lambda _: _raise(error))
        patch.setattr("twinfold.check._figures.draw_run", lambda *_: None)
        return draw_figures(SUBJECT, [])[1]


@cache
def in_order():
    return examine(Twin(lambda x: -x), decaying(), plots=False).findings


TABLE = {
    "_channels.check_shapes": [
        (r"^2 runs of 201 samples", clean, dirty),
        (r"^2 runs of 20 to 21 samples", lambda: uneven(20), lambda: uneven(21)),
        (r"units: there is no quantity 'volt'", dirty, clean),
    ],
    "_channels.check_sampling": [
        (r"^Sampled every 0.05, regularly", clean, dirty),
        (r"^Sampled irregularly", dirty, clean),
        (r"^3 gaps in the samples", dirty, clean),
    ],
    "_channels.check_missing": [
        (r"^No output has missing values", clean, dirty),
        (r"^Missing values: x 0.2%", dirty, clean),
        (r"first sample of run 1 is incomplete", dirty, clean),
    ],
    "_channels.check_outliers": [
        (r"v is exactly -999 6 times", dirty, clean),
        (r"^2 outliers: x of run '0' at t = 3", dirty, clean),
        (r"^No outliers", clean, dirty),
    ],
    "_channels.check_noise": [
        (r"of each output: x 0\.01", clean, few_samples),
        (r"unknown, too few samples", few_samples, clean),
        (r"noise: mostly noise", dirty, clean),
    ],
    "_channels.check_constant": [
        (r"^still is constant: there is nothing to fit", dirty, clean),
        (r"clipped and copy are the same channel", dirty, clean),
        (r"Runs '0' and '2' contain the same", dirty, clean),
        (r"^No channel is constant", clean, dirty),
    ],
    "_saturation.check_saturation": [
        (r"^clipped runs into its largest value 0.8 .* the sensor is clipped", dirty, clean),
        (r"^limited runs into its smallest value -1.5 .* actuator is saturated", dirty, clean),
        (r"^No channel sits at a limit", clean, dirty),
    ],
    "_physics.check_simulation": [
        (r"^The twin does not run on these data", does_not_run, good_physics),
        (r"fails in 1 of 1 runs: run '0' at t = 1", fails_late, good_physics),
        (r"completes all 2 runs.*y0 9\d%", good_physics, wrong_sign),
        (r"completes all 2 runs\.$", black_box, good_physics),
    ],
    "_physics._check_unexplained": [
        (r"explains nothing of y0; quickly fitted it explains y0 (9\d|100)%", bad_guess, good_physics),
        (r"predicts y0 no better than its mean.*wrong sign", wrong_sign, bad_guess),
        (r"explains nothing of y0; quickly fitted it explains y0 (9\d|100)%", wrong_frequency, wrong_sign),
    ],
    "_physics._check_state_names": [(r"states: 2 names \(a, b\) for 1 states", wrong_sign, good_physics)],
    "_physics._describe_learned_parts": [
        (r"^The field is learned entirely", black_box, good_physics),
        (r"^Gain: a learned part without a network", no_network, black_box),
    ],
    "_physics.check_stability": [
        (r"is unstable for a decay within .* substeps=2", too_fast, good_physics),
        (r"near|close|limit", nearly_too_fast, too_fast),
        (r"^The step is stable at", good_physics, too_fast),
    ],
    "_physics.check_inputs": [
        (r"Nothing in the twin depends on the input u", input_unused, inputs_used),
        (r"^The twin uses every input", inputs_used, input_unused),
        (r"depends on the input u\(t-0.1\)", tap_unused, only_its_tap_used),
        (r"^The twin uses every input", only_its_tap_used, tap_unused),
    ],
    "_physics.check_state_sizes": [(r"y1 is 1e\+06 times as large as y0", sizes, holds)],
    "_timing.check_timing": [
        (r"prefer u held between samples, as in the twin", lambda: timing(False), lambda: timing(True))
    ],
    "_timing._describe": [
        (
            r"prefer u interpolated between samples \(the twin has it held\)",
            lambda: timing(True),
            lambda: timing(False),
        ),
        (r"prefer", lambda: timing(True), lambda: timing(True, fast=False)),
    ],
    "_manifold.check_initial_states": [
        (r"^There is no constraint", good_physics, holds),
        (r"a constraint but no projection", contradicted, holds),
        (r"^Every initial state is on the manifold", holds, contradicted),
        (r"^2 of 2 initial states are off the manifold.*correct x0", contradicted, holds),
    ],
    "_manifold._check_first_outputs": [
        (r"initial state contradicts the first measurement in 2 of 2 runs", contradicted, holds)
    ],
    "_manifold.check_rank": [
        (r"derivative of the constraint is not finite at t = 0 ", not_smooth, holds),
        (r"loses rank at 1 of 21 states, first at t = 0", singular, holds),
        (r"almost dependent", nearly_dependent, holds),
        (r"^1 constraint, of full rank", holds, contradicted),
    ],
    "_manifold._describe_redundancy": [
        (r"1 of 2 constraints depend on the others at all states \(among g0, g1\)", contradicted, holds)
    ],
    "_invariant.check_invariants": [(r"Whether g0 holds in the data is unknown: .* x1,", hidden_constraint, holds)],
    "_invariant._check_equation": [
        (r"^g0 \(g = 0\) holds in the data", holds, contradicted),
        (r"^The measurements contradict g0 .*A twin that enforces it", contradicted, holds),
        (r"a slack of s = 0.69 ± 0.0003 \(g = level \+ s, .* Slack\(constraint\)", contradicted, holds),
        (r"[Ss]lack", contradicted, guessed_radius),
        (r"^The measurements contradict g0 .*at its first guess", guessed_radius, contradicted),
    ],
    "_invariant._check_slack": [
        (r"^g0 is only nearly true, .* s = 0.0201 ± 0.0002 .* 1.0% of its scale", lambda: loosely(1.01), holds),
        (r"^g0 is only nearly true", lambda: loosely(1.01), lambda: loosely(1.0)),
        (r"^g0 holds .* they ask for no slack", lambda: loosely(1.0), lambda: loosely(1.01)),
        (r"^g1 \(g = 0\) holds in the data", lambda: loosely(1.01), contradicted),
    ],
    "_invariant._check_bound": [
        (r"^The measurements stay within the bounds of g1", holds, contradicted),
        (r"^The measurements violate the bounds of g2", contradicted, holds),
    ],
    "_identifiability.check_identifiability": [
        (r"^There is nothing to estimate", nothing_to_estimate, good_physics),
        (r"^Identifiability was not checked, since the physics fails", fails_late, good_physics),
        (r"^Identifiability was not checked, since the physics explains nothing", hopeless, residual_not_identified),
    ],
    "_identifiability._check_parameters": [
        (r"^dead: no effect on the outputs", not_identified, good_physics),
        (r"cannot separate a and b: only the product a \* b matters", not_identified, good_physics),
        (r"cannot separate offset from level at the start of a run", start_for_parameter, not_identified),
        (r"hardly determine weak to", not_identified, good_physics),
        (r"^The data determine k to", good_physics, not_identified),
        (r"^The data determine k to .* Their noise is unknown", few_samples_of_decay, good_physics),
        (r"^The data determine k to \S+ \(expected", lambda: estimated_start(True), not_identified),
    ],
    "_identifiability._check_starts": [
        (r"^The data say little about lost at the start", lambda: estimated_start(True), lambda: estimated_start(False))
    ],
    "_identifiability._check_residuals": [
        (r"residual on unseen has no effect", residual_not_identified, residual_identified),
        (r"do not determine the constant part of the residual on", residual_not_identified, residual_identified),
        (r"cannot separate k .* from the learned residual", residual_not_identified, residual_identified),
        (r"^The residual on v can be identified", residual_identified, residual_not_identified),
    ],
    "_figures.draw_figures": [
        (r"^needs matplotlib$", lambda: figures(ImportError("needs matplotlib")), figures),
        (r"'overview' could not be drawn: ValueError: no", lambda: figures(ValueError("no")), figures),
    ],
    "_examination._run_check": [
        (r"^Not checked", blocked, in_order),
        (r"^This check failed: KeyError: 'k'", crashed, in_order),
    ],
}


def test_every_finding_of_the_room_is_in_the_table():
    sites: Counter[str] = Counter()
    for path in Path(str(twinfold.check.__file__)).parent.glob("_*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
                names = [node.func.id for node in calls if isinstance(node.func, ast.Name)]
                sites[f"{path.stem}.{function.name}"] += names.count("Finding")
    assert {where: len(lines) for where, lines in TABLE.items() if len(lines) < sites[where]} == {}
    assert {where for where, count in sites.items() if count} == set(TABLE)


@pytest.mark.parametrize(("sentence", "true", "false"), [line for lines in TABLE.values() for line in lines])
def test_a_sentence_is_said_when_it_is_true_and_not_when_it_is_false(sentence, true, false):
    said = [each.message for each in true()]
    assert any(re.search(sentence, message) for message in said), said
    otherwise = [each.message for each in false()]
    assert not any(re.search(sentence, message) for message in otherwise), otherwise


@pytest.mark.parametrize("case", [bad_guess, wrong_sign, wrong_frequency])
def test_physics_that_explains_nothing_is_not_ok(case):
    (said,) = [each for each in case() if "Variance explained" in each.message]
    assert (said.severity, " 0%" in said.message) == ("note", True)
    (said,) = [each for each in good_physics() if "Variance explained" in each.message]
    assert said.severity == "ok"
