"""The kinds of release. A mechanism says what an agent uploads, how uploads assemble, and with what step and noise.

Everything else in the house asks `mechanism_of(spec)` and stays ignorant of which it is.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.protocol.mechanisms import dgm, rmgm
from shared.protocol.spec import ReleaseSpec


class Mixer(Protocol):
    """Takes a party's integer rows in any order and gives the integers to which noise is added."""

    def add(self, ranks: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Take rows (m x d) of the subjects with these ranks (m)."""

    def total(self) -> NDArray[np.int64]:
        """The mixed block, before noise."""


class Mechanism(Protocol):
    """What a module of this package offers."""

    def rows(self, spec: ReleaseSpec) -> int:
        """Rows of every block and of the published matrix."""

    def gain(self, spec: ReleaseSpec) -> int:
        """Squared L2 distance of two mixed blocks per squared distance of the one encoded row that differs."""

    def step(self, spec: ReleaseSpec) -> float:
        """The published value is integer * step."""

    def intercept(self, spec: ReleaseSpec) -> NDArray[np.int64]:
        """The noiseless column that mixing all-ones gives, in steps."""

    def mixer(self, spec: ReleaseSpec, columns: int) -> Mixer:
        """An empty mixer for one party's block of that many encoded columns."""


_MECHANISMS: Mapping[str, Mechanism] = {"rmgm": rmgm, "dgm": dgm}


def mechanism_of(spec: ReleaseSpec) -> Mechanism:
    """The mechanism a spec asks for."""
    return _MECHANISMS[spec.mechanism]
