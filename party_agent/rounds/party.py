"""A party, whichever consortium it acts in: what is its own, what it is doing now, and what its people have lost."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from numpy.random import Generator, default_rng

from commingle.party_agent.home.datasets import Datasets
from commingle.party_agent.home.home import Home, Identity
from commingle.party_agent.home.policy import Finding
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.ledger.store import AgentStore, Requests
from commingle.party_agent.rounds.proposals import Proposals
from commingle.party_agent.rounds.witnesses import Witnesses
from commingle.party_agent.wire.answers import JobView, Stage
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import Approval
from commingle.shared.dp.accounting import Cost
from commingle.shared.dp.noise import Sampler
from commingle.shared.release.charge import EVERY_DATASET, Charge, adopted_kind
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.settings import Clock

_DAY = timedelta(days=1)
KEPT_AFTER_PUBLICATION = timedelta(days=7)
"""How long a block stays, should its coordinator be set back to before it came: sent again, it costs nobody budget."""


@dataclass(slots=True)
class Jobs:
    """What the agent is doing, by release, for people who wait. Values are replaced whole, so readers need no lock."""

    _jobs: dict[str, JobView] = field(default_factory=dict)

    def begin(self, release: str, stage: Stage, *, total: int) -> None:
        self._jobs[release] = _job(release, stage, total=total)

    def progress(self, release: str) -> Callable[[int], None]:
        def advance(done: int) -> None:
            self._jobs[release] = self._jobs[release].model_copy(update={"done": done})

        return advance

    def end(self, release: str, stage: Stage) -> None:
        known = self._jobs.get(release)
        total = (known and known.total) or 0
        self._jobs[release] = _job(release, stage, done=total, total=total)

    def fail(self, release: str, error: str) -> None:
        known = self._jobs.get(release, _job(release, Stage.CHECKING))
        self._jobs[release] = known.model_copy(update={"error": error})

    def get(self, release: str) -> JobView | None:
        return self._jobs.get(release)

    def all(self) -> list[JobView]:
        return list(self._jobs.values())


def _job(release: str, stage: Stage, *, done: int = 0, total: int = 0) -> JobView:
    return JobView(release=release, stage=stage, done=done, total=total, error=None)


@dataclass(frozen=True, slots=True)
class Outbox:
    """Privatised blocks in one folder per release, until some days beyond publication."""

    root: Path

    def clear(self, release: str) -> None:
        shutil.rmtree(self.root / release, ignore_errors=True)

    def put(self, release: str, body: bytes) -> str:
        """Store a block durably; its SHA-256, hex. A full disk raises OSError and leaves nothing behind."""
        digest = sha256(body).hexdigest()
        write_durably(self.root / release / f"{digest}.arrow", body)
        return digest

    def get(self, release: str, digest: str) -> bytes | None:
        """The stored bytes, or None if they are lost or are no longer what was recorded.

        A disk that cannot be read just now raises OSError: the block is not lost yet.
        """
        try:
            body = (self.root / release / f"{digest}.arrow").read_bytes()
        except FileNotFoundError:
            return None
        return body if sha256(body).hexdigest() == digest else None

    def past_keeping(self, now: datetime) -> frozenset[str]:
        """Releases whose blocks are older than we keep them after publication."""
        before = (now - KEPT_AFTER_PUBLICATION).timestamp()
        folders = self.root.iterdir() if self.root.is_dir() else ()
        return frozenset(folder.name for folder in folders if folder.is_dir() and folder.stat().st_mtime < before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    home: Home
    identity: Identity
    store: AgentStore
    ledger: Ledger
    witnesses: Witnesses
    datasets: Datasets
    proposals: Proposals
    outbox: Outbox
    jobs: Jobs
    clock: Clock
    draw: Sampler
    generator: Callable[[], Generator] = default_rng  # seeded by the operating system

    def lost_by(self, dataset: str, *, without: str | None = None) -> Mapping[str, Cost]:
        """What people of a data set have lost or set aside, but for one release: by name, of it and each related one.

        Each counts what all that are related to it have lost: to releases, to regressions, and to what nobody can
        explain.
        """
        return {
            name: self.ledger.lost_by({*self.datasets.related(name), EVERY_DATASET}, without=without)
            for name in self.datasets.related(dataset)
        }

    def beyond_cap(self, cost: Cost) -> tuple[Finding, ...]:
        short = self.ledger.shortfall(cost)
        return () if short is None else (Finding("epsilon_cap", short.reason, "budget"),)

    def spent_on_today(self) -> int:
        """Releases approved, whatever became of them, and regressions paid for within the last 24 hours.

        A date more than a day ahead was given while the clock was wrong: it would count until that day.
        """
        yesterday, tomorrow = self.clock() - _DAY, self.clock() + _DAY
        # none is approved after it expired
        approved = sum(
            yesterday < self._approved_at(release, charge) < tomorrow
            for release, charge in self.ledger.charges().items()
            if charge.terms.kind == "release" and charge.terms.expires > yesterday
        )
        return approved + Requests(self.store).between(yesterday, tomorrow)

    def _approved_at(self, release: str, charge: Charge) -> datetime:
        for kind in ("approval", adopted_kind("approval")):
            if (signed := self.ledger.signature(release, kind)) is not None:
                return decode(Approval, signed.payload_bytes).created
        return min(self.clock(), charge.terms.expires)  # nobody can show it: as late as it can have been
