"""What a release may cost, by the terms that it is asked for or proposed with."""

from collections.abc import Sequence
from typing import Protocol

from commingle.shared.documents.schema import Attribute
from commingle.shared.dp.accounting import delta_left
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.gaussian import calibrated_rho
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.registry import mechanism_of


class Contributor(Protocol):
    """A party, whatever becomes of its rows."""

    @property
    def attributes(self) -> Sequence[Attribute]: ...


class Sizes(Protocol):
    """Of what is computed for a release, asked for or proposed."""

    @property
    def mechanism(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def keyed(self) -> bool: ...
    @property
    def buckets(self) -> int | None: ...
    @property
    def proved(self) -> bool: ...
    @property
    def contributors(self) -> Sequence[Contributor]: ...


class Terms(Sizes, Protocol):
    """Of a release, asked for or proposed."""

    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def adjacency(self) -> Adjacency: ...
    @property
    def calibration(self) -> Calibration: ...
    @property
    def delta_implementation(self) -> float: ...


def delta_implementation(asked: Terms) -> float:
    """The part of delta that is no noise's: what an exchange may fail to hide (docs/proofs/delta.md); public."""
    mechanism = mechanism_of(asked)
    rows = asked.buckets or mechanism.buckets(asked) or asked.n
    columns = [asked.keyed + sum(len(a.columns) for a in party.attributes) for party in asked.contributors]
    return mechanism.delta_implementation(rows, columns, proved=asked.proved)


def allowed_rho(asked: Terms) -> float:
    """The loss that each party's noise may have: that of epsilon at the delta which is left for noise.

    Raises:
        ParameterError: epsilon or delta outside its domain, or a delta that the exchange takes in full.
    """
    taken = asked.delta_implementation
    if 0 < asked.delta <= taken:
        raise ParameterError(
            f"delta {asked.delta:g} is not above the {taken:.2g} that an exchange of this size takes",
            remedy="Ask a larger delta, prove bounds, or propose a mechanism whose parties exchange nothing.",
        )
    return calibrated_rho(asked.calibration, epsilon=asked.epsilon, delta=delta_left(asked.delta, taken))
