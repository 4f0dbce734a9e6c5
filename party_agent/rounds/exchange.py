"""A party's side of the exchange of a release (`shared.mechanisms.moments.exchange`; docs/design/exchange.md).

Everything that leaves is signed and on disk before it is sent, and is made once: one set of encrypted columns, one
reply. Each call goes as far as what the coordinator shows allows, and can be repeated.
"""

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from hashlib import file_digest, sha256
from os import fstat, pread
from pathlib import Path
from typing import BinaryIO

import numpy as np
import structlog
from numpy.typing import NDArray

from commingle.party_agent.errors import ConflictError, LostError
from commingle.party_agent.home.home import Identity
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.privatise import ExchangedRows, KeptRows
from commingle.party_agent.private.snapshot import Debit
from commingle.party_agent.rounds.witnesses import Witnesses
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import DeviationError, Sums
from commingle.shared.errors import ExchangeError
from commingle.shared.mechanisms.moments.exchange.messages import (
    Columns,
    ColumnsStatement,
    Exchange,
    Reply,
    ReplyStatement,
    Stored,
    open_columns,
    open_reply_statement,
    quotations,
    require_one_set,
)
from commingle.shared.mechanisms.moments.exchange.products import verify_bounds, verify_reply
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime import faults
from commingle.shared.runtime.coordinator_client import CoordinatorClient, MessageKind
from commingle.shared.runtime.errors import KeyFileError
from commingle.shared.runtime.files import create_secret, load_secret, write_durably
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()
_STATEMENTS: Mapping[MessageKind, type[ColumnsStatement] | type[ReplyStatement]] = {
    "columns": ColumnsStatement,
    "reply": ReplyStatement,
}


@dataclass(frozen=True, slots=True)
class FileBytes:
    """An open file as bytes. Only those in use are in memory."""

    file: BinaryIO
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self.size)
        found = pread(self.file.fileno(), stop - start, start)
        if len(found) != stop - start:
            raise LostError("a message of an exchange was cut short", remedy="Check the disk of the member's home.")
        return found


@dataclass(frozen=True, slots=True)
class ExchangeFiles:
    """What exchanges need, a folder for each: a secret, rows encrypted under it, and messages as they were sent."""

    root: Path

    def clear(self, release: str) -> None:
        shutil.rmtree(self.root / release, ignore_errors=True)

    def make_secret(self, release: str) -> bytes:
        """The secret of a release whose rows are about to be kept; clears what an interrupted attempt left."""
        self.clear(release)
        return create_secret(self._secret_file(release))

    def secret(self, release: str) -> bytes:
        try:
            return load_secret(self._secret_file(release))
        except KeyFileError:
            raise LostError(
                "the secret of an exchange is lost", remedy="Check the disk of the member's home."
            ) from None

    def put(self, release: str, kind: str, body: Iterable[bytes]) -> str:
        """Store a message durably, in place of what is there; its SHA-256, hex. A full disk raises OSError."""
        digest = sha256()

        def hashed() -> Iterator[bytes]:
            for piece in body:
                digest.update(piece)
                yield piece

        write_durably(self.file(release, kind), hashed())
        return digest.hexdigest()

    def has(self, release: str, kind: str, digest: str) -> bool:
        try:
            with self.file(release, kind).open("rb") as file:
                return file_digest(file, "sha256").hexdigest() == digest
        except FileNotFoundError:
            return False

    def view(self, held: ExitStack, release: str, kind: str, *, sender: str, size: int) -> Stored:
        """A message, read as it is needed while it is held. Raises DeviationError: its sender signed another size."""
        file = held.enter_context(self.file(release, kind).open("rb"))
        if fstat(file.fileno()).st_size != size:
            raise DeviationError(sender, "it has another length")
        return FileBytes(file, size)

    def file(self, release: str, kind: str) -> Path:
        return self.root / release / kind

    def _secret_file(self, release: str) -> Path:
        return self.root / release / "exchange.key"


@dataclass(frozen=True, slots=True)
class Exchanges:
    identity: Identity
    client: CoordinatorClient
    store: AgentStore
    ledger: Ledger
    witnesses: Witnesses
    files: ExchangeFiles

    def made(self, release: str, kind: MessageKind) -> bool:
        """Whether this party has signed that message; once it has signed columns, it never reads the table again."""
        return self.ledger.signature(release, kind) is not None

    def rows(self, exchange: Exchange) -> KeptRows:
        """This party's rows in an exchange. Raises LostError if their secret is gone."""
        release = exchange.spec.digest
        return self._rows(exchange, self.files.secret(release))

    def sums(self, release: str) -> Sums | None:
        """The sums that this party's rows were mapped by, as it signed them with its columns."""
        envelope = self.ledger.signature(release, "columns")
        return None if envelope is None else decode(ColumnsStatement, envelope.payload_bytes).sums

    def store_columns(self, exchange: Exchange, debit: Debit, found: ExchangedRows) -> None:
        """Keep and encrypt this party's rows, and sign that: from then on nothing can be made anew."""
        release = exchange.spec.digest
        rows = self._rows(exchange, self.files.make_secret(release))
        rows.keep(found.pieces)
        digest = self.files.put(release, "columns", rows.encrypted(secrets.token_bytes))
        faults.reach("party.columns.written")
        statement = ColumnsStatement(
            spec=release, party=self.identity.name, approvals=exchange.approved, body_sha256=digest, sums=found.sums
        )
        self._sign(statement, debit)

    def store_reply(
        self,
        exchange: Exchange,
        debit: Debit,
        columns: Mapping[str, Envelope],
        noise: Callable[[str], NDArray[np.int64]],
    ) -> None:
        """Verify what others encrypted, multiply the columns of earlier parties with one's own, and sign that.

        `noise` draws the noise for one owner, under the debit.

        Raises:
            ExchangeError: what was received is not what its party signed.
            DeviationError: it is, and no honest party would have signed it.
            ConflictError: the release was given up meanwhile.
        """
        release, name, rows = exchange.spec.digest, self.identity.name, self.rows(exchange)
        seen = quotations(exchange, columns)
        with ExitStack() as held:
            sent = self._columns(held, exchange, columns)
            for other in sent.values():
                if exchange.proved and other.party != name:
                    verify_bounds(other)
            faults.reach("party.columns.verified")
            owners = {owner: sent[owner] for owner in exchange.owners(name)}
            digest = self.files.put(release, "reply", rows.reply(sent[name], owners, noise, secrets.token_bytes))
        faults.reach("party.reply.written")
        self._sign(ReplyStatement(spec=release, party=name, columns=seen, body_sha256=digest), debit)

    def require_one_set(self, exchange: Exchange, shown: Mapping[str, Envelope]) -> None:
        """Raise unless everybody's columns are those that this party has replied to.

        Raises:
            DeviationError: a member signed two sets, which are the evidence.
            SignatureError, DocumentError: that member did not sign what is shown for this exchange.
        """
        reply = self.ledger.signature(exchange.spec.digest, "reply")
        if reply is not None:
            require_one_set(exchange, shown, {self.identity.name: reply})

    def send(self, view: ReleaseDetails, kind: MessageKind, permit: Callable[[], None]) -> bool:
        """Send what was made, unless the coordinator shows it; whether everybody's is there.

        It asks `permit` before it sends anything.
        """
        shown = view.signed(kind)
        if self.identity.name not in shown:
            permit()
            self._send(view.id, kind)
            return False
        return {party.name for party in view.parties} == set(shown)

    def open(
        self, exchange: Exchange, view: ReleaseDetails, largest: Callable[[str], int]
    ) -> Mapping[str, NDArray[np.int64]]:
        """What every party after this one replied, by its name; `largest` is what one can honestly cause.

        Columns are those that this party has replied to: `messages.transcript` was taken of them.

        Raises:
            ExchangeError: what was received is not what its party signed.
            DeviationError: it is, and is no reply of an honest party.
        """
        name, rows, opened = self.identity.name, self.rows(exchange), {}
        with ExitStack() as held:
            evaluators = exchange.evaluators(name)
            sent = self._columns(held, exchange, view.signed("columns")) if exchange.proved and evaluators else {}
            for evaluator, whole in self._replies(held, exchange, view.signed("reply")).items():
                reply = Reply(exchange, evaluator, whole)
                if exchange.proved:
                    verify_reply(reply, sent)
                opened[evaluator] = rows.open(reply, largest=largest(evaluator))
        faults.reach("party.opened")
        return opened

    def _rows(self, exchange: Exchange, secret: bytes) -> KeptRows:
        return KeptRows(exchange, self.identity.name, self.files.file(exchange.spec.digest, "rows"), secret)

    def _columns(self, held: ExitStack, exchange: Exchange, shown: Mapping[str, Envelope]) -> Mapping[str, Columns]:
        senders = exchange.senders(self.identity.name)
        signed = {sender: open_columns(exchange, shown[sender], sender).document.body_sha256 for sender in senders}
        found = self._receive(held, exchange, "columns", signed, exchange.columns_size)
        return {sender: Columns(exchange, sender, whole) for sender, whole in found.items()}

    def _replies(self, held: ExitStack, exchange: Exchange, shown: Mapping[str, Envelope]) -> Mapping[str, Stored]:
        senders = exchange.evaluators(self.identity.name)
        signed = {one: open_reply_statement(exchange, shown[one], one).document.body_sha256 for one in senders}
        return self._receive(held, exchange, "reply", signed, exchange.reply_size)

    def _receive(
        self,
        held: ExitStack,
        exchange: Exchange,
        kind: MessageKind,
        signed: Mapping[str, str],
        size: Callable[[str], int],
    ) -> Mapping[str, Stored]:
        release, name = exchange.spec.digest, self.identity.name
        missing = [one for one in signed if not self.files.has(release, self._place(kind, one), signed[one])]
        if name in missing:
            raise LostError(f"the {kind} of an exchange are lost", remedy="Check the disk of the member's home.")
        fetched = self._fetch_together(release, kind, {one: signed[one] for one in missing}, size)
        for sender in missing[fetched:]:
            body = self.client.message(release, sender, kind=kind, size=size(sender))
            if not self._keep(release, kind, sender, body, signed[sender]):
                raise ExchangeError(f"what {sender} sent was altered", remedy="It is fetched again.")
        return {
            sender: self.files.view(held, release, self._place(kind, sender), sender=sender, size=size(sender))
            for sender in signed
        }

    def _fetch_together(
        self, release: str, kind: MessageKind, signed: Mapping[str, str], size: Callable[[str], int]
    ) -> int:
        # How many messages of one answer, in their order, came as they were signed. The rest is asked for one by one,
        # which shows who signed a message of another length.
        if len(signed) <= 1:
            return 0
        kept, total = 0, sum(map(size, signed))
        with closing(self.client.messages(release, tuple(signed), kind=kind, size=total)) as pieces:
            stream = _Stream(pieces)
            for sender, digest in signed.items():
                if not self._keep(release, kind, sender, stream.take(size(sender)), digest):
                    return kept
                kept += 1
            next(pieces, None)  # its end, after which the connection serves again
        return kept

    def _keep(self, release: str, kind: MessageKind, sender: str, body: Iterable[bytes], signed: str) -> bool:
        place = self._place(kind, sender)
        if self.files.put(release, place, body) != signed:
            self.files.file(release, place).unlink()
            return False
        faults.reach(f"party.{kind}.fetched")
        return True

    def _place(self, kind: MessageKind, sender: str) -> str:
        return kind if sender == self.identity.name else f"{kind}.{sender}"

    def _sign(self, statement: ColumnsStatement | ReplyStatement, debit: Debit) -> None:
        kind, envelope = statement.signed_as(), seal(statement, key=self.identity.signing_key)
        with self.store.transaction() as db:
            charge = self.ledger.charge_of(debit.release)
            if (charge.state, charge.attempt) != (ChargeState.DEBITED, debit.attempt):
                raise ConflictError("the release was given up meanwhile", remedy="There is nothing to do.")
            self.ledger.sign_off(db, debit.release, kind, envelope)
        faults.reach(f"party.{kind}.signed")
        _log.info("exchange message made", release=debit.release, kind=kind)

    def _send(self, release: str, kind: MessageKind) -> None:
        envelope = self.ledger.signature(release, kind)
        if envelope is None:
            return
        digest = decode(_STATEMENTS[kind], envelope.payload_bytes).body_sha256
        if not self.files.has(release, kind, digest):
            raise LostError(f"the {kind} of an exchange is lost", remedy="Check the disk of the member's home.")
        self.witnesses.accept(self.ledger.signed_place(kind, release))
        with self.files.file(release, kind).open("rb") as file:
            self.client.send_message(release, self.identity.name, envelope, file, kind=kind, digest=digest)
        faults.reach(f"party.{kind}.sent")
        _log.info("exchange message sent", release=release, kind=kind)


class _Stream:
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def take(self, size: int) -> Iterator[bytes]:
        while size and (piece := self._rest or next(self._pieces, b"")):
            part, self._rest = piece[:size], piece[size:]
            size -= len(part)
            yield part
