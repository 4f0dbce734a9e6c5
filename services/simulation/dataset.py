"""What a simulation is about: rows, who holds which attributes of them, and what is to be predicted."""

from dataclasses import dataclass

import numpy as np

from commingle.services.simulation.table import Rows, Table
from commingle.shared.documents.schema import Attribute

TRAINING_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class PartyShare:
    """One party and what it contributes."""

    name: str
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Rows that fit their attributes.

    Attributes:
        table: the columns named by `attributes`; numeric ones hold numbers, all others levels of the schema.
        parties: each attribute is at exactly one of them.
        target: a numeric or binary attribute.
        notices: what was done to the table to get here, one sentence each.
    """

    table: Table
    parties: tuple[PartyShare, ...]
    target: str
    notices: tuple[str, ...] = ()

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """All attributes, in the order of the parties."""
        return tuple(attribute for party in self.parties for attribute in party.attributes)

    @property
    def features(self) -> tuple[Attribute, ...]:
        """All attributes but the target."""
        return tuple(attribute for attribute in self.attributes if attribute.name != self.target)


def training_size(n: int) -> int:
    """How many of n rows parties are given."""
    return int(TRAINING_SHARE * n)


def holdout(n: int, *, seed: int) -> tuple[Rows, Rows]:
    """Row numbers for training and, the remaining 20 %, for evaluation."""
    shuffled = np.random.default_rng(seed).permutation(n)
    return shuffled[: training_size(n)], shuffled[training_size(n) :]
