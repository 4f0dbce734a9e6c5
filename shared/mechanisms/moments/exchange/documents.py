"""What is signed in an exchange."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from commingle.shared.documents.dsse import Envelope, Signature, Verified, sealed
from commingle.shared.documents.errors import DocumentError, ExchangeError, SignatureError
from commingle.shared.documents.model import LEFT_OUT, Digest, Name, Version, WireModel, encode
from commingle.shared.documents.row_maps import sums_expected
from commingle.shared.documents.spec import MAX_PARTIES, ReleaseSpec
from commingle.shared.documents.statements import DeviationError, PartyStatement, Rejection, Sums, open_statement
from commingle.shared.mechanisms.moments.exchange.messages import Exchange

_REMEDY = "Propose a new release."


class ColumnsStatement(PartyStatement):
    """A party's signature under its encrypted columns.

    Attributes:
        approvals: digest of the set of approvals under which it was debited.
        body_sha256: of public key, ciphertexts and proofs (`Exchange.columns_size` bytes); the last party has none.
        sums: that the map of its rows follows from, as in its `BlockStatement`.
    """

    largest_bytes: ClassVar[int] = 64 << 10  # sums of 255 columns
    type: Literal["commingle/columns"] = "commingle/columns"
    version: Version = 1
    approvals: Digest
    body_sha256: Digest
    sums: Annotated[Sums | None, LEFT_OUT] = None


class Quotation(WireModel):
    """What a party signed of its `ColumnsStatement`, as another one quotes it; the rest of it the exchange says."""

    body_sha256: Digest
    sums: Annotated[Sums | None, LEFT_OUT] = None
    sig: Annotated[str, Field(max_length=128)]


class ReplyStatement(PartyStatement):
    """A party's signature under what it replies to those before it.

    Attributes:
        columns: everybody's, its own too, as it has seen them (`quotations`).
        body_sha256: of all parts in the order of owners, and of proofs (`Exchange.reply_size` bytes).
    """

    type: Literal["commingle/reply"] = "commingle/reply"
    version: Version = 1
    columns: Annotated[dict[Name, Quotation], Field(max_length=MAX_PARTIES)]
    body_sha256: Digest


def open_columns(exchange: Exchange, envelope: Envelope, party: str) -> Verified[ColumnsStatement]:
    """That party's verified statement, the ciphertexts themselves not read. Raises SignatureError, DocumentError."""
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
    """That party's verified statement, the reply itself not read.

    Raises SignatureError or DocumentError: it is not that; DeviationError: it is, and quotes what nobody signed.
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

    Raises:
        ExchangeError: some columns are missing.
        DeviationError: a party signed two sets, which are the evidence; or what it quotes nobody signed.
        SignatureError, DocumentError: something is not what it must be.
    """
    seen = columns_digest(exchange, columns)
    for name, envelope in replies.items():
        for party, other in quoted(exchange, open_reply_statement(exchange, envelope, name).document).items():
            if other.digest != columns[party].digest:
                raise DeviationError(party, "it has signed two sets of columns", (other, columns[party]))
    return seen


def transcript(exchange: Exchange, *, columns: Mapping[str, Envelope], replies: Mapping[str, Envelope]) -> str:
    """Digest of everything that was sent: what every block of a release states, and so what its parties agree on.

    Raises as `require_one_set`, and where a reply is missing.
    """
    _require_all(exchange, replies, "reply")
    seen = require_one_set(exchange, columns, replies)
    return _digest(exchange, "transcript", seen, *(replies[name].digest for name in exchange.parties))


def recorded_transcript(exchange: Exchange, *, columns: Mapping[str, str], replies: Mapping[str, str]) -> str:
    """The `transcript` from the digests of what was sent, by party, as a coordinator's history has them."""
    seen = _set_digest(exchange, columns)
    return _digest(exchange, "transcript", seen, *(replies.get(name, "") for name in exchange.parties))


def require_evidence(spec: Verified[ReleaseSpec], rejection: Rejection) -> None:
    """Nothing, where a complaint shows what it says, or shows nothing: two sets of columns that one member signed.

    It takes nobody's word: all who have the spec and the complaint can tell.

    Raises:
        DocumentError: these are not two statements about this release by the member that it is about.
        SignatureError: that member did not sign them.
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
