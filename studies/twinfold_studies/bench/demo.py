"""The demonstration: four models of one system, fitted with several seeds and compared on unseen trajectories."""

import dataclasses
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.data import Dataset
from twinfold.io import RunFolder
from twinfold.metrics import Evaluation, Predictions, measure, predict, with_true_field
from twinfold.systems import System
from twinfold.train import AbstractMethod, Fit, default_methods, fit
from twinfold_studies.bench.contenders import model_for
from twinfold_studies.systems import system as benchmark_system
from twinfold_studies.systems.truth import truth

MODELS = {
    "node": "NODE",
    "hrpinn": "HRPINN",
    "phrpinn_fast": "PHRPINN fast",
    "phrpinn_robust": "PHRPINN robust",
}
EXTRAS = {"matplotlib": "plot", "dtaidistance": "dtw"}
TEST_HORIZONS = 3  # duration of the test trajectories, in training horizons


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that determines the numbers of a demonstration.

    **Arguments:** `system`; `seeds`; `models`, some of `MODELS`; `parameters` of each model, to within 10 %; numbers of
    `train`, `valid` and `test` trajectories; `epochs` of each default training stage (None: the defaults; 0 skips a
    stage); `draw`, the seed of the data.
    """

    system: str = "two_body"
    seeds: int = 3
    models: tuple[str, ...] = tuple(MODELS)
    parameters: int = 400
    train: int = 12
    valid: int = 4
    test: int = 20
    epochs: tuple[int, ...] | None = None
    draw: int = 0


@dataclasses.dataclass(frozen=True)
class DemoData:
    """Trajectories of a system: `train` and `valid` over the training horizon, `test` over a longer one."""

    system: System
    train: Dataset
    valid: Dataset
    test: Dataset
    horizon: float
    long: float


@dataclasses.dataclass(frozen=True)
class ModelResult:
    """A fitted model: predictions over the long horizon and metrics, and those of its floor."""

    name: str
    title: str
    fit: Fit
    predictions: Predictions
    floor: Predictions
    metrics: dict[str, Evaluation]  # "train" and "long"
    floor_metrics: dict[str, Evaluation]


@dataclasses.dataclass
class Results:
    """Results of a demonstration; `errors` has the reasons of models that could not be fitted or evaluated."""

    settings: Settings
    data: DemoData
    outcomes: list[ModelResult]
    errors: dict[str, str]
    seconds: dict[str, float]
    interrupted: bool = False


def run_demo(
    settings: Settings,
    out: Path,
    *,
    command: str,
    force: bool = False,
    progress: bool = True,
    log: Callable[[str], None] = lambda line: None,
) -> Results:
    """Fit and evaluate every model; resumes an interrupted run with the same settings in the same folder.

    **Arguments:** `settings`; `out`, the folder of the run; `command`, as typed; `force`, see `RunFolder`; `progress`:
    whether to show the progress of fits; `log`, called with lines about the run.
    """
    _check_extras()
    methods = stages(settings)
    claimed = dataclasses.asdict(settings) | {"stages": [f"{m.name}, {m.epochs} epochs" for m in methods]}
    folder = RunFolder(out, outputs=("fits/*.npz",), packages=("twinfold", "jax"))
    with folder.claim(claimed, command=command, force=force) as resumed:
        if resumed:
            log(f"Resuming the run in {out}")
        return _run_models(settings, methods, out, progress, log)


def _run_models(
    settings: Settings,
    methods: tuple[AbstractMethod, ...],
    out: Path,
    progress: bool,
    log: Callable[[str], None],
) -> Results:
    start = time.perf_counter()
    data = make_data(settings)
    results = Results(settings, data, [], {}, {"data": time.perf_counter() - start})
    log(
        f"{data.system.title}: {settings.train} training, {settings.valid} validation and {settings.test} test "
        f"trajectories in {results.seconds['data']:.0f} s"
    )
    for name in settings.models:
        title = MODELS[name]
        start = time.perf_counter()
        try:
            outcome = _fit_and_evaluate(name, title, settings, data, methods, out, progress)
        except KeyboardInterrupt:
            results.interrupted = True
            break
        except Exception as error:  # reported in the table; the other models continue
            results.errors[title] = f"{type(error).__name__}: {error}"
            log(f"{title} failed: {error}")
            continue
        results.outcomes.append(outcome)
        results.seconds[title] = time.perf_counter() - start
        error = outcome.metrics["train"].aggregate()["mae"]["median"]
        log(f"{title}: {outcome.fit.seconds:.0f} s, MAE {error:.1e} on unseen trajectories")
    return results


def _check_extras() -> None:
    """Check for the packages of evaluation and report before any model is fitted."""
    missing = [extra for package, extra in EXTRAS.items() if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(f"The demonstration requires an extra: pip install 'twinfold[{','.join(missing)}]'.")


def stages(settings: Settings) -> tuple[AbstractMethod, ...]:
    """The default training stages, with the epochs of the settings."""
    system = benchmark_system(settings.system)
    methods = default_methods(round(system.horizon / system.dt) + 1)
    if settings.epochs is None:
        return methods
    if len(settings.epochs) != len(methods):
        raise ValueError(f"epochs={settings.epochs}: give a number for each of the {len(methods)} stages.")
    chosen = zip(methods, settings.epochs, strict=True)
    return tuple(dataclasses.replace(method, epochs=epochs) for method, epochs in chosen if epochs > 0)


def make_data(settings: Settings) -> DemoData:
    """Draw initial states of the three sets and integrate them."""
    system = benchmark_system(settings.system)
    samples, longest = (round(times * system.horizon / system.dt) + 1 for times in (1, TEST_HORIZONS))
    ts = system.dt * jnp.arange(longest)
    keys = jax.random.split(jax.random.key(settings.draw), 3)
    counts = (settings.train, settings.valid, settings.test)
    x0s = [system.draw(key, count) for key, count in zip(keys, counts, strict=True)]
    # Together, so that the reference integrator compiles for one shape only.
    xs = np.asarray(truth(system, jnp.concatenate(x0s), ts))
    train, valid, test = np.split(xs, np.cumsum(counts)[:-1])
    times = np.asarray(ts)

    def dataset(xs: np.ndarray, samples: int) -> Dataset:
        return Dataset.from_arrays(times[:samples], xs[:, :samples], output_names=system.state_names)

    return DemoData(
        system,
        dataset(train, samples),
        dataset(valid, samples),
        dataset(test, longest),
        horizon=float(times[samples - 1]),
        long=float(times[-1]),
    )


def _fit_and_evaluate(
    name: str,
    title: str,
    settings: Settings,
    data: DemoData,
    methods: tuple[AbstractMethod, ...],
    out: Path,
    progress: bool,
) -> ModelResult:
    twin = model_for(name, data.system, parameters=settings.parameters)
    fitted = fit(
        twin,
        data.train,
        valid=data.valid,
        seeds=settings.seeds,
        method=methods,
        checkpoint=out / "fits" / f"{name}.npz",
        progress=progress,
        label=title,
    )
    if fitted.interrupted:
        raise KeyboardInterrupt
    predictions = predict(fitted, data.test)
    floor = predict(with_true_field(twin, data.system.truth), data.test)
    return ModelResult(name, title, fitted, predictions, floor, _metrics(predictions, data), _metrics(floor, data))


def _metrics(predictions: Predictions, data: DemoData) -> dict[str, Any]:
    return {"train": measure(predictions.until(data.horizon)), "long": measure(predictions)}
