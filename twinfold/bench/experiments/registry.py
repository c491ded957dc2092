"""All experiments by name."""

from twinfold.bench.experiment import Experiment
from twinfold.bench.experiments.ablation import ABLATION
from twinfold.bench.experiments.battery import BATTERY
from twinfold.bench.experiments.conjecture1 import CONJECTURE1
from twinfold.bench.experiments.cost import COST
from twinfold.bench.experiments.cs2 import CS2
from twinfold.bench.experiments.misspecification import MISSPECIFICATION
from twinfold.bench.experiments.numerics import NUMERICS
from twinfold.bench.experiments.sweep import CONJECTURE2, NOISE
from twinfold.bench.experiments.theory import THEORY
from twinfold.names import unknown_name

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (CS2, ABLATION, MISSPECIFICATION, NOISE, CONJECTURE1, CONJECTURE2, THEORY, COST, BATTERY, NUMERICS)
}


def experiment(name: str) -> Experiment:
    """The experiment of this name; a `ValueError` that lists them for another name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {unknown_name(name, (*EXPERIMENTS, 'all', 'list'))}")
    return EXPERIMENTS[name]
