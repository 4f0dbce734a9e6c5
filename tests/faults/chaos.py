"""What goes wrong, drawn from a seed and counted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random


class CrashError(BaseException):
    """A process dies here. Nothing may handle it but whoever restarts processes."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process


@dataclass
class Chaos:
    """Draws faults, unless it is calm.

    Attributes:
        counts: faults by kind.
        points: at which fault points processes were killed.
    """

    random: Random
    counts: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    calm: bool = True

    def strikes(self, kind: str, probability: float) -> bool:
        struck = not self.calm and self.random.random() < probability
        if struck:
            self.counts[kind] += 1
        return struck

    def one_of(self, kinds: Sequence[tuple[str, float]], *, scale: float = 1.0) -> str:
        """At most one of these, each with its own probability times `scale`; an empty string for none."""
        if self.calm:
            return ""
        drawn = self.random.random() / scale
        for kind, probability in kinds:
            if drawn < probability:
                self.counts[kind] += 1
                return kind
            drawn -= probability
        return ""

    def seconds(self, least: float, most: float) -> float:
        return self.random.uniform(least, most)
