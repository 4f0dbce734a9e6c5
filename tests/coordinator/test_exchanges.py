"""Messages of an exchange: which columns and replies are taken, and who gets them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import httpx
import pytest

from commingle.coordinator.rounds import expect_message, store_message
from commingle.shared.documents.statements import DeviationError
from commingle.shared.mechanisms.moments.exchange.messages import ReplyStatement, quotations
from commingle.shared.runtime import faults
from tests.faults.chaos import CrashError
from tests.world.coordinator import Honest, Hub, Parties, key_of, problem
from tests.world.exchange import EARLIER, PATHS, SENDER, Kind, Relayed, approved, envelope_of, message, of_three
from tests.world.waiting import at_once

ZEROS = "0" * 64
each_kind = pytest.mark.parametrize("kind", EARLIER)


class ReplyInParts(ReplyStatement):
    """As it was signed when each owner was sent a part of its own."""

    parts: dict[str, str]


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
def test_same_message_again_is_200_and_another_one_409(hub: Hub, exchanging: Relayed, kind: Kind) -> None:
    sender, made = exchanging.due(kind)
    other = exchanging.make(kind, sender)
    assert other.body != made.body
    assert [exchanging.send(sender.name, made).status_code for _ in range(2)] == [201, 200]
    assert problem(exchanging.send(sender.name, other)) == (409, "other-bytes")
    assert hub.kinds(exchanging.proposed).count(kind) == 1
    assert exchanging.fetched(kind).content == made.body


@each_kind
def test_message_without_anything_to_say_is_signed_and_empty_all_the_same(exchanging: Relayed, kind: Kind) -> None:
    exchanging.send_all(*EARLIER[kind])
    silent = exchanging.parties[1 - SENDER[kind]]
    made = exchanging.make(kind, silent)
    assert made.body == b""
    assert problem(exchanging.send(silent.name, made, b"\0")) == (413, "too-large")
    assert [exchanging.send(silent.name, made).status_code for _ in range(2)] == [201, 200]
    wrong = message(made.statement, b"", silent.key, body_sha256=ZEROS)
    assert problem(exchanging.send(silent.name, wrong)) == (409, "other-bytes")


@each_kind
@pytest.mark.parametrize("bounds", ["trusted", "proved"])
def test_message_that_is_not_what_was_signed_or_of_another_size_is_refused(
    hub: Hub, parties: Parties, kind: Kind, bounds: str
) -> None:
    exchanging = approved(hub, parties, bounds=bounds)
    sender, made = exchanging.due(kind)
    before = len(exchanging.kept())
    shorter, longer = made.body[:-1], made.body + b"\0"
    for body in (shorter, shorter + bytes([made.body[-1] ^ 1]), b""):
        assert problem(exchanging.send(sender.name, made, body)) == (422, "exchange")
    assert problem(exchanging.send(sender.name, made, longer)) == (413, "too-large")
    for body, wanted in ((shorter, (422, "exchange")), (longer, (413, "too-large"))):
        fitting = message(made.statement, body, sender.key, body_sha256=sha256(body).hexdigest())
        assert problem(exchanging.send(sender.name, fitting)) == wanted
    assert len(exchanging.kept()) == before
    assert kind not in hub.kinds(exchanging.proposed)
    assert exchanging.send(sender.name, made).status_code == 201


@each_kind
def test_proof_that_fails_is_passed_on_and_its_reader_names_who_signed_it(
    hub: Hub, parties: Parties, kind: Kind
) -> None:
    """The coordinator checks sizes and signatures only: the rest is for the parties, who do not trust it."""
    exchanging = approved(hub, parties, bounds="proved")
    sender, honest = exchanging.due(kind)
    body = honest.body[:-1] + bytes([honest.body[-1] ^ 1])  # proofs come last
    made = message(honest.statement, body, sender.key, body_sha256=sha256(body).hexdigest())
    assert exchanging.send(sender.name, made).status_code == 201
    assert exchanging.fetched(kind).content == body
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


def test_reply_as_an_earlier_version_signed_it_is_refused(hub: Hub, parties: Parties, exchanging: Relayed) -> None:
    registry = parties[1]
    _, made = exchanging.due("reply")
    said = made.statement.model_dump() | {"parts": {"clinic": made.statement.body_sha256}}
    earlier = message(ReplyInParts.model_validate(said), made.body, registry.key)
    assert problem(exchanging.send("registry", earlier)) == (422, "document")
    assert "reply" not in hub.kinds(exchanging.proposed)


@each_kind
def test_message_by_another_key_or_party_or_about_something_else_is_refused(
    hub: Hub, exchanging: Relayed, kind: Kind
) -> None:
    sender, made = exchanging.due(kind)
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
    hub: Hub, parties: Parties, clinic: Honest, registry: Honest, exchanging: Relayed
) -> None:
    _, made = exchanging.due("reply")
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


def test_message_of_one_kind_is_none_of_the_other(clinic: Honest, registry: Honest, exchanging: Relayed) -> None:
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
    hub: Hub, parties: Parties, exchanging: Relayed, kind: Kind
) -> None:
    sender, made = exchanging.due(kind)
    proposed = Relayed(hub, hub.proposed(parties, mechanism="moments", epsilon=0.5), parties)
    assert problem(proposed.send(sender.name, made)) == (409, "state")
    without = Relayed(hub, hub.approved(parties), parties)
    assert problem(without.send(sender.name, made)) == (422, "exchange")
    for other in (proposed, without):
        assert problem(other.get("columns", "clinic", by="registry")) == (409, "not-sent")
        assert problem(other.get("replies", "registry", by="clinic")) == (409, "not-sent")


@each_kind
def test_message_by_a_member_that_is_in_another_release_is_refused(hub: Hub, exchanging: Relayed, kind: Kind) -> None:
    lab = hub.enrolled("lab")
    _, made = exchanging.due(kind)
    wrong = message(made.statement, made.body, lab.key, party="lab")
    assert problem(exchanging.send("lab", wrong)) == (404, "unknown")


def test_reply_before_all_columns_are_in_is_refused(parties: Parties, exchanging: Relayed) -> None:
    clinic, registry = parties
    _, made = exchanging.due("reply")
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


@each_kind
def test_crash_before_a_message_is_recorded_shows_nothing_of_it(hub: Hub, exchanging: Relayed, kind: Kind) -> None:
    def crash(point: str) -> None:
        if point == f"coordinator.{kind}.written":
            raise CrashError

    sender, made = exchanging.due(kind)
    expected = expect_message(hub.coordinator, exchanging.proposed.id, sender.name, made.envelope, kind=kind)
    faults.arm(crash)
    try:
        with pytest.raises(CrashError):
            store_message(hub.coordinator, expected, BytesIO(made.body))
    finally:
        faults.arm(lambda _: None)
    assert kind not in hub.kinds(exchanging.proposed)
    assert problem(exchanging.fetched(kind)) == (409, "not-sent")
    assert exchanging.send(sender.name, made).status_code == 201
    assert exchanging.fetched(kind).content == made.body


@each_kind
def test_race_of_two_messages_by_one_party_records_one(
    hub: Hub, open_hub: Callable[[], Hub], exchanging: Relayed, kind: Kind
) -> None:
    sender, made = exchanging.due(kind)
    offered, replica = [made, exchanging.make(kind, sender)], replace(exchanging, hub=open_hub())
    at = zip((exchanging, replica), offered, strict=True)
    codes = [answer.status_code for answer in at_once(*(partial(one.send, sender.name, which) for one, which in at))]
    assert sorted(codes) == [201, 409]
    assert hub.kinds(exchanging.proposed).count(kind) == 1
    signed = exchanging.signed(kind)[sender.name]
    assert exchanging.fetched(kind).content == next(one.body for one in offered if one.envelope == signed)


@each_kind
def test_message_whose_file_was_lost_is_there_again_once_its_party_repeats_it(exchanging: Relayed, kind: Kind) -> None:
    sender, made = exchanging.due(kind)
    assert exchanging.send(sender.name, made).status_code == 201
    for path in exchanging.kept():
        path.unlink()
    assert problem(exchanging.fetched(kind)) == (503, "storage")
    assert exchanging.send(sender.name, made).status_code == 200
    assert exchanging.fetched(kind).content == made.body


def test_columns_of_many_rows_arrive_block_by_block_as_they_were_sent(hub: Hub, parties: Parties) -> None:
    exchanging = approved(hub, parties, n=40_000)
    assert len(list(exchanging.exchange.layout("clinic").blocks())) == 2
    exchanging.send_all("columns")
    sent = exchanging.sent["columns", "clinic"].body
    assert len(sent) > 1 << 20
    assert exchanging.get("columns", "clinic", by="registry").content == sent


@each_kind
def test_blob_directory_that_does_not_work_is_503_and_nothing_is_recorded(
    hub: Hub, exchanging: Relayed, tmp_path: Path, kind: Kind
) -> None:
    sender, made = exchanging.due(kind)
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
def test_malformed_or_missing_statement_is_422(hub: Hub, exchanging: Relayed, kind: Kind) -> None:
    path, clinic = exchanging.path(PATHS[kind], "clinic"), exchanging.parties[0]
    for header in ("{}", "nonsense"):
        answer = hub.http.put(path, content=b"x", headers={"Commingle-Statement": header}, auth=hub.auth(clinic.key))
        assert problem(answer) == (422, "document")
    assert problem(hub.http.put(path, content=b"x", auth=hub.auth(clinic.key))) == (422, "request")
