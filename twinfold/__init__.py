"""Grey-box digital twins that stay on their manifold: known physics, a learned residual, hard invariants."""

from twinfold._version import __version__
from twinfold.cell import Cell
from twinfold.check.examine import examine
from twinfold.check.finding import Examination, Finding
from twinfold.constraint.base import AbstractConstraint, Conserved, Constraint, Stack, Unconstrained
from twinfold.constraint.bounds import Bounds
from twinfold.constraint.hidden import WithHidden, constraint_of, hidden
from twinfold.constraint.index import dae_index, index_of
from twinfold.data.batch import Batch
from twinfold.data.dataset import Dataset
from twinfold.data.run import Run
from twinfold.data.sources import load_dataset
from twinfold.evaluate.floor import floor_of
from twinfold.evaluate.metrics import Evaluation, evaluate, measure
from twinfold.evaluate.predict import Predictions, predict
from twinfold.export.exporting import export_twin
from twinfold.export.spec import ExportSpec
from twinfold.field.boxes import BlackBox, GreyBox
from twinfold.field.friction import Friction
from twinfold.field.implicit import Implicit
from twinfold.field.learned import AbstractLearned, Frozen, count_parameters
from twinfold.field.multibody import Multibody
from twinfold.field.network import Network
from twinfold.field.residual import MLP, Scaling
from twinfold.field.unknown import Unknown
from twinfold.identify.guard import guarded_fit
from twinfold.integrate.base import AbstractIntegrator, Predicted
from twinfold.integrate.bdf import BDF
from twinfold.integrate.diffrax_step import DiffraxStep
from twinfold.integrate.explicit import RK4, Euler, ExplicitRungeKutta, Heun, Midpoint
from twinfold.integrate.radau import Radau
from twinfold.integrate.rattle import Rattle
from twinfold.model_file import ModelInfo, load_model, read_info, save_model
from twinfold.models import hrpinn, node, phrpinn, pnode
from twinfold.monitor.watch import watch
from twinfold.precision import enable_x64
from twinfold.project.adaptive import Adaptive
from twinfold.project.base import AbstractProjection, Correction, NoProjection
from twinfold.project.krylov import Krylov
from twinfold.project.newton import Newton
from twinfold.project.sparse import Sparse
from twinfold.project.suited import suited_projection
from twinfold.project.tangent import Tangent
from twinfold.projected import Projected
from twinfold.report.write import write_twin_report
from twinfold.result import RESULTS
from twinfold.rollout import Trajectory, rollout
from twinfold.stepper import Stepped, Stepper
from twinfold.train.augmented import AugmentedLagrangian
from twinfold.train.fit import Fit, fit
from twinfold.train.gradient import Adam, Gradient
from twinfold.train.levenberg import LevenbergMarquardt
from twinfold.train.loss import Loss
from twinfold.train.prepare import default_methods
from twinfold.twin import Simulation, SimulationError, Twin

__all__ = [
    "BDF",
    "MLP",
    "RESULTS",
    "RK4",
    "AbstractConstraint",
    "AbstractIntegrator",
    "AbstractLearned",
    "AbstractProjection",
    "Adam",
    "Adaptive",
    "AugmentedLagrangian",
    "Batch",
    "BlackBox",
    "Bounds",
    "Cell",
    "Conserved",
    "Constraint",
    "Correction",
    "Dataset",
    "DiffraxStep",
    "Euler",
    "Evaluation",
    "Examination",
    "ExplicitRungeKutta",
    "ExportSpec",
    "Finding",
    "Fit",
    "Friction",
    "Frozen",
    "Gradient",
    "GreyBox",
    "Heun",
    "Implicit",
    "Krylov",
    "LevenbergMarquardt",
    "Loss",
    "Midpoint",
    "ModelInfo",
    "Multibody",
    "Network",
    "Newton",
    "NoProjection",
    "Predicted",
    "Predictions",
    "Projected",
    "Radau",
    "Rattle",
    "Run",
    "Scaling",
    "Simulation",
    "SimulationError",
    "Sparse",
    "Stack",
    "Stepped",
    "Stepper",
    "Tangent",
    "Trajectory",
    "Twin",
    "Unconstrained",
    "Unknown",
    "WithHidden",
    "__version__",
    "constraint_of",
    "count_parameters",
    "dae_index",
    "default_methods",
    "enable_x64",
    "evaluate",
    "examine",
    "export_twin",
    "fit",
    "floor_of",
    "guarded_fit",
    "hidden",
    "hrpinn",
    "index_of",
    "load_dataset",
    "load_model",
    "measure",
    "node",
    "phrpinn",
    "pnode",
    "predict",
    "read_info",
    "rollout",
    "save_model",
    "suited_projection",
    "watch",
    "write_twin_report",
]
