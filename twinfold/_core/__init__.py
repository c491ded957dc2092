"""What all rooms share: results, constants, and operations on trees of arrays."""

from twinfold._core._arguments import call_by_name, named_arguments, select_arguments
from twinfold._core._compilation_cache import enable_compilation_cache
from twinfold._core._finite import finite_jvp
from twinfold._core._frozen import Frozen
from twinfold._core._precision import enable_x64
from twinfold._core._quick_jit import quick_jit
from twinfold._core._results import RESULTS, first_failure, outcome_codes, outcome_messages
from twinfold._core._times import check_times
from twinfold._core._trees import stop_gradient_tree, tree_structure_text, tree_take, tree_where

__all__ = [
    "RESULTS",
    "Frozen",
    "call_by_name",
    "check_times",
    "enable_compilation_cache",
    "enable_x64",
    "finite_jvp",
    "first_failure",
    "named_arguments",
    "outcome_codes",
    "outcome_messages",
    "quick_jit",
    "select_arguments",
    "stop_gradient_tree",
    "tree_structure_text",
    "tree_take",
    "tree_where",
]
