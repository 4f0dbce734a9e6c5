"""A party's own block: its rows read under a debit, its noise drawn, kept on disk, signed and sent.

Ordering rules (docs/design/states.md#ordering-rules): noise is drawn after the debit is on disk; what is sent is on
disk, and recorded, before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from commingle.party_agent.errors import ConflictError, LostError, NotFoundError
from commingle.party_agent.home.policy import outside_hours
from commingle.party_agent.private.privatise import BlockRequest, ExchangedRows, PrivateBlock
from commingle.party_agent.private.snapshot import NO_SNAPSHOT, Debit
from commingle.party_agent.rounds.decision import Decider
from commingle.party_agent.wire.answers import Stage
from commingle.shared.documents.dsse import Verified, seal
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import BlockStatement, approval_set_digest, open_approvals
from commingle.shared.mechanisms.moments.block import largest_opening
from commingle.shared.mechanisms.moments.entries import cross_noise
from commingle.shared.mechanisms.moments.exchange.messages import Exchange, transcript
from commingle.shared.mechanisms.moments.exchange.products import submission
from commingle.shared.release.charge import Charge, ChargeState
from commingle.shared.release.matrix import content_digest, encode_block
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import Refused
from commingle.shared.runtime import faults
from commingle.shared.runtime.telemetry import span
from commingle.shared.wire import ReleaseDetails

Made = TypeVar("Made", PrivateBlock, ExchangedRows)
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMaker(Decider):
    """A party in one consortium, as far as it makes its blocks."""

    def debit(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: Charge) -> Debit | None:
        """Pay for the reading that follows; None if this is not the hour for it, or the ledger refuses."""
        release = spec.digest
        if charge.state is ChargeState.RESERVED:
            shut = outside_hours(self.home.policy(), self.clock())
            self.proposals.find_against(release, shut)
            if shut:
                return None
        if charge.state is ChargeState.DEBITED:
            debit = self._redraw(release)
        else:
            approvals = approval_set_digest(open_approvals(view.approvals, spec))
            debit = self.ledger.debit(release, approvals=approvals, now=self.clock())
        if isinstance(debit, Refused):
            _log.warning("not debited", release=release, reason=debit.reason)
            return None
        faults.reach("party.debited")
        return debit

    def read(self, spec: ReleaseSpec, debit: Debit, reading: Callable[..., Made]) -> Made:
        """Read what was approved, under its debit. Raises LostError if its snapshot is gone."""
        share = spec.party(self.identity.name)
        key = self.membership.linkage_key() if spec.keyed else None
        request = BlockRequest(spec, share, self.plan(spec), key)
        try:
            snapshot = self.datasets.snapshot(debit.snapshot).choose(share.attributes, share.where or ())
        except NotFoundError:
            raise LostError(
                "the snapshot that was approved is lost, so the release was given up",
                remedy="Read the data set again: commingle party datasets read NAME. A new release costs budget again.",
            ) from None
        self.jobs.begin(debit.release, Stage.PRIVATISING, total=request.readings * snapshot.n)
        with span("read", debit.release):
            return reading(snapshot, request, charge=debit, progress=self.jobs.progress(debit.release))

    def store_block(
        self, spec: ReleaseSpec, debit: Debit, block: PrivateBlock, *, transcript: str | None = None
    ) -> None:
        """Keep a block, sign it and record it: from then on it is sent, and no other is made."""
        release, plan = debit.release, self.plan(spec)
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
                raise ConflictError("another attempt has taken over this block", remedy="There is nothing to do.")
            self.ledger.sign_off(db, release, "block", seal(statement, key=self.identity.signing_key))
        faults.reach("party.stored")
        _log.info("stored", release=release, rows=plan.rows, columns=len(plan.columns))

    def upload(self, release: str, charge: Charge) -> None:
        """Send what is stored. Raises LostError if it is gone, ConflictError, RemoteError."""
        statement = self.ledger.signature(release, "block")
        body = self.outbox.get(release, charge.body_sha256 or "")
        if statement is None or body is None:
            raise LostError(
                "the stored block is lost or damaged, so the release was given up; its charge stays",
                remedy="Check the outbox's disk. A new release costs budget again.",
            )
        self.jobs.begin(release, Stage.UPLOADING, total=len(body))
        self.witnesses.accept(self.ledger.signed_place("block", release))
        with span("upload", release):
            self.client.upload(release, self.identity.name, statement, body)
        faults.reach("party.uploaded")
        self.ledger.acknowledge(release)
        faults.reach("party.acknowledged")
        self.jobs.end(release, Stage.UPLOADED)
        _log.info("uploaded", release=release, bytes=len(body))

    def submit(self, view: ReleaseDetails, exchange: Exchange) -> None:
        """From everybody's replies to a stored block: noise is drawn, the table not read."""
        spec, release = exchange.spec.document, exchange.spec.digest
        agreed = transcript(exchange, columns=view.signed("columns"), replies=view.signed("reply"))

        def largest(name: str) -> int:
            return largest_opening(spec.terms, spec.party(name), sigma=plan_block(spec, spec.party(name)).sigma)

        opened = self.exchanges.open(exchange, view, largest)
        moments = self.exchanges.rows(exchange).moments()
        debit = self.redraw_covered(spec, release)
        sigma, name = self.plan(spec).sigma, self.identity.name
        integers = submission(exchange, party=name, moments=moments, opened=opened, sigma=sigma, draw=self.draw)
        faults.reach("party.drawn")
        block = PrivateBlock(integers, self.exchanges.sums(release))
        self.store_block(spec, debit, block, transcript=agreed)

    def noise_for(self, exchange: Exchange, owner: str) -> NDArray[np.int64]:
        spec = exchange.spec.document
        share, sigma = spec.party(self.identity.name), self.plan(spec).sigma
        return cross_noise(spec.terms, share, exchange.width(owner), sigma=sigma, draw=self.draw)

    def _redraw(self, release: str) -> Debit | Refused:
        """Pay for another draw of the noise: what an earlier attempt made is never sent."""
        self.outbox.clear(release)
        return self.ledger.redraw(release)

    def redraw_covered(self, spec: ReleaseSpec, release: str) -> Debit:
        """`_redraw`, once the rows are kept. Raises ConflictError: the ledger refuses, or the charge is too small."""
        debit = self._redraw(release)
        if isinstance(debit, Refused):
            raise ConflictError(debit.reason, remedy="There is nothing to do.")
        if debit.rho_units < self.plan(spec).loss.units:
            raise ConflictError("the charge does not cover the block", remedy="Give it up: commingle party reject.")
        return replace(debit, snapshot=NO_SNAPSHOT)  # nothing is read under it
