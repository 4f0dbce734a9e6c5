"""Joining a consortium, by an invite or with one line, leaving it, and replacing this party's keys.

An invite leads to a pinned coordinator. An invitation leads to home, enrolment, everybody's words, pins and the linkage
key, and nothing is trusted that was not before. We pin a fellow member's key only after somebody has typed the words
that a fellow member read out, which say all names and keys (docs/proofs/words.md).

When keys are replaced, the old signing key hands over to the new one, at the coordinator first and then here. The
sealing key goes with it: it counts only under the signature of the present signing key, so nobody can show an old one
again. The next keys wait in their files until the coordinator has them. Repeating finishes whatever was interrupted.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home, Membership, PartySettings, PinnedCoordinator
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.linkage import (
    publish_identity,
    receive_linkage_key,
    send_linkage_key,
    signed_identity,
)
from commingle.party_agent.rounds.proposals import Proposal
from commingle.shared.documents.dsse import Fingerprint, SigningKey, VerifyingKey, seal
from commingle.shared.documents.invitation import Invitation, coordinator_of, words_of, wrong_words
from commingle.shared.documents.statements import Departure, Enrolment, Rotation, RotationRequest, SignedDocument
from commingle.shared.errors import SignatureError
from commingle.shared.release.rounds import State
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import RemoteError, RemoteProblemError, SettingsError
from commingle.shared.runtime.remote import connect, reaching
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import Clock


def enrol(
    home: Home,
    *,
    url: str,
    invite: str,
    ca_file: Path | None = None,
    allow_http: bool = False,
    consortium: str | None = None,
) -> Membership:
    """Check the coordinator's key against the invite, introduce this party, and pin the coordinator.

    A party joins as many consortia as it likes; what all of them may take is one budget. `consortium` is this one's
    name here, if it is not what its coordinator calls itself.
    """
    named = coordinator_of(invite)
    identity = home.identity()
    with reaching(url), connect(url, ca_file=ca_file, allow_http=allow_http) as http:
        client = CoordinatorClient(http)
        shown = client.identity()
        coordinator = PinnedCoordinator(url=url, signing_key=shown.signing_key, ca_file=ca_file, allow_http=allow_http)
        if coordinator.key.fingerprint != named:
            raise ConflictError(
                f"{url} has another key than the invite names",
                remedy="Check the address; if it is right, somebody may be in between. Ask the operator.",
            )
        name = home.name_for(coordinator.key, wanted=consortium, called=shown.name)
        statement = Enrolment(
            invite=invite.strip(),
            name=identity.name,
            signing_key=identity.signing_key.verifying_key.raw.hex(),
            sealing_key=home.sealing_key().hex(),
        )
        client.enrol(SignedDocument.of(statement, identity.signing_key))
        http.auth = RequestSigner(identity.signing_key, audience=coordinator.key.fingerprint)
        publish_identity(home, client)
    return home.join(coordinator, name=name)


def leave(agents: Agents, name: str) -> None:
    """Tell a coordinator that this party leaves, under its signature, and belong to the consortium no longer."""
    agent = next(one for one in agents.consortia if one.membership.name == name)
    if waiting := [p for p in _open(agents) if p.coordinator == agent.coordinator.key.fingerprint]:
        raise ConflictError(
            f"{len(waiting)} approved releases are open, the first is {waiting[0].release[:16]}",
            remedy="Let the agent run until they are over, or reject them while it runs. Then leave.",
        )
    departure = Departure(
        party=agents.identity.name, coordinator=agent.coordinator.key.fingerprint, created=agents.clock()
    )
    try:
        agent.client.depart(departure.party, seal(departure, key=agents.identity.signing_key))
    except RemoteError as error:
        # it is no member any more: an earlier try got through, or it was revoked
        if not (isinstance(error, RemoteProblemError) and error.problem == "revoked"):
            error.remedy += " If it is gone for good, leave with --unannounced."
            raise
    agents.home.leave(name)


def rotate_key(agents: Agents, *, abandon_open: bool = False) -> Fingerprint:
    """Replace both keys in every consortium, while nobody else uses them; returns the new signing key's fingerprint."""
    waiting = _open(agents)
    if waiting and not abandon_open:
        raise ConflictError(
            f"{len(waiting)} approved releases are open, the first is {waiting[0].release[:16]}; they end with the key",
            remedy="Let the agent run until they are over; or, where the key may be known to others, --abandon-open.",
        )
    sealing_key = agents.home.prepare_next_sealing_key()
    old, new = agents.identity.signing_key, agents.home.prepare_next_key()
    rotation = Rotation(
        party=agents.identity.name,
        old_key=old.verifying_key.raw.hex(),
        new_key=new.verifying_key.raw.hex(),
        created=agents.clock(),
    )
    by_old, by_new = (seal(rotation, key=key) for key in (old, new))
    for agent in agents.consortia:
        _rotate(agent, RotationRequest(by_old=by_old, by_new=by_new), new)
        agent.client.publish_identity(rotation.party, signed_identity(rotation.party, new, sealing_key))
    agents.home.adopt_next_key()
    return new.fingerprint


def _open(agents: Agents) -> list[Proposal]:
    return [p for p in agents.proposals.all() if p.decision == "approved" and not State(p.state).final]


def _rotate(agent: Agent, request: RotationRequest, new: SigningKey) -> None:
    with_new_key = RequestSigner(new, audience=agent.coordinator.key.fingerprint, clock=agent.clock)
    try:
        agent.client.rotate(agent.identity.name, request)
    except RemoteProblemError as error:
        if error.problem != "request-signature":
            raise
        # the old key is not known any more: an earlier try got through and its answer was lost
        agent.client.http.auth = with_new_key
        agent.client.rotate(agent.identity.name, request)
    agent.client.http.auth = with_new_key


_TRIES = 3
Roster = Mapping[str, Fingerprint]


def make_home(home: Home, settings: PartySettings, invitation: Invitation) -> None:
    """A home for the invited party, if there is none yet. Raises SettingsError if it is another party's."""
    if not (home.root / "settings.json").exists():
        home.create(settings, policy=Policy(), linkage_key=None, receives_linkage_key=True)
    elif (name := home.settings().name) != invitation.party:
        raise SettingsError(
            f"{home.root} is the home of {name}, and {invitation.party} is invited",
            remedy="Give another --home, or ask for an invitation in that name.",
        )


def joined(home: Home, coordinator: Fingerprint) -> Membership | None:
    return next((one for one in home.consortia().values() if one.coordinator().key.fingerprint == coordinator), None)


def roster(home: Home, client: CoordinatorClient, invitation: Invitation) -> tuple[Roster, tuple[str, ...]]:
    """Keys of the invited members who are there, by name, as the coordinator shows them; and who is still missing.

    This party's own key is the one it has.
    """
    own = home.identity().signing_key.fingerprint
    there = {
        one.name: VerifyingKey.from_hex(one.signing_key).fingerprint
        for one in client.members()
        if one.name in invitation.members and one.revoked is None and one.identity is not None
    }
    if there.get(invitation.party, own) != own:
        raise SignatureError(
            f"the coordinator shows another key for {invitation.party} than this home has",
            remedy="Somebody else has enrolled in this name. Ask the coordinator's operator; join under another name.",
        )
    return there, tuple(name for name in sorted(invitation.members) if name not in there)


def confirm(membership: Membership, keys: Roster, own: str, ask: Callable[[tuple[str, ...], str], str]) -> bool:
    """Pin the fellow members, once somebody has typed the words of all keys; whether it had to ask.

    `ask` shows the words and what was wrong with the last answer, and returns what somebody types then.
    """
    fellows = {name: key for name, key in keys.items() if name != own}
    if fellows.items() <= membership.pins().items():
        return False
    words = words_of(membership.coordinator().key.fingerprint, keys)
    wrong = ""
    for _ in range(_TRIES):
        if not (wrong := wrong_words(ask(words, wrong), words)):
            break
    else:
        raise ConflictError(
            f"the words do not match ({wrong}); no keys were pinned",
            remedy="Repeat the command. If a fellow member's words differ again, somebody shows you different keys: "
            "compare the 64 digits of `commingle party status` with each other.",
        )
    membership.pin(fellows)
    return True


def share_linkage_key(
    home: Home, membership: Membership, client: CoordinatorClient, invitation: Invitation, *, clock: Clock
) -> str | None:
    """Send the linkage key, or take it over from its maker; returns its check value, None if it is not there."""
    coordinator, maker = invitation.coordinator, invitation.key_maker
    if invitation.party == maker:
        return send_linkage_key(home, membership, client, coordinator=coordinator, now=clock()).check
    received = receive_linkage_key(home, membership, client, coordinator=coordinator, sender=maker)
    return None if received is None else received.check
