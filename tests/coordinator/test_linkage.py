"""Identities and sealed linkage keys, as the coordinator relays them."""

from datetime import datetime, timedelta

import httpx
import pytest

from commingle.coordinator.members import rotate
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.linkage import IdentityStatement, LinkageKeyMessage
from tests.world.coordinator import Honest, Hub, key_of, problem
from tests.world.documents import START, rotation


def identity(party: Honest, *, key: SigningKey | None = None, **changes: str) -> Envelope:
    raw = party.key.verifying_key.raw.hex()
    statement = IdentityStatement(name=party.name, signing_key=raw, sealing_key=party.sealing_key)
    return seal(statement.model_copy(update=changes), kind="identity", key=key or party.key)


def publish(hub: Hub, party: str, envelope: Envelope, *, key: SigningKey) -> httpx.Response:
    return hub.http.put(f"/v1/parties/{party}/identity", content=envelope.to_json(), auth=hub.auth(key))


def message(hub: Hub, *, box: str = "ab", created: datetime = START, **changes: str) -> LinkageKeyMessage:
    made = LinkageKeyMessage(
        sender="clinic", recipient="registry", coordinator=hub.key.fingerprint, created=created, sealed=box * 80
    )
    return made.model_copy(update=changes)


def send(
    hub: Hub, made: LinkageKeyMessage, *, to: str = "registry", sender: str = "clinic", key: SigningKey | None = None
) -> httpx.Response:
    content = seal(made, kind="linkage-key", key=key or key_of("clinic")).to_json()
    path = f"/v1/parties/{to}/linkage-keys/{sender}"
    return hub.http.put(path, content=content, auth=hub.auth(key or key_of("clinic")))


def test_identity_is_shown_to_members_as_it_was_signed(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    clinic, _ = parties
    assert hub.http.get("/v1/parties/clinic").json()["identity"] is None
    envelope = identity(clinic)
    codes = [publish(hub, "clinic", envelope, key=clinic.key).status_code for _ in range(2)]
    assert codes == [201, 200]
    shown = hub.http.get("/v1/parties").json()["items"][0]["identity"]
    assert Envelope.model_validate(shown, strict=False) == envelope


def test_identity_that_is_not_the_members_own_is_refused(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    clinic, registry = parties
    attempts = [
        (identity(registry), (403, "signature")),
        (identity(clinic, key=registry.key), (403, "signature")),
        (identity(clinic, name="registry"), (422, "document")),
        (identity(clinic, sealing_key="22" * 32), (422, "document")),
    ]
    for envelope, expected in attempts:
        assert problem(publish(hub, "clinic", envelope, key=clinic.key)) == expected
    assert problem(publish(hub, "clinic", identity(clinic), key=registry.key)) == (403, "scope")
    assert hub.http.get("/v1/parties/clinic").json()["identity"] is None


def test_second_identity_under_one_key_cannot_bring_another_sealing_key(
    hub: Hub, parties: tuple[Honest, Honest]
) -> None:
    clinic, _ = parties
    publish(hub, "clinic", identity(clinic), key=clinic.key)
    new = key_of("clinic, second key")
    rotate(hub.coordinator, "clinic", rotation(clinic.key, new))
    assert hub.http.get("/v1/parties/clinic").json()["identity"] is None  # the old one is under the old key
    renewed = Honest("clinic", new)
    first, second = (identity(renewed, sealing_key=key * 32) for key in ("22", "33"))
    assert publish(hub, "clinic", first, key=new).status_code == 201
    assert problem(publish(hub, "clinic", second, key=new)) == (422, "document")
    assert hub.http.get("/v1/parties/clinic").json()["sealing_key"] == "22" * 32


def test_sealed_key_waits_for_its_recipient_and_a_newer_one_takes_its_place(
    hub: Hub, parties: tuple[Honest, Honest]
) -> None:
    assert len(parties) == 2
    first, second = message(hub), message(hub, box="cd", created=START + timedelta(seconds=1))
    assert [send(hub, m).status_code for m in (first, first, second)] == [201, 200, 201]
    assert problem(send(hub, first)) == (409, "other-bytes")
    (shown,) = hub.http.get("/v1/parties/registry/linkage-keys").json()["items"]
    assert shown["sender"] == "clinic"
    assert (
        Envelope.model_validate(shown["envelope"], strict=False).digest
        == seal(second, kind="linkage-key", key=key_of("clinic")).digest
    )
    assert hub.http.get("/v1/parties/clinic/linkage-keys").json() == {"items": []}


@pytest.mark.parametrize(
    ("changes", "where", "expected"),
    [
        ({"recipient": "clinic"}, {}, (422, "document")),
        ({"sender": "registry"}, {}, (422, "document")),
        ({"coordinator": "00" * 32}, {}, (422, "document")),
        ({"sealed": "ab"}, {}, (422, "document")),
        ({}, {"to": "nobody"}, (404, "unknown")),
        ({}, {"sender": "registry"}, (403, "scope")),
        ({}, {"key": key_of("registry")}, (403, "scope")),
        ({}, {"key": key_of("stranger")}, (401, "request-signature")),
    ],
)
def test_sealed_key_that_is_not_from_and_for_members_here_is_refused(
    hub: Hub,
    parties: tuple[Honest, Honest],
    changes: dict[str, str],
    where: dict[str, str],
    expected: tuple[int, str],
) -> None:
    assert problem(send(hub, message(hub, **changes), **where)) == expected  # type: ignore[arg-type] # a table
    assert hub.http.get(f"/v1/parties/{parties[1].name}/linkage-keys").json() == {"items": []}


def test_linkage_keys_of_nobody_are_404(hub: Hub) -> None:
    for name in ("nobody", "No Body", "%00"):
        assert hub.http.get(f"/v1/parties/{name}/linkage-keys").status_code == 404
