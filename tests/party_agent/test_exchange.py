"""Whole moments releases over the real coordinator: what is opened is right, and nothing is made twice."""

import csv
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.party_agent.errors import ConflictError, LostError, StaleLedgerError, SubjectsChangedError
from commingle.party_agent.views import export_audit
from commingle.shared.documents.dsse import open_envelope
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.schema import Whitening
from commingle.shared.documents.statements import BlockStatement, open_spec
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.mechanisms.moments.block import open_matrix
from commingle.shared.mechanisms.moments.exchange.documents import DealPackage, MaskStatement
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.release.block import check_block
from commingle.shared.release.matrix import assemble, second_moments
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import UnreachableError
from tests.party_agent.exchanging import countersigned, crash_at, cut_at, dealt, finish, in_earnest, masked, signed
from tests.party_agent.releasing import change_table, reason_of, spent, state_of
from tests.world.consortium import NAMES, Consortium, CrashError, Noise, consortium_of, soon, write_csv
from tests.world.transport import answering

REACHES = 48
"""How often the clinic of a pair comes by a fault point in a moments round."""


def exact(sigma: int, count: int) -> NDArray[np.int64]:
    """No noise at all, to see what it is added to."""
    del sigma
    return np.zeros(count, np.int64)


def matrix_of(consortium: Consortium, release: str) -> NDArray[np.int64]:
    """All parties' blocks side by side."""
    found = consortium.coordinator.found(release)
    blocks = []
    for party in found.document.parties:
        statement = open_envelope(found.blocks[party.name], BlockStatement, kind="block", keys=[party.verifying_key])
        blocks.append(check_block(found.body(party.name), statement.document))
    return assemble(found.document, blocks)


def opened(consortium: Consortium, release: str) -> NDArray[np.float64]:
    """S and its noise, in units of the published columns."""
    spec = consortium.coordinator.found(release).document
    return open_matrix(spec, matrix_of(consortium, release)) / 4.0**14


def rows_by_subject(path: Path) -> NDArray[np.float64]:
    """(n, 1 + 2 + 1 + 4): the intercept and the encoded attributes of all three tables, in plain floating point."""
    with path.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["subject"].encode())

    def number(row: dict[str, str], name: str, lower: float, upper: float) -> list[float]:
        return [2 * (min(max(float(row[name]), lower), upper) - lower) / (upper - lower) - 1]

    one_of: dict[str, Callable[[dict[str, str]], list[float]]] = {
        "clinic": lambda r: number(r, "age", 20, 80) + number(r, "bmi", 15, 45),
        "insurer": lambda r: number(r, "charges", 0, 200),
        "lab": lambda r: [1.0 if r["smoker"] == "yes" else -1.0, *(float(r["blood"] == b) for b in ("A", "B", "AB"))],
    }
    return np.array([one_of[path.stem](row) for row in rows])


def test_three_agents_open_the_exact_moments_of_their_tables(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, *NAMES)
    release = consortium.propose(mechanism="moments")
    for _ in range(5):
        for name in NAMES:
            consortium.step(name, draw=exact)
    assert consortium.state(release) == "published"
    tables = [rows_by_subject(consortium.table(name)) for name in NAMES]
    everything = np.hstack([np.ones((len(tables[0]), 1)), *tables])
    assert opened(consortium, release) == pytest.approx(everything.T @ everything, abs=2e-4 * len(everything))


def test_moments_of_whitened_rows_are_opened_exactly_and_undone(tmp_path: Path) -> None:
    """The map shortens every row of the clinic below its norm 1, so that none is cut and all of it can be undone."""
    whitening = Whitening(centre=(0.25, -0.5), matrix=((0.25, 0.125), (-0.0625, 0.375)))
    consortium = consortium_of(tmp_path, "clinic", "insurer")
    release = consortium.propose(mechanism="moments", row_norm=1.0, whitenings={"clinic": whitening})
    for _ in range(5):
        for name in ("clinic", "insurer"):
            consortium.step(name, draw=exact)
    clinic, insurer = (rows_by_subject(consortium.table(name)) for name in ("clinic", "insurer"))
    mapped = (clinic - whitening.centre) @ np.array(whitening.matrix).T
    ones = np.ones((len(clinic), 1))
    published = np.hstack([ones, mapped, insurer])
    assert opened(consortium, release) == pytest.approx(published.T @ published, abs=2e-4 * len(ones))
    spec = consortium.coordinator.found(release).document
    moments = second_moments(spec, release, matrix_of(consortium, release))
    everything = np.hstack([ones, clinic, insurer])
    undone = PreparedMoments.of_release(moments, spec)
    assert undone.gram == pytest.approx(everything.T @ everything, abs=2e-3 * len(ones))


def test_every_party_draws_its_noise_once_and_adds_it(tmp_path: Path) -> None:
    noises = {name: Noise() for name in NAMES}
    found = []
    for folder, draws in (("exact", dict.fromkeys(NAMES, exact)), ("noisy", noises)):
        consortium = consortium_of(tmp_path / folder, *NAMES)
        release = consortium.propose(mechanism="moments")
        for _ in range(5):
            for name in NAMES:
                consortium.step(name, draw=draws[name])
        found.append(opened(consortium, release))
    spec = consortium.coordinator.found(release).document
    largest = 2 * max(plan_block(spec, party).sigma for party in spec.parties) / 4.0**14
    added = np.abs(found[1] - found[0])
    assert added[0, 0] == 0
    assert (added[1:, 1:] > 0).all()
    assert (added <= largest).all()
    assert all(len(noise.drawn) == 4 for noise in noises.values()), "cross, linear, diagonal and off-diagonal"


def test_nothing_of_the_exchange_is_left_after_the_end(pair: Consortium) -> None:
    release = countersigned(pair)
    folder = pair.homes["clinic"].exchanges / release
    assert sorted(path.name for path in folder.iterdir()) == ["clinic.mask", "insurer.mask", "round.key"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    finish(pair, release)
    assert not folder.exists()


def test_seeds_of_the_deal_and_plain_rows_are_never_on_the_disk(pair: Consortium) -> None:
    release = countersigned(pair)
    found, exchange = pair.coordinator.found(release), pair.coordinator.exchange(release)
    key = RoundKey(bytes.fromhex((pair.homes["clinic"].exchanges / release / "round.key").read_text()))
    info = exchange.info("deal", "clinic", exchange.round_key("clinic"))
    package = decode(DealPackage, key.open(found.packages["clinic"], info))
    files = [path.read_bytes() for path in pair.homes["clinic"].root.rglob("*") if path.is_file()]
    for secret in (package.pad, *package.seeds.values()):
        assert not any(secret.encode() in data or bytes.fromhex(secret) in data for data in files)


def test_charge_that_does_not_cover_the_noise_level_adds_no_noise_to_masked_shares(pair: Consortium) -> None:
    """A version that calibrated otherwise may have charged less before the masks were made."""
    release, noise = countersigned(pair), Noise()
    with pair.agent("clinic", draw=noise) as agent:
        with agent.store.transaction() as db:
            db.execute("UPDATE charges SET rho_units = '1' WHERE release = ?", (release,))
        with pytest.raises(ConflictError, match="does not cover the block"):
            agent.handle(agent.client.release(release), release)
    assert noise.calls == []


def test_representation_of_what_a_party_holds_shows_no_secret(pair: Consortium) -> None:
    release = countersigned(pair)
    with pair.agent("clinic") as agent:
        view = agent.client.release(release)
        assert view.spec is not None
        joined = agent.exchanges.join(view, open_spec(view.spec, [pair.coordinator.key.verifying_key]))
        assert joined is not None
        shares = agent.exchanges.agree(view, joined, lambda: None)
    assert shares is not None
    assert repr(shares) == f"Shares(transcript={shares.transcript!r})"
    assert "pad" not in repr(joined)
    assert f"RoundKey({joined.key.public[:16]}…)" in repr(joined)


def test_table_is_never_read_again_once_it_is_masked(pair: Consortium) -> None:
    release = signed(pair)
    pair.table("clinic").unlink()
    finish(pair, release)


def test_data_set_registered_again_after_the_mask_changes_nothing(pair: Consortium) -> None:
    release = masked(pair)
    change_table(pair, "value")
    with pair.agent("clinic") as agent:
        pair.register(agent, replace=True)
    finish(pair, release)


@pytest.mark.parametrize("what", ["value", "text"])
def test_cells_that_changed_between_debit_and_mask_are_what_is_released(pair: Consortium, what: str) -> None:
    release = dealt(pair)
    crash_at(pair, "party.debited")
    change_table(pair, what)
    finish(pair, release)


def test_subjects_that_changed_between_debit_and_mask_are_withdrawn_and_the_charge_stays(pair: Consortium) -> None:
    release = dealt(pair)
    crash_at(pair, "party.debited")
    before = spent(pair)
    change_table(pair, "subject")
    with pytest.raises(SubjectsChangedError):
        pair.step("clinic")
    pair.step("clinic")
    assert (state_of(pair, release), spent(pair)) == ("withdrawn", before)
    assert (reason_of(pair, release), pair.state(release)) == ("subjects", "aborted")
    assert pair.coordinator.received == {}
    assert not (pair.homes["clinic"].exchanges / release).exists()


def round_with_power_cuts(pair: Consortium, nth: int) -> tuple[str, list[str]]:
    """A round in which the clinic, and only it, is cut off at the n-th point it comes by; its points."""
    release = pair.propose(mechanism="moments")
    strike = cut_at(nth)
    for _ in range(8):
        faults.arm(strike)
        with suppress(CrashError):
            pair.step("clinic")
        faults.arm(in_earnest)
        pair.step("insurer")
    return release, strike.reached


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(1, REACHES + 1))
def test_power_cut_at_any_point_of_a_round_makes_nothing_twice(pair: Consortium, nth: int) -> None:
    release, reached = round_with_power_cuts(pair, nth)
    assert len(reached) > nth, "the agent has gone on"
    assert (pair.state(release), state_of(pair, release)) == ("published", "acked")
    assert all(len(set(bodies)) == 1 for bodies in pair.coordinator.received.values())
    charge = pair.charge("clinic", release)
    assert charge is not None
    assert spent(pair) == charge.rho.units
    assert not (pair.homes["clinic"].exchanges / release).exists()


def test_the_points_above_are_all_that_a_round_comes_by(pair: Consortium) -> None:
    release, reached = round_with_power_cuts(pair, 0)
    assert pair.state(release) == "published"
    assert len(reached) == REACHES


def test_every_request_of_an_exchange_may_fail_once_in_either_way(pair: Consortium) -> None:
    release = pair.propose(mechanism="moments")
    there, back = set[str](), set[str]()

    def once_for_each(seen: set[str], failure: type[httpx.TransportError]) -> Callable[[httpx.Request], None]:
        def fault(request: httpx.Request) -> None:
            key = f"{request.method} {request.url.path}"
            if key not in seen and any(
                part in key for part in ("/deal/", "/masks/", "/countersignatures/", "/blocks/")
            ):
                seen.add(key)
                raise failure("cut", request=request)

        return fault

    pair.coordinator.before = once_for_each(there, httpx.ConnectError)
    pair.coordinator.after = once_for_each(back, httpx.RemoteProtocolError)
    for _ in range(20):
        for name in pair.homes:
            with suppress(UnreachableError):
                pair.step(name)
    assert pair.state(release) == "published"
    assert len(there) == len(back) == 2 + 2 + 2 + 2 + 2
    assert all(len(set(bodies)) == 1 for bodies in pair.coordinator.received.values())


def test_coordinator_that_was_set_back_is_sent_the_stored_bytes_again(pair: Consortium) -> None:
    release = countersigned(pair)
    found = pair.coordinator.found(release)
    before = (found.masks, found.countersignatures)
    pair.coordinator.forget_exchange(release, "clinic")
    pair.step("clinic")
    pair.step("clinic")
    assert (found.masks, found.countersignatures) == before
    assert len(set(pair.coordinator.received["mask of clinic"])) == 1
    finish(pair, release)


def test_stale_view_without_deal_or_masks_does_nothing(pair: Consortium) -> None:
    release = masked(pair)
    pair.coordinator.shown = lambda view: {**view, "exchange": None}
    before = list(pair.coordinator.received)
    pair.step("clinic")
    assert list(pair.coordinator.received) == before
    pair.coordinator.shown = lambda view: view
    finish(pair, release)


def test_lost_party_ends_the_round_at_its_expiry_and_nothing_of_it_is_used_again(pair: Consortium) -> None:
    first = dealt(pair)
    pair.step("clinic")
    statement = pair.coordinator.found(first).masks["clinic"]
    soon(pair, hours=80)
    pair.coordinator.work()
    pair.step("clinic")
    assert (pair.state(first), state_of(pair, first)) == ("expired", "withdrawn")
    assert not (pair.homes["clinic"].exchanges / first).exists()
    second = pair.propose(mechanism="moments", title="again")
    for _ in range(2):
        for name in pair.homes:
            pair.step(name)
    again = decode(MaskStatement, pair.coordinator.found(second).masks["clinic"].payload_bytes)
    before = decode(MaskStatement, statement.payload_bytes)
    assert again.deal != before.deal
    assert again.commitment != before.commitment
    exchanges = [pair.coordinator.exchange(release) for release in (first, second)]
    assert exchanges[0].round_key("clinic") != exchanges[1].round_key("clinic")


@pytest.mark.parametrize("what", ["mask", "countersignature"])
def test_ledger_that_does_not_know_an_own_signature_of_the_exchange_stops(pair: Consortium, what: str) -> None:
    (dealt if what == "mask" else masked)(pair)
    database = pair.homes["clinic"].database
    backup = database.read_bytes()
    pair.step("clinic")
    database.write_bytes(backup)
    pair.coordinator.before = answering(200, b'{"items": []}', part="ledger-heads")  # signatures are enough
    with pytest.raises(StaleLedgerError, match=f"own {what}"):
        pair.step("clinic")


@pytest.mark.parametrize("stage", [dealt, masked], ids=["before the debit", "after it"])
def test_lost_round_key_gives_the_release_up(pair: Consortium, stage: Callable[[Consortium], str]) -> None:
    release = stage(pair)
    (pair.homes["clinic"].exchanges / release / "round.key").unlink()
    with pytest.raises(LostError):
        pair.step("clinic")
    assert (reason_of(pair, release), pair.state(release) in {"rejected", "aborted"}) == ("block_lost", True)
    assert state_of(pair, release) == ("released" if stage is dealt else "withdrawn")


def test_mask_lost_before_it_was_sent_gives_the_release_up_and_is_not_made_again(pair: Consortium) -> None:
    release = signed(pair)
    (pair.homes["clinic"].exchanges / release / "clinic.mask").write_bytes(b"damaged")
    with pytest.raises(LostError):
        pair.step("clinic")
    assert (reason_of(pair, release), pair.coordinator.received) == ("block_lost", {})


def test_mask_lost_after_it_was_sent_is_fetched_back(pair: Consortium) -> None:
    release = masked(pair)
    (pair.homes["clinic"].exchanges / release / "clinic.mask").unlink()
    finish(pair, release)


def test_person_withdraws_while_rows_are_masked_and_no_mask_is_signed(pair: Consortium) -> None:
    release = dealt(pair)
    with pair.agent("clinic") as agent:

        def strike(point: str) -> None:
            if point == "party.mask.written":
                faults.arm(in_earnest)
                agent.reject(release)

        faults.arm(strike)
        with pytest.raises(ConflictError, match="given up"):
            agent.step(lambda _, work: work())
        assert not agent.exchanges.has_mask(release)
    assert (pair.coordinator.received, state_of(pair, release)) == ({}, "withdrawn")
    pair.step("clinic")
    assert not (pair.homes["clinic"].exchanges / release).exists()


def test_history_of_an_exchange_verifies_and_counts_its_loss_once(pair: Consortium) -> None:
    release = pair.propose(mechanism="moments")
    finish(pair, release)
    with pair.agents("clinic") as agents:
        history = verify_party_audit(encode(export_audit(agents)))
        assert history.lost == agents.ledger.lost()
    assert {kind for _, kind in history.signed} == {"approval", "alignment", "mask", "countersignature", "block"}


def test_moments_wait_for_a_pin_of_every_member_and_say_how_to_make_it(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path)
    for name in ("clinic", "insurer"):
        consortium.add(name)
        write_csv(consortium.table(name), [{"subject": "s", "age": "30", "bmi": "20", "charges": "3"}] * 1)
    release = consortium.propose(mechanism="moments")
    consortium.step("clinic")
    with consortium.agent("clinic") as agent:
        findings = agent.proposals.get(release).findings
    assert any("insurer is not pinned" in finding and "commingle party pin insurer" in finding for finding in findings)
    assert consortium.state(release) == "proposed"
