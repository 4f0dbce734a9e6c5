"""A party's side of the exchange of a release (`shared.mechanisms.moments.exchange`; docs/design/exchange.md).

Everything that leaves is signed and on disk before it is sent, and is made once: one set of encrypted columns, one
reply. Each call goes as far as what the coordinator shows allows, and can be repeated.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import structlog
from numpy.typing import NDArray

from commingle.party_agent.coordinator_client import CoordinatorClient, MessageKind
from commingle.party_agent.errors import ConflictError, LostError
from commingle.party_agent.home import Identity
from commingle.party_agent.ledger import Debit, Ledger
from commingle.party_agent.private.kept_rows import KeptRows
from commingle.party_agent.private.privatise import ExchangedRows
from commingle.party_agent.release_files import ExchangeFiles
from commingle.party_agent.store import AgentStore
from commingle.party_agent.witnesses import Witnesses
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import Sums
from commingle.shared.mechanisms.moments.exchange.documents import (
    ColumnsStatement,
    ReplyStatement,
    open_columns,
    open_reply_statement,
    quotations,
    require_one_set,
)
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Reply, Stored
from commingle.shared.mechanisms.moments.exchange.products import verify_bounds, verify_reply
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime import faults
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()
_STATEMENTS: Mapping[MessageKind, type[ColumnsStatement] | type[ReplyStatement]] = {
    "columns": ColumnsStatement,
    "reply": ReplyStatement,
}


@dataclass(frozen=True, slots=True)
class Exchanges:
    """The exchanges of one party."""

    identity: Identity
    client: CoordinatorClient
    store: AgentStore
    ledger: Ledger
    witnesses: Witnesses
    files: ExchangeFiles
    entropy: Callable[[int], bytes]

    def made(self, release: str, kind: MessageKind) -> bool:
        """Whether this party has signed that message; once it is columns, its table is not to be read again."""
        return self.ledger.signature(release, kind) is not None

    def rows(self, exchange: Exchange) -> KeptRows:
        """This party's rows in an exchange. Raises LostError where their secret is gone."""
        release = exchange.spec.digest
        return self._rows(exchange, self.files.secret(release))

    def sums(self, release: str) -> Sums | None:
        """What this party's rows were mapped by, as it signed them with its columns."""
        envelope = self.ledger.signature(release, "columns")
        return None if envelope is None else decode(ColumnsStatement, envelope.payload_bytes).sums

    def store_columns(self, exchange: Exchange, debit: Debit, found: ExchangedRows) -> None:
        """Keep and encrypt this party's rows, and sign that: the point after which nothing can be made anew.

        Raises:
            ConflictError: the release was given up meanwhile.
        """
        release = exchange.spec.digest
        rows = self._rows(exchange, self.files.make_secret(release))
        rows.keep(found.pieces)
        digest = self.files.put(release, "columns", rows.encrypted(self.entropy))
        faults.reach("party.columns.written")
        statement = ColumnsStatement(
            spec=release,
            party=self.identity.name,
            approvals=exchange.approved,
            body_sha256=digest,
            sums=found.sums,
        )
        self._sign(statement, debit, "columns")

    def store_reply(
        self,
        exchange: Exchange,
        debit: Debit,
        columns: Mapping[str, Envelope],
        noise: Callable[[str], NDArray[np.int64]],
    ) -> None:
        """Verify what all others sent, multiply the columns of those before with one's own, and sign that.

        Args:
            exchange: spec and approvals.
            debit: under which the noise is drawn.
            columns: every party's statement, as shown.
            noise: draws that for one owner.

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
            digest = self.files.put(release, "reply", rows.reply(sent[name], owners, noise, self.entropy))
        faults.reach("party.reply.written")
        self._sign(ReplyStatement(spec=release, party=name, columns=seen, body_sha256=digest), debit, "reply")

    def require_one_set(self, exchange: Exchange, shown: Mapping[str, Envelope]) -> None:
        """Nothing, where nobody's columns are others than those that this party has replied to.

        Raises:
            DeviationError: a member signed two sets, which are the evidence.
            SignatureError, DocumentError: what is shown that member did not sign for this exchange.
        """
        reply = self.ledger.signature(exchange.spec.digest, "reply")
        if reply is not None:
            require_one_set(exchange, shown, {self.identity.name: reply})

    def send(self, view: ReleaseDetails, kind: MessageKind, permit: Callable[[], None]) -> bool:
        """Send what was made, where the coordinator does not show it; whether everybody's is there.

        `permit` is asked before anything is sent.

        Raises:
            LostError: it is gone before it was sent.
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

        Columns are those that this party has replied to: `documents.transcript` was taken of them.

        Raises:
            ExchangeError: what was received is not what its party signed.
            DeviationError: it is, and is no reply of an honest party.
        """
        name, rows, opened = self.identity.name, self.rows(exchange), {}
        with ExitStack() as held:
            evaluators = exchange.evaluators(name)
            sent = self._columns(held, exchange, view.signed("columns")) if exchange.proved and evaluators else {}
            for evaluator in evaluators:
                statement = open_reply_statement(exchange, view.signed("reply")[evaluator], evaluator).document
                size = exchange.reply_size(evaluator)
                whole = self._receive(held, exchange, "reply", evaluator, signed=statement.body_sha256, size=size)
                reply = Reply(exchange, evaluator, whole)
                if exchange.proved:
                    verify_reply(reply, sent)
                opened[evaluator] = rows.open(reply, largest=largest(evaluator))
        faults.reach("party.opened")
        return opened

    def clear(self, release: str) -> None:
        """Remove secret, rows and messages."""
        self.files.clear(release)

    def _rows(self, exchange: Exchange, secret: bytes) -> KeptRows:
        return KeptRows(exchange, self.identity.name, self.files.file(exchange.spec.digest, "rows"), secret)

    def _columns(self, held: ExitStack, exchange: Exchange, shown: Mapping[str, Envelope]) -> Mapping[str, Columns]:
        """The columns that this party works with, its own too, as files that stay open while they are held."""
        name, found = self.identity.name, {}
        for party in exchange.parties if exchange.proved else (*exchange.owners(name), name):
            signed = open_columns(exchange, shown[party], party).document.body_sha256
            size = exchange.columns_size(party)
            found[party] = Columns(
                exchange, party, self._receive(held, exchange, "columns", party, signed=signed, size=size)
            )
        return found

    def _receive(
        self, held: ExitStack, exchange: Exchange, kind: MessageKind, sender: str, *, signed: str, size: int
    ) -> Stored:
        """A message as its sender signed it: fetched where it is not on the disk yet."""
        release = exchange.spec.digest
        place = kind if sender == self.identity.name else f"{kind}.{sender}"
        if not self.files.has(release, place, signed):
            if sender == self.identity.name:
                raise LostError(f"the {kind} of an exchange are lost", remedy="Check the disk of the party's home.")
            digest = self.files.put(release, place, self.client.message(release, sender, kind=kind, size=size))
            if digest != signed:
                self.files.file(release, place).unlink()
                raise ExchangeError(f"what {sender} sent was altered", remedy="It is fetched again.")
            faults.reach(f"party.{kind}.fetched")
        return self.files.view(held, release, place, sender=sender, size=size)

    def _sign(self, statement: ColumnsStatement | ReplyStatement, debit: Debit, kind: MessageKind) -> None:
        envelope = seal(statement, kind=kind, key=self.identity.signing_key)
        with self.store.transaction() as db:
            charge = self.ledger.charge_in(db, debit.release)
            if (charge.state, charge.attempt) != (ChargeState.DEBITED, debit.attempt):
                raise ConflictError("the release was given up meanwhile", remedy="Nothing is to be done.")
            self.ledger.sign_off(db, debit.release, kind, envelope)
        faults.reach(f"party.{kind}.signed")
        _log.info("exchange message made", release=debit.release, kind=kind)

    def _send(self, release: str, kind: MessageKind) -> None:
        envelope = self.ledger.signature(release, kind)
        if envelope is None:
            return
        digest = decode(_STATEMENTS[kind], envelope.payload_bytes).body_sha256
        if not self.files.has(release, kind, digest):
            raise LostError(f"the {kind} of an exchange is lost", remedy="Check the disk of the party's home.")
        self.witnesses.accept(self.ledger.signed_place(kind, release))
        with self.files.file(release, kind).open("rb") as file:
            self.client.send_message(release, self.identity.name, envelope, file, kind=kind, digest=digest)
        faults.reach(f"party.{kind}.sent")
        _log.info("exchange message sent", release=release, kind=kind)
