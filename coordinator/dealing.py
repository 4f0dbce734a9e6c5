"""Dealing, once per release, as soon as every party has approved; and handing out what was dealt.

A second deal for one release would show the dealer (A - A')^T X exactly, so nothing of a deal is shown before it is
committed, and whoever commits second drops what it dealt unseen. Seeds are in memory only, until they are sealed.
"""

import os
from collections.abc import Callable

import structlog

from commingle.coordinator.coordinator import Coordinator, record, require_release, share_of, spec_of
from commingle.coordinator.errors import NotDealtError
from commingle.coordinator.store.rows import ReleaseRow
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.errors import ProtocolError
from commingle.shared.mechanisms.moments.exchange.deal import Dealt, deal
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.rounds import Abort, Event, Refused, State, Tick, advance
from commingle.shared.runtime import faults

_log = structlog.get_logger()


def exchange_of(release: ReleaseRow) -> Exchange:
    """The exchange of a release that every party has approved. Raises ProtocolError where there is none."""
    approvals = {name: share.approval for name, share in release.shares.items() if share.approval is not None}
    return Exchange.of(spec_of(release), approvals)


def record_deal(coordinator: Coordinator, release: str, *, entropy: Callable[[int], bytes] = os.urandom) -> None:
    """Deal for an approved release, or end it with the reason why that cannot be.

    Safe to repeat and to race: whoever commits first has dealt. Takes O(n p^2) for n rows and p columns.

    Raises:
        StorageError: the database does not work; nothing was recorded.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    if not _awaits_deal(found):
        return
    try:
        dealt = deal(exchange_of(found), entropy=entropy)
    except ProtocolError as error:
        _record(coordinator, release, Abort(f"the coordinator cannot deal: {error}"), None)
        return
    faults.reach("coordinator.deal.made")
    _record(coordinator, release, Tick(), dealt)
    faults.reach("coordinator.deal.committed")


def sealed_package(coordinator: Coordinator, release: str, party: str) -> tuple[Envelope, bytes]:
    """The signed deal and that party's sealed package.

    Raises:
        UnknownError: no such release or party.
        NotDealtError: not yet, or not any more.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
        share_of(spec_of(found), party)
        package = tx.releases.package(release, party)
    if found.deal is None or package is None:
        raise NotDealtError(
            f"the release is {found.state}; there is nothing dealt for {party}",
            remedy="Follow its events; a release with an exchange is dealt once every party has approved.",
        )
    return found.deal, package


def _awaits_deal(found: ReleaseRow) -> bool:
    return found.deal is None and found.state is State.APPROVED


def _record(coordinator: Coordinator, release: str, event: Event, dealt: Dealt | None) -> None:
    """Record the deal, or that there will be none, unless another replica was faster or time ran out."""
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        after = advance(found.round, event, now=coordinator.clock())
        if not _awaits_deal(found) or isinstance(after, Refused) or (dealt is not None and after.state.final):
            return
        if dealt is None:
            record(tx, coordinator, release, after, kind="aborted")
        else:
            signed = seal(dealt.statement, kind="deal", key=coordinator.key)
            tx.releases.save_deal(release, signed, dealt.packages)
            record(tx, coordinator, release, after, kind="deal", document=signed.digest)
    _log.info("dealt" if dealt else "aborted", release=release, state=after.state)
