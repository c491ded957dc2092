"""Reports about fitted twins and experiments: pages that open offline in a browser.

The public names are listed in `__init__.pyi`. Each is imported when it is first used, so that formatting a number
neither imports JAX nor needs the packages of a page.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
