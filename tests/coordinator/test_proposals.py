"""Proposals, and what parties decide about them: approvals, rejections and withdrawals."""

import json
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import timedelta

import pytest

from commingle.shared.documents.dsse import seal
from commingle.shared.documents.model import canonical_json, decode
from commingle.shared.documents.schema import CategoricalAttribute
from commingle.shared.documents.statements import Rejection
from commingle.shared.forecast.forecast import computed_forecast, forecast_of
from tests.world.coordinator import Honest, Hub, Parties, Proposed, key_of, problem
from tests.world.documents import sign_bytes


@pytest.fixture
def proposed(hub: Hub, parties: Parties) -> Proposed:
    return hub.proposed(parties)


def test_proposal_is_recorded_and_shown_and_the_same_again_makes_no_event(hub: Hub, proposed: Proposed) -> None:
    shown = hub.show(proposed)
    assert (shown["id"], shown["state"], shown["k"], shown["n"]) == (proposed.id, "proposed", 16, 40)
    assert shown["spec"] == json.loads(proposed.envelope.to_json())
    waiting = {"approved": False, "uploaded": False}
    assert shown["parties"] == [{"name": "clinic", **waiting}, {"name": "registry", **waiting}]
    assert "alignment" not in json.dumps(shown).replace("commingle.alignment", "")
    assert hub.propose(proposed).status_code == 200
    assert hub.kinds(proposed) == ["proposal"]


def test_proposal_has_the_forecast_that_its_spec_alone_implies(hub: Hub, proposed: Proposed) -> None:
    expected = forecast_of(proposed.spec)
    assert expected is not None
    assert problem(hub.http.get(f"/v1/releases/{'0' * 64}/forecast")) == (404, "unknown")
    answer = hub.http.get(f"/v1/releases/{proposed.id}/forecast")
    assert answer.json() == json.loads(json.dumps(asdict(expected)))
    assert expected.sentences[0].startswith("Not useful with n = 40 at epsilon 1")


def test_proposal_without_a_possible_label_has_no_forecast(hub: Hub, parties: Parties) -> None:
    levels = CategoricalAttribute(name="only", levels=("a", "b", "c"))
    spec = hub.spec(parties[:1])
    only = spec.parties[0].model_copy(update={"attributes": (levels,)})
    proposed = hub.signed(spec.model_copy(update={"parties": (only,)}))
    assert hub.propose(proposed).status_code == 201
    assert hub.http.get(f"/v1/releases/{proposed.id}/forecast").json() is None


def test_no_forecast_is_computed_unless_it_is_asked_for(
    hub: Hub, parties: Parties, open_hub: Callable[..., Hub]
) -> None:
    computed_forecast.cache_clear()
    asked = open_hub(apart=True)
    proposed = hub.proposed(parties)
    hub.approve(proposed, "clinic", parties[0].approval(proposed))
    assert "forecast" not in hub.show(proposed)
    assert computed_forecast.cache_info().misses == 0
    for _ in range(2):
        assert asked.http.get(f"/v1/releases/{proposed.id}/forecast").is_success
    assert computed_forecast.cache_info().misses == 1


def test_forecast_that_several_threads_ask_for_is_computed_once(hub: Hub, parties: Parties) -> None:
    spec = hub.proposed(parties).spec
    computed_forecast.cache_clear()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(forecast_of, [spec] * 4))
    assert found[0] is not None
    assert all(each is found[0] for each in found)
    assert computed_forecast.cache_info().misses == 1


def test_proposer_is_a_member_or_the_operator_and_signs_itself(hub: Hub, parties: Parties) -> None:
    clinic, stranger = parties[0].key, key_of("stranger")
    for named, signer in ((stranger, stranger), (hub.key, clinic)):
        assert problem(hub.propose(hub.signed(hub.spec(parties, proposer=named), signer))) == (403, "signature")
    assert hub.propose(hub.by_member(parties, parties[0])).status_code == 201


def test_altered_payload_is_refused(hub: Hub, parties: Parties) -> None:
    envelope = json.loads(hub.signed(hub.spec(parties)).envelope.to_json())
    envelope["payload"] = b64encode(b"{}").decode()
    assert problem(hub.http.post("/v1/releases", json=envelope, auth=hub.auth(hub.key))) == (403, "signature")


def test_parties_must_be_enrolled_with_the_keys_named(hub: Hub, clinic: Honest, registry: Honest) -> None:
    stranger = Honest("clinic", key_of("somebody else"))
    assert problem(hub.propose(hub.signed(hub.spec([stranger, registry])))) == (422, "spec")
    other_sealing = Honest("clinic", clinic.key, sealing_key="33" * 32)
    assert problem(hub.propose(hub.signed(hub.spec([other_sealing, registry])))) == (422, "spec")
    names = hub.spec([clinic, registry]).model_dump(mode="json")
    names["parties"][0]["name"] = "nobody"
    envelope = sign_bytes(canonical_json(names), kind="spec", key=hub.key).model_dump(mode="json")
    refused = hub.http.post("/v1/releases", json=envelope, auth=hub.auth(hub.key))
    assert problem(refused) == (422, "spec")
    assert "nobody is not enrolled" in refused.json()["detail"]


def test_expired_and_distant_specs_are_refused(hub: Hub, parties: Parties) -> None:
    spec = hub.spec(parties)
    far = spec.model_copy(update={"expires": spec.expires + timedelta(days=400)})
    assert problem(hub.propose(hub.signed(far))) == (422, "spec")
    ancient = spec.model_copy(update={"created": spec.created - timedelta(days=400)})
    assert problem(hub.propose(hub.signed(ancient))) == (422, "spec")
    hub.clock.move(hours=73)
    assert problem(hub.propose(hub.signed(spec))) == (422, "spec")


def test_envelope_is_stored_as_it_is_encoded_and_not_as_it_came(hub: Hub, parties: Parties) -> None:
    proposed = hub.signed(hub.spec(parties))
    spaced = json.dumps(json.loads(proposed.envelope.to_json()), indent=8).encode() + b" " * 10_000
    answer = hub.http.post("/v1/releases", content=spaced, auth=hub.auth(hub.key))
    assert answer.status_code == 201
    assert hub.sql("SELECT spec FROM releases") == [(proposed.envelope.to_json().decode(),)]


NONSENSE = [
    ("epsilon", "NaN"),
    ("epsilon", "1e309"),
    ("epsilon", "-1"),
    ("epsilon", "0"),
    ("delta", "Infinity"),
    ("n", "1e3"),
    ("n", "9" * 5000),
    ("k", "17.5"),
    ("created", '"0001-01-01T00:00:00+14:00"'),
    ("expires", '"9999-12-31T23:59:59-14:00"'),
    ("expires", '"2026-03-02"'),
    ("study", '"\\u0000"'),
    ("study", '"\\ud800"'),
    ("version", "2"),
    ("parties", "[]"),
    ("extra", "1"),
]


def test_signed_nonsense_is_a_422_problem(hub: Hub, parties: Parties) -> None:
    for field, value in NONSENSE:
        spec = hub.spec(parties).model_dump(mode="json") | {field: "here"}
        payload = canonical_json(spec).decode().replace('"here"', value).encode()
        answer = hub.http.post(
            "/v1/releases",
            json=sign_bytes(payload, kind="spec", key=hub.key).model_dump(mode="json"),
            auth=hub.auth(hub.key),
        )
        assert problem(answer)[0] == 422, (field, value)
    assert hub.http.get("/v1/releases").json()["items"] == []


def test_releases_are_listed_newest_first_by_state_and_in_pages(hub: Hub, parties: Parties) -> None:
    proposed = [hub.proposed(parties, study=f"study {i}") for i in range(3)]
    clinic, _ = parties
    assert hub.reject(proposed[1], "clinic", clinic.rejection(proposed[1])).status_code == 201
    first = hub.http.get("/v1/releases", params={"limit": 2}).json()
    second = hub.http.get("/v1/releases", params={"limit": 2, "cursor": first["next"]}).json()
    assert [item["id"] for item in first["items"] + second["items"]] == [p.id for p in reversed(proposed)]
    assert second["next"] is None
    rejected = hub.http.get("/v1/releases", params={"state": "rejected"}).json()["items"]
    assert [item["id"] for item in rejected] == [proposed[1].id]
    full = hub.show(proposed[1])
    assert {name: full[name] for name in rejected[0]} == rejected[0]
    assert problem(hub.http.get("/v1/releases?state=nowhere")) == (422, "request")


def test_unknown_releases_are_404_whatever_they_are_called(hub: Hub) -> None:
    for release in ("0" * 64, "%00", "nonsense", "A" * 64):
        assert problem(hub.http.get(f"/v1/releases/{release}")) == (404, "unknown")
        assert problem(hub.http.get(f"/v1/releases/{release}/events")) == (404, "unknown")


def test_list_is_of_one_party_and_of_what_is_open_or_over(hub: Hub, parties: Parties, clinic: Honest) -> None:
    going_on, ended = hub.proposed(parties), hub.proposed(parties, study="other")
    assert hub.reject(ended, "clinic", clinic.rejection(ended)).status_code == 201

    def listed(**query: str) -> set[str]:
        return {item["id"] for item in hub.http.get("/v1/releases", params=query).json()["items"]}

    assert listed() == listed(party="clinic") == {going_on.id, ended.id}
    assert listed(party="nobody") == set()
    assert (listed(over="true"), listed(over="false", party="registry")) == ({ended.id}, {going_on.id})
    assert listed(over="true", party="nobody") == listed(state="rejected", over="false") == set()
    assert problem(hub.http.get("/v1/releases?party=no%20name%0A")) == (422, "request")


def test_every_approval_moves_the_round_to_approved(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed(parties)
    first = hub.approve(proposed, "clinic", clinic.approval(proposed))
    assert (first.status_code, first.json()["state"]) == (201, "proposed")
    second = hub.approve(proposed, "registry", registry.approval(proposed))
    assert (second.status_code, second.json()["state"]) == (201, "approved")
    assert set(hub.show(proposed)["approvals"]) == {"clinic", "registry"}


def test_same_approval_again_is_200_and_another_is_409(hub: Hub, clinic: Honest, proposed: Proposed) -> None:
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
        "no such member": (clinic.approval(proposed), "nobody", (401, "request-signature")),
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
    outside = hub.proposed([registry])
    assert problem(hub.approve(outside, "clinic", clinic.approval(outside))) == (404, "unknown")


@pytest.mark.parametrize("changed", ["fewer", "other"])
def test_unequal_subjects_abort_and_the_reason_names_who_agrees(hub: Hub, parties: Parties, changed: str) -> None:
    clinic, registry = parties
    subjects = [*clinic.subjects[1:], *([] if changed == "fewer" else ["stranger"])]
    proposed = hub.proposed(parties)
    hub.approve(proposed, "clinic", clinic.approval(proposed))
    answer = hub.approve(proposed, "registry", replace(registry, subjects=subjects).approval(proposed))
    assert answer.json()["state"] == "aborted"
    assert "clinic: 40 people; registry: " in answer.json()["reason"]
    assert hub.kinds(proposed) == ["proposal", "approval", "approval"]


def test_rejection_ends_a_proposal(hub: Hub, clinic: Honest, registry: Honest, proposed: Proposed) -> None:
    answer = hub.reject(proposed, "clinic", clinic.rejection(proposed, "budget"))
    assert (answer.status_code, answer.json()["state"]) == (201, "rejected")
    assert answer.json()["reason"] == "clinic rejected it: it would go beyond a cap on its budget"
    assert list(hub.show(proposed)["rejections"]) == ["clinic"]
    assert hub.reject(proposed, "clinic", clinic.rejection(proposed, "budget")).status_code == 200
    assert problem(hub.reject(proposed, "clinic", clinic.rejection(proposed, "policy"))) == (409, "other-bytes")
    assert problem(hub.reject(proposed, "registry", registry.rejection(proposed))) == (409, "state")
    assert problem(hub.approve(proposed, "registry", registry.approval(proposed))) == (409, "state")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"about": "registry"}, "its policy does not allow it"),
        ({"reason": "exchange", "about": "registry"}, "messages of registry do not follow the exchange"),
        ({"said": "too much"}, "its policy does not allow it: “too much”"),
        ({"reason": "operator", "said": "no"}, "“no”"),
    ],
)
def test_reason_says_what_was_signed_and_no_more(
    hub: Hub, clinic: Honest, changes: dict[str, str], reason: str, proposed: Proposed
) -> None:
    said = decode(Rejection, clinic.rejection(proposed, "policy").payload_bytes)
    answer = hub.reject(proposed, "clinic", seal(said.model_copy(update=changes), key=clinic.key))
    assert answer.json()["reason"] == f"clinic rejected it: {reason}"


def test_withdrawal_after_approval_aborts(hub: Hub, parties: Parties, clinic: Honest, registry: Honest) -> None:
    proposed = hub.approved(parties)
    hub.upload(proposed, "registry", hub.block(proposed, registry))
    answer = hub.reject(proposed, "clinic", clinic.rejection(proposed, "block_lost"))
    assert answer.json()["state"] == "aborted"
    assert answer.json()["reason"] == "clinic withdrew: its agent no longer has its block"


def test_rejection_with_a_wrong_key_is_refused(hub: Hub, clinic: Honest, proposed: Proposed) -> None:
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
