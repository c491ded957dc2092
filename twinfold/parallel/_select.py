"""From the options of a command to an executor."""

from twinfold.parallel._executor import AbstractExecutor, InProcess


def select_executor(workers: int = 1, scheduler: str = "") -> AbstractExecutor:
    """The executor for a number of processes, or for a cluster.

    **Arguments:** `workers`: 1 for this process, more for as many processes of this machine; `scheduler`, the address
    of a Dask cluster (`tcp://host:8786`), which has its own number of workers.

    **Returns:** an executor for `map_tasks`.

    **Raises:** `ValueError` if there are no workers; `ImportError` without the extra `distributed`.

    **Example:**

    ```python
    tw.parallel.select_executor(1)  # InProcess()
    ```
    """
    if workers < 1:
        raise ValueError(f"workers={workers}: give at least one.")
    if workers == 1 and not scheduler:
        return InProcess()
    from twinfold.parallel._dask import DaskExecutor

    return DaskExecutor(workers, scheduler)
