"""A party's agents, one for each of its consortia, over one ledger: each looks at every release that concerns it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from commingle.party_agent.data.datasets import Datasets
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.decision import Party
from commingle.party_agent.rounds.exchange import Exchanges
from commingle.party_agent.rounds.jobs import Jobs
from commingle.party_agent.rounds.proposals import Proposal, Proposals
from commingle.party_agent.rounds.release_files import ExchangeFiles, Outbox
from commingle.party_agent.rounds.witnesses import Witness, Witnesses
from commingle.party_agent.wire.coordinator_client import CoordinatorClient
from commingle.shared.dp.noise import Sampler
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.runtime.settings import Clock

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents(Party):
    """All of a party's agents."""

    consortia: tuple[Agent, ...]

    def of(self, release: str) -> Agent:
        """The agent that was shown a release. Raises NotFoundError, ConflictError."""
        coordinator = self.proposals.get(release).coordinator
        for agent in self.consortia:
            if coordinator == agent.coordinator.key.fingerprint:
                return agent
        raise ConflictError("the release is of a consortium that was left", remedy="Enrol with its coordinator again.")

    def approve(self, release: str, ruling: Ruling) -> Proposal:
        """See `Agent.approve`."""
        return self.of(release).approve(release, ruling)

    def reject(self, release: str, ruling: Ruling) -> Proposal:
        """See `Agent.reject`."""
        return self.of(release).reject(release, ruling=ruling)


def assemble(
    home: Home,
    store: AgentStore,
    clients: Mapping[str, CoordinatorClient],
    *,
    clock: Clock,
    draw: Sampler,
) -> Agents:
    """The agents of a home; `clients` are ways to its coordinators, by the name of the consortium."""
    identity = home.identity()
    ledger = Ledger(store, cap=home.settings().cap, counts_replacement=lambda: home.policy().replacement)
    memberships = home.consortia()
    pinned = {name: memberships[name].coordinator() for name in clients}
    proposals = Proposals(store, ledger)
    witness = {
        name: Witness(
            membership=memberships[name],
            identity=identity,
            ledger=ledger,
            proposals=proposals,
            client=client,
            coordinator=pinned[name].key.fingerprint,
        )
        for name, client in clients.items()
    }
    witnesses = Witnesses(identity, store, ledger, clock, tuple(witness.values()))
    shared: dict[str, Any] = {
        "home": home,
        "identity": identity,
        "store": store,
        "ledger": ledger,
        "witnesses": witnesses,
        "datasets": Datasets(store, ledger, home.snapshots, clock, home.settings().engine.open()),
        "proposals": proposals,
        "outbox": Outbox(home.outbox),
        "jobs": Jobs(),
        "clock": clock,
        "draw": draw,
    }
    files = ExchangeFiles(home.exchanges)
    consortia = (
        Agent(
            **shared,
            membership=one.membership,
            client=one.client,
            coordinator=pinned[name],
            exchanges=Exchanges(identity, one.client, store, ledger, witnesses, files),
            witness=one,
        )
        for name, one in witness.items()
    )
    return Agents(**shared, consortia=tuple(consortia))
