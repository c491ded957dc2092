from ._config import Config as Config
from ._config import read_config as read_config
from ._fit import fit_workspace as fit_workspace
from ._fit import load_fitted as load_fitted
from ._new import new_project as new_project
from ._workspace import Workspace as Workspace
from ._workspace import open_workspace as open_workspace
