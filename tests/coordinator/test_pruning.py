"""Nobody fills the coordinator's disk: what came to nothing loses its documents, and a member has so many proposals."""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.errors import StateError, TooManyProposalsError
from commingle.coordinator.http.views import release_details
from commingle.coordinator.linkage import linkage_keys
from commingle.coordinator.proposals import propose, reject
from commingle.coordinator.publisher import prune
from commingle.coordinator.publishing import expire
from commingle.shared.documents.dsse import payload_type
from commingle.shared.documents.model import encode
from commingle.shared.release.audit import verify_coordinator_audit
from tests.coordinator.test_linkage import message, send
from tests.world.coordinator import Honest, Hub, Proposed, problem

Parties = tuple[Honest, Honest]
MOST = 3


@pytest.fixture
def small(hub: Hub) -> Hub:
    """A coordinator at which a member can have three open proposals."""
    hub.coordinator = replace(hub.coordinator, most_proposals=MOST)
    return hub


def proposed_by(hub: Hub, parties: Parties, study: str) -> Proposed:
    spec = hub.spec(parties, study=study).model_copy(update={"proposer": parties[0].key.fingerprint})
    return hub.signed(spec, key=parties[0].key)


def put_forward(hub: Hub, parties: Parties, study: str) -> Proposed:
    proposed = proposed_by(hub, parties, study)
    assert propose(hub.coordinator, proposed.envelope)[1]
    return proposed


def kept(hub: Hub, proposed: Proposed) -> bool:
    """Whether the spec is still there."""
    with hub.store.read() as tx:
        release = tx.releases.get(proposed.id)
    assert release is not None
    assert (release.spec is None) is (release_details(release).spec is None)
    return release.spec is not None


def rejected(hub: Hub, parties: Parties) -> Proposed:
    proposed = hub.approved(parties)
    assert hub.reject(proposed, "registry", parties[1].rejection(proposed)).status_code == 201
    return proposed


def never_approved(hub: Hub, parties: Parties) -> Proposed:
    proposed = hub.proposed(parties)
    hub.clock.now = proposed.spec.expires
    expire(hub.coordinator, proposed.id)
    return proposed


@pytest.mark.parametrize("ended", [rejected, never_approved])
def test_release_that_came_to_nothing_loses_its_documents_after_the_retention(
    hub: Hub, parties: Parties, ended: Callable[[Hub, Parties], Proposed]
) -> None:
    proposed = ended(hub, parties)
    before = hub.show(proposed)
    hub.clock.move(days=30)
    assert (prune(hub.coordinator), kept(hub, proposed)) == (0, True)
    hub.clock.move(seconds=1)
    assert (prune(hub.coordinator), kept(hub, proposed)) == (1, False)
    assert prune(hub.coordinator) == 0
    assert hub.show(proposed) == before | {"spec": None}


def test_what_was_dropped_can_still_be_listed_and_audited_and_is_not_taken_up_again(hub: Hub, parties: Parties) -> None:
    proposed = rejected(hub, parties)
    hub.clock.move(days=31)
    prune(hub.coordinator)
    assert [one["id"] for one in hub.http.get("/v1/releases").json()["items"]] == [proposed.id]
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    assert ("proposal", proposed.id) in {(event.kind, event.document) for event in history.events}
    again = hub.propose(proposed)
    assert (again.status_code, again.json()["state"]) == (200, "aborted")
    assert problem(hub.http.get(f"/v1/releases/{proposed.id}/forecast")) == (409, "state")
    with pytest.raises(StateError, match="not kept"):
        reject(hub.coordinator, proposed.id, "clinic", parties[0].rejection(proposed))


def test_open_and_published_releases_keep_their_documents_however_old(hub: Hub, parties: Parties) -> None:
    published = hub.complete(parties)
    hub.publisher.run_once()
    hub.clock.move(days=300)
    waiting = hub.proposed(parties)
    hub.clock.move(days=40)
    assert prune(hub.coordinator) == 0
    assert kept(hub, published)
    assert kept(hub, waiting)


def test_publisher_prunes(hub: Hub, parties: Parties) -> None:
    proposed = rejected(hub, parties)
    hub.clock.move(days=31)
    hub.publisher.run_once()
    assert not kept(hub, proposed)


def test_member_has_so_many_open_proposals_and_no_more(small: Hub, parties: Parties) -> None:
    made = [put_forward(small, parties, f"study {number}") for number in range(MOST)]
    with pytest.raises(TooManyProposalsError, match="3 proposals of clinic"):
        propose(small.coordinator, proposed_by(small, parties, "one more").envelope)
    assert propose(small.coordinator, made[0].envelope)[1] is False  # the same again is none
    assert propose(small.coordinator, small.signed(small.spec(parties)).envelope)[1]  # the operator's own disk
    reject(small.coordinator, made[0].id, "registry", parties[1].rejection(made[0]))
    put_forward(small, parties, "one more")


def test_too_many_proposals_are_a_conflict_with_a_remedy(hub: Hub, parties: Parties) -> None:
    for number in range(hub.coordinator.most_proposals):
        put_forward(hub, parties, f"study {number}")
    answer = hub.propose(proposed_by(hub, parties, "one more"))
    assert problem(answer) == (409, "too-many-proposals")
    assert "50 proposals of clinic are open" in answer.json()["detail"]


def test_member_that_proposes_and_rejects_in_turn_keeps_so_many_documents_and_no_more(
    small: Hub, parties: Parties
) -> None:
    made = []
    for number in range(3 * MOST):
        made.append(put_forward(small, parties, f"study {number}"))
        reject(small.coordinator, made[-1].id, "clinic", parties[0].rejection(made[-1]))
    assert [kept(small, one) for one in made] == [False] * (2 * MOST - 1) + [True] * (MOST + 1)


def test_proposal_padded_with_white_space_is_refused_and_nothing_of_it_is_kept(hub: Hub, parties: Parties) -> None:
    spec = encode(hub.spec(parties)) + b" " * 100_000
    kind = payload_type("spec").encode()
    signature = hub.key.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(spec), spec))
    honest = json.loads(hub.signed(hub.spec(parties)).envelope.to_json())
    padded = honest | {
        "payload": b64encode(spec).decode(),
        "signatures": [{"keyid": hub.key.fingerprint, "sig": b64encode(signature).decode()}],
    }
    answer = hub.http.post("/v1/releases", json=padded, auth=hub.auth(hub.key))
    assert problem(answer) == (422, "document")
    assert "canonical" in answer.json()["detail"]
    assert hub.http.get("/v1/releases").json()["items"] == []


def test_envelope_is_stored_as_it_is_encoded_and_not_as_it_came(hub: Hub, parties: Parties) -> None:
    proposed = hub.signed(hub.spec(parties))
    spaced = json.dumps(json.loads(proposed.envelope.to_json()), indent=8).encode() + b" " * 10_000
    answer = hub.http.post("/v1/releases", content=spaced, auth=hub.auth(hub.key))
    assert answer.status_code == 201
    with hub.store._database.reading() as connection:
        stored = connection.exec_driver_sql("SELECT spec FROM releases").scalar()
    assert stored == proposed.envelope.to_json().decode()


@pytest.mark.usefixtures("parties")
def test_expired_invites_and_old_linkage_keys_and_nonces_are_forgotten(hub: Hub) -> None:
    hub.invited("never came")
    send(hub, message(hub))
    assert counts(hub) == {"invites": 3, "linkage_keys": 1, "nonces": 1}
    hub.clock.move(days=29)
    prune(hub.coordinator)
    assert counts(hub) == {"invites": 3, "linkage_keys": 1, "nonces": 0}
    hub.clock.move(days=5)
    prune(hub.coordinator)
    assert counts(hub) == {"invites": 2, "linkage_keys": 0, "nonces": 0}  # those of members stay
    assert linkage_keys(hub.coordinator, "registry") == {}
    hub.clock.move(seconds=timedelta(hours=1).total_seconds())
    assert send(hub, message(hub, created=hub.clock())).status_code == 201


def counts(hub: Hub) -> dict[str, int]:
    with hub.store._database.reading() as connection:
        return {
            table: int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())  # noqa: S608 - names above
            for table in ("invites", "linkage_keys", "nonces")
        }
