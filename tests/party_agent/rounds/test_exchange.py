"""Whole moments releases over the real coordinator: what is opened is right, and nothing is made twice."""

import csv
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.party_agent.edge.views import export_audit
from commingle.party_agent.errors import ConflictError, LostError, NotFoundError, StaleLedgerError
from commingle.party_agent.private.snapshot import NO_SNAPSHOT
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.schema import Whitening
from commingle.shared.documents.terms import Bounds
from commingle.shared.mechanisms.moments.block import TRUST_MOMENTS, TRUST_PROVED
from commingle.shared.mechanisms.moments.entries import open_matrix, scales
from commingle.shared.mechanisms.moments.exchange.messages import ColumnsStatement
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.release.matrix import assemble, prepared_release, second_moments
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime import faults
from commingle.shared.runtime.coordinator_client import MessageKind
from commingle.shared.runtime.errors import UnreachableError
from tests.party_agent.exchanging import (
    MESSAGES,
    PATHS,
    STATEMENTS,
    Cut,
    Kept,
    approved,
    body_of,
    columned,
    crash_at,
    finish,
    forget_messages,
    in_earnest,
    messages,
    received,
    replied,
    reply_signed,
    secret_of,
    signed,
)
from tests.party_agent.releasing import change_table, cut_off, look, published, reason_of, spent, state_of
from tests.world.consortium import (
    BLOOD_CONTRASTS,
    BY_A_PERSON,
    NAMES,
    Consortium,
    CrashError,
    Noise,
    consortium_of,
    kept_folder,
    soon,
    strictly,
)
from tests.world.noise import no_noise
from tests.world.tampering import charge_less
from tests.world.transport import answering

REACHES = 47
"""How often either party of a pair comes by a fault point in a moments round."""
OF_MESSAGES = range(11, 33)
"""Those at which messages are made, sent and verified: what proofs are in, which change no other."""
each_bounds = pytest.mark.parametrize("bounds", get_args(Bounds))


def matrix_of(consortium: Consortium, release: str) -> NDArray[np.int64]:
    """All parties' blocks side by side."""
    found = consortium.coordinator.found(release)
    return assemble(found.document, [found.block(party.name) for party in found.document.parties])


def opened(consortium: Consortium, release: str) -> NDArray[np.float64]:
    """S and its noise, in units of the published columns."""
    spec = consortium.coordinator.found(release).document
    return open_matrix(spec.terms, matrix_of(consortium, release)) / 4.0**14


def rows_by_subject(path: Path) -> NDArray[np.float64]:
    """(n, 1 + 2 + 1 + 4): the intercept and the encoded attributes of all three tables, in plain floating point."""
    with path.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["subject"].encode())

    def number(row: dict[str, str], name: str, lower: float, upper: float) -> list[float]:
        return [2 * (min(max(float(row[name]), lower), upper) - lower) / (upper - lower) - 1]

    one_of: dict[str, Callable[[dict[str, str]], list[float]]] = {
        "clinic": lambda r: number(r, "age", 20, 80) + number(r, "bmi", 15, 45),
        "insurer": lambda r: number(r, "charges", 0, 200),
        "lab": lambda r: [1.0 if r["smoker"] == "yes" else -1.0, *BLOOD_CONTRASTS[r["blood"]]],
    }
    return np.array([one_of[path.stem](row) for row in rows])


@pytest.mark.slow
@each_bounds
def test_three_agents_open_the_exact_moments_of_their_tables(trio: Consortium, bounds: Bounds) -> None:
    release = approved(trio, bounds)
    look(trio, *4 * NAMES, draw=no_noise)
    assert trio.state(release) == "published"
    tables = [rows_by_subject(trio.table(name)) for name in NAMES]
    everything = np.hstack([np.ones((len(tables[0]), 1)), *tables])
    assert opened(trio, release) == pytest.approx(everything.T @ everything, abs=2e-4 * len(everything))


def test_moments_of_whitened_rows_are_opened_exactly_and_undone(pair: Consortium) -> None:
    """The map shortens every row of the clinic below its norm 1, so that none is cut and all of it can be undone."""
    whitening = Whitening(centre=(0.25, -0.5), matrix=((0.25, 0.125), (-0.0625, 0.375)))
    release = approved(pair, row_norm=1.0, whitenings={"clinic": whitening})
    look(pair, *4 * ("clinic", "insurer"), draw=no_noise)
    clinic, insurer = (rows_by_subject(pair.table(name)) for name in ("clinic", "insurer"))
    mapped = (clinic - whitening.centre) @ np.array(whitening.matrix).T
    ones = np.ones((len(clinic), 1))
    published = np.hstack([ones, mapped, insurer])
    assert opened(pair, release) == pytest.approx(published.T @ published, abs=2e-4 * len(ones))
    spec = pair.coordinator.found(release).document
    moments = second_moments(spec, release, matrix_of(pair, release))
    everything = np.hstack([ones, clinic, insurer])
    undone = prepared_release(moments, spec)
    assert undone.gram == pytest.approx(everything.T @ everything, abs=2e-3 * len(ones))


@pytest.mark.slow
def test_every_party_draws_its_noise_once_and_adds_it(tmp_path: Path) -> None:
    noises = {name: Noise() for name in NAMES}
    found = []
    for folder, draws in (("exact", dict.fromkeys(NAMES, no_noise)), ("noisy", noises)):
        consortium = consortium_of(tmp_path / folder, *NAMES)
        release = approved(consortium)
        for _ in range(4):
            for name in NAMES:
                consortium.step(name, draw=draws[name])
        found.append(opened(consortium, release))
    spec = consortium.coordinator.found(release).document
    largest = 2 * max(plan_block(spec, party).sigma for party in spec.parties) / 4.0**14
    added = np.abs(found[1] - found[0])
    assert added[0, 0] == 0
    assert (added[1:, 1:] > 0).all()
    assert (added <= largest).all()
    columns = {party.name: len(party.columns) for party in spec.parties}
    for party in spec.parties:
        scale, d = scales(spec.terms, party, plan_block(spec, party).sigma), len(party.columns)
        cross = [(scale.cross, columns[other] * d) for other in NAMES if other != party.name]
        own = [(scale.linear, d), (scale.diagonal, d), (scale.off_diagonal, d * (d - 1) // 2)]
        assert sorted(noises[party.name].calls) == sorted(cross + own), "once for every entry"


@pytest.mark.slow
def test_noise_of_a_reply_is_drawn_for_it_and_that_of_the_other_entries_for_the_block(trio: Consortium) -> None:
    release = trio.propose(mechanism="moments")
    noises: list[dict[str, Noise]] = []
    for _ in range(4):
        noises.append({name: Noise() for name in NAMES})
        for name in NAMES:
            trio.step(name, draw=noises[-1][name])
    assert trio.state(release) == "published"
    drawn = [[len(noise.calls) for noise in stage.values()] for stage in noises]
    approval = columns = [0, 0, 0]
    assert drawn == [approval, columns, [0, 1, 2], [5, 4, 3]], "cross blocks, linear, diagonal and off-diagonal"


@pytest.mark.slow
@pytest.mark.parametrize(("bounds", "trust"), [("proved", TRUST_PROVED), ("trusted", TRUST_MOMENTS)])
def test_nothing_of_the_exchange_is_left_after_the_end_and_the_release_says_whom_it_trusts(
    pair: Consortium, bounds: Bounds, trust: str
) -> None:
    release = replied(pair, bounds)
    fetched: dict[str, list[str]] = {"clinic": [], "insurer": ["columns.clinic"]}
    for name, home in pair.homes.items():
        folder = home.exchanges / release
        made = ["columns", "exchange.key", "reply", "rows"]
        assert sorted(path.name for path in folder.iterdir()) == sorted([*made, *fetched[name]])
        assert all(path.stat().st_mode & 0o077 == 0 for path in [folder, *folder.iterdir()])
    finish(pair, release)
    assert published(pair, release).privacy.trust == trust
    pair.coordinator.work()
    assert pair.coordinator.hub.coordinator.blobs.running_releases() == ()
    assert not any((home.exchanges / release).exists() for home in pair.homes.values())


@pytest.mark.parametrize(("stage", "party"), [(columned, "insurer"), (replied, "clinic"), (replied, "insurer")])
def test_charge_that_does_not_cover_the_noise_level_draws_and_signs_nothing(
    pair: Consortium, stage: Callable[[Consortium], str], party: str
) -> None:
    release, noise = stage(pair), Noise()
    with pair.agent(party, draw=noise) as agent:
        before = {kind for kind in ("columns", "reply", "block") if agent.ledger.signature(release, kind)}
        charge_less(agent.ledger, release)
        with pytest.raises(ConflictError, match="does not cover the block"):
            agent.handle(agent.client.release(release), release)
        after = {kind for kind in ("columns", "reply", "block") if agent.ledger.signature(release, kind)}
    assert (noise.calls, after) == ([], before)


def test_debit_after_the_rows_are_kept_lets_nobody_read_the_table(pair: Consortium) -> None:
    release = columned(pair)
    with pair.agent("insurer") as agent:
        spec = agent.proposals.get(release).spec
        debit = agent.redraw_covered(spec, release)
        assert debit.snapshot == NO_SNAPSHOT
        with pytest.raises(NotFoundError):
            agent.datasets.snapshot(debit.snapshot)


@pytest.mark.parametrize("stage", [signed, columned, replied])
def test_table_is_never_read_again_once_columns_are_signed(
    pair: Consortium, stage: Callable[[Consortium], str]
) -> None:
    release = stage(pair)
    pair.table("clinic").unlink()
    finish(pair, release)


def test_data_set_registered_again_after_the_columns_changes_nothing(pair: Consortium) -> None:
    release = columned(pair)
    change_table(pair, "value")
    with pair.agent("clinic") as agent:
        pair.register(agent, replace=True)
    finish(pair, release)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["text", "subject"])
@pytest.mark.parametrize("point", ["party.debited", "party.columns.written"])
def test_file_that_changes_between_debit_and_columns_changes_nothing(pair: Consortium, what: str, point: str) -> None:
    release = approved(pair)
    crash_at(pair, point)
    change_table(pair, what)
    finish(pair, release)


@dataclass(frozen=True)
class Whole:
    """A round that nothing cuts off.

    Attributes:
        points: that each party comes by.
        stops: the round where a party comes by its n-th point first, by n, and what each had come by then.
    """

    points: Mapping[str, Sequence[str]]
    stops: Sequence[tuple[Kept, Mapping[str, Sequence[str]]]]


@cache
def whole_round(bounds: Bounds) -> Whole:
    """Made once in this process: power cuts begin at copies of its stops."""
    pair = consortium_of(kept_folder(), "clinic", "insurer")
    release, stops = pair.propose(mechanism="moments", bounds=bounds), list[tuple[Kept, Mapping[str, Sequence[str]]]]()
    strikes = dict[str, Cut]()

    def stop() -> None:
        reached = {name: tuple(strike.reached) for name, strike in strikes.items()}
        if max(map(len, reached.values())) > len(stops):
            stops.append((Kept.of(pair, release), reached))

    strikes.update({name: Cut(0, then=stop) for name in pair.homes})
    go_on(pair, release, strikes)
    assert pair.state(release) == "published"
    pair.coordinator.close()
    return Whole({name: strike.reached for name, strike in strikes.items()}, stops)


def go_on(pair: Consortium, release: str, strikes: Mapping[str, Cut]) -> None:
    """Everybody looks, a person approves where members are trusted, until nobody comes by any point.

    A new agent makes each look, until one was cut off: the next one lives on.
    """
    before, agents = None, dict[str, Agent]()
    with ExitStack() as running:
        while before != (before := [len(strike.reached) for strike in strikes.values()]):
            for name, strike in strikes.items():
                faults.arm(strike)
                with suppress(CrashError), ExitStack() as process:
                    agent = agents.get(name) or process.enter_context(pair.agent(name))
                    agent.step(strictly)
                    if pair.state(release) == "proposed":
                        agent.approve(release, BY_A_PERSON)
                    if strike.struck:
                        agents[name] = agent
                        running.enter_context(process.pop_all())
    faults.arm(in_earnest)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "nth"), [*(("trusted", nth) for nth in range(1, REACHES + 1)), *(("proved", nth) for nth in OF_MESSAGES)]
)
def test_power_cut_at_any_point_of_a_round_makes_nothing_twice(pair: Consortium, bounds: Bounds, nth: int) -> None:
    """Each party is cut off once, at the n-th point it comes by; the first of them leaves its files as they are."""
    kept, reached = whole_round(bounds).stops[nth - 1]
    release = kept.restore(pair)
    strikes = {name: Cut(nth, reached=list(points)) for name, points in reached.items()}
    go_on(pair, release, strikes)
    assert len(pair.coordinator.received) == MESSAGES + len(pair.homes)
    assert all(len(set(bodies)) == 1 for bodies in pair.coordinator.received.values())
    for party, strike in strikes.items():
        assert len(strike.reached) > nth, "the agent has gone on"
        assert (pair.state(release), state_of(pair, release, party)) == ("published", "acked")
        charge = pair.charge(party, release)
        assert charge is not None
        assert spent(pair, party) == charge.loss.rho.units
        assert not (pair.homes[party].exchanges / release).exists()


@pytest.mark.slow
@each_bounds
def test_the_points_above_are_all_that_a_round_comes_by(bounds: Bounds) -> None:
    columns, reply = ([f"party.{kind}.{step}" for step in ("written", "signed", "sent")] for kind in STATEMENTS)
    for party, points in whole_round(bounds).points.items():
        columns_fetched = ["party.columns.fetched"] if party == "insurer" else []
        reply_fetched = ["party.reply.fetched"] if party == "clinic" else []
        steps = [*columns, *columns_fetched, "party.columns.verified", *reply, *reply_fetched]
        assert [point for point in points if point.startswith(("party.columns.", "party.reply."))] == steps
        assert len(points) == REACHES
        assert {nth for nth, point in enumerate(points, 1) if point in steps} <= {*OF_MESSAGES}


@pytest.mark.slow
@each_bounds
def test_every_request_of_an_exchange_may_fail_once_in_either_way(pair: Consortium, bounds: Bounds) -> None:
    release = approved(pair, bounds)
    there, back = set[str](), set[str]()

    def once_for_each(seen: set[str], failure: type[httpx.TransportError]) -> Callable[[httpx.Request], None]:
        def fault(request: httpx.Request) -> None:
            key = f"{request.method} {request.url.path}"
            if key not in seen and any(part in key for part in (*PATHS.values(), "/blocks/")):
                seen.add(key)
                raise failure("cut", request=request)

        return fault

    pair.coordinator.before = once_for_each(there, httpx.ConnectError)
    pair.coordinator.after = once_for_each(back, httpx.RemoteProtocolError)
    for _ in range(20):
        for name in pair.homes:
            with suppress(UnreachableError):
                pair.step(name)
        if pair.state(release) == "published":
            break
    assert pair.state(release) == "published"
    fetched = {f"GET /v1/releases/{release}/columns/clinic", f"GET /v1/releases/{release}/replies/insurer"}
    assert there == back
    assert {key for key in there if key.startswith("GET")} == fetched
    assert len(there) == MESSAGES + 2 + len(fetched)
    assert all(len(set(bodies)) == 1 for bodies in pair.coordinator.received.values())


@pytest.mark.parametrize("stage", [columned, replied])
@pytest.mark.parametrize("party", ["clinic", "insurer"])
def test_coordinator_that_was_set_back_is_sent_the_stored_bytes_again(
    pair: Consortium, stage: Callable[[Consortium], str], party: str
) -> None:
    release = stage(pair)
    before = {kind: messages(pair, release, kind) for kind in PATHS}
    sent = [kind for kind in PATHS if party in before[kind]]
    forget_messages(pair, release, party)
    for _ in sent:
        pair.step(party)
    assert {kind: messages(pair, release, kind) for kind in PATHS} == before
    for kind in sent:
        first, again = received(pair, party, kind)
        assert first == again
    finish(pair, release)


@pytest.mark.parametrize("party", ["clinic", "insurer"])
def test_coordinator_that_was_set_back_after_a_block_was_stored_is_sent_all_of_it_again(
    pair: Consortium, party: str
) -> None:
    release = replied(pair)
    cut_off(pair, party, "/blocks/")
    before = {kind: messages(pair, release, kind) for kind in PATHS}
    forget_messages(pair, release, party)
    for kind in PATHS:
        pair.step(party)
        assert messages(pair, release, kind) == before[kind]
    assert (state_of(pair, release, party), pair.coordinator.found(release).blocks) == ("stored", {})
    finish(pair, release)
    assert all(len(set(bodies)) == 1 for bodies in pair.coordinator.received.values())


def test_stale_view_without_messages_is_sent_nothing_new(pair: Consortium) -> None:
    release = replied(pair)
    pair.coordinator.shown = lambda view: {**view, "exchange": None}
    before = {what: list(bodies) for what, bodies in pair.coordinator.received.items()}
    pair.step("clinic")
    assert pair.coordinator.received == {**before, "columns of clinic": 2 * before["columns of clinic"]}
    pair.coordinator.shown = lambda view: view
    finish(pair, release)


@pytest.mark.slow
def test_lost_party_ends_the_round_at_its_expiry_and_nothing_of_it_is_used_again(pair: Consortium) -> None:
    first = approved(pair)
    pair.step("clinic")
    home = pair.homes["clinic"]
    before, secret = messages(pair, first, "columns")["clinic"], secret_of(pair, first, "clinic")
    soon(pair, hours=80)
    pair.coordinator.work()
    pair.step("clinic")
    assert (pair.state(first), state_of(pair, first)) == ("expired", "withdrawn")
    assert not (home.exchanges / first).exists()
    second = columned(pair, title="again")
    assert secret_of(pair, second, "clinic") != secret
    one, other = (
        decode(ColumnsStatement, envelope.payload_bytes)
        for envelope in (before, messages(pair, second, "columns")["clinic"])
    )
    assert one.body_sha256 != other.body_sha256
    layouts = [pair.coordinator.exchange(release).layout("clinic") for release in (first, second)]
    assert layouts[0].label != layouts[1].label


def test_attempt_that_was_cut_off_is_made_anew_under_another_secret_and_its_bytes_never_leave(pair: Consortium) -> None:
    release, home = approved(pair), pair.homes["clinic"]
    crash_at(pair, "party.columns.written")
    secret, made = secret_of(pair, release, "clinic"), (home.exchanges / release / "columns").read_bytes()
    pair.step("clinic")
    assert secret_of(pair, release, "clinic") != secret
    (sent,) = received(pair, "clinic", "columns")
    assert len(sent) == len(made)
    assert sent != made
    finish(pair, release)


@pytest.mark.parametrize(("stage", "what"), [(approved, "columns"), (columned, "reply")])
@pytest.mark.parametrize("party", ["clinic", "insurer"])
def test_ledger_that_does_not_know_an_own_message_of_the_exchange_stops(
    pair: Consortium, stage: Callable[[Consortium], str], what: str, party: str
) -> None:
    stage(pair)
    database = pair.homes[party].database
    backup = database.read_bytes()
    pair.step(party)
    database.write_bytes(backup)
    pair.coordinator.before = answering(200, b'{"items": []}', part="ledger-heads")  # signatures are enough
    with pytest.raises(StaleLedgerError, match=f"own {what}"):
        pair.step(party)


@pytest.mark.parametrize(("stage", "kind"), [(approved, "columns"), (columned, "reply")])
def test_message_leaves_only_once_the_ledgers_entry_of_it_is_witnessed(
    pair: Consortium, stage: Callable[[Consortium], str], kind: MessageKind
) -> None:
    release = stage(pair)
    cut_off(pair, "clinic", "/ledger-heads")
    with pair.agent("clinic") as agent:
        assert agent.exchanges.made(release, kind)
    assert "clinic" not in messages(pair, release, kind)
    assert received(pair, "clinic", kind) == []
    finish(pair, release)


@pytest.mark.parametrize(
    ("file", "how", "stage", "party", "bounds"),
    [
        ("exchange.key", "gone", columned, "clinic", "trusted"),
        ("exchange.key", "damaged", columned, "insurer", "trusted"),
        ("exchange.key", "empty", replied, "clinic", "trusted"),
        ("exchange.key", "gone", replied, "insurer", "proved"),
        ("rows", "gone", columned, "insurer", "trusted"),
        ("rows", "damaged", replied, "clinic", "trusted"),
        ("rows", "empty", replied, "insurer", "trusted"),
        ("columns", "gone", signed, "clinic", "trusted"),
        ("columns", "damaged", columned, "clinic", "trusted"),
        ("columns", "empty", replied, "clinic", "proved"),
        ("reply", "gone", reply_signed, "insurer", "trusted"),
        ("reply", "damaged", reply_signed, "insurer", "trusted"),
    ],
)
def test_what_is_lost_while_it_is_needed_gives_the_release_up_and_is_not_made_again(
    pair: Consortium, file: str, how: str, stage: Callable[[Consortium, Bounds], str], *, party: str, bounds: Bounds
) -> None:
    release, noise = stage(pair, bounds), Noise()
    sent, paid = {what: list(bodies) for what, bodies in pair.coordinator.received.items()}, spent(pair, party)
    path = pair.homes[party].exchanges / release / file
    whole = path.read_bytes()
    path.unlink() if how == "gone" else path.write_bytes(b"" if how == "empty" else whole[:-3] + b"\0\1\2")
    with pytest.raises(LostError):
        pair.step(party, draw=noise)
    assert (reason_of(pair, release, party), pair.state(release)) == ("block_lost", "aborted")
    assert (state_of(pair, release, party), spent(pair, party)) == ("withdrawn", paid)
    assert pair.coordinator.received == sent
    assert not (pair.homes[party].exchanges / release).exists()
    pair.step(party, draw=noise)
    assert pair.coordinator.received == sent


@pytest.mark.parametrize(("bounds", "lost"), [("proved", ["reply"]), ("trusted", ["columns", "reply"])])
def test_message_lost_after_its_last_use_is_not_needed(pair: Consortium, bounds: Bounds, lost: list[str]) -> None:
    """Where bounds are proved, a reply is verified against one's own columns too."""
    release = replied(pair, bounds)
    for home in pair.homes.values():
        for kind in lost:
            (home.exchanges / release / kind).unlink()
    finish(pair, release)


def test_party_to_which_nobody_replies_needs_no_columns_to_make_its_block(pair: Consortium) -> None:
    release = replied(pair, "proved")
    for name in ("columns", "columns.clinic"):
        (pair.homes["insurer"].exchanges / release / name).unlink()
    asked = len(pair.coordinator.requests)
    finish(pair, release)
    assert not any(request.endswith("/columns/clinic") for request in pair.coordinator.requests[asked:])


@pytest.mark.slow
def test_fellows_message_that_was_lost_or_damaged_on_the_disk_is_fetched_again(pair: Consortium) -> None:
    """Whoever sent it is not named: it is one's own disk."""
    release = columned(pair, "proved")
    crash_at(pair, "party.columns.verified", "insurer")
    path = pair.homes["insurer"].exchanges / release / "columns.clinic"
    whole = path.read_bytes()
    assert whole == body_of(pair, release, "clinic", "columns")
    for changed in (None, whole[:-3] + b"\0\1\2", b"", whole + b"\0"):
        path.unlink() if changed is None else path.write_bytes(changed)
        asked = len(pair.coordinator.requests)
        crash_at(pair, "party.columns.verified", "insurer")
        assert f"GET /v1/releases/{release}/columns/clinic" in pair.coordinator.requests[asked:]
        assert path.read_bytes() == whole
    finish(pair, release)


@pytest.mark.parametrize(("stage", "kind"), [(approved, "columns"), (columned, "reply")])
@pytest.mark.parametrize("party", ["clinic", "insurer"])
def test_person_withdraws_while_a_message_is_made_and_it_is_not_signed(
    pair: Consortium, stage: Callable[[Consortium], str], kind: MessageKind, party: str
) -> None:
    release = stage(pair)
    before = list(pair.coordinator.received)
    with pair.agent(party) as agent:

        def strike(point: str) -> None:
            if point == f"party.{kind}.written":
                faults.arm(in_earnest)
                agent.reject(release)

        faults.arm(strike)
        with pytest.raises(ConflictError, match="given up"):
            agent.step(lambda _, work: work())
        assert not agent.exchanges.made(release, kind)
    assert (list(pair.coordinator.received), state_of(pair, release, party)) == (before, "withdrawn")
    pair.step(party)
    assert not (pair.homes[party].exchanges / release).exists()


def test_history_of_an_exchange_verifies_and_counts_its_loss_once(pair: Consortium) -> None:
    release = approved(pair)
    finish(pair, release)
    with pair.agents("clinic") as agents:
        history = verify_party_audit(encode(export_audit(agents)))
        assert history.told.lost == agents.ledger.lost()
    assert {kind for _, kind in history.told.signed} == {"approval", "alignment", "columns", "reply", "block"}
