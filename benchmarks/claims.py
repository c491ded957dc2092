"""What twinfold promises about its speed: which contender is compared with which, and where the ratio should be."""

from dataclasses import dataclass

from benchmarks.rounds import Ratio, Timing, ratio
from benchmarks.work import SEEDS

PLAIN, ROBUST = "twinfold", "twinfold, robust"
DIFFRAX, BY_HAND = "Diffrax, vmapped", "Diffrax, batched by hand"
ROOFLINE = "its matrix products alone"
TORCH_1, TORCH_2 = "torchdiffeq, 1 thread", "torchdiffeq, 2 threads"
ONE, MANY = "fit epoch, 1 seed", f"fit epoch, {SEEDS} seeds"


@dataclass(frozen=True)
class Claim:
    """Time of `above` over time of `below`, times `scale`, and where it should be (None: only for information).

    Of several contenders `above` the fastest counts.
    """

    label: str
    above: tuple[str, ...]
    below: str
    target: float | None
    more_is_better: bool = True
    scale: float = 1.0

    @property
    def aim(self) -> str:
        return "" if self.target is None else f"{'>=' if self.more_is_better else '<='} {self.target:g}"

    def judge(self, value: float) -> str:
        """Whether the target is kept, in words."""
        if self.target is None:
            return "for information"
        kept = value >= self.target if self.more_is_better else value <= self.target
        return f"{'PASS' if kept else 'SHORT OF TARGET'} ({self.aim})"

    def measure(self, timings: dict[str, Timing]) -> Ratio | None:
        """The ratio, or None where a contender was left out."""
        above = [timings[name] for name in self.above if name in timings]
        if not above or self.below not in timings:
            return None
        return ratio(min(above, key=lambda timing: timing.best), timings[self.below], self.scale)


# By their key in latest.json.
CLAIMS = {
    "speedup_vs_diffrax": Claim("faster than Diffrax, both vmapped", (DIFFRAX,), PLAIN, 2.0),
    "speedup_vs_diffrax_by_hand": Claim("faster than Diffrax batched by hand", (BY_HAND,), PLAIN, 1.6),
    "speedup_vs_torchdiffeq": Claim("faster than torchdiffeq", (TORCH_1, TORCH_2), PLAIN, 20),
    "speedup_vs_torchdiffeq_2_threads": Claim("faster than torchdiffeq on 2 threads", (TORCH_2,), PLAIN, None),
    "roofline_ratio": Claim("a step over its matrix products alone", (PLAIN,), ROOFLINE, 2.0, False),
    "robust_overhead": Claim("robust projection over none", (ROBUST,), PLAIN, 1.5, False),
    "seeds_ratio": Claim(f"{SEEDS} seeds over {SEEDS} times one seed", (MANY,), ONE, 0.6, False, 1 / SEEDS),
}
