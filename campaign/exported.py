"""Twins to export, different in what their C does, and how C is compiled and run under sanitizers."""

import functools
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import twinfold as tw
from twinfold.export import ExportSpec, export_c, export_fmu

C = Path(__file__).parent / "c"
SANITIZERS = {
    "address": ("-fsanitize=address",),
    "undefined": ("-fsanitize=undefined,float-cast-overflow,bounds", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread", "-pthread"),
}


def linear() -> tuple[tw.Twin, ExportSpec]:
    """Inputs that are interpolated, and outputs that contain them."""
    twin = tw.Twin(
        lambda x, w: jnp.stack([x[1] + 0.1 * w[1], w[0] - 2 * x[0] - 0.3 * x[1]]),
        observe=lambda x, w: jnp.stack([x[0] + w[1], x[1]]),
        input_interpolation="linear",
    )
    return twin, _spec(["x", "v"], ["f", "g"], ["a", "b"], [1.0, 0.0])


def pendulum() -> tuple[tw.Twin, ExportSpec]:
    """A constraint held by Newton's method, a small network, parameters."""

    def field(t, x, w, p):
        pull = (x[2:] @ x[2:] - p["g"] * x[1]) / p["l"] ** 2
        return jnp.concatenate([x[2:], w - pull * x[:2] - jnp.array([0.0, 1.0]) * p["g"]])

    twin = tw.Twin(
        tw.GreyBox(field, tw.MLP(states=[2, 3], adds_to=[2, 3], width=6, depth=1)),
        params={"l": 1.0, "g": tw.Unknown(9.81)},
        observe=lambda x: jnp.stack([jnp.arctan2(x[0], -x[1]), x[2]]),
        constraint=tw.Constraint(lambda x, p: x[:2] @ x[:2] - p["l"] ** 2),
        projection=tw.Newton(),
    ).initialise(jax.random.key(0), states=4, inputs=2)
    return twin, _spec(["x", "y", "vx", "vy"], ["ux", "uy"], ["angle", "speed"], [0.6, -0.8, 0.0, 0.0])


def stiff() -> tuple[tw.Twin, ExportSpec]:
    """An implicit integrator: a nonlinear solve with a factorisation in each step."""
    twin = tw.Twin(
        lambda x, w, p: jnp.stack([x[1], p["mu"] * (1 - x[0] ** 2) * x[1] - x[0] + w[0]]),
        params={"mu": 100.0},
        integrator=tw.Radau(),
    )
    return twin, _spec(["x", "v"], ["u"], ["x", "v"], [2.0, 0.0])


def networks() -> tuple[tw.Twin, ExportSpec]:
    """Networks with several activation functions, and no constraint."""
    activations = (jnp.tanh, jax.nn.softplus, jax.nn.gelu, jnp.sin, jax.nn.relu)
    keys = jax.random.split(jax.random.key(1), 2 * len(activations))
    weights = [
        (jax.random.normal(a, (4, 3)), jax.random.normal(b, (2, 4))) for a, b in zip(keys[::2], keys[1::2], strict=True)
    ]

    def field(x, w):
        inputs = jnp.concatenate([x, w])
        return sum(b @ f(a @ inputs) for (a, b), f in zip(weights, activations, strict=True)) - 5.0 * x

    return tw.Twin(field, integrator=tw.Heun()), _spec(["x", "v"], ["u"], ["x", "v"], [0.5, -0.5])


def table() -> tuple[tw.Twin, ExportSpec]:
    """A table that is looked up (casts and indices from states), an adaptive projection, a conserved quantity."""
    values = jnp.cos(jnp.linspace(0.0, 2.0, 9))

    def field(t, x, p):
        place = 4 * (x[2] + 1)
        cell = jnp.floor(place).astype(int)
        share = place - cell
        looked_up = (1 - share) * values[cell] + share * values[jnp.clip(cell + 1, 0, 8)]
        return (p["k"] * looked_up + 1e-3 * jnp.sin(t)) * jnp.stack([x[1], -x[0], 0.1 * x[0]])

    twin = tw.Twin(
        field,
        params={"k": tw.Unknown(2.0, positive=True)},
        constraint=tw.Conserved(lambda x: x[:2] @ x[:2]),
        projection=tw.Adaptive(),
    )
    return twin, _spec(["a", "b", "c"], [], ["a", "b", "c"], [0.6, 0.8, 0.1])


TWINS = {each.__name__: each for each in (linear, pendulum, stiff, networks, table)}


def _spec(states: list[str], inputs: list[str], outputs: list[str], x0: list[float]) -> ExportSpec:
    """The spec of a twin; all have the same name, so that one C program fits each of them."""
    ends: dict[str, Any] = {"w_low": [-1.0] * len(inputs), "w_high": [1.0] * len(inputs)}
    return ExportSpec("twin", states, inputs, outputs, dt=0.01, x0=x0, **ends)


@functools.cache
def exported_c(name: str) -> dict[str, bytes]:
    """The exported C of a twin, by file name; its check has passed."""
    with tempfile.TemporaryDirectory() as folder, jax.enable_x64(True):
        report = export_c(*TWINS[name](), folder, samples=50, horizon=20)
        if not report.checked:
            raise AssertionError(" ".join(report.messages))
        return {file.name: file.read_bytes() for file in report.files}


@functools.cache
def exported_fmu(name: str) -> bytes:
    """The FMU of a twin; its check has passed."""
    with tempfile.TemporaryDirectory() as folder, jax.enable_x64(True):
        report = export_fmu(*TWINS[name](), folder, horizon=20)
        if not report.checked:
            raise AssertionError(" ".join(report.messages))
        return report.files[0].read_bytes()


def unpack_fmu(name: str, folder: Path) -> Path:
    """Write the FMU of a twin into a folder and unpack its source beside it."""
    path = folder / "twin.fmu"
    path.write_bytes(exported_fmu(name))
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.startswith("sources/") or member == "modelDescription.xml":
                (folder / Path(member).name).write_bytes(archive.read(member))
    return path


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder."""
    for name, content in files.items():
        (folder / name).write_bytes(content)


@functools.cache
def compiler(flags: tuple[str, ...]) -> str | None:
    """A C compiler whose programs run with these flags, or None."""
    for found in filter(None, map(shutil.which, ("clang", "cc", "gcc"))):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "empty.c"
            source.write_text("int main(void) { return 0; }\n")
            made = subprocess.run([found, *flags, str(source), "-o", f"{folder}/empty"], capture_output=True)
            if made.returncode == 0 and run_program([f"{folder}/empty"], seconds=20).returncode == 0:
                return found
    return None


def build(folder: Path, sources: Sequence[str], flags: tuple[str, ...]) -> Path:
    """Compile C files of a folder into a program."""
    command = [compiler(flags) or "cc", "-std=gnu11", "-g", "-O1", "-Wall", "-Werror", "-ffp-contract=off", *flags]
    made = subprocess.run(
        [*command, "-I", str(folder), *map(str, sources), "-o", "program", "-lm"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise AssertionError(f"does not compile: {made.stderr[-1500:]}")
    return folder / "program"


def run_program(command: Sequence[str], *, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program with a time limit. A sanitizer needs more address space than the campaign has."""
    unlimited = ["sh", "-c", 'ulimit -S -v unlimited; exec "$@"', "sh", *command]
    return subprocess.run(unlimited, capture_output=True, text=True, errors="replace", timeout=seconds)


def expect_clean(command: Sequence[str], *, seconds: float) -> str:
    """The output of a program that must end with code 0 and without a report."""
    done = run_program(command, seconds=seconds)
    if done.returncode or done.stderr:
        said = done.stderr or done.stdout
        raise AssertionError(
            f"{Path(command[0]).name} {' '.join(command[1:])} ended with {done.returncode}: {said[:1500]}"
        )
    return done.stdout
