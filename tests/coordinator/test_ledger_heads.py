"""Witnessing ledger heads: whose they are, what follows what, and that nothing kept is lost."""

import httpx
import pytest

from commingle.coordinator.members import rotate
from commingle.coordinator.store.members import MOST_HEADS
from commingle.coordinator.store.rows import HeadRow
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.ledger_head import NO_HEAD, LedgerHead, open_head, sign_head
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import SignedDocument
from tests.world.coordinator import Honest, Hub, key_of, problem
from tests.world.documents import START, rotation

CLINIC, REGISTRY = key_of("clinic"), key_of("registry")


def head(height: int, branch: str = "a") -> LedgerHead:
    """The statement of that height in a branch of the clinic's ledger."""
    digest = branch * 32 + f"{height:032x}"
    return LedgerHead(
        party="clinic",
        height=height,
        head=digest,
        rho_units="7",
        delta=0.0,
        replacement_units="7",
        replacement_delta=0.0,
        created=START,
    )


def put(
    hub: Hub, made: LedgerHead, *, after: LedgerHead | None = None, key: SigningKey = CLINIC, by: SigningKey = CLINIC
) -> httpx.Response:
    path, params = f"/v1/parties/{made.party}/ledger-heads", {"after": after.head if after else NO_HEAD}
    return hub.http.put(path, params=params, content=encode(sign_head(made, key)), auth=hub.auth(by))


def shown(hub: Hub, path: str = "/v1/parties/clinic/ledger-heads", **params: int) -> list[int]:
    answer = hub.http.get(path, params=params, auth=hub.auth(REGISTRY))
    assert answer.status_code == 200, answer.text
    items = [SignedDocument.model_validate(item, strict=False) for item in answer.json()["items"]]
    return [open_head(item)[0].height for item in items]


def test_history_is_kept_newest_first_and_the_newest_of_each_is_listed(hub: Hub, parties: tuple[Honest, ...]) -> None:
    assert parties
    assert put(hub, head(3)).status_code == 201
    assert put(hub, head(5), after=head(3)).status_code == 201
    assert put(hub, head(9), after=head(5)).status_code == 201
    assert shown(hub) == [9, 5, 3]
    assert (shown(hub, limit=2), shown(hub, below=5, limit=2)) == ([9, 5], [3])
    assert shown(hub, "/v1/ledger-heads") == [9]


def test_same_head_again_changes_nothing(hub: Hub, parties: tuple[Honest, ...]) -> None:
    assert parties
    assert [put(hub, head(3)).status_code for _ in range(2)] == [201, 200]
    assert put(hub, head(3), after=head(3)).status_code == 200
    assert shown(hub) == [3]


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
    hub: Hub, parties: tuple[Honest, ...], offered: LedgerHead, after: LedgerHead | None
) -> None:
    assert parties
    put(hub, head(3))
    put(hub, head(5), after=head(3))
    answer = put(hub, offered, after=after)
    assert problem(answer) == (409, "ledger-head")
    assert "5" in answer.json()["detail"]
    assert shown(hub) == [5, 3]


def test_any_member_may_carry_what_the_party_has_signed_and_nothing_else(hub: Hub, parties: tuple[Honest, ...]) -> None:
    assert parties
    assert put(hub, head(3), by=REGISTRY).status_code == 201
    assert problem(put(hub, head(4), after=head(3), key=REGISTRY, by=REGISTRY)) == (403, "signature")
    assert problem(put(hub, head(4), after=head(3), key=SigningKey(b"\x09" * 32))) == (403, "signature")
    foreign = hub.http.put(
        "/v1/parties/registry/ledger-heads", content=encode(sign_head(head(4), CLINIC)), auth=hub.auth(CLINIC)
    )
    assert problem(foreign) == (422, "document")
    assert problem(hub.http.put("/v1/parties/nobody/ledger-heads", content=b"{}", auth=hub.auth(CLINIC)))[0] == 422
    assert shown(hub) == [3]


def test_head_under_a_former_key_is_still_the_partys(hub: Hub, parties: tuple[Honest, ...]) -> None:
    assert parties
    new = SigningKey(b"\x0a" * 32)
    rotate(hub.coordinator, "clinic", rotation(CLINIC, new))
    assert put(hub, head(3), key=CLINIC, by=new).status_code == 201
    assert put(hub, head(4), after=head(3), key=new, by=REGISTRY).status_code == 201


def test_only_the_newest_heads_of_a_member_are_kept(hub: Hub, parties: tuple[Honest, ...]) -> None:
    clinic, other = (party.name for party in parties)
    with hub.store.write() as tx:
        for height in range(1, MOST_HEADS + 51):
            tx.heads.add(HeadRow(clinic, height, f"{height:064x}", "{}"))
        tx.heads.add(HeadRow(other, 1, "0" * 64, "{}"))
        kept = tx.heads.history(clinic, below=None, limit=2 * MOST_HEADS)
        assert [row.height for row in kept] == list(range(MOST_HEADS + 50, 50, -1))
        assert len(tx.heads.history(other, below=None, limit=2)) == 1


def test_end_of_a_release_comes_with_the_newest_heads_where_its_party_itself_asks(
    hub: Hub, parties: tuple[Honest, Honest]
) -> None:
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
        sign_head(head(4), CLINIC).envelope.model_dump(mode="json")
    ]
    repeated, by_another, by_nobody = (
        hub.http.send(signed),
        hub.http.get(path, auth=hub.auth(other.key)),
        hub.http.get(path),
    )
    for answer in (repeated, by_another, by_nobody):
        assert answer.json() == said | {"heads": None}
