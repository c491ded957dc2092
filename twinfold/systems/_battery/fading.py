"""The region that the learned parts of a battery were trained in, and beyond which the physics remains."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold._core import Frozen
from twinfold.data import Dataset
from twinfold.data._rows import simulate_row
from twinfold.model import Implicit, Twin
from twinfold.model._learned.region import covered_region
from twinfold.systems._battery.equations import HeatedRelations, Interaction, Relations

MARGIN = 0.1


def fade_outside(twin: Twin, data: Dataset, *, margin: float = MARGIN) -> Twin:
    """A copy of a fitted `battery` whose networks fade to zero outside of what they saw along these data.

    A network of mole fraction, current and temperature extrapolates to a cell in the cold, or to a larger current. Use
    this after `fit`, and before the scalars of a cell under other conditions are estimated.

    **Arguments:** `twin`, fitted to the runs of `data`; `margin`, over which a network fades, as a fraction of the
    range of each of its inputs.

    **Raises:** `ValueError` if the twin is no battery, or was fitted to other runs.

    **Example:**

    ```python
    learned = tw.systems.Interaction(tw.Network(1, 1, width=4, depth=1))
    twin = tw.systems.battery(positive=learned).initialise(jax.random.key(0), states=7, inputs=2)
    ts = np.arange(0.0, 301.0, 20.0)
    load = np.stack([np.full_like(ts, 2.0), np.full_like(ts, 25.0)], axis=1)
    data = tw.Dataset.from_arrays(ts, [np.linspace(4.1, 3.9, len(ts))], inputs=[load])
    cautious = tw.systems.fade_outside(twin, data)  # after `fit(twin, data)`
    cautious.algebraic.positive.region.value.low  # the smallest mole fraction that was passed through
    ```
    """
    if not margin > 0:
        raise ValueError(f"fade_outside(margin={margin}): must be positive.")
    relations = _relations(twin)
    batch = data.batch()
    if twin.has_own_parameters:
        own = twin.run_indices(data.names, data.groups)
        if own is None:
            raise ValueError("fade_outside(data=...): the twin was not fitted to all of these runs.")
        batch = eqx.tree_at(lambda batch: batch.run, batch, np.asarray(own, batch.run.dtype))
    heated = isinstance(_algebraic(twin), HeatedRelations)

    def passed(row: Any) -> dict[str, jax.Array]:
        simulation = simulate_row(twin, row)
        xs, w = simulation.xs, row.w
        return {"p": simulation.zs["x_sp"], "n": simulation.zs["x_sn"], "T": xs[:, -1] if heated else w[:, 1]}

    found = eqx.filter_jit(jax.vmap(passed))(batch)
    real = np.arange(batch.ts.shape[1]) < np.asarray(batch.length)[:, None]
    assert batch.w is not None
    shared = {"i": np.asarray(batch.w)[..., 0][real], "T": np.asarray(found["T"])[real]}
    regions = []
    for side, part in (("p", relations.positive), ("n", relations.negative)):
        columns = shared | {"x": np.asarray(found[side])[real]}
        chosen = [columns[name] for name in part.inputs]
        region = covered_region(chosen, [False] * len(chosen), margin, batch.ts.dtype)
        regions.append(part.region if part.network is None else Frozen(region))

    def places(twin: Twin) -> list[Any]:
        parts: tuple[Interaction, ...] = (_relations(twin).positive, _relations(twin).negative)
        return [part.region for part in parts]

    return eqx.tree_at(places, twin, regions, is_leaf=lambda node: node is None)


def _algebraic(twin: Twin) -> Any:
    return twin.algebraic.gives if isinstance(twin.algebraic, Implicit) else twin.algebraic


def _relations(twin: Twin) -> Relations:
    algebraic = _algebraic(twin)
    relations = algebraic.relations if isinstance(algebraic, HeatedRelations) else algebraic
    if not isinstance(relations, Relations):
        raise ValueError("fade_outside(twin=...): give a twin that `battery` built.")
    return relations
