"""A learned Hamiltonian with an initial state per run, projected in a metric."""

import twinfold as tw


def twin() -> tw.Twin:
    return tw.model.hnn(
        tw.model.Energy(width=6, depth=1, scaling="data"),
        initial=tw.Unknown([0.8, 0.1], per_run=True),
        constraint=tw.Conserved(lambda x: x @ x),
        projection=tw.Tangent(metric=[[2.0, 0.5], [0.5, 1.0]]),
    )
