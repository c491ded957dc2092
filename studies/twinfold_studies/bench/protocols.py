"""How the models of the comparison are trained: as the paper says, or as well as this library can."""

import dataclasses

from twinfold.io import unknown_name
from twinfold.train import AbstractMethod, Adam, AugmentedLagrangian, LevenbergMarquardt, Loss
from twinfold_studies.bench.contenders import Contender

PARAMETERS = 300  # weights of each model, within 10 %
BATCH = 10  # trajectories in a minibatch of the paper's protocol, which does not give it: 1,500 updates
SHORT = 11  # samples in the windows of the first stages


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Stages for models that are rolled out, stages for those that are not, units of data and loss, weight decay."""

    stages: tuple[AbstractMethod, ...]
    whole: tuple[AbstractMethod, ...]  # for a PINN, which has no windows to start from
    scaled: bool
    l2: float = 0.0

    def methods(self, contender: Contender) -> tuple[AbstractMethod, ...]:
        """The stages of one model."""
        chosen = self.whole if contender.collocation > 0 else self.stages
        if not contender.multipliers:
            return chosen
        return tuple(AugmentedLagrangian(method, every=max(1, method.epochs // 20)) for method in chosen)

    def loss(self, contender: Contender, soft: float | None = None) -> Loss:
        """The loss of one model; `soft` in place of its own weight of the constraint."""
        return Loss(
            scale="std" if self.scaled else "off",
            constraint_penalty=contender.soft if soft is None else soft,
            collocation=contender.collocation,
            l2=self.l2,
        )


PAPER = (Adam(500, learning_rate=1e-3, batch_size=BATCH, plateau=(0.5, 25)),)
PROTOCOLS = {
    # Adam 1e-3, reduce on plateau, 500 epochs, raw data.
    "paper": Protocol(stages=PAPER, whole=PAPER, scaled=False),
    # Short windows first, second order at the end, everything in units of size one.
    "best": Protocol(
        stages=(
            Adam(200, learning_rate=1e-2, window=SHORT),
            LevenbergMarquardt(40, window=SHORT),
            LevenbergMarquardt(100),
        ),
        whole=(Adam(1000, learning_rate=1e-2), LevenbergMarquardt(100)),
        scaled=True,
    ),
}
QUICK = {
    "paper": Protocol(stages=(Adam(20, batch_size=4),), whole=(Adam(20, batch_size=4),), scaled=False),
    # One stage alone: what takes the time of a quick look is compiling.
    "best": Protocol(
        stages=(LevenbergMarquardt(15, window=SHORT),),
        whole=(LevenbergMarquardt(15),),
        scaled=True,
    ),
}


def protocol(name: str, *, quick: bool = False) -> Protocol:
    """The protocol of this name; a `ValueError` that lists them for another name."""
    if name not in PROTOCOLS:
        raise ValueError(f"there is no protocol {unknown_name(name, PROTOCOLS)}")
    return (QUICK if quick else PROTOCOLS)[name]


def describe_stages(chosen: Protocol) -> list[str]:
    """The stages in words: what a fit depends on."""
    batch = {method.name: getattr(method, "batch_size", None) for method in (*chosen.stages, *chosen.whole)}
    return [
        f"{kind}: {method.name}, {method.epochs} epochs, window {method.window}, batch {batch[method.name]}"
        for kind, methods in (("rolled out", chosen.stages), ("whole runs", chosen.whole))
        for method in methods
    ] + [f"units {'of the data' if chosen.scaled else 'raw'}, l2 {chosen.l2:g}"]
