"""Many rounds in one virtual consortium, with faults drawn from a seed, and what must hold in the end."""

from functools import partial
from pathlib import Path
from random import Random

import httpx

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.release.rounds import State
from commingle.shared.runtime import faults
from tests.faults.chaos import Chaos
from tests.faults.witness import charges_on_disk, check_history, check_ledger, check_published, check_settled
from tests.faults.world import LATEST_SECONDS, Outcome, Party, World
from tests.world.consortium import NAMES
from tests.world.documents import enrolment

_LIFETIME_SECONDS = 3600.0
_BETWEEN_PROPOSALS_SECONDS = 240.0
_TIME_ENOUGH_SECONDS = 1800.0
_AGREED = frozenset({State.APPROVED, State.COLLECTING, State.PUBLISHED})
_ALL_EVENTS = 10_000


def simulate(seed: int, *, rounds: int, root: Path) -> Outcome:
    """One consortium through that many rounds. Raises AssertionError as soon as anything does not hold."""
    chaos = Chaos(Random(seed))
    world = World(root, chaos, cap_epsilon=chaos.random.choice([5.0, 60.0]))
    try:
        _join(world)
        last = _schedule(world, rounds)
        faults.arm(world.strike)
        chaos.calm = False
        world.run_until(last + chaos.seconds(0, _LIFETIME_SECONDS / 6))
        chaos.calm = True
        hopeful = _heal(world)
        _settle(world)
        _check(world, hopeful)
    finally:
        faults.arm(lambda _: None)
        world.close()
    world.outcome.faults += chaos.counts
    world.outcome.killed_at += chaos.points
    return world.outcome


def _join(world: World) -> None:
    hub = world.centre.hub
    for name, party in world.parties.items():
        key, sealing_key = party.home.identity().signing_key, party.home.sealing_key().hex()
        assert hub.enrol(enrolment(hub.invited(name), name, key, sealing_key=sealing_key)).status_code == 201
        party.start()
        assert party.agent is not None
        world.consortium.register(party.agent)


def _schedule(world: World, rounds: int) -> float:
    draw, seconds = world.chaos.random, 0.0
    for number in range(rounds):
        seconds += draw.uniform(0, 2 * _BETWEEN_PROPOSALS_SECONDS)
        world.after(seconds, partial(_propose, world, number))
        _question(world, number, seconds)
    mischief = 0.0
    while (mischief := mischief + draw.uniform(10, 120)) < seconds + _LIFETIME_SECONDS:
        world.after(mischief, partial(_mischief, world))
    return seconds


def _propose(world: World, number: int) -> None:
    """By the coordinator, which agents trust enough to approve by themselves, or by a member, so that people decide."""
    draw = world.chaos.random
    names = tuple(sorted(draw.sample(NAMES, draw.choice([2, 2, 3]))))
    by_member = draw.random() < 0.3
    key = world.parties[names[0]].home.identity().signing_key if by_member else world.centre.hub.key
    mechanism = draw.choice(["rmgm", "rmgm", "dgm", "moments", "moments"])
    spec = world.consortium.spec(
        mechanism=mechanism,
        bounds="trusted" if mechanism == "moments" and by_member else None,  # which only people approve
        title=f"round {number}",
        names=names,
        proposer=key,
        now=world.now,
    )
    spec = spec.model_copy(update={"expires": world.later(_LIFETIME_SECONDS)})
    envelope = seal(spec, key=key)
    world.centre.propose(spec, envelope)
    for name in names:
        _make_up_minds(world, world.parties[name], envelope.digest, by_hand=by_member)


def _question(world: World, number: int, seconds: float) -> None:
    name, target, feature = world.chaos.random.choice([("clinic", "bmi", "age"), ("lab", "smoker", "blood")])
    request = RegressionRequest(
        dataset="main",
        target=target,
        features=(feature,),
        method=world.chaos.random.choice(["ssp", "adassp"]),
        epsilon=0.5,
        delta=1e-6,
        nonce=f"{number:064x}",
    )
    world.questions.append((name, request))
    for _ in range(2):
        world.after(seconds + world.chaos.seconds(0, 300), partial(world.parties[name].ask, request))


def _make_up_minds(world: World, party: Party, release: str, *, by_hand: bool) -> None:
    draw = world.chaos.random
    if by_hand and draw.random() < 0.95:
        world.after(draw.uniform(10, 600), partial(party.decide, release, approve=draw.random() < 0.92))
    if draw.random() < 0.06:
        world.after(draw.uniform(5, 400), partial(party.decide, release, approve=False))


def _mischief(world: World) -> None:
    chaos = world.chaos
    victim = chaos.random.choice(world.processes)
    if chaos.strikes(f"{victim.kind} killed at any moment", 0.3):
        victim.kill()
    elif chaos.strikes(f"clock of the {victim.kind} jumped", 0.2):
        victim.set_clock(chaos.seconds(-5400, 5400))
        world.after(chaos.seconds(30, 400), partial(victim.set_clock, 0))


def _heal(world: World) -> list[str]:
    """From here on nothing goes wrong. Releases that everybody has agreed to and that have time left."""
    for process in world.processes:
        process.set_clock(0)
    enough = world.later(_TIME_ENOUGH_SECONDS)
    states = {release: world.centre.state(release) for release, spec in world.specs.items() if spec.expires > enough}
    return [release for release, state in states.items() if state in _AGREED]


def _settle(world: World) -> None:
    until = world.seconds + 2 * _LIFETIME_SECONDS
    world.run_until(world.seconds + LATEST_SECONDS)
    while world.seconds < until and not _quiet(world):
        world.run_until(world.seconds + 60)


def unfinished(agent: Agent) -> list[str]:
    return agent.proposals.unfinished(agent.coordinator.key.fingerprint)


def _quiet(world: World) -> bool:
    over = all(state is None or state.final for state in map(world.centre.state, world.specs))
    return over and not any(p.agent is None or unfinished(p.agent) for p in world.parties.values())


def _check(world: World, hopeful: list[str]) -> None:
    proposed = {release: spec for release, spec in world.specs.items() if world.centre.state(release) is not None}
    for name, party in world.parties.items():
        assert party.agent is not None
        party.agent.ledger.verify()
        own = {release: spec for release, spec in proposed.items() if any(p.name == name for p in spec.parties)}
        check_ledger(world.witness, name, own, cap_units=party.agent.ledger.cap.rho.units)
        check_settled(party.home, own)
        assert not unfinished(party.agent)
    for name, request in world.questions:
        _check_regression(world.parties[name], request)
    assert world.centre.hub.coordinator.blobs.running_releases() == (), "messages of releases that are over"
    for release in proposed:
        _check_release(world, release)
    for release in hopeful:  # nothing but a party's own decision may have ended these
        rejected = any(kind == "rejections" and found == release for found, _, kind in world.witness.left)
        assert rejected or world.centre.state(release) is State.PUBLISHED, f"{release} got stuck"


def _check_regression(party: Party, request: RegressionRequest) -> None:
    """Asked once more: the result, made now at the latest, or a refusal that has cost nothing."""
    assert party.agent is not None
    paid = request.id in charges_on_disk(party.home)
    try:
        party.regress(party.agent, request)
    except ConflictError:
        assert not paid
        assert request.id not in charges_on_disk(party.home)


def _check_release(world: World, release: str) -> None:
    hub = world.centre.hub
    with hub.store.read() as tx:
        found = tx.releases.get(release)
        events = tx.events.after(0, limit=_ALL_EVENTS, release=release)
    assert found is not None
    check_history([(event.seq, event.kind, event.party, event.state) for event in events], found.state)
    world.outcome.states[found.state] += 1
    if found.state is State.PUBLISHED:
        manifest, matrix, moments = (
            world.centre.deliver(httpx.Request("GET", f"http://hub/v1/releases/{release}/{name}")).content
            for name in ("manifest", "matrix", "moments")
        )
        check_published(world.witness, (manifest, matrix, moments), release=release, coordinator=hub.key.fingerprint)
