"""Accuracy of a twin or a fit: errors, constraint violations and failures on recorded runs.

`evaluate` computes all metrics of a model on a data set; `predict` returns the predictions themselves, and `measure`
the metrics of predictions. `with_true_field` gives the smallest error that is possible with a twin's integrator.

The public names are listed in `__init__.pyi`; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
