"""What is written of each sample: a row of a table, as CSV, JSON lines or Parquet."""

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from twinfold.follow._alarms import Judged
from twinfold.follow._fleet import FleetOutput
from twinfold.follow._lines import BinaryFile

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
OF_OUTPUT = ("measured", "predicted", "low", "high", "innovation", "innovation std")


class Rows:
    """The columns of the table, and its rows.

    **Arguments:** names of `time`, `outputs`, `states` and `parameters`; the probability `band` of low to high.
    """

    def __init__(
        self, time: str, outputs: Sequence[str], states: Sequence[str], parameters: Sequence[str], band: float
    ):
        self._half = float(norm.isf((1 - band) / 2))
        self.numbers = [time]
        self.numbers += [f"{name} {kind}" for name in outputs for kind in OF_OUTPUT]
        self.numbers += [f"{name} {kind}" for name in states for kind in ("estimate", "std")]
        self.numbers += [f"parameter {name}{kind}" for name in parameters for kind in ("", " std")]
        self.numbers += ["nis", "score", "limit"]
        self.flags = [*(f"{name} accepted" for name in outputs), "alarm", "ok"]
        self.columns = ["asset", *self.numbers, *self.flags, "message"]

    def build(
        self, assets: Sequence[str], measured: np.ndarray, out: FleetOutput, judged: Judged
    ) -> tuple[np.ndarray, list[list[Any]]]:
        """The numbers [B, columns], and the rows with everything."""
        half = self._half * out.y_std
        of_output = np.stack([measured, out.y, out.y - half, out.y + half, out.residual, out.y_std], axis=2)
        of_state = np.stack([out.x, out.x_std], axis=2)
        of_parameter = np.stack([out.parameters, out.parameters_std], axis=2)
        count = len(assets)
        blocks = [each.reshape(count, -1) for each in (of_output, of_state, of_parameter)]
        last = np.stack([out.nis, judged.running, judged.limit], axis=1)
        numbers = np.concatenate([out.t[:, None], *blocks, last], axis=1)
        flags = np.concatenate([out.accepted, judged.alarm[:, None], out.ok[:, None]], axis=1)
        return numbers, [
            [asset, *values, *marks, message]
            for asset, values, marks, message in zip(assets, numbers.tolist(), flags.tolist(), out.message, strict=True)
        ]


class CsvSink:
    """Rows as CSV, with a header at the beginning of a file."""

    def __init__(self, file: BinaryFile, columns: Sequence[str], *, header: bool):
        self._file = file
        if header:
            self._write([list(columns)])

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows; a number that is not finite is an empty cell."""
        self._write([[_cell(value) for value in row] for row in rows])
        self._file.flush()

    def _write(self, rows: list[list[Any]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode())

    def close(self) -> None:
        """Nothing is left to write."""


class JsonSink:
    """Rows as one JSON object per line."""

    def __init__(self, file: BinaryFile, columns: Sequence[str], *, header: bool):
        self._file, self._columns = file, list(columns)

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows; a number that is not finite is null."""
        lines = [json.dumps(dict(zip(self._columns, map(_finite, row), strict=True))) for row in rows]
        self._file.write("".join(f"{line}\n" for line in lines).encode())
        self._file.flush()

    def close(self) -> None:
        """Nothing is left to write."""


class ParquetSink:
    """Rows as Parquet, in groups, so that memory stays bounded; complete when it is closed."""

    GROUP = 10_000

    def __init__(self, file: BinaryFile, columns: Sequence[str], *, header: bool):
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise ImportError("Parquet needs pyarrow: pip install 'twinfold[data]', or write .csv or .jsonl.") from None
        flags = [name for name in columns if name in ("alarm", "ok") or name.endswith(" accepted")]
        kinds = {"asset": pa.string(), "message": pa.string()} | dict.fromkeys(flags, pa.bool_())
        self._schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in columns])
        self._pa, self._writer, self._rows = pa, pq.ParquetWriter(file, self._schema), []

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows; NaN stays NaN."""
        self._rows += rows
        if len(self._rows) >= self.GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            arrays = [
                self._pa.array(each, kind.type)
                for each, kind in zip(zip(*self._rows, strict=True), self._schema, strict=True)
            ]
            self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))
            self._rows = []

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._flush()
        self._writer.close()


SINKS = {"csv": CsvSink, "jsonl": JsonSink, "parquet": ParquetSink}


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if isinstance(value, float) and not math.isfinite(value) else value


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
