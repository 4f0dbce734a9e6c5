"""What proposals will be worth: computed once, from their specs alone, in a process that can be stopped, and kept.

A proposer can have this computed. So it takes no thread of the local API and only so much of a processor: one at a
time, short specs first, each for no longer than `CPU_SECONDS`. It is for people: computed while somebody has to decide,
or once somebody has asked while the release is open, so that what a policy approves costs nothing. Who asks meanwhile
is told that it is not there yet.
"""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import asdict, dataclass, field
from threading import Event, Thread
from typing import Any

import structlog

from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.wire.answers import ForecastState
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.errors import CommingleError
from commingle.shared.forecast.forecast import forecast_of, outlook_of
from commingle.shared.release.checks import read_spec
from commingle.shared.runtime.pool import JobFaultError, ProcessWorker, Worker

CPU_SECONDS = 60
_PRELOAD = (forecast_of.__module__, "commingle.shared.mechanisms.rows.forecast")
_LOOK_SECONDS = 1.0
_OPEN = "spec <> x'' AND state IN ('proposed', 'approved', 'collecting')"
_ASKED = ""  # in place of a forecast that somebody has asked for
_UNDECIDED = "state = 'proposed' AND NOT EXISTS (SELECT 1 FROM signatures s WHERE s.release = proposals.release)"
_WANTED = f"{_OPEN} AND (f.body = '{_ASKED}' OR f.body IS NULL AND {_UNDECIDED})"
_KEPT = "proposals LEFT JOIN forecasts f ON f.release = proposals.release"
_log = structlog.get_logger()

_SAID: dict[ForecastState, str] = {
    "not_yet": "No forecast yet: it is computed once, while the release is open.",
    "too_costly": f"No forecast: it takes more than {CPU_SECONDS} seconds of a processor.",
    "failed": "No forecast: it could not be computed; the agent's log says more.",
}


@dataclass(frozen=True, slots=True)
class Outlook:
    """What we know of one proposal; no forecast if it is not computed, or nothing can be predicted."""

    state: ForecastState
    forecast: dict[str, Any] | None
    sentences: tuple[str, ...]

    @classmethod
    def without(cls, state: ForecastState) -> "Outlook":
        return cls(state, None, (_SAID[state],))


@dataclass(frozen=True, slots=True)
class Forecasts:
    """The forecasts in the agent's file; they follow from specs, so that nothing is lost with them.

    Attributes:
        asked_here: whether a missing one is computed when it is asked for: by a command in its own process.
    """

    store: AgentStore
    asked_here: bool = False

    def of(self, release: str, spec: ReleaseSpec) -> Outlook:
        """What we know by now. What is missing is asked for, if the release is open."""
        with self.store.reading() as db:
            row = db.execute("SELECT body FROM forecasts WHERE release = ?", (release,)).fetchone()
        if row is not None and row["body"] != _ASKED:
            kept = json.loads(row["body"])
            return Outlook(kept["state"], kept["forecast"], tuple(kept["sentences"]))
        if not self.asked_here:
            if row is None and self._is(release, _OPEN):
                with self.store.transaction() as db:
                    db.execute("INSERT OR IGNORE INTO forecasts VALUES (?, ?)", (release, _ASKED))
            return Outlook.without("not_yet")
        self.keep(release, found := compute(spec))
        return found

    def keep(self, release: str, found: Outlook) -> None:
        """Keep one, and drop those of proposals whose specs are not kept any more."""
        with self.store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO forecasts VALUES (?, ?)", (release, json.dumps(asdict(found))))
            db.execute("DELETE FROM forecasts WHERE release IN (SELECT release FROM proposals WHERE spec = x'')")

    def next(self) -> tuple[str, ReleaseSpec] | None:
        """The open proposal to compute next: of those that wait for a decision the one with the shortest spec."""
        order = "ORDER BY state <> 'proposed', length(spec), seen, proposals.release LIMIT 1"
        with self.store.reading() as db:
            query = f"SELECT proposals.release, spec FROM {_KEPT} WHERE {_WANTED} {order}"  # noqa: S608 - ours
            row = db.execute(query).fetchone()
        return None if row is None else (row["release"], read_spec(row["spec"]))

    def is_wanted(self, release: str) -> bool:
        """Whether somebody has still to decide, or has asked and the release is open."""
        return self._is(release, _WANTED)

    def _is(self, release: str, which: str) -> bool:
        with self.store.reading() as db:
            query = f"SELECT 1 FROM {_KEPT} WHERE proposals.release = ? AND {which}"  # noqa: S608 - ours
            return db.execute(query, (release,)).fetchone() is not None


def compute(spec: ReleaseSpec) -> Outlook:
    found = forecast_of(spec)
    return Outlook("computed", None if found is None else asdict(found), outlook_of(spec))


def start_worker() -> Worker:
    return ProcessWorker(preload=_PRELOAD, cpu_seconds=CPU_SECONDS)


@dataclass(slots=True)
class Forecaster:
    """Computes what is missing, until told to stop; every `look_seconds` it checks what that is."""

    forecasts: Forecasts
    start: Callable[[], Worker] = start_worker
    look_seconds: float = _LOOK_SECONDS
    stop: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def begin(self) -> None:
        self._thread = Thread(target=self.run, name="forecasts", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self.stop.set()
        if self._thread is not None:
            self._thread.join(self.look_seconds * 2)

    def run(self) -> None:
        """Until `stop` is set. It begins only what two looks find missing: a policy decides within moments."""
        before: str | None = None
        while not self.stop.wait(self.look_seconds):
            try:
                found = self.forecasts.next()
                if found is not None and found[0] == before:
                    self.run_once()
                before = None if found is None else found[0]
            except Exception as error:  # noqa: BLE001 - this thread must outlive any fault; a message could hold anything
                _log.error("forecasts fault", error=type(error).__name__)

    def run_once(self) -> None:
        worker: Worker | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="forecast") as threads:
            while not self.stop.is_set() and (wanted := self.forecasts.next()) is not None:
                worker = worker or self.start()
                release, spec = wanted
                if self._wait(release, worker, threads.submit(worker.run, compute, (spec,))):
                    worker = None
            if worker is not None:
                worker.stop()

    def _wait(self, release: str, worker: Worker, computing: "Future[Outlook]") -> bool:
        while True:
            try:
                found = computing.result(self.look_seconds)
            except NotYetError:
                if self.stop.is_set() or not self.forecasts.is_wanted(release):
                    worker.stop()
                    return True
            except (CommingleError, JobFaultError) as error:
                costly = isinstance(error, CommingleError)
                _log.warning("no forecast", release=release, error=type(error).__name__)
                self.forecasts.keep(release, Outlook.without("too_costly" if costly else "failed"))
                worker.stop()
                return True
            else:
                self.forecasts.keep(release, found)
                return False
