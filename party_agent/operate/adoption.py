"""After a restore or a fork: charging what the ledger lacks and its witnesses can show, so that the party may go on.

A lost branch of the ledger has left two traces outside: what it signed about releases, which names their cost, and the
totals in its witnessed heads. Releases are charged by their specs; what the totals say beyond that was spent on what
nobody can name any more, such as regressions, and is charged without a name. The estimate is conservative: never less
than the branch had debited when it last made anything public (docs/proofs/noise-and-accounting.md, 6.7).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter

from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.shared.documents.dsse import Envelope, Fingerprint, Verified
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import LedgerHead, SignedDocument, Spent, open_head
from commingle.shared.dp.accounting import FREE, Cost, Loss, Rho
from commingle.shared.errors import DocumentError, ProtocolError
from commingle.shared.release.charge import EVERY_DATASET, ChargeState, ChargeTerms
from commingle.shared.release.checks import read_spec
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime.errors import RemoteError
from commingle.shared.wire import ReleaseDetails

_ONLY_A_REJECTION = frozenset({"rejection"})


@dataclass(frozen=True, slots=True)
class LostRelease:
    """A release about which a lost branch has signed something.

    Attributes:
        spec: None where it came to nothing so long ago that its coordinator has dropped it; what it cost is in the
            totals then.
        charge: what it is charged with; None where all it signed is a rejection, or its spec is not to be had.
    """

    agent: Agent
    release: str
    view: ReleaseDetails
    spec: Verified[ReleaseSpec] | None
    signed: tuple[tuple[str, Envelope], ...]
    charge: tuple[Cost, ChargeTerms] | None


@dataclass(frozen=True, slots=True)
class LostBranch:
    """What the witnesses can show beyond this ledger.

    Attributes:
        heads: its heads, as witnessed, the furthest last; empty where only signatures are unknown.
        height: of the furthest.
        unexplained: what its totals say beyond its releases and beyond the last head that both branches have.
    """

    releases: tuple[LostRelease, ...]
    heads: tuple[str, ...]
    height: int
    unexplained: Cost

    def __bool__(self) -> bool:
        return bool(self.releases or self.heads)


def find_lost_branch(agents: Agents) -> LostBranch:
    """Ask every coordinator."""
    shown = [_shown_to(agent) for agent in agents.consortia]
    releases = tuple(lost for found, _ in shown for lost in found)
    histories = [history for _, history in shown]
    explained = _newly_spent(agents, releases)
    beyond = [_beyond(lost[-1], common) for lost, common in histories if lost]
    heads = {head.head: head.height for lost, _ in histories for head in lost}
    return LostBranch(
        releases,
        tuple(sorted(heads, key=lambda head: heads[head])),
        max(heads.values(), default=0),
        Cost(
            _unexplained((own for own, _ in beyond), explained.loss),
            _unexplained((replaced for _, replaced in beyond), explained.replaced),
        ),
    )


def _unexplained(beyond: Iterable[Spent], explained: Loss) -> Loss:
    """What was spent beyond the common head that releases do not explain, of the dearest history."""
    spent = tuple(beyond)
    rho = max((units for units, _ in spent), default=0) - explained.rho.units
    delta = max((delta for _, delta in spent), default=Fraction(0)) - Fraction(explained.delta)
    return Loss(Rho(max(rho, 0)), nextafter(float(delta), inf) if delta > 0 else 0.0, gaussian=False)


def adopt_branch(agents: Agents, branch: LostBranch) -> None:
    """Charge it, name its heads, and have the result witnessed. An interrupted call is repeated.

    Raises RemoteError: everything is adopted, and it is not witnessed yet: the agent does so when it starts.
    """
    for lost in branch.releases:
        seen, coordinator = agents.clock(), lost.agent.coordinator.key.fingerprint
        if lost.spec is None:
            agents.proposals.end(lost.release, state=lost.view.state, seen=seen, coordinator=coordinator)
        else:
            agents.proposals.see(lost.spec, lost.view, seen=seen, coordinator=coordinator)
    # what is adopted already is not charged again, though a coordinator has shown more of it since
    charged = {lost.release: agents.ledger.charge(lost.release) for lost in branch.releases}
    adopted = {release for release, charge in charged.items() if charge and charge.state is ChargeState.ADOPTED}
    lacking = (lost for lost in branch.releases if lost.release not in adopted)
    charges = [(lost.release, *lost.charge) for lost in lacking if lost.charge is not None]
    if any(loss.rho.units or loss.delta for _, loss in branch.unexplained.counted(replacement=True)):
        nobody_knows = ChargeTerms(
            dataset=EVERY_DATASET, study="", kind="unexplained", expires=agents.clock(), coordinator=""
        )
        charges.append((branch.heads[-1], branch.unexplained, nobody_knows))
    signed = [(lost.release, kind, envelope) for lost in branch.releases for kind, envelope in lost.signed]
    agents.ledger.adopt(charges, signed, branch.heads, height=branch.height)
    agents.witnesses.ask()
    agents.witnesses.accept(agents.ledger.length)


def _shown_to(agent: Agent) -> tuple[tuple[LostRelease, ...], tuple[list[LedgerHead], LedgerHead | None]]:
    """What its coordinator has; what one hides could be the dearest, so every one must answer."""
    try:
        return tuple(_lost_releases(agent)), _lost_heads(agent)
    except (ProtocolError, RemoteError) as error:
        error.remedy += (
            " Until then nothing is adopted. Should it stay so, first leave that consortium: "
            f"commingle party leave --unannounced --consortium {agent.membership.name}"
        )
        raise


def _lost_releases(agent: Agent) -> Iterable[LostRelease]:
    for listed in agent.client.releases(agent.identity.name, over_too=True):
        view = agent.client.release(listed.id)
        if view.id != listed.id:
            raise DocumentError("the coordinator shows another release under this id", remedy="Ask its operator why.")
        signed = tuple(agent.witnesses.unknown_signatures(view, listed.id, others_too=True))
        if signed:
            yield _lost_release(agent, view, signed)


def _lost_release(agent: Agent, view: ReleaseDetails, signed: tuple[tuple[str, Envelope], ...]) -> LostRelease:
    release = view.id
    if view.spec is None:
        return LostRelease(agent, release, view, None, signed, None)
    # the branch has verified the proposer's signature before it signed: here the digest that it signed is enough
    payload = view.spec.payload_bytes
    signer = Fingerprint(view.spec.signatures[0].keyid)
    spec = Verified(read_spec(payload), payload, signer, view.spec)
    if spec.digest != release:  # it could be a cheaper one
        raise DocumentError("the coordinator shows another spec under this id", remedy="Ask its operator why.")
    charged = not {kind for kind, _ in signed} <= _ONLY_A_REJECTION
    name, coordinator = agent.identity.name, agent.coordinator.key.fingerprint
    terms = ChargeTerms.of(spec.document, name, coordinator=coordinator)
    # how often it has drawn for it is not known here
    charge = (plan_block(spec.document, spec.document.party(name)).cost.approximate(), terms) if charged else None
    return LostRelease(agent, release, view, spec, signed, charge)


def _newly_spent(agents: Agents, releases: Iterable[LostRelease]) -> Cost:
    """What the releases cost that this ledger has not debited: only that can be part of what was spent beyond it."""
    charged = ((agents.ledger.charge(lost.release), lost.charge[0]) for lost in releases if lost.charge is not None)
    new = (cost for known, cost in charged if not (known is not None and known.spent))
    return sum(new, start=FREE)


def _lost_heads(agent: Agent) -> tuple[list[LedgerHead], LedgerHead | None]:
    lost: list[LedgerHead] = []
    for head in _own_heads(agent, agent.client.head_history(agent.identity.name)):
        if agent.ledger.knows(head.head):
            return lost[::-1], head
        lost.append(head)
    return lost[::-1], None


def _own_heads(agent: Agent, history: Iterable[SignedDocument]) -> Iterable[LedgerHead]:
    own = {key.fingerprint for key in agent.identity.keys}
    for signed in history:
        try:
            head, key = open_head(signed, party=agent.identity.name)
        except ProtocolError:  # the coordinator's mistake
            continue
        if key.fingerprint in own:
            yield head


def _beyond(newest: LedgerHead, common: LedgerHead | None) -> tuple[Spent, Spent]:
    """What was spent between two heads, and the same under replace_one; from the beginning where none is common."""
    (own, replaced), before = newest.spent, common.spent if common else ((0, Fraction(0)), (0, Fraction(0)))
    return (own[0] - before[0][0], own[1] - before[0][1]), (replaced[0] - before[1][0], replaced[1] - before[1][1])
