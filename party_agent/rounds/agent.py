"""A party's agent in one consortium: it looks at all its releases, or at those that took a step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.rounds.contribution import Contributor
from commingle.party_agent.rounds.linkage import receive_linkage_key
from commingle.shared.errors import ProtocolError
from commingle.shared.runtime.errors import RemoteProblemError
from commingle.shared.wire import ReleaseDetails, ReleaseSteps, ReleaseSummary

_MOST_SHOWN, _LARGEST_SHOWN = 200, 1 << 16  # in JSON, and ten times that in memory: a coordinator fills no more
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(Contributor):
    """A party's agent in one consortium: it looks at releases, and does each step that is due.

    Attributes:
        shown: the coordinator's last view of each open release: we do not ask again for one that its list shows as it
            was then. We ask again for one that was not gone through to the end.
    """

    shown: dict[str, ReleaseDetails] = field(default_factory=dict)

    def step(self, attend: Callable[[str, Callable[[], None]], None], seen: ReleaseSteps | None = None) -> None:
        """Look at every release that concerns this party and do what is due, or only at those that took a step.

        It also ends releases that were over when the agent looked back and that it never saw end.

        Args:
            attend: runs the work on one release and decides what its failure means.
            seen: the steps as the coordinator shows them now; without them it is asked for its list.

        Raises:
            RemoteError: the coordinator, or too many of the ledger's witnesses, cannot be asked.
            StaleLedgerError: the ledger was set back; nothing was signed.
        """
        own = self.coordinator.key.fingerprint
        self.witnesses.ask(own)
        self.ledger.release_expired(self.clock())
        if not self.membership.linkage_file.exists():
            self._receive_linkage_key()
        going_on = self.proposals.unfinished(own)
        if seen is None:
            open_ones = {one.id: one for one in self.client.releases(self.identity.name, over_too=False)}
            for gone in self.shown.keys() - open_ones.keys():
                del self.shown[gone]
            ended = self.witness.ended
            unseen = set(ended) - self.proposals.finished(own) if ended else ()
            for release in dict.fromkeys([*open_ones, *going_on, *unseen]):
                attend(release, partial(self._look, release, open_ones.get(release)))
        for view in seen.items if seen else ():
            attend(view.id, partial(self._go_through, view, view.id))
        if kept_long := set(self.outbox.past_keeping(self.clock())):
            for release in kept_long & set(self.proposals.finished(own)):
                self.outbox.clear(release)
        if not set(going_on) <= set(self.proposals.unfinished(own)):
            self.witnesses.collect(own, seen.heads if seen else None)  # a round is over: every member has gone on

    def _receive_linkage_key(self) -> None:
        try:
            received = receive_linkage_key(
                self.home, self.membership, self.client, coordinator=self.coordinator.key.fingerprint
            )
        except (ProtocolError, ConflictError) as error:  # somebody's forgery must not keep the agent from its work
            _log.warning("no linkage key taken over", error=error.code)
            return
        if received is not None:
            _log.info("linkage key taken over", sender=received.sender, check=received.check)

    def _look(self, release: str, listed: ReleaseSummary | None) -> None:
        view = self.shown.get(release)
        if view is None or listed is None or not view.is_as(listed):
            try:
                view = self.client.release(release)
            except RemoteProblemError as error:
                known = self.proposals.unfinished(self.coordinator.key.fingerprint)
                if not error.says_unknown or release not in known:
                    raise
                self.miss(release)
                return
        self._go_through(view, release)

    def _go_through(self, view: ReleaseDetails, release: str) -> None:
        self.shown.pop(release, None)
        self.handle(view, release)
        if not view.state.final and len(self.shown) < _MOST_SHOWN and len(view.model_dump_json()) <= _LARGEST_SHOWN:
            self.shown[release] = view
