"""Fleets: one twin, many assets. The learned parts are shared, each asset has its own scalars and initial state.

The public names are listed in `__init__.pyi`. Each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
