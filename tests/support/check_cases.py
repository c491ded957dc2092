"""Systems and data for the checks: clean ones, and ones with planted mistakes."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from twinfold.check._subject import Subject
from twinfold.data._dataset import Dataset
from twinfold.model._constraint.base import Constraint
from twinfold.model._fields import GreyBox
from twinfold.model._learned.mlp import MLP
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown

TS = np.linspace(0.0, 10.0, 201)
NET: dict[str, Any] = {"width": 4, "depth": 1}


def integrated(field, x0, ts, w=None):
    """A fine reference: 20 steps of RK4 a sample, in numpy."""
    xs = [np.asarray(x0, float)]
    for k, dt in enumerate(np.diff(ts) / 20):
        x, u = xs[-1], 0.0 if w is None else w[k]
        for _ in range(20):
            a = field(x, u)
            b = field(x + dt / 2 * a, u)
            c = field(x + dt / 2 * b, u)
            d = field(x + dt * c, u)
            x = x + dt / 6 * (a + 2 * b + 2 * c + d)
        xs.append(x)
    return np.array(xs)


def spring(noise=0.01, runs=2, ts=TS):
    """m x'' = -2 x - 0.3 v |v| + u, both states measured."""
    rng = np.random.default_rng(1)
    ys, ws = [], []
    for run in range(runs):
        w = np.repeat(rng.normal(size=len(ts) // 10 + 1), 10)[: len(ts)]
        truth = integrated(
            lambda x, u: np.array([x[1], -2 * x[0] - 0.3 * x[1] * abs(x[1]) + u]), [1.0, 0.1 * run], ts, w
        )
        ys.append(truth + noise * rng.normal(size=truth.shape))
        ws.append(w[:, None])
    return np.array(ys), np.array(ws)


def spring_data(ys, ws, ts=TS):
    return Dataset.from_arrays(ts, list(ys), inputs=list(ws), output_names=["x", "v"], input_names=["u"])


def known(x, w, p):
    return jnp.stack([x[1], -p["k"] * x[0] + w[0]])


def spring_twin(**options):
    residual = MLP(states=[1], adds_to=[1], **NET)
    return Twin(GreyBox(known, residual), params={"k": Unknown(1.8, positive=True)}, **options)


def pendulum(length=1.0, noise=0.004, runs=2):
    """A pendulum in Cartesian coordinates: (x, y, vx, vy)."""
    rng = np.random.default_rng(2)
    ys = []
    for run in range(runs):
        angle = integrated(lambda a, _: np.array([a[1], -9.81 / length * np.sin(a[0])]), [1.0 + 0.2 * run, 0.0], TS)
        s, c = np.sin(angle[:, 0]), np.cos(angle[:, 0])
        truth = length * np.stack([s, -c, c * angle[:, 1], s * angle[:, 1]], axis=1)
        ys.append(truth + noise * rng.normal(size=truth.shape))
    return Dataset.from_arrays(TS, np.array(ys), output_names=["px", "py", "vx", "vy"])


def swinging(x, p):
    gravity = 9.81 * p["a"] * p["b"] if p else 9.81
    tension = (gravity * x[1] - x[2] ** 2 - x[3] ** 2) / (x[0] ** 2 + x[1] ** 2)
    return jnp.concatenate([x[2:], jnp.stack([tension * x[0], tension * x[1] - gravity])])


def rod(length):
    return Constraint(lambda x: x[0] ** 2 + x[1] ** 2 - length**2)


def look(check, twin, data, states=None, units=None):
    """The findings of one check."""
    return check(Subject(twin, data, states, units or {}, 0))


def bad(examination):
    return [
        (each.kind, each.severity, each.message)
        for each in examination.findings
        if each.severity in ("warning", "problem")
    ]
