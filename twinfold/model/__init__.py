"""What a user writes down: fields, learned parts, unknown parameters, constraints, and the twin."""

from twinfold.model._constraint.base import Conserved, Constraint, Stack
from twinfold.model._constraint.bounds import Bounds
from twinfold.model._constraint.hidden import WithHiddenConstraints, constraint_of, with_hidden_constraints
from twinfold.model._constraint.index import dae_index, index_of
from twinfold.model._fields import BlackBox, GreyBox
from twinfold.model._implicit import Implicit
from twinfold.model._learned.base import AbstractLearned, Statistics, count_parameters
from twinfold.model._learned.energy import Energy
from twinfold.model._learned.mlp import MLP, Scaling
from twinfold.model._learned.network import Network, matched_width
from twinfold.model._learned.trajectory import TrajectoryNetwork
from twinfold.model._mechanics.friction import Friction
from twinfold.model._mechanics.multibody import Multibody
from twinfold.model._model_file import load_model, save_model
from twinfold.model._recipes import hnn, hrpinn, lnn, node, phrpinn, pinn, pnode, snde
from twinfold.model._simulation import Simulation, SimulationError, simulate_unchecked
from twinfold.model._stabilised import Stabilised
from twinfold.model._stepper import Stepper, StepperOutput
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown

__all__ = [
    "MLP",
    "AbstractLearned",
    "BlackBox",
    "Bounds",
    "Conserved",
    "Constraint",
    "Energy",
    "Friction",
    "GreyBox",
    "Implicit",
    "Multibody",
    "Network",
    "Scaling",
    "Simulation",
    "SimulationError",
    "Stabilised",
    "Stack",
    "Statistics",
    "Stepper",
    "StepperOutput",
    "TrajectoryNetwork",
    "Twin",
    "Unknown",
    "WithHiddenConstraints",
    "constraint_of",
    "count_parameters",
    "dae_index",
    "hnn",
    "hrpinn",
    "index_of",
    "lnn",
    "load_model",
    "matched_width",
    "node",
    "phrpinn",
    "pinn",
    "pnode",
    "save_model",
    "simulate_unchecked",
    "snde",
    "with_hidden_constraints",
]
