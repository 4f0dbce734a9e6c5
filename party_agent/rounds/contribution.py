"""What a party owes a release that every party has approved: from the debit over its rows to the uploaded block.

Ordering rules (docs/design/states.md#ordering-rules): every member's approval is verified before the debit; noise is
drawn after the debit is on disk; a block is sent after it is on disk and recorded. Where the release needs one, the
exchange with the other parties (`exchange`) lies between debit and noise. It can crash anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from commingle.party_agent.errors import ConflictError, LostError, NotFoundError
from commingle.party_agent.home.consortium import Membership
from commingle.party_agent.home.policy import outside_hours
from commingle.party_agent.ledger.ledger import ChargeRecord, Debit
from commingle.party_agent.private.charge import NO_SNAPSHOT
from commingle.party_agent.private.privatise import (
    BlockRequest,
    ExchangedRows,
    PrivateBlock,
    exchanged_rows,
    privatise,
)
from commingle.party_agent.private.snapshot import Snapshot
from commingle.party_agent.rounds.exchange import Exchanges
from commingle.party_agent.rounds.jobs import Stage
from commingle.party_agent.rounds.party import Party
from commingle.party_agent.wire.coordinator_client import CoordinatorClient
from commingle.shared.documents.dsse import Verified, seal
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import BlockStatement, approval_set_digest, open_approvals
from commingle.shared.mechanisms.moments.block import largest_opening
from commingle.shared.mechanisms.moments.entries import cross_noise
from commingle.shared.mechanisms.moments.exchange.documents import transcript
from commingle.shared.mechanisms.moments.exchange.submission import submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.block import content_digest, encode_block
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import Refused
from commingle.shared.runtime import faults
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()
Made = TypeVar("Made", PrivateBlock, ExchangedRows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor(Party):
    """A party in one consortium, as far as it contributes. What a failure means for a release `agent` decides."""

    membership: Membership
    client: CoordinatorClient
    exchanges: Exchanges

    def advance(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], permit: Callable[[], None]) -> None:
        """Go as far as what the coordinator shows allows.

        `permit` is asked before the debit and before each thing that is sent; what it raises ends the work there.

        Raises:
            LostError: the snapshot, or what was made of its rows, is gone: give the release up.
        """
        release = spec.digest
        charge = self.ledger.charge(release)
        if charge is None:
            raise DocumentError("the release is said to be approved without us", remedy="Ask the coordinator why.")
        if charge.state is ChargeState.RESERVED:
            permit()
        if charge.state in {ChargeState.RESERVED, ChargeState.DEBITED}:
            if mechanism_of(spec.document).interactive:
                self._exchange(view, spec, charge, permit)
            else:
                self._privatise(view, spec, charge)
            charge = self.ledger.charge(release)
        if charge is None or charge.state not in {ChargeState.STORED, ChargeState.ACKED}:
            return
        # a coordinator that was set back, or a proxy that answered in its place, may not have what was acknowledged
        if self.identity.name not in view.blocks:
            if mechanism_of(spec.document).interactive and not self._exchanged(view, permit):
                return
            permit()
            self._upload(release, charge)
        self.ledger.acknowledge(release)

    def _privatise(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord) -> None:
        """From rows to a stored block."""
        debit = self._debit_to_read(view, spec, charge)
        if debit is not None:
            block = self._read(spec.document, debit, partial(privatise, draw=self.draw))
            faults.reach("party.drawn")
            self._store_block(spec.document, debit, block)

    def _exchange(
        self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord, permit: Callable[[], None]
    ) -> None:
        """From rows to columns, from everybody's columns to a reply, from everybody's replies to a stored block."""
        exchange, release = Exchange.of(spec, view.approvals), spec.digest
        if not self.exchanges.made(release, "columns"):
            debit = self._debit_to_read(view, spec, charge)
            if debit is None:
                return
            rows = self._read(spec.document, debit, partial(exchanged_rows, draw=self.draw))
            self.exchanges.store_columns(exchange, debit, rows)
        self.jobs.end(release, Stage.EXCHANGING)
        if not self.exchanges.send(view, "columns", permit):
            return
        if not self.exchanges.made(release, "reply"):
            permit()
            debit = self._redraw_covered(spec.document, release)
            self.exchanges.store_reply(exchange, debit, view.signed("columns"), partial(self._cross_noise, exchange))
        self.exchanges.require_one_set(exchange, view.signed("columns"))
        if self.exchanges.send(view, "reply", permit):
            self._submit(view, exchange)

    def _exchanged(self, view: ReleaseDetails, permit: Callable[[], None]) -> bool:
        """Whether the coordinator has everybody's messages; what it has not of this party's is sent again."""
        return self.exchanges.send(view, "columns", permit) and self.exchanges.send(view, "reply", permit)

    def _cross_noise(self, exchange: Exchange, owner: str) -> NDArray[np.int64]:
        """This party's, for its cross block with one before it."""
        request = self._request(exchange.spec.document)
        return cross_noise(
            request.spec, request.party, exchange.columns(owner), sigma=request.plan.sigma, draw=self.draw
        )

    def _submit(self, view: ReleaseDetails, exchange: Exchange) -> None:
        """From everybody's replies to a stored block: noise is drawn, the table not read."""
        spec, release = exchange.spec.document, exchange.spec.digest
        agreed = transcript(exchange, columns=view.signed("columns"), replies=view.signed("reply"))

        def largest(name: str) -> int:
            return largest_opening(spec, spec.party(name), sigma=plan_block(spec, spec.party(name)).sigma)

        opened = self.exchanges.open(exchange, view, largest)
        moments = self.exchanges.rows(exchange).moments()
        debit = self._redraw_covered(spec, release)
        sigma = self._request(spec).plan.sigma
        integers = submission(
            exchange, party=self.identity.name, moments=moments, opened=opened, sigma=sigma, draw=self.draw
        )
        faults.reach("party.drawn")
        block = PrivateBlock(integers, self.exchanges.sums(release))
        self._store_block(spec, debit, block, transcript=agreed)

    def _redraw_covered(self, spec: ReleaseSpec, release: str) -> Debit:
        """A debit to draw noise under, no row being read any more. Raises ConflictError."""
        debit = self._redraw(release, NO_SNAPSHOT)
        if isinstance(debit, Refused):
            raise ConflictError(debit.reason, remedy="Nothing is to be done.")
        if debit.rho_units < self._request(spec).plan.loss.units:
            raise ConflictError("the charge does not cover the block", remedy="Give it up: commingle party reject.")
        return debit

    def _request(self, spec: ReleaseSpec) -> BlockRequest:
        party = spec.party(self.identity.name)
        key = self.membership.linkage_key() if spec.keyed else None
        return BlockRequest(spec, party, plan_block(spec, party), key)

    def _debit_to_read(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord) -> Debit | None:
        """A debit to read the rows under; None where it is not the time for it."""
        release = spec.digest
        if charge.state is ChargeState.RESERVED:
            shut = outside_hours(self.home.policy(), self.clock())
            self.proposals.find_against(release, shut)
            if shut:
                return None
        debit = self._debit(view, spec, charge)
        if isinstance(debit, Refused):
            _log.warning("not debited", release=release, reason=debit.reason)
            return None
        faults.reach("party.debited")
        return debit

    def _debit(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord) -> Debit | Refused:
        if charge.state is ChargeState.DEBITED:
            return self._redraw(spec.digest, charge.snapshot)
        approvals = approval_set_digest(open_approvals(view.approvals, spec))
        return self.ledger.debit(spec.digest, approvals=approvals, snapshot=charge.snapshot, now=self.clock())

    def _redraw(self, release: str, snapshot: str) -> Debit | Refused:
        self.outbox.clear(release)
        return self.ledger.redraw(release, snapshot=snapshot)

    def _read(self, spec: ReleaseSpec, debit: Debit, reading: Callable[..., Made]) -> Made:
        """What a function of `private.privatise` makes of the rows."""
        request = self._request(spec)
        snapshot = self._approved(debit.snapshot).choose(request.party.attributes)
        self.jobs.begin(debit.release, Stage.PRIVATISING, total=request.readings * snapshot.n)
        return reading(snapshot, request, charge=debit, progress=self.jobs.progress(debit.release))

    def _approved(self, digest: str) -> Snapshot:
        """The snapshot that a charge names. Raises LostError."""
        try:
            return self.datasets.snapshot(digest)
        except NotFoundError:
            raise LostError(
                "the snapshot that was approved is lost, so the release was given up",
                remedy="Read the data set again: commingle party datasets read NAME. A new release costs budget again.",
            ) from None

    def _store_block(
        self, spec: ReleaseSpec, debit: Debit, block: PrivateBlock, *, transcript: str | None = None
    ) -> None:
        release, plan = debit.release, self._request(spec).plan
        body = encode_block(block.integers, plan.columns)
        digest = self.outbox.put(release, body)
        faults.reach("party.written")
        with self.store.transaction() as db:
            statement = BlockStatement(
                spec=release,
                approvals=debit.approvals,
                party=plan.party,
                rows=plan.rows,
                columns=plan.columns,
                sigma=plan.sigma,
                body_sha256=digest,
                content_sha256=content_digest(block.integers),
                ledger_head=self.ledger.head(db),
                transcript=transcript,
                sums=block.sums,
            )
            if not self.ledger.record_block(db, debit, digest):
                raise ConflictError("another attempt has taken over this block", remedy="Nothing is to be done.")
            self.ledger.sign_off(db, release, "block", seal(statement, kind="block", key=self.identity.signing_key))
        faults.reach("party.stored")
        _log.info("stored", release=release, rows=plan.rows, columns=len(plan.columns))

    def _upload(self, release: str, charge: ChargeRecord) -> None:
        statement = self.ledger.signature(release, "block")
        body = self.outbox.get(release, charge.body_sha256 or "")
        if statement is None or body is None:
            raise LostError(
                "the stored block is lost or damaged, so the release was given up; its charge stays",
                remedy="Check the outbox's disk. A new release costs budget again.",
            )
        self.jobs.begin(release, Stage.UPLOADING, total=len(body))
        self.witnesses.accept(self.ledger.signed_place("block", release))
        self.client.upload(release, self.identity.name, statement, body)
        faults.reach("party.uploaded")
        self.ledger.acknowledge(release)
        faults.reach("party.acknowledged")
        self.jobs.end(release, Stage.UPLOADED)
        _log.info("uploaded", release=release, bytes=len(body))
