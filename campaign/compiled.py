"""What twins are exported to, as compiled code: their C under sanitizers, and their FMUs under hosts."""

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from campaign.engine import Case, Group, scaled
from campaign.exported import SANITIZERS as FLAGS
from campaign.exported import TWINS, C, build, compiler, expect_clean, exported_c, run_program, unpack_fmu, write

STATES = 100_000  # for each twin and sanitizer
THREADS = 4
FMU_TWINS = ("linear", "pendulum")  # inputs that are interpolated or held, without and with a constraint
STEPS, INSTANCES, RANDOM_ORDERS, DAMAGED_STATES, FMPY_STEPS = 1_000_000, 10_000, 200_000, 200_000, 100_000
SECONDS = 300.0


def some(twins: Iterable[str], scale: float) -> list[str]:
    """All twins, but in a short campaign the first ones: their export takes longer than all that follows."""
    names = list(twins)
    return names[: scaled(len(names), min(10 * scale, 1.0))]


def sanitizer_cases(seed: int, scale: float) -> Iterator[Case]:
    """Every twin under every sanitizer that the compiler has."""
    available = [name for name in FLAGS if compiler(FLAGS[name])]
    for name in FLAGS.keys() - set(available):
        print(f"skipped: no C compiler here has -fsanitize={name}", file=sys.stderr)
    count = scaled(STATES, scale)
    for twin in some(TWINS, scale):
        for sanitizer in available:
            yield Case(f"{twin}, {sanitizer}, {count} states", partial(_run_states, twin, sanitizer, seed, count))


def _run_states(twin: str, sanitizer: str, seed: int, count: int, folder: Path) -> None:
    write(folder, exported_c(twin))
    program = build(folder, [str(C / "states.c"), "twin.c"], (*FLAGS[sanitizer], "-pthread"))
    threads = THREADS if sanitizer == "thread" else 1
    said = expect_clean([str(program), str(seed), str(count), str(threads)], seconds=SECONDS)
    good, bad = (int(part.split()[0]) for part in said.splitlines()[-1].split(",")[:2])
    assert good > count / 10, f"{said}: hardly any state was computed"
    assert bad > count / 10, f"{said}: hardly any state was hostile"


def fmu_cases(seed: int, scale: float) -> Iterator[Case]:
    """Attempts of the host in C, then of FMPy."""
    flags = FLAGS["address"] + FLAGS["undefined"]
    if not compiler(flags):
        print("skipped: no C compiler here has -fsanitize=address,undefined", file=sys.stderr)
        return
    attempts = {
        "times": [],
        "arguments": [],
        "orders": ["4" if scale >= 0.5 else "3" if scale >= 0.05 else "2"],
        "random": [str(seed), str(scaled(RANDOM_ORDERS, scale))],
        "states": [str(seed), str(scaled(DAMAGED_STATES, scale))],
        "instances": [str(scaled(INSTANCES, scale))],
        "steps": [str(scaled(STEPS, scale))],
    }
    for twin in some(FMU_TWINS, scale):
        for what, numbers in attempts.items():
            yield Case(f"{twin}, {' '.join([what, *numbers])}", partial(_run_host, twin, [what, *numbers], flags))
    for twin in some(FMU_TWINS, scale):
        for what, numbers in {"validate": [], "simulate": [str(scaled(FMPY_STEPS, scale))], "wrong_times": []}.items():
            yield Case(f"{twin}, FMPy {' '.join([what, *numbers])}", partial(_run_fmpy, twin, what, numbers))


def _run_host(twin: str, arguments: list[str], flags: tuple[str, ...], folder: Path) -> None:
    unpack_fmu(twin, folder)
    (folder / "variables.h").write_text(variables_header(folder / "modelDescription.xml"))
    program = build(folder, [str(C / "host.c"), "twin_fmi2.c"], flags)
    expect_clean([str(program), *arguments], seconds=SECONDS)


def _run_fmpy(twin: str, what: str, numbers: list[str], folder: Path) -> None:
    archive = unpack_fmu(twin, folder)
    done = run_program([sys.executable, "-m", "campaign.fmpy_host", what, str(archive), *numbers], seconds=SECONDS)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-1500:]}"


def variables_header(description: Path) -> str:
    """What a model description says, for the host in C."""
    root = ElementTree.parse(description).getroot()
    interface, experiment = root.find("CoSimulation"), root.find("DefaultExperiment")
    assert interface is not None
    assert experiment is not None
    reals: dict[str, list[str]] = {"input": [], "tunable": [], "fixed": [], "output": [], "local": []}
    integers, starts = [], []
    for variable in root.iterfind("ModelVariables/ScalarVariable"):
        reference, real = variable.attrib["valueReference"], variable.find("Real")
        if real is None:
            integers.append(reference)
            continue
        parameter = variable.attrib["causality"] == "parameter"
        kind = variable.attrib["variability" if parameter else "causality"]
        reals[kind].append(reference)
        if kind == "fixed":
            starts.append(real.attrib["start"])
    calculated = reals["output"] + reals["local"]
    settable = reals["input"] + reals["tunable"] + reals["fixed"]
    arrays = {
        "INPUTS": reals["input"],
        "OUTPUTS": reals["output"],
        "FIXED": reals["fixed"],
        "SETTABLE": settable,
        "READABLE": settable + calculated,
        "INTEGERS": integers,
    }
    lines = [f"static const unsigned {name}[] = {{{', '.join([*values, '0'])}}};" for name, values in arrays.items()]
    sizes = {f"N_{name}": len(values) for name, values in arrays.items()}
    sizes |= {"N_REALS": len(settable + calculated), "N_CALCULATED": len(calculated)}
    for name, attribute in (
        ("INTERPOLATES_INPUTS", "canInterpolateInputs"),
        ("PROVIDES_DERIVATIVES", "providesDirectionalDerivative"),
    ):
        sizes[name] = int(interface.get(attribute) == "true")
    sizes["OUTPUT_DERIVATIVE_ORDER"] = int(interface.get("maxOutputDerivativeOrder", "0"))
    return "\n".join(
        [
            f'#define GUID "{root.attrib["guid"]}"',
            f"#define STEP {experiment.attrib['stepSize']}",
            f"enum {{ {', '.join(f'{name} = {value}' for name, value in sizes.items())} }};",
            *lines,
            f"static const double FIXED_STARTS[] = {{{', '.join([*starts, '0'])}}};",
            "",
        ]
    )


SANITIZERS = Group(
    "exported C under address, undefined-behaviour and thread sanitizers", sanitizer_cases, "run", SECONDS
)
FMU = Group("FMUs under a host in C and under FMPy", fmu_cases, "run", SECONDS)
