"""Battery cells whose network was fitted beforehand: only the scalars of your own cell remain to be estimated.

Each is a JSON file in the folder `fitted`: a data sheet (trained on what, valid where, with which errors), the weights
of the network, the region that it has seen, and first guesses of the scalars.
"""

import json
from importlib import resources
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import Frozen
from twinfold.io import unknown_name
from twinfold.model import Network, Region, Twin, Unknown
from twinfold.numerics import RK4
from twinfold.systems._battery.cell import battery
from twinfold.systems._battery.equations import Interaction

SUBSTEPS = 3


def data_sheet(name: str = "nasa_18650") -> dict[str, Any]:
    """What a fitted cell was trained on, where it holds, and how large its errors were on other cells.

    **Arguments:** `name` of the fitted cell.

    **Returns:** the data sheet; `errors` are mean absolute errors of the voltage of the next discharge, in volt.

    **Raises:** `ValueError` for an unknown name.

    **Example:**

    ```python
    sheet = tw.systems.data_sheet("nasa_18650")
    sheet["trained_on"]["cells"], sheet["held_out"]
    ```
    """
    return {key: value for key, value in _read(name).items() if key not in ("network", "scalars")}


def fitted_cell(name: str = "nasa_18650", *, per_cell: bool = False) -> Twin:
    """The electrochemical cell with a network that is already fitted; its scalars are to be estimated from your data.

    Inputs are the current (> 0 on discharge) and the temperature of the surroundings, outputs the voltage and the
    temperature of the cell. Fit it with `trainable="parameters"`, which leaves the network as it is. Outside of what
    it was trained on (see `data_sheet`) the network fades, and the physics remains.

    **Arguments:** `name` of the fitted cell; `per_cell`: the scalars have a value for each group of runs, for several
    cells at once (default: one value, for the runs of one cell).

    **Raises:** `ValueError` for an unknown name.

    **Example:**

    ```python
    cell = tw.systems.fitted_cell("nasa_18650")
    ts = np.arange(0.0, 601.0, 20.0)
    load = jnp.stack([jnp.full(len(ts), 2.0), jnp.full(len(ts), 24.0)], axis=1)  # 2 A, 24 degrees around the cell
    x0 = cell.initial_state(0.0, jnp.array([4.19, 24.0]), load[0], cell.parameters())
    cell.simulate(x0, ts, load).ys[-1]  # volt and degrees after ten minutes
    ```
    """
    stored = _read(name)
    network = stored["network"]
    unknown: dict[str, Any] = {
        key: Unknown(
            each["guess"], positive=each["guess"] > 0 and key != "offset", per_group=per_cell, spread=each["spread"]
        )
        for key, each in stored["scalars"].items()
        if "spread" in each
    }
    known = {key: each["guess"] for key, each in stored["scalars"].items() if "spread" not in each}
    region = Region(*(jnp.asarray(network["region"][end], float) for end in ("low", "high", "margin")))
    return battery(
        unknown=unknown | known,
        positive=Interaction(
            _network(network),
            inputs=tuple(network["inputs"]),
            output_scale=network["output_scale"],
            region=Frozen(region),
        ),
        initial="rest",
        temperature="output",
        arrhenius=True,
        integrator=RK4(SUBSTEPS),
    )


def _network(stored: dict[str, Any]) -> Network:
    layers = [{key: np.asarray(each[key], float) for key in ("weight", "bias")} for each in stored["layers"]]
    sizes = (layers[0]["weight"].shape[1], layers[-1]["weight"].shape[0], layers[0]["weight"].shape[0], len(layers) - 1)
    weights = eqx.nn.MLP(*sizes, activation=jnp.tanh, key=jax.random.key(0))  # all weights are replaced
    weights = eqx.tree_at(
        lambda mlp: [part for layer in mlp.layers for part in (layer.weight, layer.bias)],
        weights,
        [jnp.asarray(layer[key]) for layer in layers for key in ("weight", "bias")],
    )
    return Network(*sizes, zero_last=True, weights=weights)


def _read(name: str) -> dict[str, Any]:
    folder = resources.files("twinfold.systems") / "_battery" / "fitted"
    known = sorted(each.name.removesuffix(".json") for each in folder.iterdir() if each.name.endswith(".json"))
    if name not in known:
        raise ValueError(f"there is no fitted cell {unknown_name(name, dict.fromkeys(known))}")
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
