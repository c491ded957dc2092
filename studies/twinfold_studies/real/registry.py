"""All studies of public data sets by name."""

from twinfold_studies.real.task import Task
from twinfold_studies.real.tasks import (
    alpha_pinene,
    building_thermal,
    dfki_double_pendulum,
    draining_tank,
    emps,
    ibm_double_pendulum,
    lynx_hare,
    schmidt_double_pendulum,
    schmidt_lipson_pendulum,
)

TASKS: dict[str, Task] = {
    each.TASK.name: each.TASK
    for each in (
        emps,
        schmidt_lipson_pendulum,
        ibm_double_pendulum,
        schmidt_double_pendulum,
        dfki_double_pendulum,
        draining_tank,
        alpha_pinene,
        building_thermal,
        lynx_hare,
    )
}
