"""All experiments by name."""

from twinfold.io import unknown_name
from twinfold_studies.bench.experiment import Experiment
from twinfold_studies.experiments.ablation import ABLATION
from twinfold_studies.experiments.battery import BATTERY
from twinfold_studies.experiments.conjecture1 import CONJECTURE1
from twinfold_studies.experiments.conserved import CONSERVED
from twinfold_studies.experiments.cost import COST
from twinfold_studies.experiments.cs2 import CS2
from twinfold_studies.experiments.defaults import DEFAULTS
from twinfold_studies.experiments.drive import DRIVE
from twinfold_studies.experiments.first import FIRST_ATTEMPT
from twinfold_studies.experiments.fleet import FLEET
from twinfold_studies.experiments.follow import FOLLOW
from twinfold_studies.experiments.misspecification import MISSPECIFICATION
from twinfold_studies.experiments.numerics import NUMERICS
from twinfold_studies.experiments.real import REAL
from twinfold_studies.experiments.refit import REFIT
from twinfold_studies.experiments.sweep import CONJECTURE2, NOISE
from twinfold_studies.experiments.theory import THEORY
from twinfold_studies.experiments.trap import TRAP

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        CS2,
        TRAP,
        ABLATION,
        MISSPECIFICATION,
        NOISE,
        CONJECTURE1,
        CONJECTURE2,
        THEORY,
        COST,
        BATTERY,
        DRIVE,
        NUMERICS,
        CONSERVED,
        FOLLOW,
        FIRST_ATTEMPT,
        DEFAULTS,
        REFIT,
        REAL,
        FLEET,
    )
}


def experiment(name: str) -> Experiment:
    """The experiment with this name. **Raises:** `ValueError` that lists the names."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {unknown_name(name, (*EXPERIMENTS, 'all', 'list'))}")
    return EXPERIMENTS[name]
