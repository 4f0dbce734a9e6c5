"""Power cuts, full disks and lost answers at every step, each followed by a new agent over the same home.

The invariants: what was spent is never under-counted, noise is drawn only after the debit, and whatever is sent again
is sent again byte for byte.
"""

import os
import shutil
from dataclasses import dataclass, replace

import httpx
import pytest

from commingle.coordinator.publisher import Publisher, ask_again
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.party import KEPT_AFTER_PUBLICATION, Outbox
from commingle.shared.dp.accounting import ZERO
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime.errors import UnreachableError
from tests.party_agent.releasing import approved_by_all, cut_off, look, reason_of, spent, state_of, stored
from tests.world.consortium import Consortium, CrashError, Noise, soon, strictly
from tests.world.transport import no_fault, unreachable


@dataclass(frozen=True, slots=True)
class FullOutbox(Outbox):
    """A disk without space: part of the file is written, then nothing more."""

    def put(self, release: str, body: bytes) -> str:
        folder = self.root / release
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".partial.arrow").write_bytes(body[:10])
        raise OSError(28, "No space left on device")


@dataclass(frozen=True, slots=True)
class CrashingOutbox(Outbox):
    """Power is cut right after the file is in place and before it is recorded."""

    def put(self, release: str, body: bytes) -> str:
        Outbox.put(self, release, body)
        raise CrashError


@pytest.fixture
def release(pair: Consortium) -> str:
    return approved_by_all(pair)


def test_crash_during_noise_keeps_the_charge_and_draws_again_under_it(pair: Consortium, release: str) -> None:
    reserved = spent(pair)
    crashing = Noise(crash=True)
    with pytest.raises(CrashError):
        pair.step("clinic", draw=crashing)
    assert len(crashing.calls) == 1
    assert (state_of(pair, release), spent(pair)) == ("debited", reserved)
    pair.step("clinic")
    charge = pair.charge("clinic", release)
    assert charge is not None
    assert (charge.state, charge.attempt, charge.loss.rho.units) == (ChargeState.ACKED, 2, reserved)
    assert len(pair.coordinator.received["clinic"]) == 1


def test_noise_is_drawn_after_the_debit_is_on_disk(pair: Consortium, release: str) -> None:
    copied: list[str] = []
    home = pair.homes["clinic"]

    def look_at_the_disk() -> None:
        # what another process would find after a power cut at this very moment
        copy = pair.root / "copy"
        shutil.copytree(home.root, copy)
        with pair.agent("clinic", home=type(home)(copy)) as other:
            charge = other.ledger.charge(release)
            copied.append(charge.state if charge else "none")

    pair.step("clinic", draw=Noise(meanwhile=look_at_the_disk))
    assert copied == ["debited"]


@pytest.mark.parametrize("outbox", [FullOutbox, CrashingOutbox], ids=["disk full", "renamed but unrecorded"])
def test_block_that_was_not_recorded_is_never_sent_and_drawn_again(pair: Consortium, outbox: type[Outbox]) -> None:
    release, home = approved_by_all(pair), pair.homes["clinic"]
    first, second, reserved = Noise(), Noise(calls=[(0, 0)]), spent(pair)
    with pair.agent("clinic", draw=first) as agent, pytest.raises((CrashError, OSError)):
        replace(agent, outbox=outbox(home.outbox)).step(strictly)
    assert state_of(pair, release) == "debited"
    assert len(list((home.outbox / release).iterdir())) == 1
    assert "clinic" not in pair.coordinator.received
    cut_off(pair, "clinic", "/blocks/", draw=second)
    (file,) = (home.outbox / release).iterdir()
    body = file.read_bytes()
    pair.step("clinic")
    assert pair.coordinator.received["clinic"] == [body]
    assert (first.drawn[0] != second.drawn[0]).any()
    assert (state_of(pair, release), spent(pair)) == ("acked", reserved)


def test_answer_that_is_late_until_publication_is_made_good(pair: Consortium, release: str) -> None:
    pair.step("insurer")
    pair.coordinator.after = unreachable("PUT", "/blocks/")
    with pytest.raises(UnreachableError):
        pair.step("clinic")
    pair.coordinator.after = no_fault
    assert (pair.state(release), state_of(pair, release)) == ("published", "stored")
    pair.step("clinic")
    assert state_of(pair, release) == "acked"
    assert (pair.homes["clinic"].outbox / release).exists()  # for some days


def test_block_is_kept_some_days_after_publication_and_then_removed(pair: Consortium, release: str) -> None:
    look(pair, "insurer", "clinic", "clinic")
    kept = pair.homes["clinic"].outbox / release
    assert (pair.state(release), kept.exists()) == ("published", True)
    made = (pair.clock_shows - KEPT_AFTER_PUBLICATION).timestamp()
    os.utime(kept, (made + 60, made + 60))
    pair.step("clinic")
    assert kept.exists()
    os.utime(kept, (made - 60, made - 60))
    pair.step("clinic")
    assert not kept.exists()


def test_block_that_the_coordinator_lost_is_sent_again_as_it_was(pair: Consortium, release: str) -> None:
    pair.step("clinic")
    sent = pair.coordinator.found(release).body("clinic")
    blobs = pair.root / "coordinator" / "blobs"
    (lost,) = blobs.glob("??/*")
    lost.write_bytes(b"flipped" + lost.read_bytes()[7:])
    pair.step("insurer")
    assert pair.state(release) == "collecting"
    ask_again(pair.coordinator.hub.coordinator, release)
    noise = Noise()
    pair.step("clinic", draw=noise)
    Publisher(pair.coordinator.hub.coordinator).run_once()  # the other one's pause is not over
    assert (pair.state(release), noise.calls) == ("published", [])
    assert pair.coordinator.found(release).body("clinic") == sent


def test_coordinator_set_back_to_before_publication_is_sent_the_block_again(pair: Consortium, release: str) -> None:
    look(pair, "clinic", "insurer", "clinic", "insurer")
    before = pair.coordinator.found(release)
    pair.coordinator.execute("UPDATE releases SET state = 'collecting', manifest = NULL, matrix = NULL, moments = NULL")
    pair.coordinator.execute("UPDATE shares SET body = NULL, statement = NULL WHERE party = 'clinic'")
    noise = Noise()
    pair.step("clinic", draw=noise)
    assert (pair.state(release), noise.calls) == ("published", [])
    assert pair.coordinator.found(release).body("clinic") == before.body("clinic")


@pytest.mark.parametrize("damage", ["lost", "flipped", "short", "folder gone"])
def test_stored_block_that_is_damaged_is_withdrawn_and_the_charge_stays(pair: Consortium, damage: str) -> None:
    release = stored(pair)
    before = spent(pair)
    (file,) = (pair.homes["clinic"].outbox / release).iterdir()
    match damage:
        case "lost":
            file.unlink()
        case "flipped":
            file.write_bytes(file.read_bytes()[:-1] + b"x")
        case "short":
            file.write_bytes(file.read_bytes()[:-1])
        case _:
            shutil.rmtree(pair.homes["clinic"].outbox)
    noise = Noise()
    with pytest.raises(ConflictError, match="lost or damaged"):
        pair.step("clinic", draw=noise)
    assert (noise.calls, reason_of(pair, release), pair.state(release)) == ([], "block_lost", "aborted")
    pair.step("clinic", draw=noise)
    assert (state_of(pair, release), spent(pair), noise.calls) == ("withdrawn", before, [])
    assert "clinic" not in pair.coordinator.received


def test_stored_block_that_cannot_be_read_just_now_is_tried_again(pair: Consortium) -> None:
    release = stored(pair)
    (file,) = (pair.homes["clinic"].outbox / release).iterdir()
    body = file.read_bytes()
    file.unlink()
    file.mkdir()  # reading it fails, and not because it is missing
    with pytest.raises(OSError, match="directory"):
        pair.step("clinic")
    file.rmdir()
    file.write_bytes(body)
    pair.step("clinic")
    assert (state_of(pair, release), pair.coordinator.received["clinic"]) == ("acked", [body])


def test_rejection_that_did_not_arrive_is_sent_again_as_it_was(pair: Consortium, release: str) -> None:
    pair.coordinator.before = unreachable("PUT", "/rejections/")
    with pair.agent("clinic") as agent, pytest.raises(UnreachableError):
        agent.reject(release)
    assert spent(pair) == 0
    pair.coordinator.before = no_fault
    soon(pair, hours=1)
    with pair.agent("clinic") as agent:
        signed = agent.ledger.signature(release, "rejection")
        agent.step(strictly)
    assert pair.coordinator.found(release).rejections["clinic"] == signed
    assert "clinic" not in pair.coordinator.received


def test_person_withdraws_while_noise_is_drawn_and_the_block_is_never_sent(pair: Consortium, release: str) -> None:
    agents: list[Agent] = []
    noise = Noise(meanwhile=lambda: agents[0].reject(release))
    with pair.agent("clinic", draw=noise) as agent:
        agents.append(agent)
        with pytest.raises(ConflictError, match="taken over"):
            agent.step(strictly)
        assert agent.ledger.spent() > ZERO
    pair.step("clinic")
    assert (state_of(pair, release), pair.coordinator.received) == ("withdrawn", {})
    assert not (pair.homes["clinic"].outbox / release).exists()


@pytest.mark.parametrize("at", ["reserved", "debited", "stored"])
def test_round_that_others_end_releases_only_what_was_not_debited(pair: Consortium, at: str) -> None:
    release = stored(pair) if at == "stored" else approved_by_all(pair)
    if at == "debited":
        with pytest.raises(CrashError):
            pair.step("clinic", draw=Noise(crash=True))
    before = spent(pair)
    pair.withdraw(release, "insurer")
    noise = Noise()
    pair.step("clinic", draw=noise)
    pair.step("clinic", draw=noise)
    assert state_of(pair, release) == ("released" if at == "reserved" else "withdrawn")
    assert spent(pair) == (0 if at == "reserved" else before)
    assert (noise.calls, pair.coordinator.received) == ([], {})
    assert not (pair.homes["clinic"].outbox / release).exists()


def test_clock_that_was_past_the_end_and_went_back_ends_the_round_for_everybody(pair: Consortium) -> None:
    release, shown = approved_by_all(pair), pair.clock_shows
    pair.clock_shows = pair.coordinator.found(release).document.expires
    noise = Noise()
    pair.step("clinic", draw=noise)
    assert (state_of(pair, release), noise.calls) == ("released", [])
    pair.clock_shows = shown
    pair.step("clinic", draw=noise)
    assert reason_of(pair, release) == "expired"
    assert pair.state(release) in {"rejected", "aborted"}
    assert (state_of(pair, release), spent(pair), noise.calls) == ("released", 0, [])


def test_every_request_of_a_round_may_fail_once_in_either_way(pair: Consortium) -> None:
    """Each PUT of a round is once refused on its way and once its answer is lost; nothing differs in the end."""
    release = pair.propose()
    there, back = set[str](), set[str]()

    def before(request: httpx.Request) -> None:
        if request.method == "PUT" and request.url.path not in there:
            there.add(request.url.path)
            raise httpx.ConnectError("refused", request=request)

    def after(request: httpx.Request) -> None:
        if request.method == "PUT" and request.url.path not in back:
            back.add(request.url.path)
            raise httpx.RemoteProtocolError("cut", request=request)

    pair.coordinator.before, pair.coordinator.after = before, after
    noises = {name: Noise() for name in pair.homes}
    for _ in range(12):
        for name in pair.homes:
            try:
                pair.step(name, draw=noises[name])
            except UnreachableError:
                continue
    assert pair.state(release) == "published"
    assert all(len(noise.calls) == 1 for noise in noises.values())
    assert [len(bodies) for bodies in pair.coordinator.received.values()] == [1, 1], "what is shown is not sent again"
    approvals = pair.coordinator.found(release).approvals
    for name in pair.homes:
        assert pair.coordinator.requests.count(f"PUT /v1/releases/{release}/approvals/{name}") == 2, (
            "as often as needed"
        )
        charge = pair.charge(name, release)
        assert charge is not None
        assert (charge.state, charge.attempt, charge.loss.rho.units) == ("acked", 1, spent(pair, name))
        with pair.agent(name) as agent:
            assert approvals[name] == agent.ledger.signature(release, "approval")
            assert agent.proposals.get(release).decision == "approved"
