from dataclasses import replace

import pytest

from tests.world.coordinator import Honest, Hub, key_of, problem

Parties = tuple[Honest, Honest]


def test_every_approval_moves_the_round_to_approved(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed(parties)
    first = hub.approve(proposed, "clinic", clinic.approval(proposed))
    assert (first.status_code, first.json()["state"]) == (201, "proposed")
    second = hub.approve(proposed, "registry", registry.approval(proposed))
    assert (second.status_code, second.json()["state"]) == (201, "approved")
    assert set(hub.show(proposed)["approvals"]) == {"clinic", "registry"}


def test_same_approval_again_is_200_and_another_is_409(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    proposed = hub.proposed(parties)
    assert hub.approve(proposed, "clinic", clinic.approval(proposed)).status_code == 201
    assert hub.approve(proposed, "clinic", clinic.approval(proposed)).status_code == 200
    assert problem(hub.approve(proposed, "clinic", clinic.approval(proposed, head="1" * 64))) == (409, "other-bytes")
    fewer = replace(clinic, subjects=clinic.subjects[1:])
    assert problem(hub.approve(proposed, "clinic", fewer.approval(proposed))) == (409, "other-bytes")
    assert hub.kinds(proposed) == ["proposal", "approval"]


def test_approval_with_wrong_key_party_or_release_is_refused(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed(parties)
    other = hub.proposed(parties, study="another")
    attempts = {
        "wrong key": (clinic.approval(proposed, key=key_of("thief")), "clinic", (403, "signature")),
        "fellow member": (registry.approval(proposed), "clinic", (403, "signature")),
        "other release": (clinic.approval(other), "clinic", (422, "document")),
        "no such party": (clinic.approval(proposed), "nobody", (401, "request-signature")),
    }
    for name, (request, party, expected) in attempts.items():
        assert problem(hub.approve(proposed, party, request)) == expected, name
    swapped = clinic.approval(proposed)
    swapped = swapped.model_copy(update={"alignment": swapped.approval})
    assert problem(hub.approve(proposed, "clinic", swapped)) == (422, "document")
    assert hub.kinds(proposed) == ["proposal"]
    unknown = clinic.approval(proposed, about="0" * 64)
    path = f"/v1/releases/{'0' * 64}/approvals/clinic"
    answer = hub.http.put(path, content=unknown.model_dump_json(), auth=hub.auth(clinic.key))
    assert problem(answer) == (404, "unknown")


def test_member_outside_the_release_cannot_decide(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed([registry])
    assert problem(hub.approve(proposed, "clinic", clinic.approval(proposed))) == (404, "unknown")


@pytest.mark.parametrize("changed", ["fewer", "other"])
def test_unequal_subjects_abort_and_the_reason_names_who_agrees(hub: Hub, parties: Parties, changed: str) -> None:
    clinic, registry = parties
    subjects = [*clinic.subjects[1:], *([] if changed == "fewer" else ["stranger"])]
    proposed = hub.proposed(parties)
    hub.approve(proposed, "clinic", clinic.approval(proposed))
    answer = hub.approve(proposed, "registry", replace(registry, subjects=subjects).approval(proposed))
    assert answer.json()["state"] == "aborted"
    assert "clinic: 40 subjects; registry: " in answer.json()["reason"]
    assert hub.kinds(proposed) == ["proposal", "approval", "approval"]


def test_rejection_ends_a_proposal(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed(parties)
    answer = hub.reject(proposed, "clinic", clinic.rejection(proposed, "budget"))
    assert (answer.status_code, answer.json()["state"]) == (201, "rejected")
    assert answer.json()["reason"] == "clinic rejected it: budget"
    assert list(hub.show(proposed)["rejections"]) == ["clinic"]
    assert hub.reject(proposed, "clinic", clinic.rejection(proposed, "budget")).status_code == 200
    assert problem(hub.reject(proposed, "clinic", clinic.rejection(proposed, "policy"))) == (409, "other-bytes")
    assert problem(hub.reject(proposed, "registry", registry.rejection(proposed))) == (409, "state")
    assert problem(hub.approve(proposed, "registry", registry.approval(proposed))) == (409, "state")


def test_withdrawal_after_approval_aborts(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.approved(parties)
    hub.upload(proposed, "registry", hub.block(proposed, registry))
    answer = hub.reject(proposed, "clinic", clinic.rejection(proposed, "block_lost"))
    assert answer.json()["state"] == "aborted"
    assert answer.json()["reason"] == "clinic withdrew: block_lost"


def test_rejection_with_a_wrong_key_is_refused(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    proposed = hub.proposed(parties)
    assert problem(hub.reject(proposed, "registry", clinic.rejection(proposed))) == (403, "signature")
    thief = Honest("clinic", key_of("thief"))
    assert problem(hub.reject(proposed, "clinic", thief.rejection(proposed))) == (403, "signature")
    assert problem(hub.reject(proposed, "clinic", clinic.approval(proposed).approval)) == (422, "document")
    assert hub.state(proposed) == "proposed"


def test_expired_round_refuses_decisions_and_is_ended_by_the_publisher(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    proposed = hub.proposed(parties)
    hub.clock.move(hours=72)
    assert problem(hub.approve(proposed, "clinic", clinic.approval(proposed))) == (409, "state")
    hub.publisher.run_once()
    assert hub.state(proposed) == "expired"
    hub.publisher.run_once()
    assert hub.kinds(proposed) == ["proposal", "expired"]
