"""Recorded runs: read, select, split and batch measurements.

Start with `load_dataset` for files and tables, or `Dataset.from_arrays` for arrays. A `Dataset` holds one `Run` per
recording; `Dataset.batch` and `Dataset.windows` return the padded arrays (`Batch`) from which a loss is computed.

The public names are listed in `__init__.pyi`; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
