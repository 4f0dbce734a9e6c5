"""Messages that are fetched: once, also over a power cut, and each held against what its own sender signed."""

import re
from collections.abc import Callable, Iterator

import httpx
import pytest

from commingle.shared.documents.statements import DeviationError
from commingle.shared.documents.terms import Bounds
from commingle.shared.runtime.errors import RemoteProblemError, UnreachableError
from tests.party_agent.exchanging import (
    approved,
    as_the_sender_signs_it,
    assert_given_up_because_of,
    body_of,
    columned,
    crash_at,
    finish,
    messages,
    replied,
)
from tests.party_agent.releasing import state_of
from tests.world.consortium import Consortium, Noise
from tests.world.transport import Fault, no_fault

FELLOWS = ("clinic", "insurer")
"""Whose columns the lab multiplies."""


def fetches(consortium: Consortium, release: str) -> list[str]:
    """What was asked for of messages, without the release's address."""
    where = f"GET /v1/releases/{release}"
    wanted = (f"{where}/columns", f"{where}/replies")
    return [one.removeprefix(where) for one in consortium.coordinator.requests if one.startswith(wanted)]


def together(answer: Callable[[httpx.Request], httpx.Response]) -> Fault:
    """That is the answer where several messages are asked for."""

    def fault(request: httpx.Request) -> httpx.Response | None:
        return answer(request) if request.url.path.endswith(("/columns", "/replies")) else None

    return fault


def columns_of(consortium: Consortium, release: str) -> dict[str, bytes]:
    return {name: body_of(consortium, release, name, "columns") for name in FELLOWS}


def test_each_party_asks_once_for_all_columns_and_once_for_all_replies(trio: Consortium) -> None:
    release = approved(trio, "proved")
    finish(trio, release)
    alone = ["/columns/clinic", "/columns/insurer", "/replies/lab"]
    assert sorted(fetches(trio, release)) == sorted(["/columns", *alone, "/replies"]), "of one other, and of two"


@pytest.mark.parametrize(
    ("answer", "alone"),
    [
        ("", FELLOWS),
        ("clinic, cut short", FELLOWS),
        ("insurer clinic", FELLOWS),
        ("clinic, altered insurer", FELLOWS),
        ("clinic insurer, cut short", ("insurer",)),
        ("clinic insurer, altered", ("insurer",)),
        ("clinic insurer clinic", ()),
    ],
)
def test_messages_altered_on_their_way_are_asked_for_alone_and_no_others(
    trio: Consortium, answer: str, alone: tuple[str, ...]
) -> None:
    release = columned(trio)
    sent = columns_of(trio, release)
    body = b""
    for word in re.findall(r"cut short|altered|clinic|insurer", answer):
        if word in sent:
            body += sent[word]
        else:
            body = body[:-1] + (bytes([body[-1] ^ 1]) if word == "altered" else b"")
    trio.coordinator.before = together(lambda _: httpx.Response(200, content=body))
    trio.step("lab")
    assert fetches(trio, release) == ["/columns", *(f"/columns/{name}" for name in alone)]
    assert "lab" in messages(trio, release, "reply")
    trio.coordinator.before = no_fault
    finish(trio, release)


class Broken(httpx.SyncByteStream):
    """A body whose connection breaks after what is there."""

    def __init__(self, there: bytes) -> None:
        self._there = there

    def __iter__(self) -> Iterator[bytes]:
        yield self._there
        raise httpx.RemoteProtocolError("cut")


def test_what_came_before_the_connection_broke_is_kept_and_not_asked_for_again(trio: Consortium) -> None:
    release = columned(trio)
    clinic, insurer = columns_of(trio, release).values()
    trio.coordinator.before = together(lambda _: httpx.Response(200, stream=Broken(clinic + insurer[:9])))
    with pytest.raises(UnreachableError):
        trio.step("lab")
    assert {path.name for path in (trio.homes["lab"].exchanges / release).iterdir()} >= {"columns.clinic"}
    trio.coordinator.before = no_fault
    trio.step("lab")
    assert fetches(trio, release) == ["/columns", "/columns/insurer"]
    finish(trio, release)


@pytest.mark.parametrize("which", FELLOWS)
def test_member_that_signed_columns_of_another_length_is_named_though_they_come_with_others(
    trio: Consortium, which: str
) -> None:
    release, noise = columned(trio), Noise()
    as_the_sender_signs_it(trio, release, which, "columns", columns_of(trio, release)[which] + b"more")
    with pytest.raises(DeviationError, match=which):
        trio.step("lab", draw=noise)
    assert_given_up_because_of(trio, release, "lab", which, noise)


def test_messages_that_are_gone_are_told_to_be_away(trio: Consortium) -> None:
    release = columned(trio)
    trio.coordinator.hub.coordinator.blobs.remove_running(release)
    with pytest.raises(RemoteProblemError) as refused:
        trio.step("lab")
    assert refused.value.problem == "storage"
    assert state_of(trio, release, "lab") == "debited"


@pytest.mark.parametrize(
    ("stage", "point", "party", "fetched"),
    [
        (columned, "party.columns.fetched", "insurer", "columns/clinic"),
        (columned, "party.columns.verified", "insurer", "columns/clinic"),
        (replied, "party.reply.fetched", "clinic", "replies/insurer"),
    ],
)
def test_power_cut_after_a_message_was_fetched_goes_on_with_it(
    pair: Consortium, stage: Callable[[Consortium, Bounds], str], point: str, party: str, fetched: str
) -> None:
    release = stage(pair, "proved")
    crash_at(pair, point, party)
    finish(pair, release)
    assert pair.coordinator.requests.count(f"GET /v1/releases/{release}/{fetched}") == 1
    assert all(len(set(bodies)) == 1 for bodies in pair.coordinator.received.values())
