"""Case Study 2: every model on every system, over the training horizon and a much longer one."""

from collections.abc import Callable

from twinfold.report import format_number
from twinfold_studies.bench.contenders import CONTENDERS
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import dots
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.paper import TARGETS, paper_mae
from twinfold_studies.bench.problems import ALL, HORIZONS, REMARKS, problem
from twinfold_studies.bench.queue import Request
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import (
    CONVERGED,
    constant_job,
    floor_job,
    floor_mae,
    lowest_mae,
    paired_rows,
    summary_rows,
    title,
)

COLUMNS = (
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
CONVERGENCE = (
    f" converged: share of the seeds whose MAE at the training horizon is at most {CONVERGED:g} times that of "
    "`constant`; converged_median: the median MAE of those seeds."
)
QUICK_MODELS = ("constant", "physics", "node", "hrpinn", "phrpinn_fast", "phrpinn_robust")


def jobs(options: Options) -> list[Job]:
    """A job for each entry of the table, without models that cannot represent a system."""
    return [
        Job(system, model, protocol, quick=options.quick)
        for protocol in options.protocols
        for system in options.systems
        for model in options.models
        if not CONTENDERS[model].unsupported(system)
    ]


def requests(options: Options) -> list[Request]:
    """All jobs, and what bounds them: the true field from below, a constant from above."""
    chosen = jobs(options)
    bounds = dict.fromkeys(of(job) for of in (floor_job, constant_job) for job in chosen)
    return [Request(job, options.seeds, dtw=True) for job in chosen] + [Request(job, 1) for job in bounds]


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """The table of the paper, paired comparisons, and figures of each protocol and horizon."""
    del log
    chosen, seeds = jobs(options), options.seeds
    rows = summary_rows(chosen, store, seeds)
    tables = [
        Table(
            f"{protocol}_{horizon}",
            f"Protocol {protocol}, {'training' if horizon == 'train' else 'long'} horizon",
            [row for row in rows if (row["protocol"], row["horizon"]) == (protocol, horizon)],
            _columns(protocol),
            "paper_mae: the number of the paper, under other settings. Violations are relative."
            + (CONVERGENCE if protocol == "paper" else ""),
        )
        for protocol in options.protocols
        for horizon in HORIZONS
    ]
    tables.append(
        Table("summary", "All rows", rows, ("system", "model", "protocol", "horizon", "mae_mean", "mae_median"))
    )
    compared = paired_rows(chosen, store, seeds)
    tables.append(
        Table(
            "paired",
            "Paired differences over seeds: MAE of each model minus that of PHRPINN robust",
            compared,
            caption="95 % bootstrap interval of the mean; reference_lower: number of seeds in which PHRPINN robust has "
            "the lower MAE.",
        )
    )
    excluded = exclusions(options)
    if excluded:
        tables.append(Table("lacking", "Models that cannot represent a system, and remarks on systems", excluded))
    return Findings(summarise(rows, options), tables, pictures(chosen, store, options))


def _columns(protocol: str) -> tuple[str, ...]:
    """The columns of a page; under `paper`, which takes the mean over seeds that may be stuck, also how many are."""
    if protocol != "paper":
        return COLUMNS
    at = COLUMNS.index("mae_median") + 1
    return (*COLUMNS[:at], "converged", "converged_median", *COLUMNS[at:])


def exclusions(options: Options) -> list[dict[str, str]]:
    """Models that are excluded on a system, and systems whose known physics decides the comparison."""
    excluded = [
        {"system": system, "model": model, "why": CONTENDERS[model].unsupported(system)}
        for system in options.systems
        for model in options.models
        if CONTENDERS[model].unsupported(system)
    ]
    return excluded + [
        {"system": system, "model": "all", "why": REMARKS[system]} for system in options.systems if system in REMARKS
    ]


def summarise(rows: list[dict], options: Options) -> list[str]:
    """The most accurate models, whether the targets are reached, violations and failures."""
    sentences = []
    for protocol in options.protocols:
        for horizon in HORIZONS:
            here = [r for r in rows if (r["protocol"], r["horizon"]) == (protocol, horizon)]
            learned = [r for r in here if CONTENDERS[r["model"]].trained]
            if learned:
                listed = lowest_mae(learned, lambda r: title(r["model"]))
                sentences.append(f"Protocol {protocol}, {horizon} horizon, lowest mean MAE. {listed}.")
    for row in rows:
        target = TARGETS.get(row["system"])
        if target and (row["model"], row["protocol"], row["horizon"]) == ("phrpinn_robust", "best", "train"):
            reached = "reached" if row["mae_mean"] <= target else "NOT reached"
            sentences.append(
                f"{row['system']}: PHRPINN robust has mean MAE {format_number(row['mae_mean'])}; the target, a tenth "
                f"of the paper's best MAE, is {format_number(target)}: {reached}."
            )
    robust = [r for r in rows if r["model"].endswith("robust")]
    if robust:
        worst = max(r["violation_max"] for r in robust)
        failed = sum(r["failures"] for r in robust)
        sentences.append(f"Robust projection: largest relative violation {format_number(worst)}, {failed} failed runs.")
    others = sum(r["failures"] for r in rows if not r["model"].endswith("robust"))
    sentences.append(f"All other models: {others} failed runs.")
    return sentences


def pictures(jobs: list[Job], store: Store, options: Options) -> list[Picture]:
    """MAE of every seed by model and system, and the violation over the long horizon."""
    figures = []
    for protocol in options.protocols:
        for horizon, metric, label in (
            ("train", "mae", "MAE, training horizon"),
            ("long", "mae", "MAE, long horizon"),
            ("long", "relative_violation_max", "largest relative violation, long horizon"),
        ):
            panels, lines, marks = {}, {}, {}
            for system in options.systems:
                values = {
                    title(job.model): result.by_seed(horizon, metric)
                    for job in jobs
                    if (job.system_name, job.protocol) == (system, protocol)
                    and (result := store.result(job, options.seeds, allow_fewer=True))
                }
                if not values:
                    continue
                name = problem(system).title
                panels[name] = values
                if metric == "mae":
                    robust = Job(system, "phrpinn_robust", protocol, quick=options.quick)
                    lines[name] = {"floor": floor_mae(robust, store, horizon)}
                    if horizon == "train":
                        marks[name] = {title(model): paper_mae(system, model) for model in CONTENDERS}
            if panels:
                figures.append(_picture(f"{protocol}_{horizon}_{metric}", label, protocol, panels, lines, marks))
    return figures


def _picture(name: str, label: str, protocol: str, panels: dict, lines: dict, marks: dict) -> Picture:
    caption = "A dot for each seed, a bar at the median; an arrow for seeds far beyond the edge."
    if lines:
        caption += " Dashed: the floor."
    if marks:
        caption += " Diamonds: the numbers of the paper, under other settings."
    return Picture(
        name, f"{label}, protocol {protocol}", caption, lambda: dots(panels, label, lines=lines, marks=marks)
    )


CS2 = Experiment(
    "cs2",
    "Case Study 2: six constrained systems",
    "Every model on every system, with the same data, training budget and number of weights (to within 10 %).",
    full=Options(ALL, tuple(name for name in CONTENDERS if name != "phrpinn_slack"), 25, ("paper", "best")),
    quick=Options(("mass_spring",), QUICK_MODELS, 1, ("best",)),
    requests=requests,
    analyse=analyse,
)
