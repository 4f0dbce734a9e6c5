"""What an exchange is about: the spec and the approvals that everything in it is bound to, and who sends what."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Approval, approval_set_digest, open_approvals
from commingle.shared.ring.layout import Layout, byte_count

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
        if not spec.document.interactive:
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

    def columns(self, party: str) -> int:
        """Encoded columns of that party."""
        return len(self.spec.document.party(party).columns)

    def layout(self, owner: str) -> Layout:
        """Of the ciphertexts of that party: no other release, and no other set of approvals, has the same."""
        return Layout(self.info("columns", owner), self.spec.document.n, self.columns(owner))

    def columns_size(self, party: str) -> int:
        """Bytes of what that party encrypts for those after it: its public key, then block after block of rows."""
        if not self.evaluators(party):
            return 0
        layout = self.layout(party)
        blocks = (layout.block_shape(*block) for block in layout.blocks())
        return byte_count(layout.key_shape) + sum(map(byte_count, blocks))

    def part_size(self, owner: str, evaluator: str) -> int:
        """Bytes of what an evaluator replies to one owner: its columns one after the other."""
        return byte_count(self.layout(owner).reply_shape) * self.columns(evaluator)

    def part_place(self, owner: str, evaluator: str) -> tuple[int, int]:
        """Offset and size of that part in the evaluator's reply, whose parts lie in the order of owners."""
        before = self.owners(owner)
        return sum(self.part_size(name, evaluator) for name in before), self.part_size(owner, evaluator)

    def reply_size(self, party: str) -> int:
        """Bytes of all that a party replies."""
        return sum(self.part_size(owner, party) for owner in self.owners(party))

    def info(self, purpose: str, *facts: str | int) -> bytes:
        """What a hash of this exchange is for; different facts, different bytes."""
        return _CONTEXT + json.dumps([purpose, self.spec.digest, self.approved, *facts], separators=(",", ":")).encode()
