"""All studies of public data sets by name."""

from twinfold_studies.real.task import Task
from twinfold_studies.real.tasks import alpha_pinene

TASKS: dict[str, Task] = {each.name: each for each in (alpha_pinene.TASK,)}
