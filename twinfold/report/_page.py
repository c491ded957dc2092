"""One page that needs nothing from the network: style, tables, figures, and how numbers look in it."""

import html
import math
from collections.abc import Sequence
from typing import Any

STYLE = """
:root { --ink: #1f2430; --soft: #5c6370; --line: #e3e6eb; --pale: #f6f7f9; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  color: var(--ink); background: #fff; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
header p { margin: 0 0 .3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .7rem; padding-top: .9rem; border-top: 1px solid var(--line); }
p, li { max-width: 46rem; }
.soft, figcaption, footer { color: var(--soft); font-size: .92rem; }
ul.words { list-style: none; }
.words { margin: 1.6rem 0 0; padding: .9rem 1.2rem; background: var(--pale);
  border-left: 4px solid var(--accent); border-radius: 4px; }
.words li, .words p { margin: .35rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .42rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
thead th { border-bottom: 2px solid var(--ink); font-size: .95rem; }
tbody th { font-weight: 600; }
tr.sub th { font-weight: 400; color: var(--soft); padding-left: 1.6rem; }
tr.sub td { color: var(--soft); }
td.best { font-weight: 700; color: var(--accent); }
.plain th, .plain td { text-align: left; white-space: normal; vertical-align: top; overflow-wrap: anywhere; }
.plain th { width: 12rem; font-weight: 600; }
figure { margin: 1rem 0 0; }
figure img { display: block; width: 100%; min-width: 36rem; height: auto; }
h3 { font-size: 1rem; margin: 1.5rem 0 .2rem; }
nav { margin: 1rem 0 0; font-size: .92rem; }
nav a { display: inline-block; margin-right: 1rem; }
a { color: var(--accent); }
.words h3 { margin: .9rem 0 .2rem; }
.words h3:first-child { margin-top: 0; }
.pick { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: center; margin: .8rem 0; }
.pick select { font: inherit; padding: .25rem .4rem; max-width: 100%; }
.plots { display: grid; gap: 0 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.plots > div { min-width: 0; }
.plot { width: 100%; }
figure:has(> .plot) { margin-top: .2rem; }
details { margin: 1rem 0 0; }
summary { cursor: pointer; color: var(--accent); }
.tall { max-height: 26rem; overflow-y: auto; }
pre, code { font: .88rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--pale); padding: .8rem 1rem; border-radius: 4px; overflow-x: auto; margin: .6rem 0; }
@media (max-width: 40rem) {
  body { font-size: 15px; }
  main { padding: 1.4rem .9rem 3rem; }
  h1 { font-size: 1.5rem; }
  th, td { padding: .4rem .5rem; font-size: .86rem; }
  .plain th { width: 7.5rem; }
}
"""


def page(title: str, parts: Sequence[str]) -> str:
    """A whole document around its parts."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{text(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def heading(kind: str, title: str, words: Sequence[str]) -> str:
    """What the page is about, and what it says."""
    said = "".join(f"<li>{text(line)}</li>" for line in words)
    return f"<header><p class='soft'>{text(kind)}</p><h1>{text(title)}</h1></header><ul class='words'>{said}</ul>"


def figure(file: str, title: str, caption: str) -> str:
    """A picture that is wider than a phone scrolls."""
    return (
        f"<h2>{text(title)}</h2><figure><div class='scroll'><img src='{file}' alt='{text(title)}'></div>"
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], best: Sequence[int | None] = ()) -> str:
    """A table; in column i the row best[i] stands out."""
    head = "".join(f"<th scope='col'>{text(column)}</th>" for column in columns)
    body = []
    for index, row in enumerate(rows):
        cells = [f"<th scope='row'>{text(row[0])}</th>"]
        for column, cell in enumerate(row[1:], start=1):
            chosen = column < len(best) and best[column] == index
            cells.append(f"<td{' class=best' if chosen else ''}>{text(cell)}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return f"<div class='scroll'>{table}</div>"


def pairs(pairs: list[tuple[str, str]]) -> str:
    """Names and values, one under the other."""
    rows = "".join(f"<tr><th scope='row'>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in pairs)
    return f"<table class='plain'><tbody>{rows}</tbody></table>"


def text(value: Any) -> str:
    """A value, safe inside the page."""
    return html.escape(str(value), quote=True)


def number(value: float) -> str:
    """Two digits, with an exponent where it is needed: 0.31, 3.1e-4."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "inf"
    if value == 0:
        return "0"
    if 0.1 <= value < 10:
        return f"{value:#.2g}"
    if 10 <= value < 10_000:
        return f"{value:.0f}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}"
