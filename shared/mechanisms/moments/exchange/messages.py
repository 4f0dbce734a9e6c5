"""The messages of an exchange: what it is about, who sends what, their bytes, and what is signed of them.

Columns: public key, then for each segment of rows its ciphertexts, block by block, and the proof of the segment; the
last party sends none. A reply: for each owner the evaluator's columns, then the proofs of the reply. Where bounds are
trusted, proofs are empty.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Protocol, Self, overload

from pydantic import Field

from commingle.shared.documents.dsse import Envelope, Signature, Verified, sealed
from commingle.shared.documents.model import LEFT_OUT, Digest, Name, Version, WireModel, encode
from commingle.shared.documents.row_maps import row_bound, sums_expected
from commingle.shared.documents.spec import MAX_PARTIES, ReleaseSpec
from commingle.shared.documents.statements import (
    Approval,
    DeviationError,
    PartyStatement,
    Rejection,
    Sums,
    approval_set_digest,
    open_approvals,
    open_statement,
)
from commingle.shared.documents.terms import Terms
from commingle.shared.errors import DocumentError, ExchangeError, SignatureError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.sizes import Sizes
from commingle.shared.proving.ciphertexts import segments
from commingle.shared.proving.lengths import column_proofs, reply_proofs
from commingle.shared.ring.parameters import Layout, byte_count

_CONTEXT = b"commingle/v2/exchange"


@dataclass(frozen=True)
class Exchange:
    """The verified spec of an interactive release and every party's verified approval of it."""

    spec: Verified[ReleaseSpec]
    approvals: Mapping[str, Verified[Approval]]

    @classmethod
    def of(cls, spec: Verified[ReleaseSpec], approvals: Mapping[str, Envelope]) -> Self:
        """The exchange after all approvals.

        Raises ExchangeError: the release has no exchange; DocumentError, SignatureError: an approval is missing or
        forged.
        """
        if not mechanism_of(spec.document).interactive:
            raise ExchangeError("this release needs no exchange", remedy="Upload the block.")
        return cls(spec, open_approvals(approvals, spec))

    @property
    def terms(self) -> Terms:
        return self.spec.document.terms

    @property
    def parties(self) -> tuple[str, ...]:
        """Names in the spec's order, which decides who owns and who evaluates."""
        return tuple(party.name for party in self.spec.document.parties)

    @property
    def approved(self) -> str:
        return approval_set_digest(self.approvals)

    def owners(self, party: str) -> tuple[str, ...]:
        """The parties whose columns that party multiplies with its own: all before it."""
        return self.parties[: self.parties.index(party)]

    def evaluators(self, party: str) -> tuple[str, ...]:
        """The parties that reply to that party: all after it."""
        return self.parties[self.parties.index(party) + 1 :]

    def encrypts(self, party: str) -> bool:
        """Whether others multiply that party's columns: those of all but the last."""
        return party != self.parties[-1]

    def senders(self, party: str) -> tuple[str, ...]:
        """The parties whose columns that party works with, itself included.

        A proof of replies is about all columns that they are made of, so if there are proofs everybody reads all.
        """
        read = self.parties[:-1] if self.proved else self.owners(party)
        return tuple(dict.fromkeys((*read, party)))

    def width(self, party: str) -> int:
        """How many columns that party's rows have, with their presence."""
        return self.sizes.layouts[self.parties.index(party)].columns

    def layout(self, owner: str) -> Layout:
        """The layout of that party's ciphertexts: no other release, and no other set of approvals, has the same."""
        return Layout(self.info("columns", owner), self.terms.table_rows, self.width(owner))

    @property
    def proved(self) -> bool:
        """Whether everybody proves that its rows are within bounds and its replies are evaluations of them."""
        return self.terms.proved

    def bound(self, party: str) -> int:
        """The largest squared norm of a row of that party, in steps."""
        return row_bound(self.terms, self.spec.document.party(party))

    @cached_property
    def sizes(self) -> Sizes:
        return Sizes.of(self.terms.table_rows, list(self.terms.widths.values()), proved=self.proved)

    def columns_size(self, party: str) -> int:
        """As `Sizes.columns`."""
        return self.sizes.columns(self.parties.index(party))

    def part_size(self, owner: str, evaluator: str) -> int:
        """As `Sizes.part`."""
        return self.sizes.part(self.parties.index(owner), self.parties.index(evaluator))

    def reply_size(self, party: str) -> int:
        """As `Sizes.reply`."""
        return self.sizes.reply(self.parties.index(party))

    def info(self, purpose: str, *facts: str | int) -> bytes:
        """The input of a hash of this exchange: different facts give different bytes."""
        return _CONTEXT + json.dumps([purpose, self.spec.digest, self.approved, *facts], separators=(",", ":")).encode()


class Stored(Protocol):
    """A whole message, or a file that holds it: its bytes, and parts of them."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Pieces(Sequence[bytes]):
    """Parts of a message by their starts and stops; each is read only when it is asked for."""

    whole: Stored
    places: tuple[tuple[int, int], ...]

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "Pieces": ...
    def __getitem__(self, index: int | slice) -> "bytes | Pieces":
        if isinstance(index, slice):
            return Pieces(self.whole, self.places[index])
        start, stop = self.places[index]
        return self.whole[start:stop]

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def of(cls, whole: Stored, sizes: Sequence[int], start: int = 0) -> "Pieces":
        ends = [start]
        for size in sizes:
            ends.append(ends[-1] + size)
        return cls(whole, tuple(pairwise(ends)))


@dataclass(frozen=True, slots=True)
class Segment:
    """Some of a party's encrypted rows, from start to stop: their ciphertexts, and their proof, if there is one."""

    rows: tuple[int, int]
    blocks: Pieces
    proof: Pieces


@dataclass(frozen=True, slots=True)
class Columns:
    """A party's message to all, of `Exchange.columns_size`."""

    exchange: Exchange
    party: str
    whole: Stored

    @property
    def public_key(self) -> bytes:
        return self.whole[: byte_count(self.exchange.layout(self.party).key_shape)]

    @property
    def blocks(self) -> Pieces:
        return Pieces(self.whole, tuple(place for segment in self.segments() for place in segment.blocks.places))

    def segments(self) -> Iterator[Segment]:
        layout = self.exchange.layout(self.party)
        at = byte_count(layout.key_shape)
        proofs = column_proofs(layout) if self.exchange.proved else [0] * len(list(segments(layout)))
        for (start, stop), proof in zip(segments(layout), proofs, strict=True):
            held = [block for block in layout.blocks() if start <= block[0] < stop]
            blocks = Pieces.of(self.whole, [byte_count(layout.block_shape(*block)) for block in held], at)
            at = blocks.places[-1][1] + proof
            yield Segment((start, stop), blocks, Pieces.of(self.whole, [proof], at - proof))


@dataclass(frozen=True, slots=True)
class Reply:
    """An evaluator's reply to all parties before it, of `Exchange.reply_size`."""

    exchange: Exchange
    party: str
    whole: Stored

    def columns(self, owner: str) -> Pieces:
        """The reply to one owner, for each of the evaluator's columns."""
        exchange, count = self.exchange, self.exchange.width(self.party)
        start = sum(exchange.part_size(name, self.party) for name in exchange.owners(owner))
        return Pieces.of(self.whole, [exchange.part_size(owner, self.party) // count] * count, start)

    @property
    def proofs(self) -> Pieces:
        exchange, owners = self.exchange, self.exchange.owners(self.party)
        layouts = [exchange.layout(owner) for owner in owners]
        sizes = reply_proofs(exchange.layout(self.party), layouts, encrypted=exchange.encrypts(self.party))
        return Pieces.of(self.whole, sizes, sum(exchange.part_size(owner, self.party) for owner in owners))


_REMEDY = "Propose a new release."


class ColumnsStatement(PartyStatement):
    """A party's signature under its encrypted columns.

    Attributes:
        approvals: digest of the set of approvals under which it was debited.
        body_sha256: of public key, ciphertexts and proofs (`Exchange.columns_size` bytes); the last party has none.
        sums: the map of its rows follows from these, as in its `BlockStatement`.
    """

    largest_bytes: ClassVar[int] = 64 << 10  # sums of 255 columns
    type: Literal["commingle/columns"] = "commingle/columns"
    version: Version = 1
    approvals: Digest
    body_sha256: Digest
    sums: Annotated[Sums | None, LEFT_OUT] = None


class Quotation(WireModel):
    """A party's signed `ColumnsStatement`, as another one quotes it; the exchange gives the rest of it."""

    body_sha256: Digest
    sums: Annotated[Sums | None, LEFT_OUT] = None
    sig: Annotated[str, Field(max_length=128)]


class ReplyStatement(PartyStatement):
    """A party's signature under its reply to those before it.

    Attributes:
        columns: everybody's, its own too, as it has seen them (`quotations`).
        body_sha256: of all parts in the order of owners, and of proofs (`Exchange.reply_size` bytes).
    """

    type: Literal["commingle/reply"] = "commingle/reply"
    version: Version = 1
    columns: Annotated[dict[Name, Quotation], Field(max_length=MAX_PARTIES)]
    body_sha256: Digest


def open_columns(exchange: Exchange, envelope: Envelope, party: str) -> Verified[ColumnsStatement]:
    """That party's verified statement; the ciphertexts are not read. Raises SignatureError, DocumentError."""
    share = exchange.spec.document.party(party)
    columns = open_statement(envelope, ColumnsStatement, share, spec=exchange.spec.digest)
    if columns.document.approvals != exchange.approved:
        raise DocumentError(f"the columns of {party} are for another set of approvals", remedy=_REMEDY)
    if columns.payload != encode(columns.document):  # or a quotation of it would be of other bytes
        raise DocumentError(f"the columns of {party} lack a field", remedy=_REMEDY)
    if len(columns.document.sums or ()) != sums_expected(share):
        raise DocumentError(f"the columns of {party} do not have the sums of its first stage", remedy=_REMEDY)
    return columns


def columns_digest(exchange: Exchange, columns: Mapping[str, Envelope]) -> str:
    """Digest of every party's verified columns: all of an exchange have the same, or it ends."""
    _require_all(exchange, columns, "columns")
    return _set_digest(exchange, {name: open_columns(exchange, columns[name], name).digest for name in columns})


def quotations(exchange: Exchange, columns: Mapping[str, Envelope]) -> dict[str, Quotation]:
    """Every party's verified columns, for the statement of a reply to them."""
    _require_all(exchange, columns, "columns")
    found = {}
    for name in exchange.parties:
        said, sig = open_columns(exchange, columns[name], name).document, columns[name].signatures[0].sig
        found[name] = Quotation(body_sha256=said.body_sha256, sums=said.sums, sig=sig)
    return found


def open_reply_statement(exchange: Exchange, envelope: Envelope, party: str) -> Verified[ReplyStatement]:
    """That party's verified statement; the reply itself is not read.

    Raises SignatureError or DocumentError: it is no such statement; DeviationError: it is, and quotes what nobody
    signed.
    """
    share = exchange.spec.document.party(party)
    reply = open_statement(envelope, ReplyStatement, share, spec=exchange.spec.digest)
    if set(reply.document.columns) != set(exchange.parties):
        raise DeviationError(party, "it does not quote everybody's columns")
    for name, said in quoted(exchange, reply.document).items():
        try:
            open_columns(exchange, said, name)
        except (SignatureError, DocumentError):
            raise DeviationError(party, f"it quotes columns that {name} did not sign") from None
    return reply


def quoted(exchange: Exchange, reply: ReplyStatement) -> Mapping[str, Envelope]:
    """The statements of columns that a reply quotes, by party."""
    spec, approvals, found = exchange.spec, exchange.approved, {}
    for name, quote in reply.columns.items():
        said = ColumnsStatement(
            spec=spec.digest, party=name, approvals=approvals, body_sha256=quote.body_sha256, sums=quote.sums
        )
        keyid = spec.document.party(name).verifying_key.fingerprint
        found[name] = sealed(said, Signature(keyid=keyid, sig=quote.sig))
    return found


def require_one_set(exchange: Exchange, columns: Mapping[str, Envelope], replies: Mapping[str, Envelope]) -> str:
    """The digest of everybody's columns; every reply quotes the same one (docs/proofs/proved-bounds.md, 7.5).

    Raises ExchangeError: some columns are missing; DeviationError: a party signed two sets, which are the evidence, or
    nobody signed what it quotes; SignatureError, DocumentError: something is not what it must be.
    """
    seen = columns_digest(exchange, columns)
    for name, envelope in replies.items():
        for party, other in quoted(exchange, open_reply_statement(exchange, envelope, name).document).items():
            if other.digest != columns[party].digest:
                raise DeviationError(party, "it has signed two sets of columns", (other, columns[party]))
    return seen


def transcript(exchange: Exchange, *, columns: Mapping[str, Envelope], replies: Mapping[str, Envelope]) -> str:
    """Digest of everything that was sent: every block of a release states it, so its parties agree on it.

    Raises as `require_one_set`, and if a reply is missing.
    """
    _require_all(exchange, replies, "reply")
    seen = require_one_set(exchange, columns, replies)
    return _digest(exchange, "transcript", seen, *(replies[name].digest for name in exchange.parties))


def recorded_transcript(exchange: Exchange, *, columns: Mapping[str, str], replies: Mapping[str, str]) -> str:
    """The `transcript` from the digests of messages by party, as a coordinator's history has them."""
    seen = _set_digest(exchange, columns)
    return _digest(exchange, "transcript", seen, *(replies.get(name, "") for name in exchange.parties))


def require_evidence(spec: Verified[ReleaseSpec], rejection: Rejection) -> None:
    """Accept a complaint that shows nothing, or shows two sets of columns that one member signed.

    It takes nobody's word: all who have the spec and the complaint can check it. Raises DocumentError: these are not
    two statements about this release by the member that it is about; SignatureError: that member did not sign them.
    """
    if rejection.evidence is None:
        return
    member = spec.document.party(rejection.about or "")
    digests = {open_statement(shown, ColumnsStatement, member, spec=spec.digest).digest for shown in rejection.evidence}
    if len(digests) != len(rejection.evidence):
        raise DocumentError("a complaint shows one statement twice", remedy="It is no evidence of anything.")


def _set_digest(exchange: Exchange, columns: Mapping[str, str]) -> str:
    return _digest(exchange, "columns-set", *(columns.get(name, "") for name in exchange.parties))


def _digest(exchange: Exchange, purpose: str, *facts: str) -> str:
    return sha256(exchange.info(purpose, *facts)).hexdigest()


def _require_all(exchange: Exchange, sent: Mapping[str, Envelope], what: str) -> None:
    missing = [name for name in exchange.parties if name not in sent]
    if missing:
        raise ExchangeError(f"no {what} by {', '.join(missing)} yet", remedy="Wait for it.")
