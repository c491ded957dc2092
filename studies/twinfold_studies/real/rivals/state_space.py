"""A linear state-space model by subspace identification (N4SID of the package `nfoursid`).

x[k+1] = A x[k] + B u[k],    y[k] = C x[k] + D u[k]
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from twinfold_studies.real.rivals.scale import Scale, Signals

# `nfoursid` forms the full singular vectors of a matrix with as many columns as there are samples.
MAX_SAMPLES = 5000


class StateSpace(NamedTuple):
    """A linear model of discrete time, in units of the training record."""

    a: Float[np.ndarray, "n n"]
    b: Float[np.ndarray, "n m"]
    c: Float[np.ndarray, "p n"]
    d: Float[np.ndarray, "p m"]
    inputs: Scale
    outputs: Scale

    @staticmethod
    def identify(runs: Sequence[tuple[Signals, Signals]], *, order: int, block_rows: int) -> "StateSpace":
        """Identify a model of this order.

        **Arguments:** `runs`, inputs [T, m] and outputs [T, p] of each, with equal steps; m may be zero; several runs
        are joined end to end; `order`, the number of states; `block_rows` of the Hankel matrices, at least
        order / p.
        """
        import pandas as pd
        from nfoursid.nfoursid import NFourSID

        count = sum(len(y) for _, y in runs)
        if count > MAX_SAMPLES:
            raise ValueError(
                f"{count} samples: the method takes {MAX_SAMPLES}; keep one in {-(-count // MAX_SAMPLES)}."
            )
        inputs, outputs = Scale.of([u for u, _ in runs]), Scale.of([y for _, y in runs])
        u = inputs.scaled(np.concatenate([u for u, _ in runs]))
        y = outputs.scaled(np.concatenate([y for _, y in runs]))
        names = [[f"{kind}{i}" for i in range(each.shape[1])] for kind, each in (("u", u), ("y", y))]
        frame = pd.DataFrame(np.hstack([u, y]), columns=names[0] + names[1])
        method = NFourSID(frame, output_columns=names[1], input_columns=names[0], num_block_rows=block_rows)
        method.subspace_identification()
        found, _ = method.system_identification(rank=order)
        return StateSpace(found.a, found.b, found.c, found.d, inputs, outputs)

    def simulate(self, u: Signals, y_first: Signals) -> Signals:
        """The outputs [T, p] under inputs [T, m], from the state that fits the first outputs best."""
        u, y_first = self.inputs.scaled(u), self.outputs.scaled(y_first)
        # y = O x0 + what the inputs add: least squares for x0 over the samples that are given.
        forced = self._run(np.zeros(len(self.a)), u[: len(y_first)])
        powers, rows = np.eye(len(self.a)), []
        for _ in y_first:
            rows.append(self.c @ powers)
            powers = self.a @ powers
        x0 = np.linalg.lstsq(np.concatenate(rows), (y_first - forced).ravel(), rcond=None)[0]
        return self.outputs.physical(self._run(x0, u))

    def _run(self, x: Float[np.ndarray, " n"], u: Signals) -> Signals:
        y = np.empty((len(u), len(self.c)))
        with np.errstate(over="ignore", invalid="ignore"):  # an unstable model overflows, which its error shows
            for k, now in enumerate(u):
                y[k] = self.c @ x + self.d @ now
                x = self.a @ x + self.b @ now
        return y
