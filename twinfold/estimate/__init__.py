"""State estimation: Kalman filters on the manifold of a twin, smoothing, noise levels, and the follower of a plant.

The public names are listed in `__init__.pyi`; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
