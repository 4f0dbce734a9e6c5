"""The kinds of release: what an agent uploads, how uploads assemble, with what step and noise, and what it estimates.

Everything else in the house asks `mechanism_of(spec)` and stays ignorant of which it is.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.answers import Moments
from commingle.shared.mechanisms.moments import block as moments
from commingle.shared.mechanisms.rows import dgm, rmgm


class Mixer(Protocol):
    """Takes a party's integer rows in any order and gives what its block is made of."""

    def add(self, ranks: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Take rows (m x d) of the subjects with these ranks (m)."""

    def total(self) -> NDArray[np.int64]:
        """The block before noise; where parties exchange first, the rows (n x d) in the order of their ranks."""


class Mechanism(Protocol):
    """What a module of this package offers."""

    def rows(self, spec: ReleaseSpec) -> int:
        """Rows of every block and of the published matrix."""

    def squared_sensitivity(self, spec: ReleaseSpec, party: PartySpec, adjacency: Adjacency) -> int:
        """Delta^2 of that party's block in units of its noise: the block is rho-zCDP, rho = Delta^2 / (2 sigma^2)."""

    def step(self, spec: ReleaseSpec) -> float:
        """The published value is integer * step."""

    def intercept(self, spec: ReleaseSpec) -> NDArray[np.int64]:
        """The noiseless column that mixing all-ones gives, in steps."""

    def mixer(self, spec: ReleaseSpec, columns: int) -> Mixer:
        """An empty mixer for one party's block of that many encoded columns."""

    def noise(self, spec: ReleaseSpec, party: PartySpec, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
        """The noise of that party's block (rows x d), drawn now."""

    def moments(self, spec: ReleaseSpec, sigmas: Sequence[int], matrix: NDArray[np.int64]) -> Moments:
        """What an assembled matrix says about second moments; the parties' sigmas are in the spec's order.

        Raises:
            VerificationError: no honest blocks make such a matrix.
        """


_MECHANISMS: Mapping[str, Mechanism] = {"rmgm": rmgm, "dgm": dgm, "moments": moments}


def mechanism_of(spec: ReleaseSpec) -> Mechanism:
    """The mechanism a spec asks for."""
    return _MECHANISMS[spec.mechanism]
