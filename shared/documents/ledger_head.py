"""How far a party's ledger has come, in the party's words: what witnesses keep, so that a ledger set back is noticed.

A witness takes a statement only if it goes further than the newest it has and names that as the one it follows. So two
copies of one ledger cannot both go on before the same witness: the second would have to name a head it does not have.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Literal, TypeAlias

from pydantic import AwareDatetime, Field, StringConstraints

from commingle.shared.documents.dsse import seal
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.keys import SigningKey, VerifyingKey
from commingle.shared.documents.model import Count, Digest, Name, Version, WireModel
from commingle.shared.documents.statements import SignedDocument

KIND = "ledger-head"
NO_HEAD = "0" * 64
"""What a first statement names as the one it follows."""


Spent: TypeAlias = tuple[int, Fraction]
"""Rho in units, and delta."""
Units = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,98})$")]


class LedgerHead(WireModel):
    """A party's statement about its ledger.

    Attributes:
        height: entries that lead to the head; where lost branches were rejoined, beyond the longest of them.
        head: digest of the chain's last entry.
        rho_units, delta: what was debited so far and can never come back, each in the unit of its data set;
            reservations are not in it.
        replacement_units, replacement_delta: the same under replace_one.
    """

    type: Literal["commingle/ledger-head"] = "commingle/ledger-head"
    version: Version = 1
    party: Name
    height: Count
    head: Digest
    rho_units: Units
    delta: Annotated[float, Field(ge=0)]
    replacement_units: Units
    replacement_delta: Annotated[float, Field(ge=0)]
    created: AwareDatetime

    @property
    def spent(self) -> tuple[Spent, Spent]:
        """What was debited, and the same under replace_one."""
        replaced = int(self.replacement_units), Fraction(self.replacement_delta)
        return (int(self.rho_units), Fraction(self.delta)), replaced


def sign_head(head: LedgerHead, key: SigningKey) -> SignedDocument:
    """The statement under the party's key."""
    return SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=seal(head, kind=KIND, key=key))


def open_head(signed: SignedDocument, *, party: str | None = None) -> tuple[LedgerHead, VerifyingKey]:
    """The statement and the key it is signed with. Whether to trust that key is the caller's question.

    Raises:
        SignatureError, DocumentError: it does not verify, or is another party's.
    """
    head = _open(signed)
    if party not in {None, head.party}:
        raise DocumentError("the ledger head is another party's", remedy="Send it under its party's name.")
    return head, VerifyingKey.from_hex(signed.signing_key)


@lru_cache(maxsize=512)  # what is kept of a member is looked at again with each release
def _open(signed: SignedDocument) -> LedgerHead:
    return signed.open(LedgerHead, kind=KIND).document
