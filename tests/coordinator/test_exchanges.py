"""The exchange of a moments release: columns and replies passed on, and what follows from them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
import pytest

from commingle.coordinator.contributions import expect_message, store_message
from commingle.coordinator.errors import StateError
from commingle.coordinator.members import revoke
from commingle.shared.documents.row_maps import first_stage_of
from commingle.shared.documents.statements import DeviationError
from commingle.shared.mechanisms.moments.block import TRUST_MOMENTS, TRUST_PROVED
from commingle.shared.mechanisms.moments.entries import open_matrix
from commingle.shared.mechanisms.moments.exchange.documents import ReplyStatement, quotations
from commingle.shared.release.matrix import content_digest, decode_block, decode_matrix, encode_block
from commingle.shared.release.plan import plan_block
from commingle.shared.release.resolve import closed
from commingle.shared.runtime import faults
from tests.world.coordinator import Block, Honest, Hub, Parties, key_of, problem
from tests.world.exchange import (
    PATHS,
    Exchanging,
    Kind,
    Message,
    approved,
    envelope_of,
    exact_moments,
    message,
)
from tests.world.waiting import at_once

ZEROS = "0" * 64
EARLIER: dict[Kind, tuple[Kind, ...]] = {"columns": (), "reply": ("columns",)}
"""What everybody has sent before a message of a kind is due."""
SENDER: dict[Kind, int] = {"columns": 0, "reply": 1}
"""Who has something to say in it: the last party encrypts nothing, the first replies nothing."""
each_kind = pytest.mark.parametrize("kind", EARLIER)


def kept(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "blobs" / "running").rglob("*") if path.is_file()]


def due(exchanging: Exchanging, kind: Kind) -> tuple[Honest, Message]:
    """A message that nobody has sent yet, with its sender, and everything before it sent."""
    exchanging.send_all(*EARLIER[kind])
    sender = exchanging.parties[SENDER[kind]]
    return sender, exchanging.make(kind, sender)


class ReplyInParts(ReplyStatement):
    """As it was signed when each owner was sent a part of its own."""

    parts: dict[str, str]


def of_three(hub: Hub, parties: Parties, **changes: str) -> Exchanging:
    return approved(hub, [*parties, hub.enrolled("lab")], **changes)


def fetched(exchanging: Exchanging, kind: Kind) -> httpx.Response:
    """What the other party gets of the message of `due`."""
    clinic, registry = (party.name for party in exchanging.parties)
    if kind == "columns":
        return exchanging.get("columns", clinic, by=registry)
    return exchanging.get("replies", registry, by=clinic)


@pytest.mark.parametrize(("bounds", "trust"), [("trusted", TRUST_MOMENTS), ("proved", TRUST_PROVED)])
@pytest.mark.parametrize("of", [2, 3])
def test_moments_release_is_published_with_the_second_moments_of_the_rows(
    hub: Hub, parties: Parties, tmp_path: Path, *, of: int, bounds: str, trust: str
) -> None:
    exchanging = (approved if of == 2 else of_three)(hub, parties, bounds=bounds)
    exchanging.upload_all()
    hub.publisher.run_once()
    proposed = exchanging.proposed
    published = hub.verified(proposed)
    assert published.manifest.privacy.trust == trust
    exact = exact_moments(proposed, exchanging.parties)
    noise = open_matrix(proposed.spec.terms, decode_matrix(proposed.spec, hub.published(proposed)[1])) - exact
    assert published.moments.entry_variance is not None
    sigma = np.sqrt(np.array(published.moments.entry_variance)) * 4**14
    # 13 standard deviations: fails by chance with a probability below 1e-35
    assert np.all(np.abs(noise) <= 13 * sigma)
    assert np.count_nonzero(noise) > 0
    assert hub.kinds(proposed) == [
        "proposal",
        *["approval"] * of,
        *["columns"] * of,
        *["reply"] * of,
        *["block"] * of,
        "published",
    ]
    hub.publisher.run_once()
    assert kept(tmp_path) == []
    assert problem(exchanging.get("columns", "clinic", by="registry")) == (409, "not-sent")
    assert problem(exchanging.get("replies", "registry", by="clinic")) == (409, "not-sent")


def test_release_view_tells_how_far_an_exchange_is(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    assert hub.show(hub.approved(parties))["exchange"] is None
    exchanging = approved(hub, parties)
    assert hub.show(exchanging.proposed)["exchange"] == {"columns": {}, "replies": {}}
    exchanging.send_of("columns", clinic)
    shown = hub.show(exchanging.proposed)["exchange"]
    assert (list(shown["columns"]), shown["replies"]) == (["clinic"], {})
    assert envelope_of(shown["columns"]["clinic"]) == exchanging.sent["columns", "clinic"].envelope
    exchanging.send_of("columns", registry)
    exchanging.send_of("reply", registry)
    shown = hub.show(exchanging.proposed)["exchange"]
    assert (list(shown["columns"]), list(shown["replies"])) == (["clinic", "registry"], ["registry"])
    assert envelope_of(shown["replies"]["registry"]) == exchanging.sent["reply", "registry"].envelope
    assert hub.state(exchanging.proposed) == "approved"


@each_kind
def test_same_message_again_is_200_and_another_one_409(hub: Hub, exchanging: Exchanging, kind: Kind) -> None:
    sender, made = due(exchanging, kind)
    other = exchanging.make(kind, sender)
    assert other.body != made.body
    assert [exchanging.send(sender.name, made).status_code for _ in range(2)] == [201, 200]
    assert problem(exchanging.send(sender.name, other)) == (409, "other-bytes")
    assert hub.kinds(exchanging.proposed).count(kind) == 1
    assert fetched(exchanging, kind).content == made.body


@each_kind
def test_message_without_anything_to_say_is_signed_and_empty_all_the_same(exchanging: Exchanging, kind: Kind) -> None:
    exchanging.send_all(*EARLIER[kind])
    silent = exchanging.parties[1 - SENDER[kind]]
    made = exchanging.make(kind, silent)
    assert made.body == b""
    assert problem(exchanging.send(silent.name, made, b"\0")) == (413, "too-large")
    assert [exchanging.send(silent.name, made).status_code for _ in range(2)] == [201, 200]
    wrong = message(made.statement, b"", silent.key, body_sha256=ZEROS)
    assert problem(exchanging.send(silent.name, wrong)) == (409, "other-bytes")


@each_kind
def test_repeated_message_is_200_after_the_end_and_keeps_nothing(
    hub: Hub, parties: Parties, exchanging: Exchanging, tmp_path: Path, kind: Kind
) -> None:
    exchanging.send_all(*EARLIER[kind])
    first, late = (exchanging.make(kind, party) for party in parties)
    assert exchanging.send("clinic", first).status_code == 201
    hub.reject(exchanging.proposed, "registry", parties[1].rejection(exchanging.proposed))
    hub.publisher.run_once()
    assert exchanging.send("clinic", first).status_code == 200
    assert kept(tmp_path) == []
    assert problem(exchanging.send("registry", late)) == (409, "state")


@each_kind
@pytest.mark.parametrize("bounds", ["trusted", "proved"])
def test_message_that_is_not_what_was_signed_or_of_another_size_is_refused(
    hub: Hub, parties: Parties, tmp_path: Path, kind: Kind, bounds: str
) -> None:
    exchanging = approved(hub, parties, bounds=bounds)
    sender, made = due(exchanging, kind)
    before = len(kept(tmp_path))
    shorter, longer = made.body[:-1], made.body + b"\0"
    for body in (shorter, shorter + bytes([made.body[-1] ^ 1]), b""):
        assert problem(exchanging.send(sender.name, made, body)) == (422, "exchange")
    assert problem(exchanging.send(sender.name, made, longer)) == (413, "too-large")
    for body, wanted in ((shorter, (422, "exchange")), (longer, (413, "too-large"))):
        fitting = message(made.statement, body, sender.key, body_sha256=sha256(body).hexdigest())
        assert problem(exchanging.send(sender.name, fitting)) == wanted
    assert len(kept(tmp_path)) == before
    assert kind not in hub.kinds(exchanging.proposed)
    assert exchanging.send(sender.name, made).status_code == 201


@each_kind
def test_proof_that_fails_is_passed_on_and_its_reader_names_who_signed_it(
    hub: Hub, parties: Parties, kind: Kind
) -> None:
    """The coordinator checks sizes and signatures only: the rest is for the parties, who do not trust it."""
    exchanging = approved(hub, parties, bounds="proved")
    sender, honest = due(exchanging, kind)
    body = honest.body[:-1] + bytes([honest.body[-1] ^ 1])  # proofs come last
    made = message(honest.statement, body, sender.key, body_sha256=sha256(body).hexdigest())
    assert exchanging.send(sender.name, made).status_code == 201
    assert fetched(exchanging, kind).content == body
    if kind == "columns":
        exchanging.send_of("columns", parties[1])
    reading: dict[Kind, Callable[[], object]] = {
        "columns": lambda: exchanging.received_columns(by="registry"),
        "reply": lambda: exchanging.opened(parties[0], "registry"),
    }
    with pytest.raises(DeviationError) as caught:
        reading[kind]()
    assert caught.value.party == sender.name


def test_reply_whose_parts_are_not_where_they_were_signed_is_refused(hub: Hub, parties: Parties) -> None:
    exchanging = of_three(hub, parties)
    lab = exchanging.parties[2]
    exchanging.send_all("columns")
    made, another = exchanging.reply(lab), exchanging.reply_body(lab)
    cut = exchanging.exchange.part_size("clinic", "lab")
    assert 0 < cut < len(made.body) == len(another)
    first, second = made.body[:cut], made.body[cut:]
    for body in (second + first, first + another[cut:], another[:cut] + second, another):
        assert problem(exchanging.send("lab", made, body)) == (422, "exchange")
    assert "reply" not in hub.kinds(exchanging.proposed)
    assert exchanging.send("lab", made).status_code == 201


def test_reply_as_an_earlier_version_signed_it_is_refused(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    registry = parties[1]
    _, made = due(exchanging, "reply")
    said = made.statement.model_dump() | {"parts": {"clinic": made.statement.body_sha256}}
    earlier = message(ReplyInParts.model_validate(said), made.body, registry.key)
    assert problem(exchanging.send("registry", earlier)) == (422, "document")
    assert "reply" not in hub.kinds(exchanging.proposed)


@each_kind
def test_message_by_another_key_or_party_or_about_something_else_is_refused(
    hub: Hub, exchanging: Exchanging, kind: Kind
) -> None:
    sender, made = due(exchanging, kind)
    other = next(party for party in exchanging.parties if party is not sender)
    assert problem(exchanging.send(sender.name, exchanging.make(kind, sender, other.key))) == (403, "signature")
    assert problem(exchanging.send(other.name, made)) == (403, "signature")
    assert problem(exchanging.send(sender.name, made, by=other.name)) == (403, "scope")
    changed: list[dict[str, object]] = [{"party": other.name}, {"spec": ZEROS}]
    if kind == "columns":
        changed += [{"approvals": ZEROS}, {"sums": (1, 2)}]
    for changes in changed:
        wrong = message(made.statement, made.body, sender.key, **changes)
        assert problem(exchanging.send(sender.name, wrong)) == (422, "document")
    assert kind not in hub.kinds(exchanging.proposed)


def test_reply_to_other_columns_than_those_recorded_is_refused_and_names_who_signed_them(
    hub: Hub, parties: Parties, exchanging: Exchanging
) -> None:
    clinic, registry = parties
    _, made = due(exchanging, "reply")
    other = approved(hub, parties, epsilon=0.5)
    other.send_all("columns")
    elsewhere = other.reply(registry).reply.columns
    first = exchanging.sent["columns", "clinic"]
    second = message(first.statement, first.body, clinic.key, body_sha256=ZEROS).envelope
    twice = quotations(exchanging.exchange, {**exchanging.signed("columns"), "clinic": second})
    for columns, named in ((elsewhere, "registry"), ({}, "registry"), (twice, "clinic")):
        wrong = message(made.statement, made.body, registry.key, columns=columns)
        refused = exchanging.send("registry", wrong)
        assert problem(refused) == (422, "deviation")
        assert f"what {named} sent does not follow the exchange" in refused.json()["detail"]
    assert "reply" not in hub.kinds(exchanging.proposed)
    assert exchanging.send("registry", made).status_code == 201


def test_message_of_one_kind_is_none_of_the_other(parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    exchanging.send_all("columns")
    columns, reply = exchanging.sent["columns", "clinic"], exchanging.reply(registry)
    for made, kind, sender in ((columns, "replies", clinic), (reply, "columns", registry)):
        auth = exchanging.hub.auth(sender.key)
        path = exchanging.path(kind, sender.name)
        answer = exchanging.hub.http.put(path, content=made.body, headers=made.headers, auth=auth)
        assert problem(answer) in {(422, "document"), (403, "signature"), (409, "other-bytes")}
    assert exchanging.hub.kinds(exchanging.proposed).count("reply") == 0


@each_kind
def test_message_in_a_release_without_an_exchange_or_before_its_approval_is_refused(
    hub: Hub, parties: Parties, exchanging: Exchanging, kind: Kind
) -> None:
    sender, made = due(exchanging, kind)
    proposed = Exchanging(hub, hub.proposed(parties, mechanism="moments", epsilon=0.5), parties)
    assert problem(proposed.send(sender.name, made)) == (409, "state")
    without = Exchanging(hub, hub.approved(parties), parties)
    assert problem(without.send(sender.name, made)) == (422, "exchange")
    for other in (proposed, without):
        assert problem(other.get("columns", "clinic", by="registry")) == (409, "not-sent")
        assert problem(other.get("replies", "registry", by="clinic")) == (409, "not-sent")


@each_kind
def test_message_by_a_member_that_is_in_another_release_is_refused(
    hub: Hub, exchanging: Exchanging, kind: Kind
) -> None:
    lab = hub.enrolled("lab")
    _, made = due(exchanging, kind)
    wrong = message(made.statement, made.body, lab.key, party="lab")
    assert problem(exchanging.send("lab", wrong)) == (404, "unknown")


def test_reply_before_all_columns_are_in_is_refused(parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    _, made = due(exchanging, "reply")
    later = approved(exchanging.hub, parties, epsilon=0.5)
    premature = message(made.statement, made.body, registry.key, spec=later.proposed.id)
    assert problem(later.send("registry", premature)) == (422, "exchange")
    later.send_of("columns", registry)
    assert problem(later.send("registry", premature)) == (422, "exchange")
    later.send_of("columns", clinic)
    later.send_of("reply", registry)


@each_kind
def test_messages_are_for_the_parties_of_their_release_only(hub: Hub, parties: Parties, kind: Kind) -> None:
    """Whole for each of them: a reply is proved as one, and opens to its owners' keys only."""
    exchanging = of_three(hub, parties)
    exchanging.send_all(*EARLIER[kind])
    sender, silent = ("clinic", "registry") if kind == "columns" else ("lab", "registry")
    assert problem(exchanging.get(PATHS[kind], sender, by="clinic")) == (409, "not-sent")
    made = exchanging.send_of(kind, next(party for party in exchanging.parties if party.name == sender))
    for reader in exchanging.parties:
        answer = exchanging.get(PATHS[kind], sender, by=reader.name)
        assert (answer.status_code, answer.content) == (200, made.body)
    assert problem(exchanging.get(PATHS[kind], sender, by=hub.enrolled("hospice").name)) == (403, "scope")
    path = exchanging.path(PATHS[kind], sender)
    assert problem(hub.http.get(path)) == (401, "request-signature")
    assert problem(hub.http.get(path, auth=hub.auth(hub.key))) == (403, "scope")
    assert problem(exchanging.get(PATHS[kind], silent, by="clinic")) == (409, "not-sent")
    assert problem(exchanging.get(PATHS[kind], "nobody", by="clinic")) == (404, "unknown")


@pytest.mark.parametrize(("kind", "senders"), [("columns", ["clinic", "lab"]), ("replies", ["registry", "lab"])])
def test_messages_of_several_come_one_after_the_other_as_asked_or_not_at_all(
    hub: Hub, parties: Parties, kind: str, senders: list[str]
) -> None:
    exchanging = of_three(hub, parties)
    exchanging.send_all("columns")

    def ask(*of: str) -> httpx.Response:
        return hub.http.get(exchanging.path(kind), params={"of": of}, auth=hub.auth(key_of("clinic")))

    if kind == "replies":
        assert problem(ask(*senders)) == (409, "not-sent")
        exchanging.send_of("reply", exchanging.parties[2])
        assert problem(ask(*senders)) == (409, "not-sent"), "one of them"
        exchanging.send_of("reply", exchanging.parties[1])
    alone = {sender: exchanging.get(kind, sender, by="clinic").content for sender in senders}
    assert len(set(alone.values())) == len(senders)
    assert ask(*senders).content == b"".join(alone.values())
    assert ask(*reversed(senders)).content == b"".join(reversed(alone.values()))
    assert problem(ask("lab", "nobody")) == (404, "unknown")
    assert problem(ask()) == problem(ask(*["lab"] * 65)) == (422, "request")
    hub.coordinator.blobs.remove_running(exchanging.proposed.id)
    assert problem(ask(*senders)) == (503, "storage")


def test_answer_with_several_messages_ends_before_one_that_is_gone(hub: Hub, parties: Parties) -> None:
    exchanging = of_three(hub, parties)
    exchanging.send_all("columns")
    whole = exchanging.get("columns", "clinic", by="lab").content
    gone = exchanging.signed("columns")["registry"].digest
    (hub.home / "blobs" / "running" / exchanging.proposed.id / gone).unlink()
    params = {"of": ["clinic", "registry", "lab"]}
    answer = hub.http.get(exchanging.path("columns"), params=params, auth=hub.auth(key_of("lab")))
    assert (answer.status_code, answer.content) == (200, whole)


class CrashError(BaseException):
    """The process dies here."""


def rewritten(honest: Block, party: Honest, **changes: object) -> Block:
    """The same bytes under a changed statement."""
    return party.signed(honest.body, honest.statement.model_copy(update=changes))


def test_block_before_every_reply_is_refused(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    exchanging.send_all("columns", "reply")
    block = exchanging.block(clinic)
    later = approved(hub, parties, epsilon=0.5)
    premature = rewritten(block, clinic, spec=later.proposed.id, approvals=later.exchange.approved)
    assert problem(hub.upload(later.proposed, "clinic", premature)) == (422, "exchange")
    later.send_all("columns")
    later.send_of("reply", registry)
    assert problem(hub.upload(later.proposed, "clinic", premature)) == (422, "exchange")
    assert hub.state(later.proposed) == "approved"


def test_block_of_another_transcript_is_refused(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    clinic, _ = parties
    exchanging.send_all("columns", "reply")
    block = exchanging.block(clinic)
    other = approved(hub, parties, epsilon=0.5)
    other.send_all("columns", "reply")
    for transcript in (None, ZEROS, other.transcript()):
        wrong = rewritten(block, clinic, transcript=transcript)
        assert problem(hub.upload(exchanging.proposed, "clinic", wrong)) == (422, "block")
    without = hub.approved(parties)
    needless = hub.block(without, clinic, transcript=ZEROS)
    assert problem(hub.upload(without, "clinic", needless)) == (422, "block")
    assert hub.upload(exchanging.proposed, "clinic", block).status_code == 201


def test_block_of_other_sums_than_the_columns_is_refused(hub: Hub, parties: Parties) -> None:
    exchanging = approved(hub, parties, first_stage=0.2)
    spec = exchanging.proposed.spec
    right = {}
    for party in parties:
        stage = first_stage_of(closed(spec), party.share(exchanging.proposed))
        assert stage is not None
        right[party.name] = tuple(range(stage.size))
        made = exchanging.columns(party, sums=right[party.name])
        for sums in (None, right[party.name][1:]):
            wrong = message(made.statement, made.body, party.key, sums=sums)
            assert problem(exchanging.send(party.name, wrong)) == (422, "document")
        assert exchanging.send(party.name, made).status_code == 201
    exchanging.send_all("reply")
    for party in parties:
        block = exchanging.block(party, sums=right[party.name])
        for sums in (None, right[party.name][::-1]):
            wrong_block = rewritten(block, party, sums=sums)
            assert problem(hub.upload(exchanging.proposed, party.name, wrong_block)) == (422, "block")
        assert hub.upload(exchanging.proposed, party.name, block).status_code == 201


def test_no_message_after_a_block(parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    exchanging.send_all("columns", "reply")
    others = (clinic, exchanging.columns(clinic)), (registry, exchanging.reply(registry))
    exchanging.hub.upload(exchanging.proposed, "clinic", exchanging.block(clinic))
    assert exchanging.hub.state(exchanging.proposed) == "collecting"
    for (_, sender), made in exchanging.sent.items():
        assert exchanging.send(sender, made).status_code == 200
    for party, made in others:
        assert problem(exchanging.send(party.name, made)) == (409, "other-bytes")


@pytest.mark.parametrize("end", ["rejection", "expiry", "revocation"])
@pytest.mark.parametrize("far", [("columns",), ("columns", "reply")])
def test_end_of_a_round_removes_everything_that_was_exchanged(
    hub: Hub, exchanging: Exchanging, tmp_path: Path, far: tuple[Kind, ...], end: str
) -> None:
    exchanging.send_all(*far)
    proposed, registry = exchanging.proposed, exchanging.parties[1]
    assert len(kept(tmp_path)) == 2 * len(far)
    if end == "rejection":
        hub.reject(proposed, "registry", registry.rejection(proposed, "block_lost"))
    elif end == "expiry":
        hub.clock.move(hours=72)
    else:
        revoke(hub.coordinator, "registry")
    hub.publisher.run_once()
    hub.publisher.run_once()
    assert hub.state(proposed) in {"aborted", "expired"}
    assert kept(tmp_path) == []
    assert problem(exchanging.get("columns", "clinic", by="clinic")) == (409, "not-sent")
    assert problem(exchanging.get("replies", "registry", by="clinic")) == (409, "not-sent")


@each_kind
def test_expired_round_takes_no_message_before_anybody_has_noticed(
    hub: Hub, exchanging: Exchanging, tmp_path: Path, kind: Kind
) -> None:
    sender, made = due(exchanging, kind)
    before = len(kept(tmp_path))
    hub.clock.move(hours=72)
    assert problem(exchanging.send(sender.name, made)) == (409, "state")
    assert len(kept(tmp_path)) == before
    hub.publisher.run_once()
    assert hub.state(exchanging.proposed) == "expired"
    assert kind not in hub.kinds(exchanging.proposed)


@each_kind
def test_message_whose_release_ends_while_it_arrives_is_refused_and_not_kept(
    hub: Hub, parties: Parties, exchanging: Exchanging, tmp_path: Path, kind: Kind
) -> None:
    sender, made = due(exchanging, kind)
    expected = expect_message(hub.coordinator, exchanging.proposed.id, sender.name, made.envelope, kind=kind)
    hub.reject(exchanging.proposed, "registry", parties[1].rejection(exchanging.proposed))
    hub.publisher.run_once()
    with pytest.raises(StateError):
        store_message(hub.coordinator, expected, BytesIO(made.body))
    assert kept(tmp_path) == []
    assert kind not in hub.kinds(exchanging.proposed)


@each_kind
def test_crash_before_a_message_is_recorded_shows_nothing_of_it(hub: Hub, exchanging: Exchanging, kind: Kind) -> None:
    def crash(point: str) -> None:
        if point == f"coordinator.{kind}.written":
            raise CrashError

    sender, made = due(exchanging, kind)
    expected = expect_message(hub.coordinator, exchanging.proposed.id, sender.name, made.envelope, kind=kind)
    faults.arm(crash)
    try:
        with pytest.raises(CrashError):
            store_message(hub.coordinator, expected, BytesIO(made.body))
    finally:
        faults.arm(lambda _: None)
    assert kind not in hub.kinds(exchanging.proposed)
    assert problem(fetched(exchanging, kind)) == (409, "not-sent")
    assert exchanging.send(sender.name, made).status_code == 201
    assert fetched(exchanging, kind).content == made.body


@each_kind
def test_race_of_two_messages_by_one_party_records_one(
    hub: Hub, open_hub: Callable[[], Hub], exchanging: Exchanging, kind: Kind
) -> None:
    sender, made = due(exchanging, kind)
    offered, replica = [made, exchanging.make(kind, sender)], replace(exchanging, hub=open_hub())
    at = zip((exchanging, replica), offered, strict=True)
    codes = [answer.status_code for answer in at_once(*(partial(one.send, sender.name, which) for one, which in at))]
    assert sorted(codes) == [201, 409]
    assert hub.kinds(exchanging.proposed).count(kind) == 1
    signed = exchanging.signed(kind)[sender.name]
    assert fetched(exchanging, kind).content == next(one.body for one in offered if one.envelope == signed)


@each_kind
def test_message_whose_file_was_lost_is_there_again_once_its_party_repeats_it(
    exchanging: Exchanging, tmp_path: Path, kind: Kind
) -> None:
    sender, made = due(exchanging, kind)
    assert exchanging.send(sender.name, made).status_code == 201
    for path in kept(tmp_path):
        path.unlink()
    assert problem(fetched(exchanging, kind)) == (503, "storage")
    assert exchanging.send(sender.name, made).status_code == 200
    assert fetched(exchanging, kind).content == made.body


def test_columns_of_many_rows_arrive_block_by_block_as_they_were_sent(hub: Hub, parties: Parties) -> None:
    exchanging = approved(hub, parties, n=40_000)
    assert len(list(exchanging.exchange.layout("clinic").blocks())) == 2
    exchanging.send_all("columns")
    sent = exchanging.sent["columns", "clinic"].body
    assert len(sent) > 1 << 20
    assert exchanging.get("columns", "clinic", by="registry").content == sent


def test_running_exchanges_keep_their_messages_when_another_one_ends(
    hub: Hub, parties: Parties, exchanging: Exchanging
) -> None:
    other = approved(hub, parties, epsilon=0.5)
    for one in (exchanging, other):
        one.send_all("columns")
        one.send_of("reply", parties[1])
    hub.reject(other.proposed, "registry", parties[1].rejection(other.proposed))
    hub.publisher.run_once()
    for kind in EARLIER:
        assert fetched(exchanging, kind).content == exchanging.sent[kind, parties[SENDER[kind]].name].body


@pytest.mark.parametrize("place", ["own block", "cross block"])
def test_block_that_spoils_the_moments_aborts_the_round(
    hub: Hub, parties: Parties, exchanging: Exchanging, place: str
) -> None:
    clinic, registry = parties
    exchanging.send_all("columns", "reply")
    honest = exchanging.block(clinic)
    plan = plan_block(exchanging.proposed.spec, clinic.share(exchanging.proposed))
    integers = decode_block(honest.body, columns=plan.columns, rows=plan.rows).copy()
    if place == "own block":
        integers[1, 1] += 1  # row 1, column 1 of 2: not symmetric any more
    else:
        integers[-1, 0] += 1 << 50
    body = encode_block(integers, plan.columns)
    changes = {"body_sha256": sha256(body).hexdigest(), "content_sha256": content_digest(integers)}
    spoilt = clinic.signed(body, honest.statement.model_copy(update=changes))
    assert hub.upload(exchanging.proposed, "clinic", spoilt).status_code == 201
    assert hub.upload(exchanging.proposed, "registry", exchanging.block(registry)).status_code == 201
    hub.publisher.run_once()
    shown = hub.show(exchanging.proposed)
    assert shown["state"] == "aborted"
    assert "no moments of such data" in shown["reason"]


@each_kind
def test_blob_directory_that_does_not_work_is_503_and_nothing_is_recorded(
    hub: Hub, exchanging: Exchanging, tmp_path: Path, kind: Kind
) -> None:
    sender, made = due(exchanging, kind)
    blobs, aside = tmp_path / "blobs", tmp_path / "aside"
    blobs.mkdir(exist_ok=True)
    blobs.rename(aside)
    blobs.write_text("not a directory")
    assert problem(exchanging.send(sender.name, made)) == (503, "storage")
    assert kind not in hub.kinds(exchanging.proposed)
    blobs.unlink()
    aside.rename(blobs)
    assert exchanging.send(sender.name, made).status_code == 201


@each_kind
def test_malformed_or_missing_statement_is_422(hub: Hub, exchanging: Exchanging, kind: Kind) -> None:
    path, clinic = exchanging.path(PATHS[kind], "clinic"), exchanging.parties[0]
    for header in ("{}", "nonsense"):
        answer = hub.http.put(path, content=b"x", headers={"Commingle-Statement": header}, auth=hub.auth(clinic.key))
        assert problem(answer) == (422, "document")
    assert problem(hub.http.put(path, content=b"x", auth=hub.auth(clinic.key))) == (422, "request")
