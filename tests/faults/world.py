"""A consortium in virtual time: real agents over real ledgers, a real coordinator, and a queue of events.

One thread. Requests travel in no time unless the network delays them; while one is on its way, or while noise is
drawn, other events may happen. Processes crash at the fault points of `shared.runtime.faults` and at any moment
between, and are started again; nothing else is ever done to them.
"""

import heapq
import itertools
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import httpx
import numpy as np
from numpy.typing import NDArray
from sqlalchemy.exc import OperationalError

from commingle.coordinator.publisher import Publisher
from commingle.coordinator.rounds import propose
from commingle.party_agent.errors import StaleLedgerError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.policy import AutoApproval, Policy
from commingle.party_agent.operate.compose import compose_agents
from commingle.party_agent.regression.service import Regressions
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.dsse import Envelope
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.errors import CommingleError
from commingle.shared.release.rounds import State
from commingle.shared.wire import ReleaseSteps
from tests.faults.chaos import Chaos, CrashError, Network, Wire
from tests.faults.witness import Witness
from tests.world.consortium import BY_A_PERSON, EVERY_KIND, NAMES, Consortium, rows_of, write_csv
from tests.world.coordinator import Hub, SetClock

COORDINATOR = "coordinator"
LATEST_SECONDS = 600.0
"""When a delayed copy of a request has arrived at the latest."""
_TOLERATED = (CommingleError, OSError, sqlite3.Error)
"""What the agent's loop retries by name; whatever else comes out of an agent is a finding."""
_AT_POINTS: dict[str, tuple[tuple[str, float], ...]] = {
    "party.committing": (("agent killed before a commit", 0.01), ("agent's ledger locked or full", 0.01)),
    "file.temporary": (("killed between file and rename", 0.03), ("disk full", 0.05)),
    "coordinator.committing": (("coordinator killed before a commit", 0.01), ("coordinator's database fails", 0.02)),
}
_INTERRUPTED = 0.1
_TURN_SECONDS = (5, 60)
_CALM_SECONDS = (30, 120)
_AT_NAMED_POINTS = (("killed at a named fault point", 0.08),)


@dataclass
class Outcome:
    """What a simulation went through.

    Attributes:
        faults: by kind; killed_at: those of them that were kills at a fault point, by its name.
        states: rounds by final state.
        work: how much was done meanwhile.
    """

    faults: Counter[str] = field(default_factory=Counter)
    killed_at: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    work: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Outcome") -> None:
        self.faults += other.faults
        self.killed_at += other.killed_at
        self.states += other.states
        self.work += other.work


@dataclass
class World:
    """The queue of events and everybody in it.

    Attributes:
        clock: the coordinator's.
        specs: every release that was ever proposed.
        questions: every regression that was ever asked for, with the party it was asked of.
        running: the processes at work right now, the innermost last.
        seconds: virtual time since the beginning.
    """

    root: Path
    chaos: Chaos
    cap_epsilon: float
    clock: SetClock = field(default_factory=SetClock)
    outcome: Outcome = field(default_factory=Outcome)
    specs: dict[str, ReleaseSpec] = field(default_factory=dict)
    questions: list[tuple[str, RegressionRequest]] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _depth: int = 0

    def __post_init__(self) -> None:
        self.start_time = self.clock.now
        self.centre = Centre(self)
        key = self.centre.hub.key
        self.consortium = Consortium(self.root)
        self.consortium.coordinator.key = key
        automatic = Policy(
            mechanisms=EVERY_KIND,
            auto_approve=(AutoApproval(proposer=key.fingerprint, mechanisms=EVERY_KIND, max_rho=100),),
            max_epsilon=5,
            trusted_bounds=True,
        )
        for name in NAMES:
            self.consortium.add(name, policy=automatic, epsilon_cap=self.cap_epsilon)
            _fix_keys(self.consortium.homes[name])
            write_csv(self.consortium.table(name), rows_of(name))
        self.consortium.pin_everybody()
        self.witness = Witness(self.consortium.homes)
        self.network = Network(
            self.chaos,
            deliver=self.centre.deliver,
            later=lambda action: self.after(self.chaos.seconds(1, LATEST_SECONDS), action),
            meanwhile=self.meanwhile,
            left=self.witness.request,
        )
        self.parties = {name: Party(self, name, home) for name, home in self.consortium.homes.items()}

    @property
    def processes(self) -> list["Process"]:
        return [self.centre, *self.parties.values()]

    @property
    def now(self) -> datetime:
        """The true time, to the second."""
        return self.start_time + timedelta(seconds=int(self.seconds))

    def later(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.seconds + seconds, next(self._numbers), action))

    def run_until(self, seconds: float) -> None:
        while self._queue and self._queue[0][0] <= seconds:
            self._next()
        self._advance(seconds)

    def meanwhile(self) -> None:
        """Perhaps let the next event happen right now, inside of what is going on."""
        if self._depth == 0 and self._queue and not self.chaos.calm and self.chaos.random.random() < _INTERRUPTED:
            self.outcome.work["events inside a request or a drawing"] += 1
            self._depth += 1
            try:
                self._next()
            finally:
                self._depth -= 1

    def strike(self, point: str) -> None:
        if not self.running:
            return
        kind = self.chaos.one_of(_AT_POINTS.get(point, _AT_NAMED_POINTS))
        if "killed" in kind:
            self.chaos.points[point] += 1
            raise CrashError(self.running[-1])
        match kind:
            case "disk full":
                raise OSError(ENOSPC, "No space left on device")
            case "agent's ledger locked or full":
                raise sqlite3.OperationalError("database is locked")
            case "coordinator's database fails":
                raise OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    @contextmanager
    def as_process(self, name: str) -> Iterator[None]:
        self.running.append(name)
        try:
            yield
        finally:
            self.running.pop()

    def close(self) -> None:
        for party in self.parties.values():
            party.close()
        self.centre.close()

    def _next(self) -> None:
        seconds, _, action = heapq.heappop(self._queue)
        self._advance(seconds)
        action()

    def _advance(self, seconds: float) -> None:
        self.seconds = max(self.seconds, seconds)
        self.clock.now = self.now + self.centre.skew


def _fix_keys(home: Home) -> None:
    """Digests, and with them the order in which releases are looked at, then follow from the simulation's seed."""
    for file in ("signing.key", "sealing.key"):
        secret = sha256(f"{home.root.name} {file}".encode()).hexdigest()
        (home.root / "keys" / file).write_text(secret)


class Process(ABC):
    """Something that can be killed and has a clock."""

    kind: ClassVar[str]

    def __init__(self, world: World) -> None:
        self.world = world
        self.skew = timedelta(0)

    def set_clock(self, ahead_seconds: float) -> None:
        self.skew = timedelta(seconds=int(ahead_seconds))

    @abstractmethod
    def kill(self) -> None:
        pass


class Centre(Process):
    """The coordinator's process, its disk and its clock."""

    kind = COORDINATOR

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._life = 0
        self.start()

    def start(self) -> None:
        self.hub = Hub(f"sqlite:///{self.world.root / 'coordinator.sqlite'}", self.world.root / "hub", self.world.clock)
        self.publisher = Publisher(self.hub.coordinator, timer=lambda: self.world.seconds)
        self.up = True
        self._life += 1
        self._publish(self._life)

    def die(self) -> None:
        if self.up:
            self.up = False
            self.hub.close()
            self.world.after(self.world.chaos.seconds(1, 60), self.start)

    def kill(self) -> None:
        self.die()

    def close(self) -> None:
        if self.up:
            self.hub.close()

    def state(self, release: str) -> State | None:
        """Where a release stands; None where it was never recorded."""
        with self.hub.store.read() as tx:
            found = tx.releases.get(release)
        return None if found is None else found.state

    def deliver(self, request: httpx.Request) -> httpx.Response:
        if not self.up:
            raise httpx.ConnectError("connection refused")
        self.world.outcome.work["requests handled"] += 1
        try:
            with self.world.as_process(COORDINATOR):
                return self.hub.transport.handle_request(request)
        except CrashError:
            self.die()
            raise httpx.RemoteProtocolError("server disconnected") from None

    def propose(self, spec: ReleaseSpec, envelope: Envelope) -> None:
        """The proposer's tool sends a proposal again until it is answered."""
        self.world.specs[envelope.digest] = spec
        if self.up:
            try:
                with self.world.as_process(COORDINATOR):
                    propose(self.hub.coordinator, envelope)
                if not self.world.chaos.strikes("proposal answered into the void", 0.1):
                    return
            except CrashError:
                self.die()
            except CommingleError:
                pass  # its database fails, or its clock is wrong
        if self.world.now < spec.expires:
            self.world.after(15, lambda: self.propose(spec, envelope))

    def _publish(self, life: int) -> None:
        if life != self._life or not self.up:
            return
        try:
            with self.world.as_process(COORDINATOR):
                self.publisher.run_once()
        except CrashError:
            self.die()
        except CommingleError:
            pass  # the publisher's thread logs it and waits
        self.world.after(self.world.chaos.seconds(1, 10), lambda: self._publish(life))


class Party(Process):
    """An agent's process, its person and its clock."""

    kind = "agent"

    def __init__(self, world: World, name: str, home: Home) -> None:
        super().__init__(world)
        self.name, self.home = name, home
        self.agent: Agent | None = None
        self.busy = False
        self._life = 0
        self._last: int | None = None
        self._steps: ReleaseSteps | None = None
        self._attending = ""
        self._resources = ExitStack()

    def start(self) -> None:
        if self.agent is None:
            wire = Wire(self.world.network, self.name)
            agents = self._resources.enter_context(
                compose_agents(self.home, transport=wire, clock=self._clock, draw=self._draw)
            )
            self.agent = agents.consortia[0]
            self._life += 1
            life = self._life
            self.world.after(1, lambda: self._turn(life))

    def kill(self) -> None:
        if self.busy:
            raise CrashError(self.name)  # out of whatever it is waiting for
        self.die()

    def die(self) -> None:
        if self.agent is not None:
            self.agent = None
            self._resources.close()
            self.world.after(self.world.chaos.seconds(1, 60), self.start)

    def close(self) -> None:
        self._resources.close()

    def decide(self, release: str, *, approve: bool) -> None:
        self._call(lambda agent: agent.approve(release, BY_A_PERSON) if approve else agent.reject(release))

    def ask(self, request: RegressionRequest) -> None:
        """Somebody wants a regression, and asks again where that fails."""
        self._call(lambda agent: self.regress(agent, request))

    def regress(self, agent: Agent, request: RegressionRequest) -> None:
        """What a regression's question does in the agent."""
        before, self._attending = self._attending, request.id
        try:
            shown = Regressions(agent).ask(request)
        finally:
            self._attending = before
        self.world.outcome.work["regressions shown"] += 1
        self.world.witness.regression(self.name, shown)

    def _call(self, action: Callable[[Agent], object], *, tries: int = 8) -> None:
        """What the local API calls; possibly while the loop works on the same."""
        if self.agent is None:
            self._call_later(action, tries)
            return
        inside, self.busy = self.busy, True  # of the loop's own work
        try:
            with self.world.as_process(self.name):
                action(self.agent)
        except CrashError:
            if inside:
                raise
            self.die()
        except StaleLedgerError:
            raise
        except _TOLERATED:
            self._call_later(action, tries)
        finally:
            self.busy = inside

    def _call_later(self, action: Callable[[Agent], object], tries: int) -> None:
        if tries:
            self.world.after(30, lambda: self._call(action, tries=tries - 1))

    def _turn(self, life: int) -> None:
        if life != self._life or self.agent is None:
            return
        if not self.busy:
            self._look(self.agent)
        self.world.after(
            self.world.chaos.seconds(*(_CALM_SECONDS if self.world.chaos.calm else _TURN_SECONDS)),
            lambda: self._turn(life),
        )

    def _look(self, agent: Agent) -> None:
        self.busy = True
        try:
            with self.world.as_process(self.name):
                if self._last is None:
                    self._last = agent.client.newest_event()
                agent.step(self._attend, self._steps)
                steps = next(agent.client.steps(self.name, after=self._last, seconds=0, streamed=False))
                self._last, self._steps = steps.last, steps if steps.items else None  # at everything, after a while
        except CrashError:
            self.die()
        except StaleLedgerError:
            raise
        except _TOLERATED:
            agent.witnesses.lose(agent.coordinator.key.fingerprint)
            self._last = self._steps = None
            self.world.outcome.work["looks that failed"] += 1
        finally:
            self.busy = False

    def _attend(self, release: str, work: Callable[[], None]) -> None:
        self._attending = release
        try:
            work()
        except StaleLedgerError:
            raise
        except _TOLERATED:
            self.world.outcome.work["releases postponed"] += 1

    def _clock(self) -> datetime:
        return self.world.now + self.skew

    def _draw(self, sigma: int, count: int) -> NDArray[np.int64]:
        self.world.witness.drawing(self.name, self._attending)
        self.world.outcome.work["drawings of noise"] += 1
        self.world.meanwhile()
        return rounded_gaussian(sigma, count)
