"""What an exchange comes to: the blocks that follow from it, and what is left once its release is over."""

from hashlib import sha256
from io import BytesIO

import numpy as np
import pytest

from commingle.coordinator.errors import StateError
from commingle.coordinator.members import revoke
from commingle.coordinator.rounds import expect_message, store_message
from commingle.shared.documents.row_maps import first_stage_of
from commingle.shared.mechanisms.moments.block import TRUST_MOMENTS, TRUST_PROVED
from commingle.shared.mechanisms.moments.entries import open_matrix
from commingle.shared.release.checks import closed
from commingle.shared.release.matrix import content_digest, decode_block, decode_matrix, encode_block
from commingle.shared.release.plan import plan_block
from tests.world.coordinator import Block, Honest, Hub, Parties, problem
from tests.world.exchange import EARLIER, SENDER, Kind, Relayed, approved, exact_moments, message, of_three

ZEROS = "0" * 64
each_kind = pytest.mark.parametrize("kind", EARLIER)


@pytest.mark.parametrize(("bounds", "trust"), [("trusted", TRUST_MOMENTS), ("proved", TRUST_PROVED)])
@pytest.mark.parametrize("of", [2, 3])
def test_moments_release_is_published_with_the_second_moments_of_the_rows(
    hub: Hub, parties: Parties, *, of: int, bounds: str, trust: str
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
    assert exchanging.kept() == []
    assert problem(exchanging.get("columns", "clinic", by="registry")) == (409, "not-sent")
    assert problem(exchanging.get("replies", "registry", by="clinic")) == (409, "not-sent")


@each_kind
def test_repeated_message_is_200_after_the_end_and_keeps_nothing(
    hub: Hub, parties: Parties, exchanging: Relayed, kind: Kind
) -> None:
    exchanging.send_all(*EARLIER[kind])
    first, late = (exchanging.make(kind, party) for party in parties)
    assert exchanging.send("clinic", first).status_code == 201
    hub.reject(exchanging.proposed, "registry", parties[1].rejection(exchanging.proposed))
    hub.publisher.run_once()
    assert exchanging.send("clinic", first).status_code == 200
    assert exchanging.kept() == []
    assert problem(exchanging.send("registry", late)) == (409, "state")


def rewritten(honest: Block, party: Honest, **changes: object) -> Block:
    return party.signed(honest.body, honest.statement.model_copy(update=changes))


def test_block_before_every_reply_is_refused(hub: Hub, parties: Parties, exchanging: Relayed) -> None:
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


def test_block_of_another_transcript_is_refused(hub: Hub, parties: Parties, exchanging: Relayed) -> None:
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


def test_no_message_after_a_block(clinic: Honest, registry: Honest, exchanging: Relayed) -> None:
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
    hub: Hub, exchanging: Relayed, far: tuple[Kind, ...], end: str
) -> None:
    exchanging.send_all(*far)
    proposed, registry = exchanging.proposed, exchanging.parties[1]
    assert len(exchanging.kept()) == 2 * len(far)
    if end == "rejection":
        hub.reject(proposed, "registry", registry.rejection(proposed, "block_lost"))
    elif end == "expiry":
        hub.clock.move(hours=72)
    else:
        revoke(hub.coordinator, "registry")
    hub.publisher.run_once()
    hub.publisher.run_once()
    assert hub.state(proposed) in {"aborted", "expired"}
    assert exchanging.kept() == []
    assert problem(exchanging.get("columns", "clinic", by="clinic")) == (409, "not-sent")
    assert problem(exchanging.get("replies", "registry", by="clinic")) == (409, "not-sent")


@each_kind
def test_expired_round_takes_no_message_before_anybody_has_noticed(hub: Hub, exchanging: Relayed, kind: Kind) -> None:
    sender, made = exchanging.due(kind)
    before = len(exchanging.kept())
    hub.clock.move(hours=72)
    assert problem(exchanging.send(sender.name, made)) == (409, "state")
    assert len(exchanging.kept()) == before
    hub.publisher.run_once()
    assert hub.state(exchanging.proposed) == "expired"
    assert kind not in hub.kinds(exchanging.proposed)


@each_kind
def test_message_whose_release_ends_while_it_arrives_is_refused_and_not_kept(
    hub: Hub, parties: Parties, exchanging: Relayed, kind: Kind
) -> None:
    sender, made = exchanging.due(kind)
    expected = expect_message(hub.coordinator, exchanging.proposed.id, sender.name, made.envelope, kind=kind)
    hub.reject(exchanging.proposed, "registry", parties[1].rejection(exchanging.proposed))
    hub.publisher.run_once()
    with pytest.raises(StateError):
        store_message(hub.coordinator, expected, BytesIO(made.body))
    assert exchanging.kept() == []
    assert kind not in hub.kinds(exchanging.proposed)


def test_running_exchanges_keep_their_messages_when_another_one_ends(
    hub: Hub, parties: Parties, exchanging: Relayed
) -> None:
    other = approved(hub, parties, epsilon=0.5)
    for one in (exchanging, other):
        one.send_all("columns")
        one.send_of("reply", parties[1])
    hub.reject(other.proposed, "registry", parties[1].rejection(other.proposed))
    hub.publisher.run_once()
    for kind in EARLIER:
        assert exchanging.fetched(kind).content == exchanging.sent[kind, parties[SENDER[kind]].name].body


@pytest.mark.parametrize("place", ["own block", "cross block"])
def test_block_that_spoils_the_moments_aborts_the_round(
    hub: Hub, clinic: Honest, registry: Honest, exchanging: Relayed, place: str
) -> None:
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
    assert "not moments of such data" in shown["reason"]
