"""What each part of the experiment `numerics` comes to."""

import dataclasses
from collections.abc import Mapping, Sequence

from twinfold.bench.experiment import Picture, Table


@dataclasses.dataclass(frozen=True)
class Part:
    """Sentences, tables, pictures, and the few numbers that `summary.json` holds."""

    words: Sequence[str]
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    summary: Mapping[str, float]
