"""One transcript, signed by everybody before anybody submits.

Without it the coordinator could show different masks or deals to different parties and learn rows from what does not
cancel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.mechanisms.moments.exchange.documents import (
    Countersignature,
    MaskStatement,
    open_countersignature,
)
from commingle.shared.mechanisms.moments.exchange.terms import Exchange

_REMEDY = "Propose a new release."


@dataclass(frozen=True, slots=True)
class Agreement:
    """Proof that every party signed the same transcript; only `agreed` makes one."""

    transcript: str


def transcript(exchange: Exchange, *, deal: str, masks: Mapping[str, Verified[MaskStatement]]) -> str:
    """Digest of everything the parties must have in common: spec, approvals, deal, commitments and keys.

    Args:
        exchange: spec and approvals.
        deal: digest of the deal this party holds.
        masks: every party's mask statement, each with its commitment checked.

    Raises:
        ExchangeError: a mask is missing or was made for another deal.
    """
    if set(masks) != set(exchange.parties) or any(mask.document.deal != deal for mask in masks.values()):
        raise ExchangeError("the masks are not those of one deal", remedy=_REMEDY)
    facts = [
        fact
        for name in sorted(exchange.parties)
        for fact in (
            name,
            masks[name].document.commitment,
            exchange.spec.document.party(name).signing_key,
            exchange.round_key(name),
        )
    ]
    return sha256(exchange.info("transcript", deal, *facts)).hexdigest()


def countersignature(exchange: Exchange, *, party: str, transcript: str) -> Countersignature:
    """What a party signs once, after it has checked every mask."""
    return Countersignature(spec=exchange.spec.digest, party=party, transcript=transcript)


def agreed(exchange: Exchange, *, transcript: str, countersignatures: Mapping[str, Envelope]) -> Agreement:
    """That every party signed this transcript.

    Raises:
        ExchangeError: a countersignature is missing, or is under another transcript.
        SignatureError, DocumentError: one is forged.
    """
    for name in exchange.parties:
        if name not in countersignatures:
            raise ExchangeError(f"{name} has not countersigned yet", remedy="Wait for it.")
        signed = open_countersignature(exchange, countersignatures[name], name)
        if signed.document.transcript != transcript:
            raise ExchangeError(f"{name} saw another exchange", remedy=_REMEDY)
    return Agreement(transcript)
