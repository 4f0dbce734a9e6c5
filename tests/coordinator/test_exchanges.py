"""The exchange of a moments release: deal, masks passed on, countersignatures, and what follows from them."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from commingle.coordinator.members import revoke
from commingle.shared.mechanisms.moments.block import open_matrix
from commingle.shared.mechanisms.moments.exchange.mask import body_size
from commingle.shared.mechanisms.moments.exchange.ring import row_blocks
from commingle.shared.release.matrix import decode_matrix
from commingle.shared.release.verification import verify_release
from tests.world.coordinator import Honest, Hub, problem
from tests.world.exchange import Exchanging, approved, dealt, envelope_of, rows_of_party

Parties = tuple[Honest, Honest]


def kept(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "blobs" / "running").rglob("*") if path.is_file()]


def test_moments_release_is_published_with_the_second_moments_of_the_rows(
    hub: Hub, parties: Parties, exchanging: Exchanging, tmp_path: Path
) -> None:
    exchanging.uploaded()
    hub.publisher.run_once()
    proposed = exchanging.proposed
    manifest, matrix, moments = (
        hub.http.get(f"/v1/releases/{proposed.id}/{name}").content for name in ("manifest", "matrix", "moments")
    )
    published = verify_release(manifest, matrix, moments, trusted_coordinator=hub.key.fingerprint)
    rows = np.hstack([np.full((proposed.spec.n, 1), 2**14), *(rows_of_party(party, proposed) for party in parties)])
    noise = open_matrix(proposed.spec, decode_matrix(proposed.spec, matrix)) - rows.T @ rows
    assert published.moments.entry_variance is not None
    sigma = np.sqrt(np.array(published.moments.entry_variance)) * 4**14
    # 13 standard deviations: fails by chance with a probability below 1e-35
    assert np.all(np.abs(noise) <= 13 * sigma)
    assert np.count_nonzero(noise) > 0
    assert hub.kinds(proposed) == [
        "proposal",
        *["approval"] * 2,
        "deal",
        *["mask"] * 2,
        *["countersignature"] * 2,
        *["block"] * 2,
        "published",
    ]
    hub.publisher.run_once()
    assert kept(tmp_path) == []
    assert problem(exchanging.get("deal", "clinic", "clinic")) == (409, "not-dealt")
    assert problem(exchanging.get("masks", "clinic", "registry")) == (409, "not-dealt")


def test_approval_without_a_round_key_or_with_a_needless_one_is_refused(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    with_exchange, without = hub.proposed(parties, mechanism="moments"), hub.proposed(parties)
    for proposed, other in ((with_exchange, without), (without, with_exchange)):
        wrong = clinic.approval(other, about=proposed.id)
        assert problem(hub.approve(proposed, "clinic", wrong)) == (422, "document")
        assert hub.kinds(proposed) == ["proposal"]


def test_release_view_tells_how_far_an_exchange_is(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    assert hub.show(hub.approved(parties))["exchange"] is None
    exchanging = approved(hub, parties)
    assert hub.show(exchanging.proposed)["exchange"] == {"dealt": False, "masks": {}, "countersignatures": {}}
    hub.publisher.run_once()
    exchanging.masked(clinic)
    shown = hub.show(exchanging.proposed)["exchange"]
    assert (shown["dealt"], list(shown["masks"]), shown["countersignatures"]) == (True, ["clinic"], {})
    assert envelope_of(shown["masks"]["clinic"]) == exchanging.masks["clinic"].envelope


def test_same_mask_again_is_200_and_another_one_409(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    mask, other = exchanging.mask(clinic), exchanging.mask(clinic)
    assert [exchanging.send("clinic", mask).status_code for _ in range(2)] == [201, 200]
    assert problem(exchanging.send("clinic", other)) == (409, "other-bytes")
    assert hub.kinds(exchanging.proposed).count("mask") == 1
    assert exchanging.get("masks", "clinic", "registry").content == mask.body
    exchanging.read(registry, "clinic")


def test_repeated_mask_is_200_after_the_end_and_keeps_nothing(
    hub: Hub, parties: Parties, exchanging: Exchanging, tmp_path: Path
) -> None:
    clinic, registry = parties
    exchanging.masked(clinic)
    late = exchanging.mask(registry)
    hub.reject(exchanging.proposed, "registry", registry.rejection(exchanging.proposed))
    hub.publisher.run_once()
    assert exchanging.send("clinic", exchanging.masks["clinic"]).status_code == 200
    assert kept(tmp_path) == []
    assert problem(exchanging.send("registry", late)) == (409, "state")


@pytest.mark.parametrize("how", ["shorter", "longer", "altered"])
def test_mask_that_is_not_what_was_signed_is_refused(
    parties: Parties, exchanging: Exchanging, tmp_path: Path, how: str
) -> None:
    mask = exchanging.mask(parties[0])
    body = {
        "shorter": mask.body[:-1],
        "longer": mask.body + b"\0",
        "altered": bytes([mask.body[0] ^ 1]) + mask.body[1:],
    }[how]
    wanted = (413, "too-large") if how == "longer" else (422, "exchange")
    assert problem(exchanging.send("clinic", mask, body)) == wanted
    assert kept(tmp_path) == []
    assert exchanging.send("clinic", mask).status_code == 201


def test_mask_of_another_size_under_a_fitting_signature_is_refused(parties: Parties, exchanging: Exchanging) -> None:
    clinic, _ = parties
    short = bytes(body_size(exchanging.exchange, "clinic") - 1)
    mask = exchanging.mask(clinic, body_sha256=sha256(short).hexdigest())
    assert problem(exchanging.send("clinic", mask, short)) == (422, "exchange")


def test_mask_by_another_key_party_or_deal_is_refused(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    mask = exchanging.mask(clinic)
    assert problem(exchanging.send("clinic", exchanging.mask(clinic, registry.key))) == (403, "signature")
    assert problem(exchanging.send("registry", mask)) == (403, "signature")
    assert problem(exchanging.send("clinic", mask, by="registry")) == (403, "scope")
    assert problem(exchanging.send("clinic", exchanging.mask(clinic, deal="0" * 64))) == (422, "exchange")
    assert problem(exchanging.send("clinic", exchanging.mask(clinic, keys={}))) == (422, "document")
    assert "mask" not in hub.kinds(exchanging.proposed)


def test_mask_in_a_release_without_an_exchange_or_before_its_approval_is_refused(
    hub: Hub, parties: Parties, exchanging: Exchanging
) -> None:
    clinic, _ = parties
    mask = exchanging.mask(clinic)
    proposed = Exchanging(hub, hub.proposed(parties, mechanism="moments", epsilon=0.5), parties)
    assert problem(proposed.send("clinic", mask)) == (409, "state")
    assert problem(Exchanging(hub, hub.approved(parties), parties).send("clinic", mask)) == (422, "exchange")


def test_mask_is_for_the_parties_of_its_release_only(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    lab = hub.enrolled("lab")
    exchanging.masked(parties[0])
    for reader in parties:
        assert exchanging.get("masks", "clinic", reader.name).status_code == 200
    assert problem(exchanging.get("masks", "clinic", lab.name)) == (403, "scope")
    assert problem(hub.http.get(exchanging.path("masks", "clinic"))) == (401, "request-signature")
    own = hub.http.get(exchanging.path("masks", "clinic"), auth=hub.auth(hub.key))
    assert problem(own) == (403, "scope")
    assert problem(exchanging.get("masks", "registry", "clinic")) == (409, "not-dealt")
    assert problem(exchanging.get("masks", "nobody", "clinic")) == (404, "unknown")


def test_same_countersignature_again_is_200_and_another_one_refused(
    hub: Hub, parties: Parties, exchanging: Exchanging
) -> None:
    clinic, registry = parties
    for party in parties:
        exchanging.masked(party)
    signed = exchanging.countersignature(clinic)
    assert [exchanging.countersign("clinic", signed).status_code for _ in range(2)] == [201, 200]
    other = exchanging.countersignature(clinic, transcript="0" * 64)
    assert problem(exchanging.countersign("clinic", other)) == (409, "other-bytes")
    stranger = exchanging.countersignature(registry, transcript="0" * 64)
    assert problem(exchanging.countersign("registry", stranger)) == (422, "exchange")
    forged = exchanging.countersignature(registry, clinic.key)
    assert problem(exchanging.countersign("registry", forged)) == (403, "signature")
    assert problem(exchanging.countersign("registry", signed, by="clinic")) == (403, "scope")
    assert hub.kinds(exchanging.proposed).count("countersignature") == 1


def test_countersignature_before_every_mask_is_in_is_refused(parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    for party in parties:
        exchanging.masked(party)
    later = dealt(exchanging.hub, parties, epsilon=0.5)
    later.masked(clinic)
    premature = exchanging.countersignature(clinic, spec=later.proposed.id)
    assert problem(later.countersign("clinic", premature)) == (422, "exchange")
    assert problem(later.countersign("clinic", exchanging.countersignature(registry))) == (403, "signature")


def test_block_before_every_countersignature_is_refused(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    exchanging.agreed()
    block = exchanging.block(clinic)
    later = dealt(hub, parties, epsilon=0.5)
    for party in parties:
        later.masked(party)
    later.countersign("registry", later.countersignature(registry))
    premature = clinic.signed(
        block.body,
        block.statement.model_copy(update={"spec": later.proposed.id, "approvals": later.exchange.approved}),
    )
    assert problem(hub.upload(later.proposed, "clinic", premature)) == (422, "exchange")
    assert hub.state(later.proposed) == "approved"


def test_block_of_another_transcript_is_refused(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    clinic, _ = parties
    exchanging.agreed()
    block = exchanging.block(clinic)
    for transcript in (None, "0" * 64):
        wrong = clinic.signed(block.body, block.statement.model_copy(update={"transcript": transcript}))
        assert problem(hub.upload(exchanging.proposed, "clinic", wrong)) == (422, "block")
    without = hub.approved(parties)
    needless = hub.block(without, clinic, transcript="0" * 64)
    assert problem(hub.upload(without, "clinic", needless)) == (422, "block")
    assert hub.upload(exchanging.proposed, "clinic", block).status_code == 201


def test_no_mask_and_no_countersignature_after_a_block(parties: Parties, exchanging: Exchanging) -> None:
    clinic, _ = parties
    exchanging.agreed()
    signed = exchanging.countersignature(clinic)
    exchanging.hub.upload(exchanging.proposed, "clinic", exchanging.block(clinic))
    assert exchanging.send("clinic", exchanging.masks["clinic"]).status_code == 200
    assert exchanging.countersign("clinic", signed).status_code == 200
    assert problem(exchanging.send("clinic", exchanging.mask(clinic))) == (409, "other-bytes")


@pytest.mark.parametrize("end", ["rejection", "expiry", "revocation"])
def test_end_of_a_round_removes_packages_and_masks(
    hub: Hub, parties: Parties, exchanging: Exchanging, tmp_path: Path, end: str
) -> None:
    exchanging.agreed()
    proposed = exchanging.proposed
    assert len(kept(tmp_path)) == 2
    if end == "rejection":
        hub.reject(proposed, "registry", parties[1].rejection(proposed, "block_lost"))
    elif end == "expiry":
        hub.clock.move(hours=72)
    else:
        revoke(hub.coordinator, "registry")
    hub.publisher.run_once()
    hub.publisher.run_once()
    assert hub.state(proposed) in {"aborted", "expired"}
    assert kept(tmp_path) == []
    with hub.store.read() as tx:
        assert tx.releases.package(proposed.id, "clinic") is None
    assert problem(exchanging.get("deal", "clinic", "clinic")) == (409, "not-dealt")
    hub.publisher.run_once()
    assert hub.kinds(proposed).count("deal") == 1


def test_mask_whose_file_was_lost_is_there_again_once_its_party_repeats_it(
    parties: Parties, exchanging: Exchanging, tmp_path: Path
) -> None:
    clinic, registry = parties
    exchanging.masked(clinic)
    for path in kept(tmp_path):
        path.unlink()
    assert problem(exchanging.get("masks", "clinic", "registry")) == (503, "storage")
    assert exchanging.send("clinic", exchanging.masks["clinic"]).status_code == 200
    exchanging.read(registry, "clinic")


def test_mask_of_many_rows_arrives_block_by_block_as_it_was_sent(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    exchanging = dealt(hub, parties, n=9000)
    exchanging.masked(clinic)
    _, masked = exchanging.read(registry, "clinic")
    pad = exchanging.hand(clinic).pad
    rows = rows_of_party(clinic, exchanging.proposed)
    for start, stop in row_blocks(9000):
        assert np.array_equal((masked(start, stop) + pad(start, stop)).astype(np.int64), rows[start:stop])


def test_running_exchanges_keep_their_masks_when_another_one_ends(
    hub: Hub, parties: Parties, exchanging: Exchanging
) -> None:
    other = dealt(hub, parties, epsilon=0.5)
    for one in (exchanging, other):
        one.masked(parties[0])
    hub.reject(other.proposed, "registry", parties[1].rejection(other.proposed))
    hub.publisher.run_once()
    assert exchanging.get("masks", "clinic", "registry").content == exchanging.masks["clinic"].body


def test_restart_in_the_middle_of_an_exchange_loses_nothing(
    hub: Hub, open_hub: Callable[[], Hub], parties: Parties, exchanging: Exchanging
) -> None:
    clinic, registry = parties
    exchanging.masked(clinic)
    hub.close()
    exchanging.hub = open_hub()
    exchanging.masked(registry)
    exchanging.countersign("clinic", exchanging.countersignature(clinic))
    exchanging.hub.close()
    exchanging.hub = open_hub()
    exchanging.countersign("registry", exchanging.countersignature(registry))
    for party in parties:
        assert exchanging.hub.upload(exchanging.proposed, party.name, exchanging.block(party)).status_code == 201
    exchanging.hub.publisher.run_once()
    assert exchanging.hub.state(exchanging.proposed) == "published"


def test_block_that_spoils_the_moments_aborts_the_round(hub: Hub, parties: Parties, exchanging: Exchanging) -> None:
    clinic, registry = parties
    exchanging.agreed()
    other = dealt(hub, parties, epsilon=0.5)
    other.agreed()
    foreign = other.block(clinic)  # its shares and masks fit nothing here
    honest = exchanging.block(clinic)
    spoilt = clinic.signed(
        foreign.body,
        honest.statement.model_copy(
            update={
                "body_sha256": foreign.statement.body_sha256,
                "content_sha256": foreign.statement.content_sha256,
            }
        ),
    )
    assert hub.upload(exchanging.proposed, "clinic", spoilt).status_code == 201
    assert hub.upload(exchanging.proposed, "registry", exchanging.block(registry)).status_code == 201
    hub.publisher.run_once()
    shown = hub.show(exchanging.proposed)
    assert shown["state"] == "aborted"
    assert "do not add up" in shown["reason"]


def test_blob_directory_that_does_not_work_is_503_and_no_mask_is_recorded(
    hub: Hub, parties: Parties, exchanging: Exchanging, tmp_path: Path
) -> None:
    mask = exchanging.mask(parties[0])
    blobs = tmp_path / "blobs"
    blobs.write_text("not a directory")
    assert problem(exchanging.send("clinic", mask)) == (503, "storage")
    assert "mask" not in hub.kinds(exchanging.proposed)
    blobs.unlink()
    assert exchanging.send("clinic", mask).status_code == 201


def test_malformed_or_missing_statement_of_a_mask_is_422(hub: Hub, exchanging: Exchanging) -> None:
    path, clinic = exchanging.path("masks", "clinic"), exchanging.parties[0]
    for header in ("{}", "nonsense"):
        answer = hub.http.put(path, content=b"x", headers={"Commingle-Mask": header}, auth=hub.auth(clinic.key))
        assert problem(answer) == (422, "document")
    assert problem(hub.http.put(path, content=b"x", auth=hub.auth(clinic.key))) == (422, "request")
