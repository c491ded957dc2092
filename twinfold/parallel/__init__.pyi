from ._dask import DaskExecutor as DaskExecutor
from ._executor import AbstractExecutor as AbstractExecutor
from ._executor import InProcess as InProcess
from ._executor import TaskOutcome as TaskOutcome
from ._executor import report_progress as report_progress
from ._select import select_executor as select_executor
from ._tasks import TaskReport as TaskReport
from ._tasks import map_tasks as map_tasks
