"""Who outside this home knows how far its ledger has come, so that nobody sets it back unnoticed.

Every coordinator shows what this party has signed. We look at each release that names it, except for those that the
ledger has seen to end, at the start and whenever we lost touch with the coordinator. Every coordinator keeps its
members' newest ledger heads, and every agent keeps its fellow members'. If a coordinator has lost or hides one, an
agent brings it back. We ask a majority of the coordinators before we sign, pay or answer anything, and a majority has
accepted the newest head before what was made under a debit leaves. Two majorities have a member in common, as long as
the coordinators are the same ones. What remains is in docs/threat-model.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import RLock

import structlog

from commingle.party_agent.errors import OtherNameError, StaleLedgerError
from commingle.party_agent.home.home import Identity, Membership
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.rounds.proposals import Proposals
from commingle.shared.documents.dsse import Envelope, VerifyingKey, open_envelope
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.statements import (
    NO_HEAD,
    Approval,
    BlockStatement,
    LedgerHead,
    Rejection,
    SignedDocument,
    open_head,
    require_about,
)
from commingle.shared.errors import ProtocolError
from commingle.shared.mechanisms.moments.exchange.messages import ColumnsStatement, ReplyStatement
from commingle.shared.release.charge import GENESIS, adopted_kind
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import NonsenseError, RemoteError, RemoteProblemError
from commingle.shared.runtime.settings import Clock
from commingle.shared.text import quoted
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()
_OWN_KINDS: Mapping[str, type[Approval | ColumnsStatement | ReplyStatement | BlockStatement | Rejection]] = {
    model.signed_as(): model for model in (Approval, ColumnsStatement, ReplyStatement, BlockStatement, Rejection)
}
_REFUSED = "ledger-head"
SET_BACK = (
    "The ledger was restored from an old backup, or a copy of it is used elsewhere. Stop every copy but one; restore "
    "the newest ledger; then: commingle party adopt"
)


@dataclass(slots=True)
class Witness:
    """A coordinator, by its fingerprint, and how far we have looked at what it shows of this party's past.

    Attributes:
        ended: releases that were over when we looked at them, and that the ledger has not seen to end.
        wanted, done: the look back that is wanted, and the last that was complete.
    """

    membership: Membership
    client: CoordinatorClient
    coordinator: str
    ended: tuple[str, ...] = ()
    wanted: int = 1
    done: int = 0
    guard: RLock = field(default_factory=RLock)


Opened = tuple[LedgerHead, VerifyingKey, SignedDocument]


@dataclass(slots=True)
class Witnesses:
    """All witnesses of a ledger. Safe to use from several threads."""

    identity: Identity
    store: AgentStore
    ledger: Ledger
    proposals: Proposals
    clock: Clock
    all: tuple[Witness, ...]
    _asked: set[str] = field(default_factory=set)
    _halted: StaleLedgerError | None = None
    _guard: RLock = field(default_factory=RLock)

    def ask(self, own: str | None = None) -> None:
        """Make sure that we asked a majority since this process started or lost touch; `own` too, if it is named.

        We look back at what each shows of all releases, and ask it for the newest head it has.

        Raises:
            StaleLedgerError: one shows what this ledger does not have. Nothing may be signed any more.
            RemoteError: too few of them answer.
        """
        failure: RemoteError | None = None
        for witness in sorted(self.all, key=lambda one: one.coordinator != own):
            with self._guard:
                self._require_going_on()
                wanted = witness.coordinator == own or len(self._asked) < self._majority
                due = wanted and witness.coordinator not in self._asked
            if due:
                try:
                    self._ask(witness)
                except RemoteError as error:
                    failure = failure or error
        with self._guard:
            if failure is not None and (own not in {None, *self._asked} or len(self._asked) < self._majority):
                raise failure

    def collect(self, own: str, heads: tuple[SignedDocument, ...] | None) -> None:
        """See once more how far everybody has come, now that something has changed. Raises as `ask` does.

        `heads` are those that this coordinator has just shown; without them it is asked.
        """
        with self._guard:
            if heads is None or own not in self._asked:
                self._asked.discard(own)
            else:
                self._require_going_on()
                self._look(next(witness for witness in self.all if witness.coordinator == own), heads)
        self.ask(own)

    def lose(self, coordinator: str) -> None:
        """Note that we lost touch with that one: it may be another, or an older one, that answers next."""
        with self._guard:
            self._asked.discard(coordinator)
            for witness in self.all:
                if witness.coordinator == coordinator:
                    witness.wanted += 1  # also while it is being looked at: that does not count then

    def accept(self, place: int) -> None:
        """Have the newest head witnessed, unless a head that comes after entry `place` of the chain already is."""
        if not place:
            return
        self.ask()  # before the others have to wait
        with self._guard:
            self.ask()
            if self.covers(place):
                return
            failure: RemoteError | None = None
            for witness in (one for one in self.all if one.coordinator in self._asked):
                try:
                    self._put(witness)
                except RemoteError as error:
                    failure = failure or error
            if failure is not None and not self.covers(place):
                raise failure

    def covers(self, place: int) -> bool:
        """Whether a majority has accepted a head that comes after entry `place` of the chain."""
        heads = [self._kept(witness, self.identity.name) for witness in self.all]
        reached = sum(head is not None and self.ledger.place(head[0].head) >= place for head in heads)
        return reached >= self._majority

    def halt(self, error: StaleLedgerError) -> StaleLedgerError:
        """Let nothing be signed any more, in no consortium. Returns the error, to be raised."""
        with self._guard:
            self._halted = error
        return error

    def require_known(self, view: ReleaseDetails, release: str) -> None:
        """Halt, and raise StaleLedgerError, if the ledger lacks a signature of ours about this release."""
        try:
            self._require_known(view, release)
        except StaleLedgerError as error:
            raise self.halt(error) from None

    def unknown_signatures(
        self, view: ReleaseDetails, release: str, *, others_too: bool = False
    ) -> Iterator[tuple[str, Envelope]]:
        """This party's signatures about a release that a coordinator shows and the ledger lacks, by kind.

        `others_too`: pass over what is not this party's.

        Raises:
            SignatureError, DocumentError: it is not this party's, or not about this release.
        """
        for kind, model in _OWN_KINDS.items():
            shown = view.signed(kind).get(self.identity.name)
            known = (self.ledger.signature(release, kind), self.ledger.signature(release, adopted_kind(kind)))
            if shown is not None and shown.digest not in {one.digest for one in known if one is not None}:
                # what is not ours at all is the coordinator's mistake, and no reason to halt
                try:
                    statement = open_envelope(shown, model, keys=self.identity.keys)
                    require_about(statement, party=self.identity.name, spec=release)
                except ProtocolError:
                    if others_too:
                        continue
                    raise
                yield kind, shown

    @property
    def _majority(self) -> int:
        return len(self.all) // 2 + 1

    def _require_going_on(self) -> None:
        if self._halted is not None:
            raise self._halted

    def _require_known(self, view: ReleaseDetails, release: str) -> None:
        for kind, _ in self.unknown_signatures(view, release):
            said = f"the coordinator shows this member's own {kind} of release {release[:16]}"
            raise StaleLedgerError(f"{said}, which the ledger does not know", remedy=SET_BACK)

    def _ask(self, witness: Witness) -> None:
        """Look back at what it shows, then at its heads. The other consortia go on while releases are looked at.

        A thread that holds one witness's lock never waits for the lock of all; a thread that holds the lock of all may
        wait for a witness's.
        """
        try:
            with witness.guard:
                self._look_back(witness)
        except StaleLedgerError as error:
            raise self.halt(error) from None
        with self._guard:
            self._look(witness, witness.client.ledger_heads())

    def _look_back(self, witness: Witness) -> None:
        """Look at all that it shows, unless that was done since we lost touch.

        A single release that the coordinator cannot show as one is passed over: we look at it again before we do
        anything about it, and it must not keep the party from all others.
        """
        aim, proposals = witness.wanted, self.proposals
        if witness.done == aim:
            return
        require_own_name(self.identity, witness.client)
        over = proposals.finished(witness.coordinator)
        listed = [one.id for one in witness.client.releases(self.identity.name, over_too=True) if one.id not in over]
        wanted = dict.fromkeys([*listed, *proposals.unfinished(witness.coordinator)])
        views = (self._view(witness, release) for release in wanted)
        witness.ended = tuple(view.id for view in views if view is not None and view.state.final)
        witness.done = aim

    def _view(self, witness: Witness, release: str) -> ReleaseDetails | None:
        try:
            view = witness.client.release(release)
            self._require_known(view, release)
        except (ProtocolError, NonsenseError) as error:
            _log.warning("passed over in looking back", release=release, error=error.code)
        except RemoteProblemError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            _log.warning("passed over in looking back", release=release, error=error.problem)
        else:
            return view
        return None

    def _look(self, witness: Witness, heads: tuple[SignedDocument, ...]) -> None:
        shown = opened_heads(heads)
        own = self._own(shown.pop(self.identity.name, None))
        kept = self._kept(witness, self.identity.name)
        if (own and own[2]) != (kept and kept[2]):
            self._keep(witness, {self.identity.name: own and own[2]})
        self._asked.add(witness.coordinator)
        if own is None or (kept is not None and own[0].height < kept[0].height):
            self._put(witness)
        fellows = {name: pin for name, pin in witness.membership.pins().items() if name != self.identity.name}
        further = {name: self._further(witness, name, pin, shown.get(name)) for name, pin in fellows.items()}
        self._keep(witness, {name: signed for name, signed in further.items() if signed is not None})

    def _further(self, witness: Witness, name: str, pin: str, shown: Opened | None) -> SignedDocument | None:
        kept = self._kept(witness, name)
        if shown is not None and (kept is None or shown[0].height > kept[0].height):
            return shown[2] if shown[1].fingerprint == pin else None
        if kept is not None and (shown is None or shown[0].height < kept[0].height):
            _log.warning("a fellow member's ledger head was missing", member=name, height=kept[0].height)
            try:
                witness.client.put_ledger_head(name, kept[2], after=shown[0].head if shown else NO_HEAD)
            except RemoteProblemError as error:  # somebody else was faster
                _log.info("ledger head not brought back", member=name, error=error.code)
        return None

    def _put(self, witness: Witness) -> None:
        for last in (False, True):
            summit, known = self.ledger.summit(), self._kept(witness, self.identity.name)
            if summit.head == GENESIS or (known is not None and known[0].head == summit.head):
                return
            head = LedgerHead(
                party=self.identity.name,
                height=summit.height,
                head=summit.head,
                rho_units=str(summit.spent.loss.rho.units),
                delta=summit.spent.loss.delta,
                replacement_units=str(summit.spent.replaced.rho.units),
                replacement_delta=summit.spent.replaced.delta,
                created=self.clock(),
            )
            signed = SignedDocument.of(head, self.identity.signing_key)
            try:
                witness.client.put_ledger_head(head.party, signed, after=known[0].head if known else NO_HEAD)
            except RemoteProblemError as error:
                if error.problem != _REFUSED or last:
                    raise
                self._see_own(witness)
            else:
                self._keep(witness, {head.party: signed})
                return

    def _own(self, shown: Opened | None) -> Opened | None:
        if shown is None or shown[1].fingerprint not in {key.fingerprint for key in self.identity.keys}:
            return None  # not ours at all is the coordinator's mistake, and no reason to halt
        if not self.ledger.knows(shown[0].head):
            head = shown[0]
            said = f"this member has stated that its ledger has the head {head.head[:16]}, of height {head.height}"
            raise self.halt(StaleLedgerError(f"{said}, which this ledger does not know", remedy=SET_BACK))
        return shown

    def _see_own(self, witness: Witness) -> None:
        own = self._own(opened_heads(witness.client.ledger_heads()).get(self.identity.name))
        self._keep(witness, {self.identity.name: own and own[2]})

    def _kept(self, witness: Witness, party: str) -> Opened | None:
        with self.store.reading() as db:
            row = db.execute(
                "SELECT document FROM heads WHERE coordinator = ? AND party = ?", (witness.coordinator, party)
            ).fetchone()
        if row is None:
            return None
        signed = decode(SignedDocument, row["document"])
        return (*open_head(signed, party=party), signed)

    def _keep(self, witness: Witness, heads: Mapping[str, SignedDocument | None]) -> None:
        if not heads:
            return
        with self.store.transaction() as db:
            for party, signed in heads.items():
                db.execute("DELETE FROM heads WHERE coordinator = ? AND party = ?", (witness.coordinator, party))
                if signed is not None:
                    db.execute("INSERT INTO heads VALUES (?, ?, ?)", (witness.coordinator, party, encode(signed)))


def require_own_name(identity: Identity, client: CoordinatorClient) -> None:
    """Raises OtherNameError: under another name a member finds neither its releases nor its ledger's heads."""
    key = identity.signing_key.verifying_key.raw.hex()
    names = [member.name for member in client.members() if member.signing_key == key]
    if names and identity.name not in names:
        raise OtherNameError(
            f"{client.url} knows this member's key under the name {quoted(names[0])}, and this home has the name "
            f"{quoted(identity.name)}",
            remedy=f'A member keeps the name it enrolled with. Write "name": "{names[0]}" into HOME/settings.json if '
            "it was changed there, and start the agent again; if not, ask the coordinator's operator.",
        )


def opened_heads(items: tuple[SignedDocument, ...]) -> dict[str, Opened]:
    """The heads among them, by member, each signed by the key beside it."""
    opened: dict[str, Opened] = {}
    for signed in items:
        try:
            head, key = open_head(signed)
        except ProtocolError as error:
            _log.warning("not a ledger head", error=error.code)
            continue
        opened[head.party] = head, key, signed
    return opened
