"""modelDescription.xml of an FMU: the variables of a twin under their own names, and the numbers they go by."""

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

import numpy as np

from twinfold._version import __version__
from twinfold.export._step import Step


@dataclass(frozen=True)
class Variable:
    """One variable of the FMU; its value reference is its place in the groups of `wrapper.c.in`."""

    reference: int
    name: str
    causality: str
    variability: str
    start: float | None
    unit: str
    about: str


def variables_of(step: Step) -> list[Variable]:
    """All variables: inputs, outputs, states, parameters, start values, violations (reals), then the status."""
    spec, taken = step.spec, set()

    def free(name: str, group: str) -> str:
        """The name, or with the group before it where another variable has it already."""
        chosen = name if name not in taken else f"{group}.{name}"
        while chosen in taken:
            chosen += "_"
        taken.add(chosen)
        return chosen

    def group() -> Iterator[tuple[str, str, str, str, float | None, str]]:
        for name, value in zip(spec.inputs, spec.first_input, strict=True):
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
            yield f"violation[{k}]", "twin", "local", "continuous", None, "distance of the constraint from its level"

    found = []
    for reference, (name, kind, causality, variability, start, about) in enumerate(group()):
        unit = spec.units.get(name.removeprefix("start."), "")
        found.append(Variable(reference, free(name, kind), causality, variability, start, unit, about))
    found.append(Variable(len(found), free("status", "twin"), "local", "discrete", None, "", "0, or why a step failed"))
    return found


def description_of(step: Step, variables: list[Variable], guid: str, *, linear: bool) -> str:
    """The XML text."""
    spec = step.spec
    units = sorted({variable.unit for variable in variables} - {""})
    unit_lines = [f"    <Unit name={quoteattr(unit)}/>" for unit in units]
    outputs = [k + 1 for k, variable in enumerate(variables) if variable.causality == "output"]
    listed = "\n".join(f'      <Unknown index="{index}"/>' for index in outputs)
    definitions = "\n".join(["  <UnitDefinitions>", *unit_lines, "  </UnitDefinitions>"]) if units else ""
    structure = f"    <Outputs>\n{listed}\n    </Outputs>\n    <InitialUnknowns>\n{listed}\n    </InitialUnknowns>"
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<fmiModelDescription fmiVersion="2.0" modelName={quoteattr(spec.name)} guid={quoteattr(guid)}
    generationTool="twinfold {__version__}" variableNamingConvention="flat" numberOfEventIndicators="0">
  <CoSimulation modelIdentifier={quoteattr(spec.name)} canHandleVariableCommunicationStepSize="false"
      canInterpolateInputs="{str(linear).lower()}" canGetAndSetFMUstate="true" canSerializeFMUstate="true">
    <SourceFiles>
      <File name="{spec.name}_fmi2.c"/>
    </SourceFiles>
  </CoSimulation>
{definitions}
  <LogCategories>
    <Category name="logStatusError"/>
  </LogCategories>
  <DefaultExperiment startTime="{spec.t0!r}" stopTime="{spec.t0 + 1000 * spec.dt!r}" stepSize="{spec.dt!r}"/>
  <ModelVariables>
{chr(10).join(_line(variable) for variable in variables)}
  </ModelVariables>
  <ModelStructure>
{structure if outputs else ""}
  </ModelStructure>
</fmiModelDescription>
"""


def _line(variable: Variable) -> str:
    initial = (
        ""
        if variable.causality == "input"
        else ' initial="exact"'
        if variable.start is not None
        else ' initial="calculated"'
    )
    head = (
        f'    <ScalarVariable name={quoteattr(variable.name)} valueReference="{variable.reference}" '
        f'causality="{variable.causality}" variability="{variable.variability}"{initial} '
        f"description={quoteattr(variable.about)}>"
    )
    if variable.variability == "discrete":
        return f"{head}<Integer/></ScalarVariable>"
    start = "" if variable.start is None else f' start="{np.float64(variable.start)!s}"'
    unit = f" unit={quoteattr(variable.unit)}" if variable.unit else ""
    return f"{head}<Real{start}{unit}/></ScalarVariable>"
