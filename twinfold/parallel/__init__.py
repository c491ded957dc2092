"""Many independent tasks: one after the other in this process, or in many processes through Dask.

The public names are listed in `__init__.pyi`. Each is imported when it is first used: Dask only where it is asked for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
