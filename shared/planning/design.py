"""What is public about a release before it exists: the part of a study or a spec that a forecast depends on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import Attribute, EncodedColumn, Whitening, encoded_columns
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.gaussian import calibrated_rho
from commingle.shared.dp.sensitivity import Adjacency, Geometry, squared_sensitivity

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyDesign:
    """What one party contributes."""

    name: str
    attributes: tuple[Attribute, ...]
    row_norm: float | None = None
    whitening: Whitening | None = None

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """The published columns: mixtures where rows are whitened."""
        encoded = encoded_columns(self.attributes)
        return encoded if self.whitening is None else self.whitening.columns(encoded)

    @property
    def geometries(self) -> tuple[Geometry, ...] | None:
        """What bounds an encoded row besides `row_norm`; nothing once it is whitened."""
        return None if self.whitening is not None else tuple(a.geometry for a in self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDesign:
    """A release as far as a forecast needs it.

    Attributes:
        k: rows of the sketch; None for one that is not chosen yet, and for mechanisms that have none.
        n: subjects.
        epsilon, delta: per party, in the design's own adjacency.
    """

    mechanism: str
    k: int | None
    n: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    calibration: Calibration
    shares: tuple[PartyDesign, ...]

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """All attributes of all parties, in order."""
        return tuple(attribute for share in self.shares for attribute in share.attributes)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """All published columns but the intercept, in order."""
        return tuple(column for share in self.shares for column in share.columns)

    @property
    def whitened(self) -> tuple[str, ...]:
        """Names of the parties whose rows are whitened."""
        return tuple(share.name for share in self.shares if share.whitening is not None)

    @property
    def cut(self) -> tuple[str, ...]:
        """Names of the parties whose encoded rows may be longer than their row norm."""
        longest = {share.name: sum(g.radius_squared for g in share.geometries or ()) for share in self.shares}
        return tuple(s.name for s in self.shares if s.row_norm is not None and s.row_norm**2 < longest[s.name])

    @property
    def rows(self) -> int:
        """Rows of the published matrix: k, or n where there is no sketch."""
        return self.n if self.k is None else self.k


def design_of(asked: Study | ReleaseSpec) -> ReleaseDesign:
    """The design of a study or of a spec."""
    shares = tuple(
        PartyDesign(name=p.name, attributes=p.attributes, row_norm=p.row_norm, whitening=p.whitening)
        for p in asked.parties
    )
    return ReleaseDesign(
        mechanism=asked.mechanism,
        k=asked.k,
        n=asked.n,
        epsilon=asked.epsilon,
        delta=asked.delta,
        adjacency=asked.adjacency,
        calibration=asked.calibration,
        shares=shares,
    )


def noise_variance(design: ReleaseDesign) -> Array:
    """(p - 1,) variance of the noise in one published entry of each column but the intercept, in encoded units.

    v = Delta^2 / (2 rho) of noisy rows, mixed or not (docs/design/privacy.md#noise), before sigma is rounded up to an
    integer. Noisy moments have another (`mechanisms.moments`).

    Raises:
        ParameterError: epsilon, delta or a row norm outside its domain.
    """
    rho = calibrated_rho(design.calibration, epsilon=design.epsilon, delta=design.delta)
    found: list[float] = []
    for share in design.shares:
        moved = squared_sensitivity(share.geometries, row_norm=share.row_norm, adjacency=design.adjacency)
        found += [moved / (SCALE**2 * 2 * rho)] * len(share.columns)
    return np.array(found)
