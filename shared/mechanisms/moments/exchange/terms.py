"""What an exchange is about: the spec and the approvals that everything in it is bound to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Approval, approval_set_digest, open_approvals

_CONTEXT = b"commingle/v1/exchange"


@dataclass(frozen=True, slots=True)
class Exchange:
    """The verified spec of an interactive release and every party's verified approval of it."""

    spec: Verified[ReleaseSpec]
    approvals: Mapping[str, Verified[Approval]]

    @classmethod
    def of(cls, spec: Verified[ReleaseSpec], approvals: Mapping[str, Envelope]) -> Self:
        """The exchange after every party has approved.

        Raises:
            ExchangeError: the release is of a kind without an exchange.
            DocumentError, SignatureError: an approval is missing, forged or without round key.
        """
        if not spec.document.interactive:
            raise ExchangeError("this release needs no exchange", remedy="Upload the block.")
        return cls(spec, open_approvals(approvals, spec))

    @property
    def parties(self) -> tuple[str, ...]:
        """Names in the spec's order, which decides who comes first in a pair."""
        return tuple(party.name for party in self.spec.document.parties)

    @property
    def approved(self) -> str:
        """Digest of the set of approvals."""
        return approval_set_digest(self.approvals)

    def columns(self, party: str) -> int:
        """Encoded columns of that party."""
        return len(self.spec.document.party(party).columns)

    def round_key(self, party: str) -> str:
        """The public key that party made for this release, hex."""
        return self.approvals[party].document.round_key or ""

    def info(self, purpose: str, *facts: str | int) -> bytes:
        """What a derived key, a sealed box or a digest of this exchange is for; different facts, different bytes."""
        return _CONTEXT + json.dumps([purpose, self.spec.digest, self.approved, *facts], separators=(",", ":")).encode()
