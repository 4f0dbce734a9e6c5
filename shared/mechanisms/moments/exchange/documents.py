"""What is signed in an exchange, and what a deal's sealed package holds."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from commingle.shared.documents.dsse import Envelope, Verified, open_envelope
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.keys import VerifyingKey
from commingle.shared.documents.model import LEFT_OUT, Digest, Hex32, Name, Version, WireModel
from commingle.shared.documents.row_maps import first_stage_of
from commingle.shared.documents.statements import Sums, require_about
from commingle.shared.mechanisms.moments.exchange.terms import Exchange

_SEALED_SECRET_DIGITS = 2 * (32 + 64 + 16)  # encapsulated key, content key and blinding, tag
SealedSecret = Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{_SEALED_SECRET_DIGITS}}}$")]


class DealPackage(WireModel):
    """What the dealer gives one party, sealed to its round key.

    Attributes:
        pad: seed of its pad A.
        seeds: for every party after it, the seed of its share C of the product of their pads.
        shares: for every party before it, the other share, d_other x d words, little-endian base64.
    """

    type: Literal["commingle/deal-package"] = "commingle/deal-package"
    version: Version = 1
    pad: Hex32 = Field(repr=False)
    seeds: dict[Name, Hex32] = Field(repr=False)
    shares: dict[Name, str] = Field(repr=False)


class DealStatement(WireModel):
    """The coordinator's signature under all sealed packages. Its digest names the deal."""

    type: Literal["commingle/deal"] = "commingle/deal"
    version: Version = 1
    spec: Digest
    approvals: Digest
    packages: dict[Name, Digest]


class MaskStatement(WireModel):
    """A party's signature under its masked rows U.

    Attributes:
        deal: digest of the deal whose pad masks them.
        commitment: SHA-256(blinding || U), U as little-endian words, row after row.
        body_sha256: of the encrypted body.
        keys: content key and blinding, sealed to the round key of every party, its own too.
        sums: that the map of its rows follows from, as in its `BlockStatement`.
    """

    largest_bytes: ClassVar[int] = 64 << 10  # 64 sealed keys, and sums of 255 columns
    type: Literal["commingle/mask"] = "commingle/mask"
    version: Version = 1
    spec: Digest
    party: Name
    deal: Digest
    commitment: Digest
    body_sha256: Digest
    keys: dict[Name, SealedSecret]
    sums: Annotated[Sums | None, LEFT_OUT] = None


class Countersignature(WireModel):
    """A party has opened and checked every mask of this transcript."""

    type: Literal["commingle/countersignature"] = "commingle/countersignature"
    version: Version = 1
    spec: Digest
    party: Name
    transcript: Digest


def open_deal(exchange: Exchange, envelope: Envelope, coordinator: VerifyingKey) -> Verified[DealStatement]:
    """The verified deal of this exchange. Raises SignatureError, DocumentError."""
    deal = open_envelope(envelope, DealStatement, kind="deal", keys=[coordinator])
    document = deal.document
    about = (document.spec, document.approvals, set(document.packages))
    if about != (exchange.spec.digest, exchange.approved, set(exchange.parties)):
        raise DocumentError("the deal is for another release or other parties", remedy="Propose a new release.")
    return deal


def open_mask(exchange: Exchange, envelope: Envelope, party: str) -> Verified[MaskStatement]:
    """That party's verified mask statement, the mask itself not opened. Raises SignatureError, DocumentError."""
    key = exchange.spec.document.party(party).verifying_key
    mask = open_envelope(envelope, MaskStatement, kind="mask", keys=[key])
    require_about(mask, party=party, spec=exchange.spec.digest)
    if set(mask.document.keys) != set(exchange.parties):
        raise DocumentError(f"the mask of {party} is not sealed to every party", remedy="Propose a new release.")
    stage = first_stage_of(exchange.spec.document, exchange.spec.document.party(party))
    if len(mask.document.sums or ()) != (0 if stage is None else stage.size):
        raise DocumentError(f"the mask of {party} has not the sums of its first stage", remedy="Propose a new release.")
    return mask


def open_countersignature(exchange: Exchange, envelope: Envelope, party: str) -> Verified[Countersignature]:
    """That party's verified countersignature. Raises SignatureError, DocumentError."""
    key = exchange.spec.document.party(party).verifying_key
    signed = open_envelope(envelope, Countersignature, kind="countersignature", keys=[key])
    return require_about(signed, party=party, spec=exchange.spec.digest)
