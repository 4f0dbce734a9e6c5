"""A party, whichever consortium it acts in: what is its own, and what its people have lost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from numpy.random import Generator, default_rng

from commingle.party_agent.data.datasets import Datasets
from commingle.party_agent.home.home import Home, Identity
from commingle.party_agent.home.policy import Finding
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.ledger.store import AgentStore, Requests
from commingle.party_agent.rounds.jobs import Jobs
from commingle.party_agent.rounds.proposals import Proposals
from commingle.party_agent.rounds.release_files import Outbox
from commingle.party_agent.rounds.witnesses import Witnesses
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import Approval
from commingle.shared.dp.accounting import Cost
from commingle.shared.dp.noise import Sampler
from commingle.shared.release.charge import EVERY_DATASET, Charge, adopted_kind
from commingle.shared.runtime.settings import Clock

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A party, whichever consortium it acts in."""

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
        """What people of a data set have lost or set aside, but for one release: of it and of each related one by name.

        Each with what all that are related to it have lost, to releases, regressions and what nobody can explain.
        """
        return {
            name: self.ledger.lost_by({*self.datasets.related(name), EVERY_DATASET}, without=without)
            for name in self.datasets.related(dataset)
        }

    def beyond_cap(self, cost: Cost) -> tuple[Finding, ...]:
        short = self.ledger.shortfall(cost)
        return () if short is None else (Finding("epsilon_cap", short.reason, "budget"),)

    def spent_on_today(self) -> int:
        """Releases approved, whatever became of them, and regressions paid for within the last 24 hours."""
        yesterday = self.clock() - _DAY
        # none is approved after it expired
        approved = sum(
            self._approved_at(release, charge) > yesterday
            for release, charge in self.ledger.charges().items()
            if charge.terms.kind == "release" and charge.terms.expires > yesterday
        )
        return approved + Requests(self.store).since(yesterday)

    def _approved_at(self, release: str, charge: Charge) -> datetime:
        for kind in ("approval", adopted_kind("approval")):
            if (signed := self.ledger.signature(release, kind)) is not None:
                return decode(Approval, signed.payload_bytes).created
        return min(self.clock(), charge.terms.expires)  # nobody can show it: as late as it can have been
