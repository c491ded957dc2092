"""HTML pages that open offline, from Jinja2 templates.

Every value is escaped by the template engine (`autoescape=True`): text from outside cannot become markup.
"""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2


@dataclass(frozen=True)
class Table:
    """A table: the first cell of each row is its header.

    **Arguments:** `columns`, the titles; `rows` of cells; `best`, the (row, column) of each cell to highlight;
    `indented`, the indices of rows that belong to the row above them.

    **Example:**

    ```python
    table = tw.report.Table(["", "RMSE"], [["twin", "0.1"], ["physics", "0.4"]], best=[(0, 1)])
    ```
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    best: Collection[tuple[int, int]] = ()
    indented: Collection[int] = ()


@dataclass(frozen=True)
class Section:
    """A section of a page. Whatever is given appears in the order of the arguments.

    **Arguments:** `title`; `image`, the path of a picture, relative to the page; `table`; `pairs` of names and values;
    `code`, preformatted text; `note`, a caption or explanation.

    **Example:**

    ```python
    section = tw.report.Section("Versions", pairs=[("twinfold", tw.__version__)], code="twinfold fit")
    ```
    """

    title: str
    image: str = ""
    table: Table | None = None
    pairs: Sequence[tuple[str, object]] = ()
    code: str = ""
    note: str = ""


def render_page(
    title: str,
    *,
    kind: str,
    introduction: str = "",
    summary: Sequence[str] = (),
    sections: Sequence[Section] = (),
    footer: str = "",
) -> str:
    """A page as HTML that needs no network. All text is escaped.

    **Arguments:** `title`; `kind` of page, shown above the title; `introduction`; `summary`, sentences; `sections`;
    `footer`.

    **Example:**

    ```python
    table = tw.report.Table(["model", "RMSE"], [["twin", "0.1"], ["physics", "0.4"]])
    page = tw.report.render_page(
        "Two models",
        kind="comparison",
        summary=["The twin is four times as accurate."],
        sections=[tw.report.Section("Results", table=table, note="On <unseen> runs.")],
    )
    "&lt;unseen&gt;" in page  # True
    ```
    """
    return render(
        "sections.html",
        title=title,
        kind=kind,
        introduction=introduction,
        summary=summary,
        sections=sections,
        footer=footer,
    )


def render(template: str, **context: Any) -> str:
    """A template of this package, filled in."""
    return _environment().get_template(template).render(context)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("twinfold.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # JSON has no NaN: a value that is not finite is an error here, not in the browser.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment
