"""All studies of public data sets by name."""

from twinfold_studies.real.task import Task
from twinfold_studies.real.tasks import (
    alpha_pinene,
    building_thermal,
    dfki_double_pendulum,
    draining_tank,
    ibm_double_pendulum,
    lynx_hare,
    schmidt_double_pendulum,
)

TASKS: dict[str, Task] = {
    each.name: each
    for each in (
        alpha_pinene.TASK,
        draining_tank.TASK,
        ibm_double_pendulum.TASK,
        schmidt_double_pendulum.TASK,
        dfki_double_pendulum.TASK,
        building_thermal.TASK,
        lynx_hare.TASK,
    )
}
