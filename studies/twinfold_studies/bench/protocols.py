"""Training protocols of the comparison: that of the paper, and the best one of this library."""

import dataclasses

from twinfold.io import unknown_name
from twinfold.train import AbstractMethod, Adam, AugmentedLagrangian, LevenbergMarquardt, Loss
from twinfold_studies.bench.contenders import Contender

PARAMETERS = 300  # weights of each model, to within 10 %
BATCH = 1  # trajectories per minibatch (the paper gives none): 15,000 updates
WINDOW = 11  # samples per window in the first stages


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A training protocol.

    **Arguments:** `stages`, for models that are integrated; `pinn_stages`, for PINNs, which have no windows; `scaled`:
    whether data and loss are scaled to unit variance; `l2`, weight decay.
    """

    stages: tuple[AbstractMethod, ...]
    pinn_stages: tuple[AbstractMethod, ...]
    scaled: bool
    l2: float = 0.0

    def methods(self, contender: Contender) -> tuple[AbstractMethod, ...]:
        """The training stages of a model."""
        chosen = self.pinn_stages if contender.collocation > 0 else self.stages
        if not contender.multipliers:
            return chosen
        return tuple(AugmentedLagrangian(method, every=max(1, method.epochs // 20)) for method in chosen)

    def loss(self, contender: Contender, soft: float | None = None) -> Loss:
        """The loss of a model; `soft` replaces its weight of the constraint."""
        return Loss(
            scale="std" if self.scaled else "off",
            constraint_penalty=contender.soft if soft is None else soft,
            collocation=contender.collocation,
            l2=self.l2,
        )


PAPER = (Adam(500, learning_rate=1e-3, batch_size=BATCH, plateau=(0.5, 25)),)
PROTOCOLS = {
    # Adam 1e-3, learning rate reduced on plateaus, 500 epochs, raw data.
    "paper": Protocol(stages=PAPER, pinn_stages=PAPER, scaled=False),
    # Short windows first, then second-order optimisation; all data scaled. Projected models are projected in the last
    # stage only (`fit(project="late")`); all others take the same steps without.
    "best": Protocol(
        stages=(
            Adam(200, learning_rate=1e-2, window=WINDOW),
            LevenbergMarquardt(40, window=WINDOW),
            LevenbergMarquardt(200),
            LevenbergMarquardt(200),
        ),
        pinn_stages=(Adam(1000, learning_rate=1e-2), LevenbergMarquardt(400)),
        scaled=True,
    ),
}
QUICK = {
    "paper": Protocol(stages=(Adam(20, batch_size=4),), pinn_stages=(Adam(20, batch_size=4),), scaled=False),
    # A single stage, because compilation dominates the time of a quick run.
    "best": Protocol(
        stages=(LevenbergMarquardt(15, window=WINDOW),),
        pinn_stages=(LevenbergMarquardt(15),),
        scaled=True,
    ),
}


def protocol(name: str, *, quick: bool = False) -> Protocol:
    """The protocol with this name. **Raises:** `ValueError` that lists the names."""
    if name not in PROTOCOLS:
        raise ValueError(f"there is no protocol {unknown_name(name, PROTOCOLS)}")
    return (QUICK if quick else PROTOCOLS)[name]


def describe_stages(chosen: Protocol) -> list[str]:
    """The stages as text. It is part of the keys of stored results: changing it orphans them."""
    batch = {method.name: getattr(method, "batch_size", None) for method in (*chosen.stages, *chosen.pinn_stages)}
    return [
        f"{kind}: {method.name}, {method.epochs} epochs, window {method.window}, batch {batch[method.name]}"
        for kind, methods in (("rolled out", chosen.stages), ("whole runs", chosen.pinn_stages))
        for method in methods
    ] + [f"units {'of the data' if chosen.scaled else 'raw'}, l2 {chosen.l2:g}"]
