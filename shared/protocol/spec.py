"""The release spec: everything public that defines a release (protocol.md section 7).

The bytes of the spec, as signed by the proposer, have a SHA-256 digest; that digest is the release's id and what every
other document refers to.
"""

from collections import Counter
from datetime import datetime
from typing import Annotated, Literal, NewType, Self

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from shared.privacy.calibration import Calibration, calibrated_rho
from shared.privacy.errors import PrivacyError
from shared.privacy.fixed_point import check_exact_range
from shared.privacy.sensitivity import Adjacency
from shared.protocol.documents import Count, Digest, Hex32, Name, WireModel
from shared.protocol.errors import SpecError
from shared.protocol.keys import VerifyingKey
from shared.protocol.schema import Attribute, EncodedColumn, encoded_columns

ReleaseId = NewType("ReleaseId", str)
INTERCEPT = "(intercept)"
MAX_PARTIES = 64
MAX_COLUMNS = 256

Sketch = Annotated[int, Field(ge=2, le=1_000_000)]
Title = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


class PartySpec(WireModel):
    """One party's share of a release.

    Attributes:
        name: as enrolled.
        signing_key: its Ed25519 public key, hex.
        sealing_key: its X25519 public key, hex.
        dataset: the name under which its agent registered the data.
        attributes: what it contributes, with public bounds and levels.
        row_norm: bound C on the norm of an encoded row, or None.
    """

    name: Name
    signing_key: Hex32
    sealing_key: Hex32
    dataset: Name
    attributes: Annotated[tuple[Attribute, ...], Field(min_length=1, max_length=MAX_COLUMNS)]
    row_norm: Annotated[float, Field(gt=0, le=1e3)] | None = None

    @property
    def verifying_key(self) -> VerifyingKey:
        """The key that must sign this party's documents."""
        return VerifyingKey.from_hex(self.signing_key)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """The encoded columns of this party's block, in order."""
        return encoded_columns(self.attributes)


class ReleaseSpec(WireModel):
    """A proposed release. Units: epsilon and delta are per party, in the release's own adjacency."""

    type: Literal["commingle/release-spec"] = "commingle/release-spec"
    version: Literal[1] = 1
    study: Title
    created: AwareDatetime
    expires: AwareDatetime
    mechanism: Literal["rmgm", "dgm"]
    k: Sketch | None = None
    fraction_bits: Literal[15] = 15
    seed: Hex32
    alignment: Literal["exact"] = "exact"
    adjacency: Annotated[Adjacency, Field(strict=False)] = Adjacency.REPLACE_ONE
    calibration: Annotated[Calibration, Field(strict=False)] = Calibration.ZCDP
    epsilon: float
    delta: float
    n: Annotated[Count, Field(ge=2)]
    parties: Annotated[tuple[PartySpec, ...], Field(min_length=1, max_length=MAX_PARTIES)]
    proposer: Digest

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if problems := _problems(self):
            raise ValueError("; ".join(problems))
        return self

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """All published columns in order, the intercept first."""
        parties = (column for party in self.parties for column in party.columns)
        return (EncodedColumn(INTERCEPT, INTERCEPT, 0.0, 1.0), *parties)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """All attributes of all parties, in order."""
        return tuple(attribute for party in self.parties for attribute in party.attributes)

    def party(self, name: str) -> PartySpec:
        """The share of one party.

        Raises:
            SpecError: the spec does not name that party.
        """
        for party in self.parties:
            if party.name == name:
                return party
        raise SpecError(f"{name} is not a party of this release", remedy="Check the release id.")

    def expired(self, now: datetime) -> bool:
        """Whether nobody may spend budget on it any more."""
        return now >= self.expires


def _problems(spec: ReleaseSpec) -> list[str]:
    found = []
    width = len(spec.columns)
    if spec.expires <= spec.created:
        found.append("expires must be later than created")
    if spec.mechanism == "dgm" and spec.k is not None:
        found.append("k belongs to rmgm only; leave it out for dgm")
    if spec.mechanism == "rmgm":
        if spec.k is None:
            found.append("rmgm needs k, the number of rows of the projection")
        elif not width < spec.k <= spec.n:
            found.append(f"k is {spec.k}; it must exceed the {width} published columns and not exceed n = {spec.n}")
    found += _duplicates("party", [p.name for p in spec.parties])
    found += _duplicates("signing key", [p.signing_key for p in spec.parties])
    found += _duplicates("attribute", [INTERCEPT, *(a.name for a in spec.attributes)])
    if width > MAX_COLUMNS:
        found.append(f"{width} encoded columns; at most {MAX_COLUMNS} fit one release")
    try:
        calibrated_rho(spec.calibration, epsilon=spec.epsilon, delta=spec.delta)
        for party in spec.parties:
            check_exact_range(spec.n, party.row_norm)
    except PrivacyError as error:
        found.append(error.diagnostics())
    return found


def _duplicates(what: str, names: list[str]) -> list[str]:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    return [f"{what} {name!r} appears twice" for name in twice]
