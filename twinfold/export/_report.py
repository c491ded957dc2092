"""The outcome of an export."""

from dataclasses import dataclass, field
from pathlib import Path


class NotExportable(ValueError):
    """The twin uses something that the format cannot express; the message names it and what to change.

    **Example:**

    ```python
    twin = tw.Twin(lambda x: jax.lax.erf_inv(0.1 * x))
    spec = tw.export.ExportSpec("quantile", ["x"], [], ["x"], dt=0.1, x0=[1.0])
    try:
        tw.export.export_c(twin, spec, "exported")
    except tw.export.NotExportable as error:
        print(error)  # export to C: there is no rule for the JAX primitive 'erf_inv': ...
    ```
    """


@dataclass(frozen=True)
class ExportReport:
    """The outcome of one export.

    **Arguments:**

    - `kind`: the format, as in `export_twin(to=...)`.
    - `files`: the files that were written; empty if the export failed.
    - `checked`: whether the comparison with the twin was made and passed.
    - `largest_difference`: relative, of one step from the same state; None if not measured.
    - `free_running_difference`: relative, of a simulation; None if not measured.
    - `size_bytes`: the size of the code, or of the files.
    - `messages`: all of this as sentences to print.

    **Example:**

    ```python
    twin = tw.Twin(lambda x: -x)
    spec = tw.export.ExportSpec("decay", ["x"], [], ["x"], dt=0.1, x0=[1.0])
    (report,) = tw.export.export_twin(twin, spec, "exported", to=["stablehlo"], samples=10, horizon=5)
    report.checked  # True
    print("\\n".join(report.messages))
    ```
    """

    kind: str
    files: list[Path]
    checked: bool
    largest_difference: float | None
    free_running_difference: float | None
    size_bytes: int
    messages: list[str] = field(default_factory=list)
