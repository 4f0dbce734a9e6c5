"""Replacing this party's keys: the old signing key hands over to the new one, at the coordinator first and then here.

The sealing key goes with it: it counts only under the signature of the present signing key, so an old one cannot be
shown again. Whatever is interrupted is finished by doing it again: the next keys wait in their files until the
coordinator has them.
"""

from commingle.party_agent.agent import Agent
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.linkage import signed_identity
from commingle.party_agent.proposals import Decision
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.statements import Rotation, RotationRequest
from commingle.shared.release.rounds import State
from commingle.shared.runtime.errors import RemoteProblemError
from commingle.shared.runtime.request_signing import RequestSigner


def rotate_key(agent: Agent, *, abandon_open: bool = False) -> Fingerprint:
    """Replace both keys; the new signing key's fingerprint. Nobody else may use the agent meanwhile.

    Raises:
        ConflictError: releases that this party approved are open, and would end without their budget coming back.
        RemoteError: the coordinator does not answer or refuses; the old key stays.
    """
    waiting = [p for p in agent.proposals.all() if p.decision is Decision.APPROVED and not State(p.state).final]
    if waiting and not abandon_open:
        raise ConflictError(
            f"{len(waiting)} approved releases are open, the first is {waiting[0].release[:16]}; they end with the key",
            remedy="Let the agent run until they are over; or, where the key may be known to others, --abandon-open.",
        )
    sealing_key = agent.home.prepare_next_sealing_key()
    old, new = agent.identity.signing_key, agent.home.prepare_next_key()
    rotation = Rotation(
        party=agent.identity.name,
        old_key=old.verifying_key.raw.hex(),
        new_key=new.verifying_key.raw.hex(),
        created=agent.clock(),
    )
    by_old, by_new = (seal(rotation, kind="rotation", key=key) for key in (old, new))
    request = RotationRequest(by_old=by_old, by_new=by_new)
    with_new_key = RequestSigner(new, audience=agent.coordinator.key.fingerprint, clock=agent.clock)
    try:
        agent.client.rotate(rotation.party, request)
    except RemoteProblemError as error:
        if error.problem != "request-signature":
            raise
        # the old key is not known any more: an earlier try got through and its answer was lost
        agent.client.http.auth = with_new_key
        agent.client.rotate(rotation.party, request)
    agent.client.http.auth = with_new_key
    agent.client.publish_identity(rotation.party, signed_identity(rotation.party, new, sealing_key))
    agent.home.adopt_next_key()
    return new.fingerprint
