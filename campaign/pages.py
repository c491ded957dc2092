"""Reports and figures with hostile names, opened in a browser that listens for everything a page could do."""

import atexit
import csv
import functools
import io
import re
import resource
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tomlkit

import twinfold as tw
from campaign.engine import Case, Group, scaled
from campaign.page_names import NAMES, REFUSED
from twinfold.check import Examination, Finding, examine
from twinfold.io import ModelInfo
from twinfold.monitor import watch
from twinfold.report import Section, Table, render_page, write_twin_report
from twinfold.workspace._config import parse_config
from twinfold.workspace._display import print_metrics
from twinfold.workspace._fit import Fitted
from twinfold.workspace._simulate import SimulatedRun, plot_simulation
from twinfold.workspace._system import System, load_system

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TS = np.linspace(0.0, 2.0, 21)
PROJECTS, MIN_SCALE = 6, 0.1  # a project takes longer than all other cases of a short campaign
SYSTEM = """import jax.numpy as jnp
import twinfold as tw

STATES = {s!r}
UNITS = {u!r}

def field(t, x, w, p):
    return jnp.stack([x[1], -p[{p!r}] * x[0] + w[0]])

def twin():
    return tw.Twin(field, params={{{p!r}: tw.Unknown(1.0, positive=True)}})
"""
# What a page consists of after its script has run: nothing of it may come from a name.
CONTENT = """() => ({
  executed: window.__executed,
  scripts: document.scripts.length,
  active: [...document.querySelectorAll('iframe,object,embed,form,base,link,meta[http-equiv],video,audio,marquee,img')]
    .map(each => each.outerHTML),
  handlers: [...document.querySelectorAll('*')]
    .filter(each => [...each.attributes].some(one => one.name.startsWith('on'))).map(each => each.outerHTML),
  links: [...document.querySelectorAll('a')].map(each => each.href.baseVal ?? each.href),
  text: (document.querySelector('main') ?? document.documentElement).textContent,
})"""
EVERYTHING = """() => {
  for (const select of document.querySelectorAll('select'))
    for (const option of select.options) { select.value = option.value; select.dispatchEvent(new Event('change')); }
  for (const details of document.querySelectorAll('details')) details.open = true;
  for (const plot of document.querySelectorAll('.js-plotly-plot'))
    try { Plotly.Fx.hover(plot, [{curveNumber: 0, pointNumber: 1}]); } catch (error) { if (!plot.data) throw error; }
}"""


@functools.cache
def find_browser() -> str | None:
    """The path of a browser, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@functools.cache
def browser() -> Any:
    """A browser that runs until the process ends."""
    from playwright.sync_api import sync_playwright

    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, limits[1]))  # it reserves terabytes
    playwright = sync_playwright().start()
    started = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
    resource.setrlimit(resource.RLIMIT_AS, limits)
    atexit.register(lambda: (started.close(), playwright.stop()))
    return started


def open_page(path: Path, scripts: int) -> str:
    """Open a page, use all its controls, and return its text. Raises if it did anything that a name can cause."""
    context, heard = browser().new_context(), []
    page = context.new_page()
    context.on("page", lambda new: heard.append(f"a window opened: {new.url}"))
    page.on("console", lambda message: heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("download", lambda download: heard.append(f"download: {download.url}"))
    page.on("request", lambda request: heard.append(f"request: {request.url}") if _foreign(request.url, path) else None)
    try:
        page.goto(path.as_uri())
        page.wait_for_function("document.querySelectorAll('.plot:not(.js-plotly-plot)').length === 0")
        page.evaluate(EVERYTHING)
        page.wait_for_timeout(50)
        found = page.evaluate(CONTENT)
        if page.url != path.as_uri():
            heard.append(f"went to {page.url}")
    finally:
        context.close()
    heard += [f"link: {link}" for link in found["links"] if _foreign(link, path)]
    heard += [f"{kind}: {each}" for kind in ("active", "handlers") for each in found[kind]]
    if found["executed"] is not None or found["scripts"] != scripts:
        heard.append(f"{found['scripts']} scripts, executed: {found['executed']}")
    assert not heard, "; ".join(heard)[:1500]
    return found["text"]


def _foreign(url: str, path: Path) -> bool:
    return not url.startswith((path.parent.as_uri(), "data:image/", "blob:"))


def expect_text(name: str, shown: str, where: str) -> None:
    """Fail unless a name is shown, character by character (white space may differ)."""
    flat = [re.sub(r"\s+", " ", text) for text in (name, shown)]
    assert flat[0].strip() in flat[1], f"{where} does not show the name {name!r}"


@functools.cache
def known_twin() -> tw.Twin:
    """A twin with a learned part; all names are given later."""
    tw.enable_x64()

    def spring(t, x, w, p):
        return jnp.stack([x[1], -p["k"] * x[0] + w[0]])

    residual = tw.MLP(states=[0, 1], adds_to=[0, 1], width=2, depth=1)
    twin = tw.Twin(
        tw.GreyBox(spring, residual),
        params={"k": tw.Unknown(1.0, positive=True)},
        constraint=tw.Conserved(lambda x: x @ x),
        integrator=tw.Euler(),
    )
    # With the names of runs, which are part of what is compiled: else every name would be compiled again.
    return twin.for_runs(("x",), ("x",)).initialise(jax.random.key(0), states=2, inputs=1)


def measured(name: str) -> tw.Dataset:
    """Runs, outputs and inputs with a name."""
    rng = np.random.default_rng(0)
    ys = [np.stack([np.cos(TS + k), -np.sin(TS + k)], 1) + 0.01 * rng.normal(size=(len(TS), 2)) for k in range(3)]
    return tw.Dataset.from_arrays(
        TS,
        ys,
        inputs=[np.full((len(TS), 1), 0.1 * k) for k in range(3)],
        x0=[y[0] for y in ys],
        names=[name, f"{name} 2", f"3{name}"],
        output_names=[name, f"{name} v"],
        input_names=[f"u{name}"],
    )


def _names(name: str) -> tuple[list[str], dict[str, str]]:
    """The names of two states, and units."""
    states = [f"s{name}", f"{name}s"]
    return states, dict.fromkeys(("time", "t", name, f"{name} v", f"u{name}", *states), name)


def report_page(name: str, folder: Path) -> None:
    """The report of a twin."""
    data, (states, units) = measured(name), _names(name)
    metrics = {"twin": {"test": {"rmse": 0.1, f"rmse {name}": 0.2}}, f"model {name}": {"test": {"rmse": 0.3}}}
    index = write_twin_report(
        folder / "report",
        title=name,
        twin=known_twin(),
        train=data.select(data.names[:2]),
        test=data.select(data.names[2:]),
        metrics=metrics,
        config={"data": {name: name, "outputs": [name]}},
        info={name: name, "command": f"twinfold report {name}"},
        states=states,
        units=units,
    )
    shown = open_page(index, scripts=3)
    for each in (name, *data.names, *data.input_names, *states, f"{name} [{name}]", f"RMSE {name}", f"model {name}"):
        expect_text(each, shown, "the report")


def section_page(name: str, folder: Path) -> None:
    """A page of sections, with the name in every field."""
    table = Table([f"c{name}", name], [[f"r{name}", name]])
    section = Section(f"h{name}", table=table, pairs=[(f"p{name}", name)], code=f"k{name}", note=f"n{name}")
    path = folder / "page.html"
    page = render_page(
        name, kind=f"t{name}", introduction=f"i{name}", summary=[f"s{name}"], sections=[section], footer=f"f{name}"
    )
    path.write_text(page, encoding="utf-8")
    shown = open_page(path, scripts=0)
    for prefix in ("", *"crhpkntisf"):
        expect_text(prefix + name, shown, "the page")


def figures(name: str, folder: Path) -> None:
    """The figures of `check`, `simulate` and `monitor` as SVG, and what these commands print."""
    import matplotlib
    from rich.console import Console

    data, (states, units), twin = measured(name), _names(name), known_twin()
    info = ModelInfo(states=tuple(states), inputs=data.input_names, outputs=data.output_names, units=units)
    system = System(folder / "system.py", "", twin, tuple(states), units)
    run = data.runs[0]
    simulated = SimulatedRun(run, twin.simulate(run.y[0], run.ts, run.w), True, (), len(run.ts))
    examined = examine(twin, data, states=states, units=units)
    watched = watch(
        twin, data, tw.Dataset(tuple(_moved(run) for run in data.runs), data.output_names, data.input_names)
    )
    drawn = {
        "check": (examined.figures[f"run_{name}"], [f"Run {name}", f"{name} [{name}]", f"time [{name}]"]),
        "simulate": (plot_simulation(simulated, Fitted(system, twin, info, None)), [f"{name} [{name}]", f"u{name}"]),
        "monitor": (watched.figure(), [next(row["changed"] for row in watched.rows if row["changed"])]),
    }
    for kind, (figure, texts) in drawn.items():
        with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none"}):  # texts stay texts
            warnings.simplefilter("ignore")  # a font that lacks a letter
            tw.plot.save(figure, folder / f"{kind}.svg")
        shown = open_page(folder / f"{kind}.svg", scripts=0)
        for text in texts:
            expect_text(text, shown, f"the figure of {kind}")
    out = io.StringIO()
    console = Console(file=out, width=2000)
    Examination((Finding(name[:20], "warning", f"about {name}"),)).show(console)
    print_metrics({"twin": {"test": {"rmse": 0.1, f"rmse {name}": 0.2}}}, console)
    for text in (f"about {name}", f"RMSE {name}"):
        expect_text(text, out.getvalue(), "the console")
    assert "\x1b" not in out.getvalue(), "the console has escape sequences"


def _moved(run: tw.Run) -> tw.Run:
    return tw.Run(run.name, run.ts, run.y + 0.5, w=run.w, x0=run.x0)


def project(names: list[str], folder: Path) -> None:
    """A project whose files are full of names, from `check` to `report` on the command line."""
    from typer.testing import CliRunner

    from twinfold.cli import app

    x, v, u, s, p, run, *_ = names
    data, folder = measured("x"), folder / re.sub(r"[/.~]", "_", names[6])  # its name is the title of the report
    folder.mkdir()
    (folder / "system.py").write_text(SYSTEM.format(s=[s, v], u={x: u, s: x}, p=p), encoding="utf-8")
    tables = {"files": ["all.csv"], "run": run, "outputs": [x, v], "inputs": [u], "valid": 0.0, "test": [p]}
    fit = {"seeds": 1, "adam_epochs": 1}
    (folder / "twinfold.toml").write_text(tomlkit.dumps({"data": tables, "fit": fit}), encoding="utf-8")
    with (folder / "all.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([run, "t", x, v, u])
        for name, each in zip((p, s, names[7]), data.runs, strict=True):
            table.writerows([name, t, *y, *w] for t, y, w in zip(each.ts, each.y, np.asarray(each.w), strict=True))
    new = str(folder / "all.csv")
    for command in (
        ["check", "--out", str(folder / "check")],
        ["fit", "-q"],
        ["evaluate"],
        ["simulate", new, "--out", str(folder / "simulated.csv")],
        ["monitor", new, "--healthy", new, "--window", "10"],
        ["report"],
        ["info"],
    ):
        done = CliRunner().invoke(app, [*command, "-C", str(folder)])
        assert done.exit_code in (0, 1), f"{command[0]} ended with {done.exit_code}: {done.output[-500:]}"
        assert "Internal error" not in done.output, f"{command[0]}: {done.output[-500:]}"
    shown = open_page(folder / "runs" / "first" / "report" / "index.html", scripts=3)
    for name in (x, v, u, s, p, f"{x} [{u}]", folder.name):
        expect_text(name, shown, "the report of the project")


def refused_name(name: str, folder: Path) -> None:
    """A name that no page can hold is refused wherever one can be given."""
    y, data, twin = np.zeros((3, 1)), measured("x"), known_twin()
    system = folder / "system.py"
    system.write_text(f"import twinfold as tw\nSTATES = [{name!r}]\n\ndef twin():\n    return tw.Twin(lambda x: -x)\n")
    toml = ["".join(f"\\U{ord(letter):08x}" for letter in name), "[data]\nfiles=['a.csv']\n"]
    arrays = partial(tw.Dataset.from_arrays, np.arange(3.0), [y])
    report = partial(
        write_twin_report, folder / "report", title="x", twin=twin, train=data, metrics={}, config={}, info={}
    )
    attempts: dict[str, Callable[[], Any]] = {
        "run": lambda: tw.Run(name, np.arange(3.0), y),
        "output": lambda: arrays(output_names=[name]),
        "input": lambda: arrays(inputs=[y], input_names=[name]),
        "model file": lambda: ModelInfo(states=(name,)),
        "configuration": lambda: parse_config(f'{toml[1]}outputs=["{toml[0]}"]\n'),
        "system.py": lambda: load_system(system),
        "state in a report": lambda: report(states=[name, "v"]),
        "unit in a report": lambda: report(units={"x": name}),
    }
    for where, attempt in attempts.items():
        if where.startswith("unit") and not name.strip():
            continue  # no unit
        try:
            attempt()
        except ValueError:
            continue
        raise AssertionError(f"{where}: {name!r} was accepted")
    assert not (folder / "report").exists(), "a report was begun"


def cases(seed: int, scale: float) -> Iterator[Case]:
    """Every name on every kind of page; then the names that are refused."""
    if find_browser() is None:
        print(f"skipped: no browser was found (none of {', '.join(BROWSERS)})", file=sys.stderr)
        return
    random = np.random.default_rng(seed)
    for index in random.permutation(len(NAMES))[: scaled(len(NAMES), scale)].tolist():
        for kind in (report_page, section_page, figures):
            yield Case(f"{kind.__name__} {NAMES[index]}", partial(kind, NAMES[index]))
    for number in range(scaled(PROJECTS, scale) if scale >= MIN_SCALE else 0):
        chosen = [NAMES[k] for k in random.permutation(len(NAMES))[:8].tolist()]
        yield Case(f"project {number}: {' | '.join(chosen)}", partial(project, chosen))
    for name in REFUSED[: scaled(len(REFUSED), scale)]:
        yield Case(f"refused_name {name[:20]!r}", partial(refused_name, name))


PAGES = Group("reports and figures with hostile names, in a browser", cases, seconds=240.0)
