"""Case Study 2: every model on every system, at the training horizon and far beyond it."""

from collections.abc import Callable

from twinfold.report import number
from twinfold_studies.bench.contenders import CONTENDERS
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import dots
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.paper import TARGETS, paper_mae
from twinfold_studies.bench.problems import ALL, DEGENERATE, HORIZONS, problem
from twinfold_studies.bench.queue import Wanted
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import floor_job, floor_mae, lowest, paired, summary, title

SHOWN = (
    "system",
    "model",
    "mae_mean",
    "mae_std",
    "mae_median",
    "floor_mae",
    "paper_mae",
    "dtw_mean",
    "violation_mean",
    "violation_max",
    "failures",
    "train_s",
    "infer_s",
    "parameters",
)
QUICK_MODELS = ("constant", "physics", "node", "hrpinn", "phrpinn_fast", "phrpinn_robust")


def jobs(options: Options) -> list[Job]:
    """One job for each cell of the table; models that cannot represent a system are left out."""
    return [
        Job(system, model, protocol, quick=options.quick)
        for protocol in options.protocols
        for system in options.systems
        for model in options.models
        if not CONTENDERS[model].lacks(system)
    ]


def wanted(options: Options) -> list[Wanted]:
    """The cells, and the floor of each."""
    cells = jobs(options)
    floors = dict.fromkeys(floor_job(job) for job in cells)
    return [Wanted(job, options.seeds, warped=True) for job in cells] + [Wanted(job, 1) for job in floors]


def find(store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
    """The paper's table, paired comparisons, and a figure of each protocol and horizon."""
    del tell
    cells, seeds = jobs(options), options.seeds
    rows = summary(cells, store, seeds)
    tables = [
        Table(
            f"{protocol}_{horizon}",
            f"Protocol {protocol}, {'training' if horizon == 'train' else 'long'} horizon",
            [row for row in rows if (row["protocol"], row["horizon"]) == (protocol, horizon)],
            SHOWN,
            "paper_mae is the paper's number, measured under other settings. Violations are relative.",
        )
        for protocol in options.protocols
        for horizon in HORIZONS
    ]
    tables.append(
        Table("summary", "All rows", rows, ("system", "model", "protocol", "horizon", "mae_mean", "mae_median"))
    )
    compared = paired(cells, store, seeds)
    tables.append(
        Table(
            "paired",
            "Paired differences over seeds, MAE of each model minus that of PHRPINN robust",
            compared,
            caption="95 % bootstrap interval of the mean; reference_lower counts the seeds in which PHRPINN robust is "
            "better.",
        )
    )
    left_out = lacking(options)
    if left_out:
        tables.append(
            Table("lacking", "What cannot be represented, and what decides a comparison beforehand", left_out)
        )
    return Findings(words(rows, options), tables, pictures(cells, store, options))


def lacking(options: Options) -> list[dict[str, str]]:
    """Models that are left out on a system, and systems whose prior decides the comparison."""
    left_out = [
        {"system": system, "model": model, "why": CONTENDERS[model].lacks(system)}
        for system in options.systems
        for model in options.models
        if CONTENDERS[model].lacks(system)
    ]
    return left_out + [
        {"system": system, "model": "all", "why": DEGENERATE[system]}
        for system in options.systems
        if system in DEGENERATE
    ]


def words(rows: list[dict], options: Options) -> list[str]:
    """What the table says, whatever it says."""
    said = []
    for protocol in options.protocols:
        for horizon in HORIZONS:
            here = [r for r in rows if (r["protocol"], r["horizon"]) == (protocol, horizon)]
            learned = [r for r in here if CONTENDERS[r["model"]].trained]
            if learned:
                listed = lowest(learned, lambda r: title(r["model"]))
                said.append(f"Protocol {protocol}, {horizon} horizon, lowest mean MAE. {listed}.")
    for row in rows:
        target = TARGETS.get(row["system"])
        if target and (row["model"], row["protocol"], row["horizon"]) == ("phrpinn_robust", "best", "train"):
            reached = "reached" if row["mae_mean"] <= target else "NOT reached"
            said.append(
                f"{row['system']}: PHRPINN robust has mean MAE {number(row['mae_mean'])}; a tenth of the paper's best "
                f"model is {number(target)}: {reached}."
            )
    robust = [r for r in rows if r["model"].endswith("robust")]
    if robust:
        worst = max(r["violation_max"] for r in robust)
        failed = sum(r["failures"] for r in robust)
        said.append(f"Robust projection: largest relative violation {number(worst)}, {failed} failed runs.")
    others = sum(r["failures"] for r in rows if not r["model"].endswith("robust"))
    said.append(f"All other models: {others} failed runs.")
    return said


def pictures(cells: list[Job], store: Store, options: Options) -> list[Picture]:
    """MAE of every seed by model and system; the violation over the long horizon."""
    made = []
    for protocol in options.protocols:
        for horizon, metric, label in (
            ("train", "mae", "MAE, training horizon"),
            ("long", "mae", "MAE, long horizon"),
            ("long", "relative_violation_max", "largest relative violation, long horizon"),
        ):
            panels, lines, marks = {}, {}, {}
            for system in options.systems:
                found = {
                    title(job.model): cell.by_seed(horizon, metric)
                    for job in cells
                    if (job.system, job.protocol) == (system, protocol)
                    and (cell := store.cell(job, options.seeds, fewer=True))
                }
                if not found:
                    continue
                name = problem(system).title
                panels[name] = found
                if metric == "mae":
                    robust = Job(system, "phrpinn_robust", protocol, quick=options.quick)
                    lines[name] = {"floor": floor_mae(robust, store, horizon)}
                    if horizon == "train":
                        marks[name] = {title(model): paper_mae(system, model) for model in CONTENDERS}
            if panels:
                made.append(_picture(f"{protocol}_{horizon}_{metric}", label, protocol, panels, lines, marks))
    return made


def _picture(name: str, label: str, protocol: str, panels: dict, lines: dict, marks: dict) -> Picture:
    caption = "A dot for each seed, a bar at the median."
    if lines:
        caption += " Dashed: the floor."
    if marks:
        caption += " Diamonds: the paper's numbers, measured under other settings."
    return Picture(
        name, f"{label}, protocol {protocol}", caption, lambda: dots(panels, label, lines=lines, marks=marks)
    )


CS2 = Experiment(
    "cs2",
    "Case Study 2: six constrained systems",
    "Every model on every system, same data, same budget, same number of weights within 10 %.",
    full=Options(ALL, tuple(CONTENDERS), 25, ("paper", "best")),
    quick=Options(("mass_spring",), QUICK_MODELS, 1, ("best",)),
    wanted=wanted,
    find=find,
)
