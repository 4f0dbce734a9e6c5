"""A published release in memory, which is always verified."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from commingle.services import analysis, models
from commingle.services.client.export import Export, export
from commingle.services.client.files import NO_MEMBERS, ReleaseFiles, fingerprint, member_pins
from commingle.services.client.metadata import citation
from commingle.services.fit import Fit, PreparedMoments, fit_prepared
from commingle.services.results import ResultColumn, ResultTable
from commingle.shared.documents.manifest import PrivacyStatement
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.release.matrix import decode_matrix, prepared_release
from commingle.shared.release.verification import PublishedRelease

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _of_moments(analyse: Callable[Concatenate[PreparedMoments, _P], _R]) -> Callable[Concatenate["Release", _P], _R]:
    @wraps(analyse)
    def method(release: "Release", /, *args: _P.args, **options: _P.kwargs) -> _R:
        return analyse(release.prepared, *args, **options)

    return method


def _with_cost(fit: Callable[Concatenate[PreparedMoments, _P], Fit]) -> Callable[Concatenate["Release", _P], Fit]:
    @wraps(fit)
    def method(release: "Release", /, *args: _P.args, **options: _P.kwargs) -> Fit:
        found = fit(release.prepared, *args, **options)  # moments do not know what they cost
        return replace(found, epsilon=release.spec.epsilon, delta=release.spec.delta)

    return method


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Release:
    """A release whose signatures and digests all hold.

    Attributes:
        published: what verification found.
        prepared: its moments as arrays, which all fits share.
        pinned: whether the coordinator's key is one that you know. `published.pinned` has the members whose keys you
            know.
        files: the bytes as a coordinator serves them.
    """

    published: PublishedRelease
    prepared: PreparedMoments
    pinned: bool
    files: ReleaseFiles = field(repr=False)

    @classmethod
    def of(
        cls,
        files: ReleaseFiles,
        *,
        trusted_coordinator: str | None = None,
        members: Mapping[str, str] = NO_MEMBERS,
    ) -> Self:
        """Verify three files.

        Args:
            files: as served or stored.
            trusted_coordinator: fingerprint of the key that must have signed the manifest; None accepts any key.
            members: fingerprints, by name, of parties whose keys you know. For all other names you have the
                coordinator's word only. Members that are no parties of the release do not matter.

        Raises:
            VerificationError, SignatureError, DocumentError: naming the first thing that does not hold.
            SettingsError: something that you give is no fingerprint.
        """
        trusted = fingerprint(trusted_coordinator)
        published = files.verify(trusted_coordinator=trusted, members=member_pins(members))
        prepared = prepared_release(published.moments, published.spec, published.sums)
        return cls(published, prepared, trusted is not None, files)

    @classmethod
    def load(
        cls,
        directory: Path | str,
        *,
        trusted_coordinator: str | None = None,
        members: Mapping[str, str] = NO_MEMBERS,
    ) -> Self:
        """Read and verify a release directory, offline.

        Raises ReleaseDirectoryError: a file is missing; otherwise as `of`.
        """
        files = ReleaseFiles.read(Path(directory))
        return cls.of(files, trusted_coordinator=trusted_coordinator, members=members)

    def save(self, directory: Path | str) -> None:
        """Write manifest.json, matrix.parquet and moments.json. Raises ReleaseDirectoryError."""
        self.files.write(Path(directory))

    @property
    def id(self) -> str:
        """Digest of the spec, 64 hex digits."""
        return self.published.release

    @property
    def spec(self) -> ReleaseSpec:
        """The signed, public definition of the release."""
        return self.published.spec

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """All targets and features, in the order of the parties."""
        return self.spec.terms.attributes

    @property
    def privacy(self) -> PrivacyStatement:
        """What the release costs, per party and per subject."""
        return self.published.manifest.privacy

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the matrix's columns; the intercept is first."""
        return tuple(column.name for column in self.spec.matrix_columns)

    def matrix(self) -> NDArray[np.float64]:
        """P, (rows, p): the published integers times the step, in encoded units, whitened where `columns` says so."""
        integers = decode_matrix(self.spec, self.files.matrix)
        return np.multiply(integers, self.published.manifest.step, dtype=np.float64)

    def synthesize(
        self, rows: int, attributes: str | Sequence[str] | None = None, *, entropy: int | Sequence[int] = 0
    ) -> models.SyntheticRows:
        """Draw synthetic rows of attributes with levels; see `commingle.services.models.synthesize`.

        Raises EstimationError: you ask for too few or too many rows, or an attribute is unknown or has no levels.
        """
        spec, stated = self.spec, self.privacy
        cost = (
            f"Rows are made of the release alone, so they cost no privacy beyond it (post-processing). It has epsilon "
            f"{spec.epsilon:g} and delta {spec.delta:g} for each member, and for a person to everybody epsilon "
            f"{stated.per_subject.own.epsilon:.3g} and delta {stated.delta:g}. Unit: {stated.adjacency}. "
            f"{stated.protects}"
        )
        found = models.synthesize(self.prepared, rows, attributes, entropy=entropy)
        return replace(found, release=self.id, privacy=cost)

    def export(self, attributes: str | Sequence[str] | None = None) -> Export:
        """Files for R, Stata, SAS and catalogues; `write` puts them into a directory.

        Raises EstimationError: an attribute is unknown, or named twice.
        """
        return export(self.published, self.prepared, attributes)

    def cite(self) -> str:
        """How to cite the release, in a sentence."""
        return citation(self.published)

    fit = _with_cost(fit_prepared)
    ridge_path = _of_moments(analysis.ridge_path)
    lasso_path = _of_moments(analysis.lasso_path)
    pca = _of_moments(analysis.pca)
    partial_correlations = _of_moments(analysis.partial_correlations)
    two_stage = _of_moments(analysis.two_stage)
    compare = _of_moments(analysis.compare)
    table = _of_moments(analysis.cross_table)
    describe = _of_moments(analysis.describe)
    survival = _of_moments(analysis.survival)
    glm = _of_moments(models.glm)
    hazard_ratios = _of_moments(models.hazard_ratios)
    stratified = _of_moments(models.stratified)

    def __deepcopy__(self, _: object) -> Self:
        """The release itself: it never changes, and nobody verified a copy."""
        return self

    def contents(self) -> ResultTable:
        """A row for each attribute, with its public bounds or levels, and its member."""
        spec, nothing = self.spec, float("nan")
        bounds = [
            (a.lower, a.upper) if isinstance(a, NumericAttribute) else (nothing, nothing) for a in self.attributes
        ]
        lower, upper = np.array(bounds).T
        return ResultTable(
            title=spec.study,
            facts=(
                ("release", self.id[:16]),
                ("mechanism", spec.mechanism),
                ("holds", self.published.size),
                ("epsilon per member", f"{spec.epsilon:g}"),
                ("of a person, to everybody", f"{self.privacy.per_subject.own.epsilon:.3g}"),
                ("unit", self.privacy.adjacency),
                ("delta", f"{spec.delta:g}"),
            ),
            heading="attribute",
            labels=tuple(map(_described, self.attributes)),
            columns=(ResultColumn("lower", lower), ResultColumn("upper", upper)),
            notes=(
                *spec.stated_sentences,
                *(
                    f"{signer}: {', '.join(attribute.name for attribute in party.attributes)}."
                    for signer, party in zip(self.published.signers, spec.parties, strict=True)
                ),
            ),
            warnings=() if self.pinned else ("The coordinator's key was not compared with one you know.",),
        )

    def _repr_html_(self) -> str:
        return self.contents().to_html()

    def __repr__(self) -> str:
        spec = self.spec
        parties = f"{len(spec.parties)} members ({', '.join(self.published.signers)})"
        return (
            f"<Release {self.id[:16]} {spec.study!r}: {spec.mechanism}, {self.published.size} of {parties}, "
            f"epsilon {spec.epsilon:g} per member, verified, "
            f"coordinator key {'pinned' if self.pinned else 'not pinned'}>"
        )


def _described(attribute: Attribute) -> str:
    if isinstance(attribute, NumericAttribute):
        return attribute.name if attribute.unit is None else f"{attribute.name} ({attribute.unit})"
    return f"{attribute.name}: {', '.join(attribute.levels)}"
