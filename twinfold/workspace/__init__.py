"""A user's folder: its configuration, its fit, and what the other commands do with them.

The public names are listed in `__init__.pyi`. Each is imported when it is first used, so that `twinfold new` and
`twinfold info` start without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
