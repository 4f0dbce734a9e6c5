"""Joining a consortium, leaving it, and replacing this party's keys.

Joining leads from an invite to a pinned coordinator. Replacing, the old signing key hands over to the new one, at the
coordinator first and then here. The sealing key goes with it: it counts only under the signature of the present signing
key, so an old one cannot be shown again. Whatever is interrupted is finished by doing it again: the next keys wait in
their files until the coordinator has them.
"""

from pathlib import Path

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.consortium import Membership, PinnedCoordinator
from commingle.party_agent.home.home import Home
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.linkage import publish_identity, signed_identity
from commingle.party_agent.rounds.proposals import Decision, Proposal
from commingle.party_agent.wire.coordinator_client import CoordinatorClient
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.invitation import coordinator_of
from commingle.shared.documents.keys import Fingerprint, SigningKey
from commingle.shared.documents.statements import Departure, Enrolment, Rotation, RotationRequest, SignedDocument
from commingle.shared.release.rounds import State
from commingle.shared.runtime.errors import RemoteError, RemoteProblemError
from commingle.shared.runtime.remote import connect, reaching
from commingle.shared.runtime.request_signing import RequestSigner


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

    A party joins as many consortia as it likes; what all of them may take is one budget. `consortium` is what this one
    is to be called here, if not what its coordinator calls itself.

    Raises:
        DocumentError: not an invite.
        SettingsError: plain http to another machine that was not allowed.
        ConflictError: the coordinator's key is not the one the invite names, or another consortium has the name.
        RemoteError: the coordinator does not answer or refuses.
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
        envelope = seal(statement, kind="enrolment", key=identity.signing_key)
        client.enrol(SignedDocument(signing_key=statement.signing_key, envelope=envelope))
        http.auth = RequestSigner(identity.signing_key, audience=coordinator.key.fingerprint)
        publish_identity(home, client)
    return home.join(coordinator, name=name)


def leave(agents: Agents, name: str) -> None:
    """Tell a coordinator that this party leaves, under its signature, and belong to the consortium no longer.

    Raises:
        ConflictError: releases that this party approved are open, and would end without their budget coming back.
        RemoteError: the coordinator does not answer or refuses; this party still belongs to the consortium.
    """
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
        agent.client.depart(departure.party, seal(departure, kind="departure", key=agents.identity.signing_key))
    except RemoteError as error:
        # it is no member any more: an earlier try got through, or it was revoked
        if not (isinstance(error, RemoteProblemError) and error.problem == "revoked"):
            error.remedy += " If it is gone for good, leave with --unannounced."
            raise
    agents.home.leave(name)


def rotate_key(agents: Agents, *, abandon_open: bool = False) -> Fingerprint:
    """Replace both keys in every consortium; the new signing key's fingerprint. Nobody else may use them meanwhile.

    Raises:
        ConflictError: releases that this party approved are open, and would end without their budget coming back.
        RemoteError: the coordinator does not answer or refuses; the old key stays.
    """
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
    by_old, by_new = (seal(rotation, kind="rotation", key=key) for key in (old, new))
    for agent in agents.consortia:
        _rotate(agent, RotationRequest(by_old=by_old, by_new=by_new), new)
        agent.client.publish_identity(rotation.party, signed_identity(rotation.party, new, sealing_key))
    agents.home.adopt_next_key()
    return new.fingerprint


def _open(agents: Agents) -> list[Proposal]:
    """What it has approved and is not over."""
    return [p for p in agents.proposals.all() if p.decision is Decision.APPROVED and not State(p.state).final]


def _rotate(agent: Agent, request: RotationRequest, new: SigningKey) -> None:
    """At one coordinator, whose calls are signed with the new key from then on."""
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
