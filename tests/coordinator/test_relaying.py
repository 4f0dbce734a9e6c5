"""What members are told of each other: identities, sealed linkage keys, and ledger heads that are witnessed."""

from datetime import datetime, timedelta

import httpx
import pytest

from commingle.coordinator.members import rotate
from commingle.coordinator.store.members import MOST_HEADS
from commingle.shared.documents.dsse import Envelope, SigningKey, seal
from commingle.shared.documents.linkage import IdentityStatement, LinkageKeyMessage
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import NO_HEAD, LedgerHead, SignedDocument, open_head
from tests.world.coordinator import Honest, Hub, Parties, key_of, problem
from tests.world.documents import START, ledger_head, rotation

pytestmark = pytest.mark.usefixtures("parties")


def identity(party: Honest, *, key: SigningKey | None = None, **changes: str) -> Envelope:
    raw = party.key.verifying_key.raw.hex()
    statement = IdentityStatement(name=party.name, signing_key=raw, sealing_key=party.sealing_key)
    return seal(statement.model_copy(update=changes), key=key or party.key)


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
    content = seal(made, key=key or key_of("clinic")).to_json()
    path = f"/v1/parties/{to}/linkage-keys/{sender}"
    return hub.http.put(path, content=content, auth=hub.auth(key or key_of("clinic")))


def test_identity_is_shown_to_members_as_it_was_signed(hub: Hub, clinic: Honest) -> None:
    assert hub.http.get("/v1/parties/clinic").json()["identity"] is None
    envelope = identity(clinic)
    codes = [publish(hub, "clinic", envelope, key=clinic.key).status_code for _ in range(2)]
    assert codes == [201, 200]
    shown = hub.http.get("/v1/parties").json()["items"][0]["identity"]
    assert Envelope.model_validate(shown, strict=False) == envelope


def test_identity_that_is_not_the_members_own_is_refused(hub: Hub, clinic: Honest, registry: Honest) -> None:
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


def test_second_identity_under_one_key_cannot_bring_another_sealing_key(hub: Hub, clinic: Honest) -> None:
    publish(hub, "clinic", identity(clinic), key=clinic.key)
    new = key_of("clinic, second key")
    rotate(hub.coordinator, "clinic", rotation(clinic.key, new))
    assert hub.http.get("/v1/parties/clinic").json()["identity"] is None  # the old one is under the old key
    renewed = Honest("clinic", new)
    first, second = (identity(renewed, sealing_key=key * 32) for key in ("22", "33"))
    assert publish(hub, "clinic", first, key=new).status_code == 201
    assert problem(publish(hub, "clinic", second, key=new)) == (422, "document")
    assert hub.http.get("/v1/parties/clinic").json()["sealing_key"] == "22" * 32


def test_sealed_key_waits_for_its_recipient_and_a_newer_one_takes_its_place(hub: Hub) -> None:
    first, second = message(hub), message(hub, box="cd", created=START + timedelta(seconds=1))
    assert [send(hub, m).status_code for m in (first, first, second)] == [201, 200, 201]
    assert problem(send(hub, first)) == (409, "other-bytes")
    (shown,) = hub.http.get("/v1/parties/registry/linkage-keys").json()["items"]
    assert shown["sender"] == "clinic"
    sealed = seal(second, key=key_of("clinic"))
    assert Envelope.model_validate(shown["envelope"], strict=False).digest == sealed.digest
    assert hub.http.get("/v1/parties/clinic/linkage-keys").json() == {"items": []}


def test_linkage_keys_of_nobody_are_404(hub: Hub) -> None:
    for name in ("nobody", "No Body", "%00"):
        assert hub.http.get(f"/v1/parties/{name}/linkage-keys").status_code == 404


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
    hub: Hub, parties: Parties, changes: dict[str, str], where: dict[str, str], expected: tuple[int, str]
) -> None:
    assert problem(send(hub, message(hub, **changes), **where)) == expected  # type: ignore[arg-type] # a table
    assert hub.http.get(f"/v1/parties/{parties[1].name}/linkage-keys").json() == {"items": []}


CLINIC, REGISTRY = key_of("clinic"), key_of("registry")


def head(height: int, branch: str = "a") -> LedgerHead:
    return ledger_head(height, branch * 32 + f"{height:032x}")


def put(
    hub: Hub, made: LedgerHead, *, after: LedgerHead | None = None, key: SigningKey = CLINIC, by: SigningKey = CLINIC
) -> httpx.Response:
    path, params = f"/v1/parties/{made.party}/ledger-heads", {"after": after.head if after else NO_HEAD}
    return hub.http.put(path, params=params, content=encode(SignedDocument.of(made, key)), auth=hub.auth(by))


def shown(hub: Hub, path: str = "/v1/parties/clinic/ledger-heads", **params: int) -> list[int]:
    answer = hub.http.get(path, params=params, auth=hub.auth(REGISTRY))
    assert answer.status_code == 200, answer.text
    items = [SignedDocument.model_validate(item, strict=False) for item in answer.json()["items"]]
    return [open_head(item)[0].height for item in items]


def test_history_is_kept_newest_first_and_the_newest_of_each_is_listed(hub: Hub) -> None:
    assert [put(hub, head(3)).status_code for _ in range(2)] == [201, 200]
    assert put(hub, head(3), after=head(3)).status_code == 200  # the same again changes nothing
    assert put(hub, head(5), after=head(3)).status_code == 201
    assert put(hub, head(9), after=head(5)).status_code == 201
    assert shown(hub) == [9, 5, 3]
    assert (shown(hub, limit=2), shown(hub, below=5, limit=2)) == ([9, 5], [3])
    assert shown(hub, "/v1/ledger-heads") == [9]


@pytest.mark.parametrize(
    ("offered", "after"),
    [
        (head(5, "b"), head(5)),  # a branch of the same length
        (head(4), head(5)),  # set back
        (head(6), head(3)),  # does not know the newest
        (head(6, "b"), head(4, "b")),
        (head(6), None),
    ],
)
def test_what_does_not_follow_the_newest_is_refused_and_told_of_it(
    hub: Hub, offered: LedgerHead, after: LedgerHead | None
) -> None:
    put(hub, head(3))
    put(hub, head(5), after=head(3))
    answer = put(hub, offered, after=after)
    assert problem(answer) == (409, "ledger-head")
    assert "5" in answer.json()["detail"]
    assert shown(hub) == [5, 3]


def test_any_member_may_carry_what_the_party_has_signed_and_nothing_else(hub: Hub) -> None:
    assert put(hub, head(3), by=REGISTRY).status_code == 201
    assert problem(put(hub, head(4), after=head(3), key=REGISTRY, by=REGISTRY)) == (403, "signature")
    assert problem(put(hub, head(4), after=head(3), key=SigningKey(b"\x09" * 32))) == (403, "signature")
    foreign = hub.http.put(
        "/v1/parties/registry/ledger-heads", content=encode(SignedDocument.of(head(4), CLINIC)), auth=hub.auth(CLINIC)
    )
    assert problem(foreign) == (422, "document")
    assert problem(hub.http.put("/v1/parties/nobody/ledger-heads", content=b"{}", auth=hub.auth(CLINIC)))[0] == 422
    assert shown(hub) == [3]


def test_head_under_a_former_key_is_still_the_partys(hub: Hub) -> None:
    new = SigningKey(b"\x0a" * 32)
    rotate(hub.coordinator, "clinic", rotation(CLINIC, new))
    assert put(hub, head(3), key=CLINIC, by=new).status_code == 201
    assert put(hub, head(4), after=head(3), key=new, by=REGISTRY).status_code == 201


def test_only_the_newest_heads_of_a_member_are_kept(hub: Hub) -> None:
    signed = SignedDocument.of(head(1), CLINIC)
    with hub.store.write() as tx:
        for height in range(1, MOST_HEADS + 51):
            tx.heads.add(head(height), signed)
        tx.heads.add(head(1).model_copy(update={"party": "registry"}), signed)
        assert len(tx.heads.history("registry", below=None, limit=2)) == 1
    kept = hub.sql("SELECT height FROM ledger_heads WHERE party = 'clinic' ORDER BY height DESC")
    assert [height for (height,) in kept] == list(range(MOST_HEADS + 50, 50, -1))


def test_end_of_a_release_comes_with_the_newest_heads_where_its_party_itself_asks(hub: Hub, parties: Parties) -> None:
    clinic, other = parties
    put(hub, head(3))
    proposed = hub.proposed(parties)
    path = "/v1/parties/clinic/releases"
    assert hub.http.get(path, auth=hub.auth(CLINIC)).json()["heads"] is None, "nothing is over"
    hub.reject(proposed, "clinic", clinic.rejection(proposed))
    signed = next(hub.auth(CLINIC).auth_flow(hub.http.build_request("GET", path)))
    said = hub.http.send(signed).json()
    assert said["heads"] == hub.http.get("/v1/ledger-heads", auth=hub.auth(CLINIC)).json()["items"]
    put(hub, head(4), after=head(3))
    later = hub.http.get(path, auth=hub.auth(CLINIC)).json()
    assert [item["envelope"] for item in later["heads"]] == [
        SignedDocument.of(head(4), CLINIC).envelope.model_dump(mode="json")
    ]
    for answer in (hub.http.send(signed), hub.http.get(path, auth=hub.auth(other.key)), hub.http.get(path)):
        assert answer.json() == said | {"heads": None}  # repeated, by another, by nobody
