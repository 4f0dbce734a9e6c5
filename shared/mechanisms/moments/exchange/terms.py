"""What an exchange is about: the spec and the approvals that everything in it is bound to, and who sends what."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Approval, approval_set_digest, open_approvals
from commingle.shared.mechanisms.interface import row_bound
from commingle.shared.mechanisms.moments.exchange.sizes import Sizes
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.ring.parameters import Layout

_CONTEXT = b"commingle/v2/exchange"


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
            DocumentError, SignatureError: an approval is missing or forged.
        """
        if not mechanism_of(spec.document).interactive:
            raise ExchangeError("this release needs no exchange", remedy="Upload the block.")
        return cls(spec, open_approvals(approvals, spec))

    @property
    def parties(self) -> tuple[str, ...]:
        """Names in the spec's order, which decides who owns and who evaluates."""
        return tuple(party.name for party in self.spec.document.parties)

    @property
    def approved(self) -> str:
        """Digest of the set of approvals."""
        return approval_set_digest(self.approvals)

    def owners(self, party: str) -> tuple[str, ...]:
        """Whose columns that party multiplies with its own: all before it."""
        return self.parties[: self.parties.index(party)]

    def evaluators(self, party: str) -> tuple[str, ...]:
        """Who replies to that party: all after it."""
        return self.parties[self.parties.index(party) + 1 :]

    def encrypts(self, party: str) -> bool:
        """Whether others multiply that party's columns: those of all but the last."""
        return party != self.parties[-1]

    def senders(self, party: str) -> tuple[str, ...]:
        """Whose columns that party works with, its own too.

        A proof of replies is about all columns that they are made of, so where there are proofs everybody reads all.
        """
        read = self.parties[:-1] if self.proved else self.owners(party)
        return tuple(dict.fromkeys((*read, party)))

    def columns(self, party: str) -> int:
        """Encoded columns of that party."""
        return len(self.spec.document.party(party).columns)

    def layout(self, owner: str) -> Layout:
        """Of the ciphertexts of that party: no other release, and no other set of approvals, has the same."""
        return Layout(self.info("columns", owner), self.spec.document.table_rows, self.columns(owner))

    @property
    def proved(self) -> bool:
        """Whether everybody proves that its rows are within bounds and its replies are evaluations of them."""
        return self.spec.document.bounds == "proved"

    def bound(self, party: str) -> int:
        """The largest squared norm of a row of that party, in steps."""
        spec = self.spec.document
        return row_bound(spec, spec.party(party))

    @property
    def sizes(self) -> Sizes:
        """Of its messages."""
        return Sizes.of(
            self.spec.document.table_rows, [self.columns(name) for name in self.parties], proved=self.proved
        )

    def columns_size(self, party: str) -> int:
        """Bytes of its public key and ciphertexts, and a proof after each segment of rows; the last party has none."""
        return self.sizes.columns(self.parties.index(party))

    def part_size(self, owner: str, evaluator: str) -> int:
        """Bytes of what an evaluator replies to one owner: its columns one after the other."""
        return self.sizes.part(self.parties.index(owner), self.parties.index(evaluator))

    def reply_size(self, party: str) -> int:
        """Bytes of all that a party replies: the parts in the order of owners, then their proofs."""
        return self.sizes.reply(self.parties.index(party))

    def info(self, purpose: str, *facts: str | int) -> bytes:
        """What a hash of this exchange is for; different facts, different bytes."""
        return _CONTEXT + json.dumps([purpose, self.spec.digest, self.approved, *facts], separators=(",", ":")).encode()
