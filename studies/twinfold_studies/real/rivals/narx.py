"""A polynomial NARX model: terms chosen by forward regression (FROLS of the package `sysidentpy`).

    y[k] = sum_i theta_i m_i,    m_i a product of y[k-1], ..., y[k-l], u[k-1], ..., u[k-l]

`sysidentpy` identifies one output. With several, each has a model of its own in which the others are inputs, and all
are run together: hence the free run is written here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from twinfold_studies.real.rivals.scale import Scale, Signals

CODE = 1000  # `sysidentpy` writes lag l of variable v as 1000 v + l, v = 1 the output itself; 0 is the constant 1
LIMIT = 1e6  # in units of the record, beyond which a run has diverged


class Term(NamedTuple):
    """A coefficient times a product of (column, lag)."""

    theta: float
    factors: tuple[tuple[int, int], ...]


class Narx(NamedTuple):
    """The terms of each output; columns are the outputs, then the inputs, in units of the training record."""

    terms: tuple[tuple[Term, ...], ...]
    lags: int
    inputs: Scale
    outputs: Scale

    @staticmethod
    def identify(runs: Sequence[tuple[Signals, Signals]], *, lags: int, degree: int, terms: int) -> "Narx":
        """Identify a model.

        **Arguments:** `runs`, inputs [T, m] and outputs [T, p] of each, with equal steps; several are joined end to
        end; `lags` of outputs and inputs; `degree` of the polynomial; `terms` of each output, at most.
        """
        from sysidentpy.basis_function import Polynomial
        from sysidentpy.model_structure_selection import FROLS
        from sysidentpy.parameter_estimation import LeastSquares

        inputs, outputs = Scale.of([u for u, _ in runs]), Scale.of([y for _, y in runs])
        u = inputs.scaled(np.concatenate([u for u, _ in runs]))
        y = outputs.scaled(np.concatenate([y for _, y in runs]))
        found = []
        for index in range(y.shape[1]):
            others = [i for i in range(y.shape[1]) if i != index]
            seen = np.hstack([y[:, others], u])
            columns = [index, *others, *range(y.shape[1], y.shape[1] + u.shape[1])]
            model = FROLS(
                ylag=lags,
                xlag=[list(range(1, lags + 1)) for _ in range(seen.shape[1])] if seen.shape[1] > 1 else lags,
                order_selection=False,
                n_terms=terms,
                estimator=LeastSquares(),
                basis_function=Polynomial(degree=degree),
                model_type="NARMAX" if seen.shape[1] else "NAR",
            )
            model.fit(X=seen if seen.shape[1] else None, y=y[:, [index]])
            assert model.theta is not None
            assert model.final_model is not None
            found.append(
                tuple(
                    Term(float(theta), tuple((columns[code // CODE - 1], int(code % CODE)) for code in row if code))
                    for theta, row in zip(model.theta.ravel(), model.final_model, strict=True)
                )
            )
        return Narx(tuple(found), lags, inputs, outputs)

    def simulate(self, u: Signals, y_first: Signals) -> Signals:
        """The outputs [T, p] under inputs [T, m] in a free run from the first outputs; infinite after it diverges."""
        if len(y_first) < self.lags:
            raise ValueError(f"y_first: {len(y_first)} samples, and the model needs {self.lags}.")
        z = np.hstack([np.full((len(u), len(self.terms)), np.inf), self.inputs.scaled(u)])
        z[: len(y_first), : len(self.terms)] = self.outputs.scaled(y_first)
        for k in range(len(y_first), len(u)):
            now = [sum(t.theta * _product(z, k, t.factors) for t in terms) for terms in self.terms]
            if not np.all(np.abs(now) < LIMIT):
                break
            z[k, : len(self.terms)] = now
        return self.outputs.physical(z[:, : len(self.terms)])


def _product(z: Float[np.ndarray, "T k"], row: int, factors: tuple[tuple[int, int], ...]) -> float:
    value = 1.0
    for column, lag in factors:
        value *= z[row - lag, column]
    return value
