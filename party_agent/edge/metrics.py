"""What an agent tells Prometheus: how much budget is left, whether it is in touch, and what waits. No row is in it."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.edge.views import budget_view, ledger_unit
from commingle.party_agent.rounds.agents import Agents
from commingle.shared import __version__
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.release.charge import ChargeState


def metrics_text(agents: Agents, loops: Loops | None) -> bytes:
    """The exposition format, read from the ledger at this moment.

    Args:
        agents: the party's.
        loops: None where no agent runs: what only a running one knows is left out.
    """
    registry = CollectorRegistry()
    registry.register(_Readings(agents, loops))
    return generate_latest(registry)


class _Readings(Collector):
    def __init__(self, agents: Agents, loops: Loops | None) -> None:
        self._agents, self._loops = agents, loops

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield _one("info", "Which agent this is.", 1, party=self._agents.identity.name, version=__version__)
        yield from self._budget()
        yield from self._proposals()
        yield from self._contact()

    def _budget(self) -> Iterator[Metric]:
        unit = ledger_unit(self._agents.ledger)
        for name, budget in budget_view(self._agents.ledger).items():
            said = Adjacency.REPLACE_ONE if name == "replacement" else unit
            for measure, value in budget:
                yield _one(f"{name}_{measure}", f"Budget of the population, {name}; {said}.", value)
        states = Counter(charge.state for charge in self._agents.ledger.charges())
        charges = GaugeMetricFamily("commingle_agent_charges", "Charges in the ledger, by state.", labels=["state"])
        for state in ChargeState:
            charges.add_metric([state], states[state])
        yield charges

    def _proposals(self) -> Iterator[Metric]:
        waiting = list(self._agents.proposals.waiting().values())
        now = self._agents.clock()
        oldest = max(((now - seen).total_seconds() for seen in waiting), default=0.0)
        yield _one("waiting_proposals", "Proposals that nobody has decided.", len(waiting))
        yield _one("oldest_waiting_proposal_seconds", "How long the oldest of them has waited; 0 for none.", oldest)

    def _contact(self) -> Iterator[Metric]:
        if self._loops is None:
            return
        contact = GaugeMetricFamily(
            "commingle_agent_last_contact_timestamp_seconds", "When a look last went well.", labels=["consortium"]
        )
        postponed = GaugeMetricFamily(
            "commingle_agent_postponed_releases", "Releases whose work failed and is retried.", labels=["consortium"]
        )
        for loop in self._loops.all:
            contact.add_metric([loop.agent.membership.name], loop.last_contact)
            postponed.add_metric([loop.agent.membership.name], loop.postponed)
        yield contact
        yield postponed


def _one(name: str, said: str, value: float, **labels: str) -> Metric:
    family = GaugeMetricFamily(f"commingle_agent_{name}", said, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family
