"""A year of many members at one coordinator, simulated: where requests queue, and how long a release takes.

What a request costs is measured first, in the same run: releases of real consortia of two, four and eight members,
whose cost is taken for a line in their number (how far it is off is said), and streams of agents that wait. Costs are
processor seconds of the coordinator, which stands for each of its replicas: one interpreter, first come, first served.
Then a year's releases go through the replicas request by request, when people and agents are likely to act.
"""

import asyncio
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from itertools import count
from math import ceil, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import httpx
import numpy as np

from benchmarks.consortium import Commingle, cpu_seconds
from benchmarks.harness import Asked, Experiment, Report, generator
from benchmarks.load import Tally, Worker, invite
from benchmarks.rounds import of_consortium
from commingle.coordinator.http.streams import STREAM_SECONDS

DAY, WORK_DAY, OPENS = 86_400.0, 8 * 3600.0, 9 * 3600.0
PER_MEMBER = 3  # requests of a member a release: its approval, its block, a look at the end (docs/results.md)
_OFFICE_DAYS = 5
_STEPS = "/v1/parties/member/releases?wait_seconds="


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a year is like. Times are seconds.

    Attributes:
        releases: proposals a year.
        members_of_release: how many members a release has, and `shares` how often.
        zones: hours by which offices open earlier or later.
        nightly: share of proposals that timers make, all within a minute after midnight; offices make the others.
        automatic: share of approvals by policy; a person gives the others.
        decision: median of the working time that a person takes, of a lognormal law with that `decision_spread`.
        away: share of agents that are away when something is due, and how long they stay away, on average.
        block: what an agent takes for its block, on average.
        lost, again: share of requests that are lost on the way, and when an agent asks again.
        replicas: processes of the coordinator; a load balancer sends each request to either.
    """

    members: int = 10_000
    releases: int = 1_000_000
    members_of_release: tuple[int, ...] = (2, 3, 5, 10, 20)
    shares: tuple[float, ...] = (0.4, 0.3, 0.2, 0.08, 0.02)
    zones: tuple[float, ...] = (0, 1, 6, 9)
    nightly: float = 0.1
    automatic: float = 0.5
    decision: float = 4 * 3600.0
    decision_spread: float = 1.0
    away: float = 0.01
    away_seconds: float = 4 * 3600.0
    block: float = 20.0
    lost: float = 0.01
    again: float = 5.0
    replicas: int = 2


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds of the coordinator, by what causes them.

    Attributes:
        release: of a release whatever its members: the proposal and the publication.
        member: of each of its members: approval, block, a look, and what a stream tells.
        follower: of an agent that waits, each second.
    """

    release: float
    member: float
    follower: float


class Replicas:
    """Queues, first come, first served. Arrivals must be told in the order of their times."""

    def __init__(self, number: int, *, spare: float, rng: np.random.Generator) -> None:
        self._free, self._spare, self._rng = [0.0] * number, spare, rng
        self.waits = array("d")
        self.busy: dict[int, float] = {}

    def serve(self, at: float, cost: float) -> float:
        """When a request that comes at that time is answered; it takes an exponential time of mean `cost` / spare."""
        place = int(self._rng.random() * len(self._free))
        begun = max(at, self._free[place])
        took = cost / self._spare * -log(1 - self._rng.random())
        self._free[place] = begun + took
        self.waits.append(begun - at)
        minute = int(begun // 60)
        self.busy[minute] = self.busy.get(minute, 0.0) + took
        return begun + took


def worked(at: float, seconds: float, zone: float) -> float:
    """The time after so many working seconds of an office, Monday to Friday, nine to five; 0 is a Monday's midnight."""
    local, left = at + zone * 3600, seconds
    while True:
        day, of_day = divmod(local, DAY)
        open_at = max(of_day, OPENS)
        here = max(0.0, OPENS + WORK_DAY - open_at) if day % 7 < _OFFICE_DAYS else 0.0
        if left <= here:
            return day * DAY + open_at + left - zone * 3600
        left, local = left - here, (day + 1) * DAY


def proposals(assumed: Assumptions, days: float, rng: np.random.Generator) -> np.ndarray:
    """Sorted times of the proposals of so many days."""
    number, whole = rng.poisson(assumed.releases * days / 365), range(ceil(days))
    nightly = rng.choice(whole, number) * DAY + rng.uniform(0, 60, number)
    office = rng.choice([day for day in whole if day % 7 < _OFFICE_DAYS], number) * DAY
    office += OPENS + rng.uniform(0, WORK_DAY, number) - rng.choice(assumed.zones, number) * 3600
    return np.sort(np.where(rng.random(number) < assumed.nightly, nightly, np.maximum(office, 0.0)))


@dataclass(slots=True)
class _Round:
    proposed: float
    members: int
    left: int
    approved: float = 0.0


class _Year:
    def __init__(self, assumed: Assumptions, replicas: Replicas, costs: Costs, rng: np.random.Generator) -> None:
        self._assumed, self._replicas, self._costs, self._rng = assumed, replicas, costs, rng
        self._queue = list[tuple[float, int, _Step, _Round]]()
        self._order = count()
        self._open, self._area, self._before = 0, 0.0, 0.0
        self.most_open = 0
        self.lasted, self.after_people = array("d"), array("d")

    def run(self, proposed: list[float], until: float) -> None:
        sizes = self._rng.choice(self._assumed.members_of_release, len(proposed), p=self._assumed.shares).tolist()
        for at, size in zip(proposed, sizes, strict=True):
            self._due(at, _Year._proposal, _Round(at, size, size))
        while self._queue and self._queue[0][0] <= until:
            at, _, step, of = heappop(self._queue)
            self._area, self._before = self._area + self._open * (at - self._before), at
            step(self, at, of)
        self._area, self._before = self._area + self._open * (until - self._before), until

    @property
    def open_on_average(self) -> float:
        return self._area / self._before

    def _due(self, at: float, step: "_Step", of: _Round) -> None:
        lost = self._assumed.again if self._rng.random() < self._assumed.lost else 0.0
        heappush(self._queue, (at + lost, next(self._order), step, of))

    def _back(self, at: float) -> float:
        """When an agent acts for which something is due then."""
        away = self._rng.random() < self._assumed.away
        return at + (self._rng.exponential(self._assumed.away_seconds) if away else 0.0)

    def _proposal(self, at: float, of: _Round) -> None:
        done = self._replicas.serve(at, self._costs.release / 2)
        self._open += 1
        self.most_open = max(self.most_open, self._open)
        for _ in range(of.members):
            seen = self._back(done)
            if self._rng.random() >= self._assumed.automatic:
                work = self._rng.lognormal(log(self._assumed.decision), self._assumed.decision_spread)
                seen = worked(seen, work, self._assumed.zones[int(self._rng.random() * len(self._assumed.zones))])
            self._due(seen, _Year._approval, of)

    def _approval(self, at: float, of: _Round) -> None:
        done = self._replicas.serve(at, self._costs.member / PER_MEMBER)
        of.left -= 1
        if not of.left:
            of.approved, of.left = at, of.members
            for _ in range(of.members):
                self._due(self._back(done) + self._rng.exponential(self._assumed.block), _Year._block, of)

    def _block(self, at: float, of: _Round) -> None:
        done = self._replicas.serve(at, self._costs.member / PER_MEMBER)
        of.left -= 1
        if not of.left:
            heappush(self._queue, (done, next(self._order), _Year._publication, of))

    def _publication(self, at: float, of: _Round) -> None:
        done = self._replicas.serve(at, self._costs.release / 2)
        self._open -= 1
        self.lasted.append(done - of.proposed)
        self.after_people.append(done - of.approved)
        for _ in range(of.members):
            self._due(done, _Year._look, of)

    def _look(self, at: float, _: _Round) -> None:
        self._replicas.serve(at, self._costs.member / PER_MEMBER)


_Step = Callable[[_Year, float, _Round], None]


def simulated(assumed: Assumptions, costs: Costs, *, days: float, rng: np.random.Generator) -> dict[str, Any]:
    """What so many days are like; of releases that are open at their end no time is known."""
    idle = costs.follower * assumed.members / assumed.replicas
    if idle >= 1:
        raise SystemExit(f"{assumed.replicas} replicas do not carry {assumed.members:,} agents that wait: take more")
    replicas = Replicas(assumed.replicas, spare=1 - idle, rng=rng)
    year = _Year(assumed, replicas, costs, rng)
    year.run(proposals(assumed, days, rng).tolist(), days * DAY)
    busy = {minute: took * (1 - idle) / assumed.replicas for minute, took in replicas.busy.items()}
    return {
        "releases a year": assumed.releases,
        "days": days,
        "published": len(year.lasted),
        "waiting agents take": idle,
        "requests take": sum(busy.values()) / (days * DAY),
        "busiest minute": idle + max(busy.values()) / 60,
        "wait, ms": {"median": _at(replicas.waits, 0.5) * 1e3, "p99.9": _at(replicas.waits, 0.999) * 1e3},
        "longest wait, s": max(replicas.waits),
        "hours to publication": {"median": _at(year.lasted, 0.5) / 3600, "p99": _at(year.lasted, 0.99) / 3600},
        "seconds after approval": {"median": _at(year.after_people, 0.5), "p99": _at(year.after_people, 0.99)},
        "open": {"average": year.open_on_average, "most": year.most_open},
    }


def _at(found: "array[float]", share: float) -> float:
    return float(np.quantile(found, share))


def of_followers(streams: int, seconds: float) -> float:
    """Processor seconds of a coordinator a second, for each of so many agents that wait; they ask anew as agents do."""
    with TemporaryDirectory() as root, ExitStack() as stack:
        home, command = Path(root) / "hub", Commingle()
        command.run("coordinator", "init", "--home", home)
        process, said = stack.enter_context(command.serving("coordinator", "serve", "--home", home))
        member = Worker("member", [said["url"]], invite(home, "member"), Tally())
        stack.callback(member.close)
        before = cpu_seconds(process.pid)
        for _ in range(streams):
            member.call("steps", "GET", _STEPS + "0", None)
        begun = (cpu_seconds(process.pid) - before) / streams
        used = asyncio.run(_used_while_followed(said["url"], streams, seconds, process.pid))
    return used / streams / seconds + begun / STREAM_SECONDS


async def _used_while_followed(url: str, streams: int, seconds: float, process: int) -> float:
    begun = asyncio.Queue[None]()

    async def follow(http: httpx.AsyncClient) -> None:
        async with http.stream("GET", _STEPS + "10", headers={"Accept": "text/event-stream"}) as answer:
            answer.raise_for_status()
            await begun.put(None)
            async for _ in answer.aiter_lines():
                pass

    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits()) as http:
        following = [asyncio.create_task(follow(http)) for _ in range(streams)]
        for _ in range(streams):
            await begun.get()
        before = cpu_seconds(process)
        await asyncio.sleep(seconds)
        used = cpu_seconds(process) - before
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    return used


def measured(asked: Asked) -> tuple[Costs, dict[str, float]]:
    """What steps cost here, and by members the cost of a release over that of the line through all of them."""
    sizes = (2, 3) if asked.quick else (2, 4, 8)
    found = [of_consortium(size, 2_000, "rmgm", releases=asked.times(1, 30))["cpu_seconds"] for size in sizes]
    used = np.array([cpu["coordinator"] for cpu in found])
    member, release = np.polyfit(sizes, used, 1).tolist()
    follower = of_followers(100, 3.0) if asked.quick else of_followers(500, 40.0)
    over = used / (release + member * np.array(sizes))
    return Costs(max(release, 0.0), max(member, 1e-6), follower), dict(zip(map(str, sizes), over.tolist(), strict=True))


def measure(asked: Asked) -> Report:
    costs, over = measured(asked)
    rng, few = generator(36), 10 if asked.quick else 1
    members, releases = (asked.given[name] // few for name in ("members", "releases"))
    whole = Assumptions(replicas=asked.given["replicas"], members=members, releases=releases)
    days = 1.0 if asked.quick else asked.given["days"]
    more = [(replace(whole, releases=whole.releases * factor), min(days, 7.0)) for factor in (3, 10, 30)]
    cases = [(whole, days), *(more if not asked.quick else [])]
    return {
        "assumed": asdict(whole),
        "costs": asdict(costs),
        "measured over the line": over,
        "results": [simulated(assumed, costs, days=of, rng=rng) for assumed, of in cases],
    }


OPTIONS = (
    click.Option(["--members"], type=click.IntRange(1), default=10_000, show_default=True),
    click.Option(["--releases"], type=click.IntRange(1), default=1_000_000, show_default=True, help="A year."),
    click.Option(["--replicas"], type=click.IntRange(1), default=2, show_default=True),
    click.Option(["--days"], type=float, default=365.0, show_default=True, help="Days that are simulated."),
)
EXPERIMENT = Experiment("year", __doc__, measure, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
