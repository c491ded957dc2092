"""Grey-box digital twins that stay on their manifold: known physics, a learned residual, hard invariants.

The public names are listed in `__init__.pyi`. Each is imported when it is first used, so that `import twinfold` and the
command line start quickly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
