"""Whether a coordinator shows what this party has signed and its ledger does not know: then the ledger was set back.

Every release that names this party is looked at, but for those that the ledger has seen to end, before anything is
approved, debited, answered or sent (`witnesses`): at the start, and whenever touch with the coordinator was lost.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import RLock

import structlog

from commingle.party_agent.errors import StaleLedgerError
from commingle.party_agent.home.home import Identity
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.rounds.proposals import Proposals
from commingle.party_agent.wire.coordinator_client import CoordinatorClient
from commingle.shared.documents.dsse import Envelope, open_envelope
from commingle.shared.documents.errors import ProtocolError
from commingle.shared.documents.statements import Approval, BlockStatement, Rejection, require_about
from commingle.shared.mechanisms.moments.exchange.documents import ColumnsStatement, ReplyStatement
from commingle.shared.release.charge import adopted_kind
from commingle.shared.runtime.errors import NonsenseError, RemoteProblemError
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()
_OWN_KINDS: Mapping[str, type[Approval | ColumnsStatement | ReplyStatement | BlockStatement | Rejection]] = {
    "approval": Approval,
    "columns": ColumnsStatement,
    "reply": ReplyStatement,
    "block": BlockStatement,
    "rejection": Rejection,
}


@dataclass(slots=True, kw_only=True)
class LookBack:
    """What one coordinator shows of this party's past. Safe to use from several threads.

    Attributes:
        coordinator: its fingerprint.
        ended: releases that were over when they were looked at, and that the ledger has not seen to end.
    """

    identity: Identity
    ledger: Ledger
    proposals: Proposals
    client: CoordinatorClient
    coordinator: str
    ended: tuple[str, ...] = ()
    _wanted: int = 1
    _done: int = 0
    _guard: RLock = field(default_factory=RLock)

    def complete(self) -> None:
        """Look at all of it, unless that was done since `forget`.

        A single release that the coordinator cannot show as one is passed over: it is looked at again before anything
        is done about it, and must not keep the party from all others.

        Raises:
            StaleLedgerError: something in it is not in the ledger.
            RemoteError: it cannot all be looked at just now.
        """
        with self._guard:
            aim = self._wanted
            if self._done == aim:
                return
            over = self.proposals.finished(self.coordinator)
            listed = [one for one in self.client.releases(self.identity.name, over_too=True) if one not in over]
            views = map(self._view, dict.fromkeys([*listed, *self.proposals.unfinished(self.coordinator)]))
            self.ended = tuple(view.id for view in views if view is not None and view.state.final)
            self._done = aim

    def forget(self) -> None:
        """Touch was lost: it may be another coordinator, or another state of it, that answers next."""
        self._wanted += 1  # also while it is being looked at: that does not count then

    def require_known(self, view: ReleaseDetails, release: str) -> None:
        """Raise StaleLedgerError where the ledger does not know a signature of ours about this release."""
        for kind, _ in self.unknown_signatures(view, release):
            raise StaleLedgerError(
                f"the coordinator shows this party's own {kind} of release {release[:16]}, which the ledger does not "
                "know",
                remedy="The ledger was restored from an old backup, or a copy of it is used elsewhere. Stop every copy "
                "but one; restore the newest ledger; then: commingle party adopt",
            )

    def unknown_signatures(
        self, view: ReleaseDetails, release: str, *, others_too: bool = False
    ) -> Iterator[tuple[str, Envelope]]:
        """What a coordinator shows that this party has signed about a release and the ledger does not know, by kind.

        `others_too`: what is not this party's is passed over.

        Raises:
            SignatureError, DocumentError: it is not this party's, or not about this release.
        """
        for kind, model in _OWN_KINDS.items():
            shown = view.signed(kind).get(self.identity.name)
            known = (self.ledger.signature(release, kind), self.ledger.signature(release, adopted_kind(kind)))
            if shown is not None and shown.digest not in {one.digest for one in known if one is not None}:
                # what is not ours at all is the coordinator's mistake, and no reason to halt
                try:
                    statement = open_envelope(shown, model, kind=kind, keys=self.identity.keys)
                    require_about(statement, party=self.identity.name, spec=release)
                except ProtocolError:
                    if others_too:
                        continue
                    raise
                yield kind, shown

    def _view(self, release: str) -> ReleaseDetails | None:
        try:
            view = self.client.release(release)
            self.require_known(view, release)
        except (ProtocolError, NonsenseError) as error:
            _log.warning("passed over in looking back", release=release, error=error.code)
        except RemoteProblemError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            _log.warning("passed over in looking back", release=release, error=error.problem)
        else:
            return view
        return None
