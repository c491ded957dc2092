"""The variables of an FMU."""

from collections.abc import Iterator
from dataclasses import dataclass

from twinfold.export._step import AbstractStep


@dataclass(frozen=True)
class Variable:
    """One variable of the FMU; its value reference is its position among all of them."""

    name: str
    causality: str
    variability: str
    start: float | None
    unit: str
    description: str


def fmu_variables(step: AbstractStep) -> list[Variable]:
    """All variables in the order of `fmi2.c.j2`: inputs, outputs, states, parameters, start values, violations, status.

    A name that is taken gets that of its group as a prefix; `time` is taken by hosts.
    """
    spec, names = step.spec, {"time"}

    def groups() -> Iterator[tuple[str, str, str, str, float | None, str]]:
        for name, value in zip(spec.inputs, spec.initial_inputs, strict=True):
            yield name, "input", "input", "continuous", float(value), "input"
        for name in spec.outputs:
            yield name, "output", "output", "continuous", None, "output"
        for name in spec.states:
            yield name, "state", "local", "continuous", None, "state"
        for name, value in zip(step.parameters, step.defaults, strict=True):
            yield name, "parameter", "parameter", "tunable", float(value), "parameter"
        for name, value in zip(spec.states, spec.x0, strict=True):
            yield f"start.{name}", "start", "parameter", "fixed", float(value), f"start value of {name}"
        for k in range(step.constraints):
            yield f"violation[{k}]", "twin", "local", "continuous", None, "deviation of the constraint from its level"
        yield "status", "twin", "local", "discrete", None, "0, or the code of the failure of the last step"

    variables = []
    for name, group, causality, variability, start, description in groups():
        unique = name if name not in names else f"{group}.{name}"
        while unique in names:
            unique += "_"
        names.add(unique)
        unit = spec.units.get(name.removeprefix("start."), "")
        variables.append(Variable(unique, causality, variability, start, unit, description))
    return variables
