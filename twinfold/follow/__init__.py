"""Follow many plants at once: batched followers, alarms on innovations, lines in and rows out, a state that survives.

The public names are listed in `__init__.pyi`; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
