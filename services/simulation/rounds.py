"""One release, from its proposal to verified files."""

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from commingle.services.client.release import Release
from commingle.services.client.remote import ReleaseClient
from commingle.services.simulation.consortium import Consortium, Workshop
from commingle.services.simulation.errors import RoundError
from commingle.services.simulation.releases import Planned
from commingle.shared.release.rounds import State
from commingle.shared.runtime.remote import call, json_of

_SILENCE_SECONDS = 900.0
_DECISION_SECONDS = 120.0
_WAIT_SECONDS = 2


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


def publish(planned: Planned, study: Path, consortium: Consortium, shop: Workshop) -> Outcome:
    """Propose a study, wait until it is published, fetch and verify it.

    Raises:
        RoundError: it ends otherwise, or nothing happens for long.
        ProcessError: a process dies meanwhile.
        VerificationError: what the coordinator serves does not hold.
    """
    transport = httpx.HTTPTransport()  # a transport of our own ignores proxies: everything is on this machine
    with httpx.Client(base_url=consortium.coordinator, transport=transport, timeout=30) as http:
        last = _events(http, after=0, wait_seconds=0)["last"]
        where = ("--home", shop.folders.coordinator, "--coordinator", consortium.coordinator)
        proposed = shop.command(f"propose-{planned.folder}", "coordinator", "propose", study, *where)
        events = _until_final(http, str(proposed["id"]), last, planned, shop)
    with ReleaseClient(
        consortium.coordinator, trusted_coordinator=consortium.coordinator_key, transport=httpx.HTTPTransport()
    ) as client:
        return Outcome(planned, client.fetch(str(proposed["id"])), _durations(events))


def _events(http: httpx.Client, *, after: int, wait_seconds: int) -> Any:  # noqa: ANN401 - JSON
    return json_of(call(http, "GET", "/v1/events", params={"after": after, "wait_seconds": wait_seconds}))


def _until_final(http: httpx.Client, release: str, last: int, planned: Planned, shop: Workshop) -> list[dict[str, Any]]:
    """The events of a release up to its publication, with the time they were heard of."""
    parties = len(planned.study.parties)
    total = 2 * parties + 2  # the proposal, approvals, blocks, the publication
    if planned.spec.interactive:
        total += 2 * parties + 1  # the deal, masks, countersignatures
    seen: list[dict[str, Any]] = []
    heard = time.monotonic()
    while not seen or not State(seen[-1]["state"]).final:
        page = _events(http, after=last, wait_seconds=_WAIT_SECONDS)
        for event in page["items"]:
            if event["release"] == release and event["seq"] > last:
                heard = time.monotonic()
                seen.append({**event, "heard": heard})
                shop.narrator.step(f"{event['kind']} {event['party'] or ''}".strip(), len(seen), total)
        last = max(last, page["last"])
        shop.processes.check()
        _refuse_silence(seen, time.monotonic() - heard, planned, shop)
    if seen[-1]["state"] != State.PUBLISHED:
        raise _ended_badly(http, release, planned)
    return seen


def _refuse_silence(seen: list[dict[str, Any]], seconds: float, planned: Planned, shop: Workshop) -> None:
    """Agents decide within moments, but may take long over a large block."""
    parties = {party.name for party in planned.study.parties}
    undecided = parties - {event["party"] for event in seen if event["kind"] == "approval"}
    awaited = undecided or parties - {event["party"] for event in seen if event["kind"] == "block"}
    if seconds > (_DECISION_SECONDS if undecided else _SILENCE_SECONDS):
        raise RoundError(
            f"{planned.folder}: nothing heard from {', '.join(sorted(awaited))} for {seconds:.0f} s"
            f"{shop.processes.last_words(awaited)}",
            remedy="If the table is very large, try a smaller one.",
        )


def _ended_badly(http: httpx.Client, release: str, planned: Planned) -> RoundError:
    view: Any = json_of(call(http, "GET", f"/v1/releases/{release}"))
    return RoundError(
        f"{planned.folder} was {view['state']}: {view['reason']}", remedy="Keep the logs with --keep and read them."
    )


def _durations(seen: list[dict[str, Any]]) -> dict[str, float]:
    def latest(kind: str) -> float:
        return max(float(event["heard"]) for event in seen if event["kind"] == kind)

    moments = [latest(kind) for kind in ("proposal", "approval", "block", "published")]
    spans = [after - before for before, after in pairwise(moments)]
    return dict(zip(("approve", "privatise", "publish"), spans, strict=True))
