"""A coordinator, a fellow party or a network that cheats in an exchange; messages that come in one answer."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import get_args

import httpx
import numpy as np
import pytest

from commingle.party_agent.edge.loop import Loop
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import Approval, DeviationError
from commingle.shared.documents.terms import Bounds
from commingle.shared.errors import DocumentError, ExchangeError, SignatureError
from commingle.shared.mechanisms.moments.exchange.messages import Columns, require_evidence
from commingle.shared.runtime import remote
from commingle.shared.runtime.coordinator_client import MessageKind
from commingle.shared.runtime.errors import NonsenseError, RemoteProblemError, UnreachableError
from tests.party_agent.exchanging import (
    PATHS,
    STATEMENTS,
    approve_all,
    approved,
    as_the_sender_signs_it,
    assert_given_up_because_of,
    body_of,
    columned,
    crash_at,
    finish,
    messages,
    replace_message,
    replied,
    second_columns,
    signed_by,
    step_all,
)
from tests.party_agent.releasing import rejection_of, spent, state_of
from tests.world.consortium import NAMES, Consortium, Noise
from tests.world.transport import Fault, no_fault


@dataclass(frozen=True)
class Fetch:
    """At which stage which party fetches whose message."""

    stage: Callable[[Consortium, Bounds], str]
    bounds: Bounds
    by: str
    sender: str
    kind: MessageKind


FETCHES = (
    Fetch(columned, "trusted", "insurer", "clinic", "columns"),
    Fetch(columned, "proved", "insurer", "clinic", "columns"),
    Fetch(replied, "proved", "clinic", "insurer", "reply"),
)
each_fetch = pytest.mark.parametrize("fetch", FETCHES, ids=lambda fetch: f"{fetch.bounds} {fetch.kind}")
each_bounds = pytest.mark.parametrize("bounds", get_args(Bounds))


@pytest.mark.slow
@each_fetch
def test_message_altered_on_its_way_signs_nothing_and_is_fetched_again(pair: Consortium, fetch: Fetch) -> None:
    """Whoever relays it is not believed about its sender: an honest member is not named."""
    release, noise = fetch.stage(pair, fetch.bounds), Noise()
    envelope, body = messages(pair, release, fetch.kind)[fetch.sender], body_of(pair, release, fetch.sender, fetch.kind)
    flipped = (bytes([body[0] ^ 1]) + body[1:], body[:-1] + bytes([body[-1] ^ 1]))
    before = signed_by(pair, release, fetch.by)
    for altered in (*flipped, body[:-4], body[:-4] + b"\xff" * 4, b""):
        replace_message(pair, release, fetch.sender, envelope, altered, kind=fetch.kind)
        with pytest.raises(ExchangeError, match=f"what {fetch.sender} sent was altered") as refused:
            pair.step(fetch.by, draw=noise)
        assert not isinstance(refused.value, DeviationError)
        assert signed_by(pair, release, fetch.by) == before
        assert (state_of(pair, release, fetch.by), pair.state(release)) == ("debited", "approved")
    replace_message(pair, release, fetch.sender, envelope, body, kind=fetch.kind)
    finish(pair, release)


@each_fetch
def test_message_that_does_not_end_is_cut_off(pair: Consortium, fetch: Fetch) -> None:
    release = fetch.stage(pair, fetch.bounds)
    body, before = body_of(pair, release, fetch.sender, fetch.kind), signed_by(pair, release, fetch.by)
    folder = pair.homes[fetch.by].exchanges / release
    kept = {path.name for path in folder.iterdir()}

    def longer(request: httpx.Request) -> httpx.Response | None:
        asked = request.method == "GET" and f"{PATHS[fetch.kind]}{fetch.sender}" in request.url.path
        return httpx.Response(200, content=body + bytes(2 << 20)) if asked else None

    pair.coordinator.before = longer
    with pytest.raises(NonsenseError, match="more than the"):
        pair.step(fetch.by)
    assert signed_by(pair, release, fetch.by) == before
    assert {path.name for path in folder.iterdir()} == kept
    pair.coordinator.before = no_fault
    finish(pair, release)


@dataclass
class Dripping(httpx.SyncByteStream):
    """A body that comes byte by byte, a minute after one another, and does not end."""

    came: int = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.came += 1
            yield b"x"

    def close(self) -> None:
        self.came = 0

    def clock(self) -> float:
        return monotonic() + 60 * self.came


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "fetches", "path", "kind"),
    [(1, "insurer", "columns/clinic", "reply"), (2, "clinic", "replies/insurer", "block")],
)
def test_message_that_drips_is_cut_off_and_other_releases_go_on(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch, *, steps: int, fetches: str, path: str, kind: str
) -> None:
    titles = ("slow", "other")
    slow, other = (pair.propose(mechanism="moments", title=title, bounds="trusted") for title in titles)
    approve_all(pair, slow, other)
    for _ in range(steps):
        step_all(pair)
    kept = {file.name for file in (pair.homes[fetches].exchanges / slow).iterdir()}

    dripping = Dripping()
    monkeypatch.setattr(remote, "monotonic", dripping.clock)

    def drip(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(200, stream=dripping) if request.url.path.endswith(f"{slow}/{path}") else None

    pair.coordinator.before = drip
    with pair.agent(fetches) as agent:
        Loop(agent).turn()
        assert "too slowly" in (agent.jobs.get(slow).error or "")  # type: ignore[union-attr]
    assert {file.name for file in (pair.homes[fetches].exchanges / slow).iterdir()} == kept
    assert [kind in signed_by(pair, release, fetches) for release in (slow, other)] == [False, True]
    pair.coordinator.before = no_fault
    for release in (slow, other):
        finish(pair, release)


def residues_at_random(pair: Consortium, release: str) -> bytes:
    """A reply of the insurer to the clinic that is well formed and has nothing to do with its columns."""
    exchange, draw = pair.coordinator.exchange(release), np.random.default_rng(1)
    layout = exchange.layout("clinic")
    shape = layout.whole_reply_shape if exchange.proved else layout.reply_shape
    words = [draw.integers(0, prime, shape[1], np.uint32) for prime in layout.parameters.primes[: shape[0]]]
    found = np.stack(words).astype("<u4").tobytes()
    assert len(found) == exchange.part_size("clinic", "insurer")
    return found + body_of(pair, release, "insurer", "reply")[len(found) :]


@each_bounds
@pytest.mark.parametrize("where", ["key", "ciphertext", "length", "too long", "nothing"])
def test_columns_that_no_honest_member_signs_end_the_release_and_name_that_member(
    pair: Consortium, bounds: Bounds, where: str
) -> None:
    release, noise, paid = columned(pair, bounds), Noise(), spent(pair, "insurer")
    body = body_of(pair, release, "clinic", "columns")
    end = Columns(pair.coordinator.exchange(release), "clinic", body).blocks.places[-1][1]
    garbage = {
        "key": b"\xff" * 4 + body[4:],
        "ciphertext": body[: end - 4] + b"\xff" * 4 + body[end:],
        "length": body[:-4],
        "too long": body + b"\0" * (1 << 20),
        "nothing": b"",
    }[where]
    as_the_sender_signs_it(pair, release, "clinic", "columns", garbage)
    with pytest.raises(DeviationError, match="what clinic sent does not follow") as found:
        pair.step("insurer", draw=noise)
    assert found.value.party == "clinic"
    assert "reply" not in signed_by(pair, release, "insurer")
    assert "reply of insurer" not in pair.coordinator.received
    assert_given_up_because_of(pair, release, "insurer", "clinic", noise)
    assert spent(pair, "insurer") == paid, "sums may have been shown: the charge stays"


@each_bounds
@pytest.mark.parametrize("where", ["beyond its bound", "unreduced", "length", "too long"])
def test_reply_that_no_honest_member_signs_ends_the_release_before_a_block_is_made(
    pair: Consortium, bounds: Bounds, where: str
) -> None:
    release, noise, paid = replied(pair, bounds), Noise(), spent(pair)
    body = body_of(pair, release, "insurer", "reply")
    garbage = {
        "beyond its bound": residues_at_random(pair, release),
        "unreduced": b"\xff" * 4 + body[4:],
        "length": body[:-4],
        "too long": body + b"\0" * 4,
    }[where]
    as_the_sender_signs_it(pair, release, "insurer", "reply", garbage)
    with pytest.raises(DeviationError, match="what insurer sent does not follow") as found:
        pair.step("clinic", draw=noise)
    assert found.value.party == "insurer"
    assert noise.calls == [], "it is found before any noise of the block"
    assert_given_up_because_of(pair, release, "clinic", "insurer", noise)
    assert spent(pair) == paid


def test_member_is_named_once_and_the_withdrawal_is_sent_when_the_coordinator_is_back(pair: Consortium) -> None:
    release = replied(pair)
    as_the_sender_signs_it(pair, release, "insurer", "reply", residues_at_random(pair, release))
    said: list[bytes] = []

    def away(request: httpx.Request) -> None:
        if "/rejections/" in request.url.path:
            said.append(request.content)
            if len(said) == 1:
                raise httpx.ConnectError("away", request=request)

    pair.coordinator.before = away
    with pair.agent("clinic") as agent:
        Loop(agent).turn()
    pair.step("clinic")
    assert len(said) == 2
    assert said[0] == said[1]
    assert rejection_of(pair, release, "clinic").about == "insurer"


@pytest.mark.slow
def test_member_that_replies_to_other_columns_of_its_own_than_its_fellow_is_named_with_both(trio: Consortium) -> None:
    """The insurer signs two sets, each proved, has replied to the first, and the clinic is only shown the second.

    It is named by its own reply, which quotes the first.
    """
    release, noise = columned(trio, "proved"), Noise()
    first = messages(trio, release, "columns")["insurer"]
    trio.step("insurer")
    as_the_sender_signs_it(trio, release, "insurer", "columns", second_columns(trio, release, "insurer"))
    second = messages(trio, release, "columns")["insurer"]
    trio.step("lab")
    trio.step("clinic")
    with pytest.raises(DeviationError, match=r"insurer .* has signed two sets of columns"):
        trio.step("clinic", draw=noise)
    assert noise.calls == []
    assert_given_up_because_of(trio, release, "clinic", "insurer", noise)
    assert rejection_of(trio, release, "clinic").evidence == (first, second)


@pytest.mark.parametrize("again", ["shown", "after a crash"])
def test_member_that_signs_two_sets_of_columns_is_named_with_both(trio: Consortium, again: str) -> None:
    """By whoever is shown the second after its own reply, sent or about to be."""
    release, noise, paid = columned(trio, "proved"), Noise(), spent(trio)
    first = messages(trio, release, "columns")["insurer"]
    if again == "after a crash":
        crash_at(trio, "party.reply.signed")
    else:
        step_all(trio)
    as_the_sender_signs_it(trio, release, "insurer", "columns", second_columns(trio, release, "insurer"))
    second = messages(trio, release, "columns")["insurer"]
    with pytest.raises(DeviationError, match=r"insurer .* has signed two sets of columns"):
        trio.step("clinic", draw=noise)
    assert_given_up_because_of(trio, release, "clinic", "insurer", noise)
    assert spent(trio) == paid
    said = rejection_of(trio, release, "clinic")
    assert said.evidence == (first, second)
    require_evidence(trio.coordinator.exchange(release).spec, said)
    assert trio.coordinator.found(release).row.round.reason == (
        "clinic withdrew: messages of insurer do not follow the exchange, and insurer signed two sets of columns"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("by", "bounds"), [("insurer", "proved"), ("lab", "trusted")])
def test_member_that_shows_each_of_two_others_one_set_of_columns_is_named_by_either(
    trio: Consortium, by: str, bounds: Bounds
) -> None:
    """The clinic and the coordinator are in league: the lab multiplies with what the insurer never saw."""
    release, noise, paid = columned(trio, bounds), Noise(), spent(trio)
    first, body = messages(trio, release, "columns")["clinic"], body_of(trio, release, "clinic", "columns")
    trio.step("insurer")
    as_the_sender_signs_it(trio, release, "clinic", "columns", second_columns(trio, release, "clinic"))
    second = messages(trio, release, "columns")["clinic"]
    trio.step("lab")
    replace_message(trio, release, "clinic", first, body, kind="columns")
    trio.step("clinic")
    assert set(messages(trio, release, "reply")) == set(NAMES)
    shown, other = (first, second) if by == "insurer" else (second, first)
    replace_message(trio, release, "clinic", shown, body, kind="columns")
    with pytest.raises(DeviationError, match=r"clinic .* has signed two sets of columns"):
        trio.step(by, draw=noise)
    assert noise.calls == []
    assert_given_up_because_of(trio, release, by, "clinic", noise)
    said = rejection_of(trio, release, by)
    assert said.evidence == (other, shown)
    require_evidence(trio.coordinator.exchange(release).spec, said)
    assert (trio.coordinator.found(release).blocks, spent(trio)) == ({}, paid)


@each_fetch
def test_message_signed_with_another_key_is_refused(pair: Consortium, fetch: Fetch) -> None:
    release = fetch.stage(pair, fetch.bounds)
    envelope, body = messages(pair, release, fetch.kind)[fetch.sender], body_of(pair, release, fetch.sender, fetch.kind)
    forged = seal(decode(STATEMENTS[fetch.kind], envelope.payload_bytes), key=pair.coordinator.key)
    replace_message(pair, release, fetch.sender, forged, body, kind=fetch.kind)
    before = signed_by(pair, release, fetch.by)
    with pytest.raises(SignatureError):
        pair.step(fetch.by)
    assert signed_by(pair, release, fetch.by) == before
    replace_message(pair, release, fetch.sender, envelope, body, kind=fetch.kind)
    finish(pair, release)


@pytest.mark.parametrize("stage", [columned, replied])
@pytest.mark.parametrize(("party", "other"), [("clinic", "insurer"), ("insurer", "clinic")])
def test_other_approvals_than_the_columns_are_under_are_refused(
    pair: Consortium, stage: Callable[[Consortium], str], party: str, other: str
) -> None:
    """A member approves twice, and the coordinator shows the second once rows are encrypted under the first."""
    release, noise = stage(pair), Noise()
    said = decode(Approval, pair.coordinator.found(release).approvals[other].payload_bytes)
    key = pair.homes[other].identity().signing_key
    twice = seal(said.model_copy(update={"ledger_head": "1" * 64}), key=key)
    shown = {other: twice.model_dump(mode="json")}
    pair.coordinator.shown = lambda view: {**view, "approvals": {**view["approvals"], **shown}}
    before = signed_by(pair, release, party)
    with pytest.raises(DocumentError, match="another set of approvals"):
        pair.step(party, draw=noise)
    assert (noise.calls, signed_by(pair, release, party)) == ([], before)
    pair.coordinator.shown = lambda view: view
    finish(pair, release)


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


@pytest.mark.slow
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
