"""The agent's loop: look, wait until something happens, look again; bounded exponential back-off on failures.

Looking, it also goes on with regressions that were paid for and interrupted, and drops pushed rows that wait for more.
"""

import random
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from errno import errorcode
from functools import partial
from threading import Event, Thread

import structlog

from commingle.party_agent.edge.uploads import drop_abandoned
from commingle.party_agent.errors import AgentError, LedgerBusyError, StaleLedgerError, WritingError
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.forecasts import Forecaster, Forecasts
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import RemoteError, RemoteProblemError, UnreachableError
from commingle.shared.wire import ReleaseSteps

_log = structlog.get_logger()
_MOST_SILENT = 2  # streams one after the other that brought nothing, though the coordinator was there just before


@dataclass(slots=True)
class Listener:
    """Listens to one coordinator for one member. Methods raise RemoteError if that cannot be asked.

    A stream that stays open tells of steps. Otherwise each is asked for, as streams do not come through a proxy that
    keeps an answer until its end.
    """

    client: CoordinatorClient
    party: str
    _last: int | None = None
    _stream: Iterator[ReleaseSteps] | None = None
    _silent: int = 0

    def begin(self) -> None:
        """Note what has happened so far, before we look at everything: `next` tells what follows."""
        if self._last is None:
            self._last = self.client.newest_event()

    def lose(self) -> None:
        """Begin anew: the coordinator was away, and its database may be another one when it is back."""
        self._last = self._stream = None

    def next(self, seconds: int, *, alone: bool) -> ReleaseSteps:
        """The next steps, or none after some seconds.

        `alone`: exactly that many seconds, as an open stream tells of none in its own time.
        """
        streamed = not alone and self._silent < _MOST_SILENT
        began, self._stream = self._stream if streamed else None, None
        told = began or self.client.steps(self.party, after=self._last or 0, seconds=seconds, streamed=streamed)
        try:
            steps = next(told)
        except UnreachableError:
            if streamed and began is None:
                self._be_silent()
            raise
        self._last = steps.last
        if streamed:
            self._stream, self._silent = told, 0
        return steps

    def _be_silent(self) -> None:
        self._silent += 1
        if self._silent == _MOST_SILENT:
            _log.warning("streams do not come through", coordinator=str(self.client.http.base_url))


FIRST_DELAY_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 60.0
_LONGEST_AWAY_SECONDS = 8.0  # with the jitter 10: how long a coordinator that is back may wait for its agents
_WAIT_SECONDS = 10
WHOLE_SECONDS = 60.0  # seldom: news of steps says all, and a whole look repeats what was sent meanwhile
_NO_STEPS = ReleaseSteps(items=(), last=0)


@dataclass(slots=True)
class Backoff:
    """Delays 0.5, 1, 2, ... up to the longest, with up to a quarter more so that agents do not march in step.

    Attributes:
        cause: what failed last.
    """

    longest: float = _LONGEST_DELAY_SECONDS
    failures: int = 0
    until: float = 0.0
    cause: CommingleError | None = None

    def fail(self, now: float) -> float:
        """Count one more failure; returns the delay until the next try."""
        delay = min(self.longest, FIRST_DELAY_SECONDS * 2.0**self.failures)
        delay *= 1 + random.random() / 4  # noqa: S311 - spreads load, guards nothing
        self.failures = min(self.failures + 1, 16)
        self.until = now + delay
        return delay


@dataclass(slots=True)
class Loop:
    """Runs an agent until told to stop, or until it must not go on.

    Attributes:
        halted: why it stopped by itself.
        trouble: the coordinator's last failure, None while it answers.
        last_contact: when a look last went well, seconds since 1970; 0 before the first.
        releases: the delays of those that failed and are retried.
    """

    agent: Agent
    stop: Event = field(default_factory=Event)
    halted: CommingleError | None = None
    trouble: CommingleError | None = None
    idle: bool = False
    last_contact: float = 0.0
    coordinator: Backoff = field(default_factory=lambda: Backoff(longest=_LONGEST_AWAY_SECONDS))
    releases: dict[str, Backoff] = field(default_factory=dict)
    _steps: ReleaseSteps = _NO_STEPS
    _whole_at: float = 0.0
    _listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        self._listener = Listener(self.agent.client, self.agent.identity.name)

    @property
    def unwritten(self) -> WritingError | None:
        """Why a release that is still tried cannot be recorded. A release that is over is not tried when it is due."""
        tried = time.monotonic() - WHOLE_SECONDS
        causes = (backoff.cause for backoff in tuple(self.releases.values()) if backoff.until > tried)
        return next((cause for cause in causes if isinstance(cause, WritingError)), None)

    def run(self, *, on_halt: Callable[[], None]) -> None:
        """Until `stop` is set. `on_halt` is called if the agent must not go on."""
        while not self.stop.is_set():
            try:
                self.turn()
            except StaleLedgerError as error:
                self.halted = error
                _log.error("halted", error=error.code)
                on_halt()
                return
            except RemoteError as error:
                self.agent.witnesses.lose(self.agent.coordinator.key.fingerprint)
                self.pause(error, "coordinator unavailable")
            except Exception as error:  # noqa: BLE001 - a loop that died unnoticed would be worse; the message stays out
                self.pause(explained(error), "interrupted")

    def pause(self, error: CommingleError, what: str) -> None:
        known = self.trouble is not None and facts(self.trouble) == facts(error)
        self.trouble, self._whole_at = error, 0.0
        self._listener.lose()
        delay = self.coordinator.fail(time.monotonic())
        if not known:  # while it lasts it is what `status`, /readyz and the page of members say
            _log.warning(what, retry_seconds=round(delay, 1), **facts(error))
        self.stop.wait(delay)

    def turn(self) -> None:
        """One look and one wait: at all releases once a minute, in between at those that took a step."""
        self._finish_regressions()
        whole = time.monotonic() >= self._whole_at
        if whole:
            drop_abandoned(self.agent.home, self.agent.clock())
        self._listener.begin()
        self.agent.step(self.attend, None if whole else self._steps)
        if self._return():
            return
        now = time.monotonic()
        if whole:
            self._whole_at = now + WHOLE_SECONDS
        # what is due and was not tried just now is not listed any more: nothing to hurry for
        soonest = min((b.until for b in self.releases.values() if b.until > now), default=float("inf"))
        self._whole_at = min(self._whole_at, soonest)
        self.idle = True
        try:
            self._wait(min(max(self._whole_at - now, 0.0), _WAIT_SECONDS))
        finally:
            self.idle = False

    def _wait(self, seconds: float) -> None:
        self._steps = _NO_STEPS
        if seconds < 1:
            self.stop.wait(seconds)
            return
        self._steps = self._listener.next(int(seconds), alone=bool(self.releases))

    def _return(self) -> bool:
        """Note that it answers. Whether to try at once what was postponed while it did not."""
        back, self.trouble = self.trouble is not None, None
        self.coordinator.failures = 0
        self.last_contact = self.agent.clock().timestamp()
        if not back:
            return False
        _log.info("reachable again", coordinator=self.agent.coordinator.url)
        postponed = bool(self.releases)
        self.releases.clear()
        return postponed

    def _finish_regressions(self) -> None:
        # before anything that needs the coordinator, who may be slow
        interrupted = self.agent.ledger.interrupted_regressions()
        if interrupted:
            from commingle.party_agent.regression.service import Regressions  # noqa: PLC0415 - loads scipy

            for regression in interrupted:
                self.attend(regression, partial(Regressions(self.agent).finish, regression))
        stored = self.agent.ledger.signed_place("regression")
        if stored and not self.agent.witnesses.covers(stored):  # kept, and not shown before
            self.attend("regression", partial(self.agent.witnesses.accept, stored))

    def attend(self, release: str, work: Callable[[], None]) -> None:
        """Work on a release unless its delay is not over; a failure postpones it. Raises StaleLedgerError."""
        backoff = self.releases.get(release, Backoff())
        if time.monotonic() < backoff.until:
            return
        with structlog.contextvars.bound_contextvars(request_id=secrets.token_hex(8)):
            try:
                work()
                self.releases.pop(release, None)
            except StaleLedgerError:
                raise
            except Exception as error:  # noqa: BLE001 - one release must not end the work on all others
                told = error if isinstance(error, CommingleError) else explained(error)
                if isinstance(error, UnreachableError):
                    self.agent.witnesses.lose(self.agent.coordinator.key.fingerprint)
                delay, backoff.cause = backoff.fail(time.monotonic()), told
                self.releases[release] = backoff
                self.agent.jobs.fail(release, told.diagnostics())
                _log.warning("postponed", release=release, retry_seconds=round(delay, 1), **facts(told))


class Loops:
    """The loops of a member's agents, each in a thread; they wait for each other where they ask the witnesses."""

    def __init__(self, agents: Agents) -> None:
        self.all = tuple(Loop(agent) for agent in agents.consortia)
        self._threads: list[Thread] = []
        self._forecaster = Forecaster(Forecasts(agents.store))

    @property
    def halted(self) -> CommingleError | None:
        return next((loop.halted for loop in self.all if loop.halted is not None), None)

    @property
    def problem(self) -> CommingleError | None:
        """Why it halted, why a release cannot be recorded, or a coordinator's last failure; None without either."""
        kept_from = (error for loop in self.all for error in (loop.unwritten, loop.trouble) if error is not None)
        return self.halted or next(kept_from, None)

    def start(self, *, on_halt: Callable[[], None]) -> None:
        self._forecaster.begin()
        for loop in self.all:
            thread = Thread(target=loop.run, kwargs={"on_halt": on_halt}, daemon=True)
            self._threads.append(thread)
            thread.start()

    def finish(self, *, seconds: float) -> None:
        self._forecaster.finish()
        until = time.monotonic() + seconds
        for loop in self.all:
            loop.stop.set()
        for loop, thread in zip(self.all, self._threads, strict=False):
            while thread.is_alive() and not loop.idle and time.monotonic() < until:  # not for a mere wait for events
                thread.join(0.05)


def facts(error: CommingleError) -> dict[str, str | None]:
    """An error as it is logged: its code and, if a service refused, the code it gave."""
    return {
        "error": error.code,
        **({"problem": error.problem} if isinstance(error, RemoteProblemError) else {}),
        **({"errno": error.errno} if isinstance(error, WritingError) else {}),
    }


_PRIMARY = 0xFF  # of SQLite's codes, whose other bits say more
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's code; SQLITE_ERROR for an error without one, which comes from the SQL itself."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY


def explained(error: Exception) -> CommingleError:
    """What the operating system or SQLite refused, which is retried; or a bug, whose message could quote a row."""
    if isinstance(error, OSError):
        return WritingError(f"cannot write ({error.strerror})", errno=errorcode.get(error.errno or 0))
    if isinstance(error, sqlite3.Error):
        if primary_code(error) in _HELD:
            return LedgerBusyError(
                "another program holds the ledger", remedy="It is tried again; end what holds HOME/ledger.sqlite."
            )
        name = getattr(error, "sqlite_errorname", None)
        why = type(error).__name__ if name is None else error  # without a name its text may quote what stands there
        return WritingError(f"the ledger cannot be written ({why})", errno=name)
    _log.error("unexpected fault", fault=type(error).__name__)
    return AgentError(
        f"an unexpected fault ({type(error).__name__})", remedy="It is retried; report it if it persists."
    )
