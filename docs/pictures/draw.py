"""The pictures of projection.md, drawn from what the library computes: `python docs/pictures/draw.py`."""

from pathlib import Path

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np

import twinfold as tw

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
BLUE, RED, GREY, GREEN = "#1f6feb", "#c2410c", "#6b7280", "#15803d"
WIDE = {"figsize": (7.2, 3.0), "layout": "constrained"}


def save(figure, name):
    """A small SVG file that is the same on every machine: text stays text, nothing says when it was made."""
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def nearest():
    """One predicted state, its tangent step, and the nearest point."""

    def ellipse(x):
        return (x[0] / 2) ** 2 + x[1] ** 2 - 1

    constraint, start = tw.Constraint(ellipse), jnp.array([2.0, 1.35])
    level = constraint.level(0.0, start, {})
    found = {
        name: np.asarray(projection.project(constraint, 0.0, start, {}, level).x)
        for name, projection in {"fast": tw.Tangent(), "robust": tw.Newton()}.items()
    }
    figure, axes = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
    angle = np.linspace(-0.35, 2.0, 120)
    axes.plot(2 * np.cos(angle), np.sin(angle), color=GREY, lw=1.5)
    axes.annotate("g(x) = 0", (2 * np.cos(1.75), np.sin(1.75)), (-0.45, 0.62), color=GREY)
    normal = np.array([start[0] / 2, 2 * start[1]])
    along = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
    ends = found["fast"] + np.outer([-1.0, 0.75], along)
    axes.plot(*ends.T, color=GREY, lw=1, ls=":")
    axes.annotate("linearised g = 0", ends[0], (2.1, 0.3), color=GREY)
    for name, color in (("fast", RED), ("robust", BLUE)):
        axes.annotate("", found[name], np.asarray(start), arrowprops={"arrowstyle": "->", "color": color, "lw": 1.5})
        axes.plot(*found[name], "o", color=color, ms=6)
    axes.plot(*start, "o", color="black", ms=6)
    axes.annotate("predicted", np.asarray(start), (2.06, 1.35))
    axes.annotate("fast: onto the linearised g, a little off the curve", found["fast"], (-0.5, 1.30), color=RED)
    axes.annotate("robust: the nearest point", found["robust"], (0.1, 0.45), color=BLUE)
    axes.set(aspect="equal", xlim=(-0.6, 3.1), ylim=(-0.35, 1.55), xticks=[], yticks=[])
    save(figure, "nearest")


def drift():
    """Energy of an orbit over 20 periods, with and without projection, and where the planet thinks it is."""

    def field(x):
        return jnp.concatenate([x[2:], -x[:2] / jnp.sum(x[:2] ** 2) ** 1.5])

    def kept(x):
        energy = 0.5 * jnp.sum(x[2:] ** 2) - 1 / jnp.sqrt(jnp.sum(x[:2] ** 2))
        return jnp.stack([energy, x[0] * x[3] - x[1] * x[2]])

    x0, ts = jnp.array([0.5, 0.0, 0.0, np.sqrt(3.0)]), jnp.linspace(0, 40 * np.pi, 641)
    figure, (plane, energy) = plt.subplots(1, 2, width_ratios=(2, 3), **WIDE)
    for name, projection, color in (
        ("no projection", None, RED),
        ("Tangent()", tw.Tangent(), GREEN),
        ("Newton()", tw.Newton(), BLUE),
    ):
        twin = tw.Twin(field, integrator=tw.RK4(), constraint=tw.Conserved(kept), projection=projection)
        run = twin.simulate(x0, ts)
        off = np.asarray(run.trajectory.relative_violation[:, 0])
        energy.semilogy(ts[1::3] / (2 * np.pi), np.maximum(off[1::3], 1e-17), color=color, lw=1.2, label=name)
        if name != "Tangent()":
            plane.plot(*np.asarray(run.xs[:, :2]).T, color=color, lw=0.6)
    plane.plot(0, 0, "o", color="black", ms=4)
    plane.set(aspect="equal", xticks=[], yticks=[], title="20 periods, 32 steps each")
    energy.set(xlabel="period", title="relative error of the energy", ylim=(1e-17, 1e4))
    energy.legend(loc="upper center", ncols=3, frameon=False)
    save(figure, "drift")


def hidden():
    """The velocity of a pendulum along its rod, projected onto the length alone and onto both levels."""
    rod = tw.Multibody([1.0, 1.0], position=lambda q: q @ q - 1, potential=lambda q: 9.81 * q[1])
    x0, ts = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.linspace(0, 20, 401)
    figure, axes = plt.subplots(**WIDE)
    for name, levels, color in (("length alone", False, RED), ("length and hidden level", True, BLUE)):
        constraint = tw.constraint_of(rod, hidden=levels)
        run = tw.Twin(rod, integrator=tw.Heun(), constraint=constraint, projection=tw.Newton()).simulate(x0, ts)
        radial = np.abs(np.sum(np.asarray(run.xs[:, :2] * run.xs[:, 2:]), axis=1))
        axes.semilogy(ts[1::2], np.maximum(radial[1::2], 1e-18), color=color, lw=1.2, label=name)
    axes.set(xlabel="time [s]", title="velocity along the rod, which should be zero [m/s]", ylim=(1e-18, 10))
    axes.legend(loc="center right", frameon=False)
    save(figure, "hidden")


if __name__ == "__main__":
    tw.enable_x64()
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "twinfold", "font.family": "sans-serif", "font.size": 9}
    nearest()
    drift()
    hidden()
