"""Export of a fitted twin to C99, FMI 2.0, ONNX and StableHLO; each export is compared with the twin.

Every exporter starts from the same step functions (`_step.py`) and is checked against the same reference
(`_reference.py`); compiled code runs in a process of its own (`_isolated.py`). A new format is an entry in
`_formats.py`.

The public names are listed in `__init__.pyi`; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
