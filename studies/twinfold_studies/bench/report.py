"""The files of an experiment: tables as CSV and Markdown, figures as PNG and PDF, and a page that opens offline."""

from pathlib import Path
from typing import Any

from twinfold import plot
from twinfold.io import RunFolder, write_csv, write_json, write_text
from twinfold.report import Section, format_number, render_page
from twinfold.report import Table as PageTable
from twinfold_studies.bench.experiment import Experiment, Findings, Table


def write_report(experiment: Experiment, findings: Findings, folder: Path, failures: list[tuple[str, str]]) -> None:
    """Write tables as CSV and Markdown, figures as PNG and PDF, and the page."""
    config = RunFolder(folder).read()
    sections = []
    markdown = [f"# {experiment.title}", "", experiment.about, "", *(f"- {line}" for line in findings.sentences), ""]
    for table in findings.tables:
        write_csv(folder / f"{table.name}.csv", table.rows)
        columns, cells = _cells(table)
        sections.append(Section(table.title, table=PageTable(columns, cells), note=table.caption))
        markdown += [f"## {table.title}", "", *_markdown(columns, cells), "", table.caption, ""]
    for picture in findings.pictures:
        drawn = picture.draw()
        for kind in ("png", "pdf"):
            plot.save(drawn, folder / f"{picture.name}.{kind}")
        sections.append(Section(picture.title, image=f"{picture.name}.png", note=picture.caption))
        markdown += [f"![{picture.title}]({picture.name}.png)", "", picture.caption, ""]
    if findings.summary:
        write_json(folder / "summary.json", findings.summary)
    if failures:
        sections.append(Section("Missing", pairs=failures))
        markdown += ["## Missing", "", *(f"- {name}: {why}" for name, why in failures), ""]
    sections += [
        Section("Settings", pairs=list(config["settings"].items())),
        Section("Versions and command", pairs=list(config["versions"].items()), code=config["command"]),
    ]
    kind = f"twinfold bench {experiment.name}"
    page = render_page(experiment.title, kind=kind, summary=findings.sentences, sections=sections)
    write_text(folder / "tables.md", "\n".join(markdown).rstrip() + "\n")
    write_text(folder / "report.html", page)


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    columns = list(table.columns or (table.rows[0] if table.rows else ()))
    return columns, [[_formatted(row.get(column), table.digits) for column in columns] for row in table.rows]


def _formatted(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return format_number(value, digits)
    return "" if value is None else str(value)


def _markdown(columns: list[str], cells: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(columns) + " |",
        "|" + " --- |" * len(columns),
        *("| " + " | ".join(row) + " |" for row in cells),
    ]
