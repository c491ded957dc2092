"""The demonstration: four models of one system, fitted from several seeds and tested on trajectories never seen."""

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
from twinfold.io import open_folder
from twinfold.metrics import Evaluation, Predictions, measure, predict, with_true_field
from twinfold.systems import System
from twinfold.train import AbstractMethod, Fit, default_methods, fit
from twinfold_studies.bench.contenders import model_for
from twinfold_studies.systems.registry import system as system_of
from twinfold_studies.systems.truth import truth

MODELS = {
    "node": "NODE",
    "hrpinn": "HRPINN",
    "phrpinn_fast": "PHRPINN fast",
    "phrpinn_robust": "PHRPINN robust",
}
EXTRAS = {"matplotlib": "plot", "dtaidistance": "dtw"}
LONGER = 3  # times the training horizon: how far the test trajectories go


@dataclasses.dataclass(frozen=True)
class Settings:
    """All that decides the numbers of a demonstration.

    `models` are some of `MODELS`; `parameters` is what each model's network has, within 10 %; `train`, `valid` and
    `test` count trajectories; `epochs` are those of each of the library's default training stages (its own when left
    out; 0 skips a stage); `draw` is the seed of the data.
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
class Data:
    """Trajectories of a system: `train` and `valid` over the training horizon, `test` over `LONGER` times that."""

    system: System
    train: Dataset
    valid: Dataset
    test: Dataset
    horizon: float
    long: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One model: its fit, what it predicts over the long horizon, and its metrics beside those of its floor."""

    name: str
    title: str
    fit: Fit
    predictions: Predictions
    floor: Predictions
    metrics: dict[str, Evaluation]  # "train" and "long"
    floor_metrics: dict[str, Evaluation]


@dataclasses.dataclass
class Results:
    """What a demonstration came to; `errors` are the models that could not be fitted or evaluated, with the reason."""

    settings: Settings
    data: Data
    outcomes: list[Outcome]
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
    tell: Callable[[str], None] = lambda line: None,
) -> Results:
    """Fit and evaluate every model; goes on where an earlier call with these settings and this folder was stopped.

    **Arguments:** `settings`; `out`, the folder of the run; `command`, as typed; `force`, see `open_folder`;
    `progress`, whether fits show a bar; `tell`, receives a line now and then.
    """
    _check_extras()
    methods = stages(settings)
    described = dataclasses.asdict(settings) | {"stages": [f"{m.name}, {m.epochs} epochs" for m in methods]}
    if open_folder(out, described, command, force=force):
        tell(f"Going on with the run in {out}")
    began = time.perf_counter()
    data = make_data(settings)
    results = Results(settings, data, [], {}, {"data": time.perf_counter() - began})
    tell(
        f"{data.system.title}: {settings.train} training, {settings.valid} validation and {settings.test} test "
        f"trajectories in {results.seconds['data']:.0f} s"
    )
    for name in settings.models:
        title = MODELS[name]
        began = time.perf_counter()
        try:
            outcome = _one_model(name, title, settings, data, methods, out, progress)
        except KeyboardInterrupt:
            results.interrupted = True
            break
        except Exception as error:  # one model's failure is a line of the table, not the end of the others
            results.errors[title] = f"{type(error).__name__}: {error}"
            tell(f"{title} failed: {error}")
            continue
        results.outcomes.append(outcome)
        results.seconds[title] = time.perf_counter() - began
        error = outcome.metrics["train"].aggregate()["mae"]["median"]
        tell(f"{title}: {outcome.fit.seconds:.0f} s, MAE {error:.1e} on unseen trajectories")
    return results


def _check_extras() -> None:
    """What evaluation and report will need is asked for before minutes are spent on fits."""
    missing = [extra for package, extra in EXTRAS.items() if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(f"The demonstration needs an extra: pip install 'twinfold[{','.join(missing)}]'.")


def stages(settings: Settings) -> tuple[AbstractMethod, ...]:
    """The library's default methods, with the epochs of the settings."""
    system = system_of(settings.system)
    methods = default_methods(round(system.horizon / system.dt) + 1)
    if settings.epochs is None:
        return methods
    if len(settings.epochs) != len(methods):
        raise ValueError(f"epochs={settings.epochs}: there are {len(methods)} stages; give a number for each.")
    chosen = zip(methods, settings.epochs, strict=True)
    return tuple(dataclasses.replace(method, epochs=epochs) for method, epochs in chosen if epochs > 0)


def make_data(settings: Settings) -> Data:
    """Trajectories from three separate draws of initial states."""
    system = system_of(settings.system)
    samples, longest = (round(times * system.horizon / system.dt) + 1 for times in (1, LONGER))
    ts = system.dt * jnp.arange(longest)
    keys = jax.random.split(jax.random.key(settings.draw), 3)
    counts = (settings.train, settings.valid, settings.test)
    x0s = [system.draw(key, count) for key, count in zip(keys, counts, strict=True)]
    # All at once: reference trajectories are compiled for one shape only.
    xs = np.asarray(truth(system, jnp.concatenate(x0s), ts))
    train, valid, test = np.split(xs, np.cumsum(counts)[:-1])
    times = np.asarray(ts)

    def dataset(xs: np.ndarray, samples: int) -> Dataset:
        return Dataset.from_arrays(times[:samples], xs[:, :samples], output_names=system.state_names)

    return Data(
        system,
        dataset(train, samples),
        dataset(valid, samples),
        dataset(test, longest),
        horizon=float(times[samples - 1]),
        long=float(times[-1]),
    )


def _one_model(
    name: str,
    title: str,
    settings: Settings,
    data: Data,
    methods: tuple[AbstractMethod, ...],
    out: Path,
    progress: bool,
) -> Outcome:
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
    return Outcome(name, title, fitted, predictions, floor, _metrics(predictions, data), _metrics(floor, data))


def _metrics(predictions: Predictions, data: Data) -> dict[str, Any]:
    return {"train": measure(predictions.until(data.horizon)), "long": measure(predictions)}
