"""Releases side by side, from their proposals to verified files."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from commingle.services.client.release import Release
from commingle.services.simulation.consortium import Context
from commingle.services.simulation.releases import Planned
from commingle.services.testing.errors import RoundError
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.rounds import State
from commingle.shared.runtime.remote import call, connect, json_of

_SILENCE_SECONDS = 900.0
_DECISION_SECONDS = 120.0
_WAIT_SECONDS = 2
_SAID = {
    "proposal": "proposed",
    "approval": "approved",
    "columns": "columns encrypted",
    "reply": "products answered",
    "block": "noisy block sent",
}


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A published release.

    Attributes:
        release: fetched and verified.
        seconds: until all had approved, until all blocks were in, until it was published.
    """

    planned: Planned
    release: Release
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """A proposed release and what has happened to it so far, with the time it was heard of."""

    planned: Planned
    forecast: dict[str, Any] | None
    events: list[dict[str, Any]]

    def words(self, kind: str, party: str | None) -> str:
        """What happened just now; with the proposal, what the release is forecast to be worth and to take."""
        said = _SAID.get(kind, kind)
        if kind == "proposal" and self.forecast is not None:
            said += f", forecast to explain {self.forecast['r_squared']:.0%} of {self.forecast['target']}"
            if (exchange := self.forecast["exchange"]) is not None:
                said += f"; its exchange takes processors some {exchange['seconds']:.0f} s"
        return f"{self.planned.folder}: {said}{'' if party is None else f' by {party}'}"

    @property
    def over(self) -> bool:
        return bool(self.events) and State(self.events[-1]["state"]).final

    @property
    def steps(self) -> int:
        """How many events it takes: the proposal, approvals, blocks, the publication."""
        parties = len(self.planned.study.parties)
        exchanged = 2 * parties if mechanism_of(self.planned.spec).interactive else 0  # columns and replies
        return 2 * parties + 2 + exchanged

    def awaited(self, kind: str) -> set[str]:
        """Parties that have not sent this yet."""
        sent = {event["party"] for event in self.events if event["kind"] == kind}
        return set() if self.over else {party.name for party in self.planned.study.parties} - sent


def publish(planned: Sequence[Planned], studies: Sequence[Path], context: Context) -> list[Outcome]:
    """Propose studies, wait until all are published, fetch and verify them.

    Raises:
        RoundError: one ends otherwise, or nothing happens for long.
        ProcessError: a process dies meanwhile.
        VerificationError: what the coordinator serves does not hold.
    """
    consortium, coordinator = context.consortium, context.consortium.coordinator
    commands = [coordinator.proposing(study) for study in studies]
    [proposed] = consortium.backend.run({"propose": commands}).values()
    opened = {str(a["id"]): _Open(p, a["forecast"], []) for a, p in zip(proposed, planned, strict=True)}
    with connect(coordinator.url) as http:
        _follow(http, opened, context)
        for identifier, release in opened.items():
            if release.events[-1]["state"] != State.PUBLISHED:
                raise _ended_badly(http, identifier, release.planned)
    with consortium.client() as client:
        return [Outcome(r.planned, client.fetch(identifier), _durations(r.events)) for identifier, r in opened.items()]


def _follow(http: httpx.Client, opened: dict[str, _Open], context: Context) -> None:
    """Listen until every release is over."""
    last, happened, heard = 0, 0, time.monotonic()
    total = sum(release.steps for release in opened.values())
    while not all(release.over for release in opened.values()):
        page: Any = json_of(call(http, "GET", "/v1/events", params={"after": last, "wait_seconds": _WAIT_SECONDS}))
        for event in page["items"]:
            if event["release"] in opened:
                release = opened[event["release"]]
                happened, heard = happened + 1, time.monotonic()
                release.events.append({**event, "heard": heard})
                context.stages.step(release.words(event["kind"], event["party"]), happened, total)
        last = page["last"]
        context.consortium.backend.check()
        _refuse_silence(opened.values(), time.monotonic() - heard, context)


def _refuse_silence(opened: Collection[_Open], seconds: float, context: Context) -> None:
    """Agents decide within moments, but may take long over a large block, and over one release at a time."""
    undecided = set.intersection(*(release.awaited("approval") for release in opened))
    awaited = undecided or set().union(*(release.awaited("block") for release in opened))
    if seconds > (_DECISION_SECONDS if undecided else _SILENCE_SECONDS):
        folders = ", ".join(release.planned.folder for release in opened if not release.over)
        raise RoundError(
            f"{folders}: nothing heard from {', '.join(sorted(awaited))} for {seconds:.0f} s"
            f"{context.consortium.backend.last_words(awaited)}",
            remedy="If the table is very large, try a smaller one.",
        )


def _ended_badly(http: httpx.Client, release: str, planned: Planned) -> RoundError:
    view: Any = json_of(call(http, "GET", f"/v1/releases/{release}"))
    return RoundError(
        f"{planned.folder} was {view['state']}: {view['reason']}", remedy="Keep the logs with --keep and read them."
    )


def _durations(events: list[dict[str, Any]]) -> dict[str, float]:
    def latest(kind: str) -> float:
        return max(float(event["heard"]) for event in events if event["kind"] == kind)

    moments = [latest(kind) for kind in ("proposal", "approval", "block", "published")]
    spans = [after - before for before, after in pairwise(moments)]
    return dict(zip(("approve", "privatise", "publish"), spans, strict=True))
