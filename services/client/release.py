"""A published release in memory: verified, ready to be fitted. There is no other way to get one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.services import analysis
from commingle.services.client.files import ReleaseFiles
from commingle.services.client.trust import fingerprint
from commingle.services.fit import Fit, FitRequest, PreparedMoments, fit_prepared
from commingle.shared.documents.manifest import PrivacyStatement
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.release.matrix import decode_matrix
from commingle.shared.release.verification import PublishedRelease


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Release:
    """A release whose signatures and digests all hold.

    Attributes:
        published: what verification found.
        prepared: its moments as arrays, shared by all fits.
        pinned: whether the coordinator's key was compared with one known beforehand.
        files: the bytes as served.
    """

    published: PublishedRelease
    prepared: PreparedMoments
    pinned: bool
    files: ReleaseFiles = field(repr=False)

    @classmethod
    def of(cls, files: ReleaseFiles, *, trusted_coordinator: str | None = None) -> Self:
        """Verify three files.

        Args:
            files: as served or stored.
            trusted_coordinator: fingerprint the manifest must be signed under; None accepts any key.

        Raises:
            VerificationError, SignatureError, DocumentError: naming the first thing that does not hold.
            SettingsError: `trusted_coordinator` is not a fingerprint.
        """
        trusted = fingerprint(trusted_coordinator)
        published = files.verify(trusted_coordinator=trusted)
        prepared = PreparedMoments.of_release(published.moments, published.spec)
        return cls(published, prepared, trusted is not None, files)

    @classmethod
    def load(cls, directory: Path | str, *, trusted_coordinator: str | None = None) -> Self:
        """Read and verify a release directory, offline.

        Raises:
            ReleaseDirectoryError: a file is missing.
            As `of` otherwise.
        """
        return cls.of(ReleaseFiles.read(Path(directory)), trusted_coordinator=trusted_coordinator)

    def save(self, directory: Path | str) -> None:
        """Write manifest.json, matrix.parquet and moments.json. Raises ReleaseDirectoryError."""
        self.files.write(Path(directory))

    @property
    def id(self) -> str:
        """Digest of the spec, 64 hex digits."""
        return self.published.release

    @property
    def spec(self) -> ReleaseSpec:
        """Everything public that defines the release."""
        return self.published.spec

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """What can be a target or a feature, in the order of the parties."""
        return self.spec.attributes

    @property
    def privacy(self) -> PrivacyStatement:
        """What the release costs, per party and per subject."""
        return self.published.manifest.privacy

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the matrix's columns, the intercept first."""
        return tuple(column.name for column in self.spec.columns)

    def matrix(self) -> NDArray[np.float64]:
        """P, (rows, p), the published integers times the step: in encoded units, whitened where `columns` says so."""
        integers = decode_matrix(self.spec, self.files.matrix)
        return np.multiply(integers, self.published.manifest.step, dtype=np.float64)

    def fit(
        self,
        target: str,
        features: Sequence[str] | None = None,
        *,
        estimator: str | None = None,
        intercept: bool = True,
        confidence_level: float = 0.95,
        interval_for: IntervalFor = "table",
    ) -> Fit:
        """Fit a linear model of `target`, in original units; see `FitRequest`.

        Raises:
            EstimationError: an unknown attribute or estimator, or a fit that cannot be computed.
        """
        request = FitRequest(
            target=target,
            features=None if features is None else tuple(features),
            estimator=estimator,
            intercept=intercept,
            confidence_level=confidence_level,
            interval_for=interval_for,
        )
        return fit_prepared(self.prepared, request)

    def ridge_path(
        self, target: str, features: Sequence[str] | None = None, *, penalties: Sequence[float] | None = None
    ) -> analysis.CoefficientPath:
        """Ridge regressions over a row of penalties. Raises EstimationError."""
        return analysis.ridge_path(self.prepared, target, features, penalties=penalties)

    def lasso_path(
        self,
        target: str,
        features: Sequence[str] | None = None,
        *,
        l1_ratio: float = 1.0,
        penalties: Sequence[float] | None = None,
    ) -> analysis.CoefficientPath:
        """Lasso, or elastic net, over a row of penalties. Raises EstimationError, MissingExtraError."""
        return analysis.lasso_path(self.prepared, target, features, l1_ratio=l1_ratio, penalties=penalties)

    def pca(self, attributes: Sequence[str] | None = None, *, standardise: bool = True) -> analysis.PrincipalComponents:
        """Principal components. Raises EstimationError."""
        return analysis.pca(self.prepared, attributes, standardise=standardise)

    def partial_correlations(
        self, attributes: Sequence[str] | None = None, *, interval_for: IntervalFor = "table"
    ) -> analysis.PartialCorrelations:
        """Correlation of every pair, all others held fixed. Raises EstimationError."""
        return analysis.partial_correlations(self.prepared, attributes, interval_for=interval_for)

    def two_stage(
        self,
        target: str,
        *,
        endogenous: Sequence[str],
        instruments: Sequence[str],
        exogenous: Sequence[str] = (),
        confidence_level: float = 0.95,
        interval_for: IntervalFor = "table",
    ) -> analysis.TwoStageFit:
        """Two-stage least squares, with an intercept. Raises EstimationError."""
        return analysis.two_stage(
            self.prepared,
            target,
            endogenous=endogenous,
            instruments=instruments,
            exogenous=exogenous,
            confidence_level=confidence_level,
            interval_for=interval_for,
        )

    def compare(
        self,
        target: str,
        larger: Sequence[str] | None,
        smaller: Sequence[str],
        *,
        interval_for: IntervalFor = "population",
    ) -> analysis.Comparison:
        """Does the larger model need what the smaller one leaves out? Raises EstimationError."""
        return analysis.compare(self.prepared, target, larger, smaller, interval_for=interval_for)

    def __deepcopy__(self, _: object) -> Self:
        """The release itself: nothing in it changes, and a copy would not be verified."""
        return self

    def __repr__(self) -> str:
        spec = self.spec
        rows = f"{len(self.columns)} columns x {self.prepared.rows:,} rows"
        return (
            f"<Release {self.id[:16]} {spec.study!r}: {spec.mechanism}, {rows} on {spec.n:,} subjects of "
            f"{len(spec.parties)} parties, epsilon {spec.epsilon:g} per party, verified, "
            f"coordinator key {'pinned' if self.pinned else 'not pinned'}>"
        )
