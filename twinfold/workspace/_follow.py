"""Follow plants with the fitted twin of a workspace: a log or standard input in; estimates, bands and alarms out."""

import contextlib
import gzip
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from twinfold.follow._following import Following
from twinfold.follow._history import History
from twinfold.follow._lines import BinaryFile
from twinfold.follow._rows import FORMATS, SINKS, Rows
from twinfold.follow._samples import SampleLayout, SampleReader
from twinfold.follow._stream import Loop, resume
from twinfold.io import atomic_write, check_regular_file, read_info
from twinfold.workspace._config import FILE, Config, parse_config, read_config
from twinfold.workspace._files import MODEL
from twinfold.workspace._fit import Fitted, load_fitted
from twinfold.workspace._follow_estimator import prepare
from twinfold.workspace._workspace import Workspace

PAGE_EVERY = 60.0  # seconds


@dataclass(frozen=True)
class FollowOutcome:
    """What was followed: samples, assets, alarms raised, lines left out; whether a signal has ended it."""

    samples: int
    assets: int
    alarms: int
    left_out: int
    interrupted: bool


def follow_workspace(
    workspace: Workspace,
    fitted: Fitted,
    source: Path | None,
    *,
    out: Path | None = None,
    format: str = "",
    state: Path | None = None,
    folder: Path | None = None,
    run: str | None = None,
    page: Path | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> FollowOutcome:
    """Follow the plants whose samples are in a log, or come from standard input.

    **Arguments:** `workspace`; `fitted`; `source`, a file of CSV or JSON lines, or None for standard input; `out`, the
    file to write, or None for standard output; `format`: "csv", "jsonl" or "parquet" (default: by the name of `out`);
    `state`, a file to resume from and to save to; `folder` for what is estimated from the data (default: the run
    folder); `run`, a run of the training data whose own parameters are used; `page`, a folder for a page about the
    plants, written when the samples end and once a minute before; `log` for messages.
    """
    data, info = workspace.config.data, fitted.info
    if data.taps:
        raise ValueError("data.taps: a twin with delayed inputs cannot be followed yet; it would need their past.")
    kind = _format(out, format, state)
    prepared = prepare(workspace, fitted, folder or workspace.run_folder, run=run, log=log)
    config, history = workspace.config.follow, None
    rows = Rows(data.time, info.outputs, info.states, prepared.fleet.parameters, config.band)
    following = Following(
        prepared.fleet,
        prepared.alarms,
        rows,
        key=prepared.key,
        max_assets=config.max_assets,
        log=log,
        watch=None if page is None else (history := History(rows.numbers)).record,
    )
    name = "" if source is None else str(source.resolve())
    about = resume(following, state, name, log)
    reader = SampleReader(_layout(workspace, fitted))
    skip = int(about["lines"]) if about is not None and name and about["source"] == name else 0
    draw = _page_writer(page, history, workspace, fitted, prepared.fleet.parameters)
    with _opened(source) as file, _writable(out, kind, None if about is None else about["output"]) as (output, length):
        sink = SINKS[kind](output, following.rows.columns, header=not length)
        tell = None if out is None or kind == "parquet" else output
        loop = Loop(
            following, reader, file, sink, output=tell, state=state, source=name, skip=skip, log=log, often=draw
        )
        counts = loop.run()
    draw(at_once=True)
    if not reader.begun and not counts.interrupted:
        raise ValueError(f"There is no header with the column {data.time!r} of the times (data.time), and no JSON.")
    return FollowOutcome(
        following.samples, len(following.fleet), following.alarmed, counts.left_out, counts.interrupted
    )


def _page_writer(
    page: Path | None, history: History | None, workspace: Workspace, fitted: Fitted, parameters: Sequence[str]
) -> Callable[..., None]:
    """A function that writes the page, once a minute or `at_once`."""
    if page is None or history is None:
        return lambda *, at_once=False: None
    from twinfold.report._follow_page import write_follow_page
    from twinfold.report._twin_report import plotly_script

    plotly_script()  # raises now if the extra is missing, not when the log ends
    config, info, written = workspace.config.follow, fitted.info, [time.monotonic()]

    def draw(*, at_once: bool = False) -> None:
        if at_once or time.monotonic() - written[0] >= PAGE_EVERY:
            write_follow_page(
                page,
                history,
                title=workspace.folder.resolve().name or "plants",
                outputs=info.outputs,
                states=info.states,
                parameters=parameters,
                units=info.units,
                probability=config.band,
                false_alarm_rate=config.false_alarm_rate,
                window=config.window,
            )
            written[0] = time.monotonic()

    return draw


def open_model(model: Path, folder: Path, overrides: list[str], *, trust_changed: bool) -> tuple[Workspace, Fitted]:
    """A workspace around a model file, with the configuration that it holds; [follow] is that of `folder`, if any.

    **Arguments:** `model`; `folder` with the system.py that it was fitted with; `overrides`, see `open_workspace`.
    """
    stored = parse_config(tomlkit.dumps(read_info(model).config), overrides, stored=True)
    if (folder / FILE).exists():
        here: Config = read_config(folder / FILE, overrides)
        stored = stored.model_copy(update={"follow": here.follow})
    workspace = Workspace(folder, stored)
    return workspace, load_fitted(workspace, trust_changed=trust_changed, model=model)


def model_file(workspace: Workspace) -> Path:
    """The model file in the run folder."""
    return workspace.run_folder / MODEL


def _layout(workspace: Workspace, fitted: Fitted) -> SampleLayout:
    data, info = workspace.config.data, fitted.info
    assets = [name for name in (workspace.config.follow.asset, data.group, data.run) if name]
    return SampleLayout(
        data.time, info.inputs, info.outputs, tuple(assets), data.columns, data.scale, data.offset, data.missing
    )


def _format(out: Path | None, format: str, state: Path | None) -> str:
    kind = format or ("csv" if out is None else FORMATS.get(out.suffix, ""))
    if kind not in SINKS:
        what = f"--format {format}" if format else f"--out {out}"
        raise ValueError(f"{what}: write .csv, .jsonl or .parquet, or say --format csv, jsonl or parquet.")
    if kind == "parquet" and (out is None or state is not None):
        raise ValueError("Parquet is written as a whole, to a file, when the log ends: give --out, and no --state.")
    return kind


@contextlib.contextmanager
def _opened(source: Path | None) -> Iterator[BinaryFile]:
    if source is None:
        yield sys.stdin.buffer
        return
    check_regular_file(source)
    with gzip.open(source) if source.name.lower().endswith(".gz") else source.open("rb") as file:
        yield file  # type: ignore[misc]


@contextlib.contextmanager
def _writable(out: Path | None, kind: str, length: int | None) -> Iterator[tuple[BinaryFile, int]]:
    """The file to write to, and how much of it is kept: what it had when the state was saved that is resumed."""
    if out is None:
        yield sys.stdout.buffer, 0
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        with atomic_write(out) as file:
            yield file, 0
        return
    keep = min(length, out.stat().st_size) if length is not None and out.exists() else 0
    with out.open("r+b" if keep else "wb") as file:
        file.truncate(keep)
        file.seek(keep)
        yield file, keep
