"""What one party's block will look like and cost: known to everybody from the spec alone.

See docs/design/privacy.md#noise.
"""

from dataclasses import dataclass

from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.manifest import PartyLoss, PrivacyStatement, PublishedColumn, ScopedLoss, StatedLoss
from commingle.shared.documents.spec import INTERCEPT, PartySpec, ReleaseSpec
from commingle.shared.dp.accounting import RHO_UNITS, SIGMA_LIMIT, ZERO, Rho, gaussian_loss, least_sigma
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.gaussian import calibrated_rho, stated_epsilon
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms import mechanism_of


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Shape, noise and privacy loss of one party's block.

    Attributes:
        party: its name.
        columns: names of the encoded columns, in order.
        rows: of the block.
        sigma: standard deviation of the integer noise, in steps; of its largest entries where they differ.
        step: the published value is integer * step.
        loss: rho in the release's own adjacency.
        charge: rho under replace_one, which is what a ledger is debited.
    """

    party: str
    columns: tuple[str, ...]
    rows: int
    sigma: int
    step: float
    loss: Rho
    charge: Rho


def plan_block(spec: ReleaseSpec, party: PartySpec) -> BlockPlan:
    """The plan of one party's block.

    sigma is the least integer s with Delta^2 <= 2 rho s^2, Delta^2 the block's squared sensitivity and rho that of
    (epsilon, delta), rounded down.

    Raises:
        SpecError: epsilon so small that the noise leaves exact arithmetic.
    """
    mechanism = mechanism_of(spec)
    target = Rho(int(calibrated_rho(spec.calibration, epsilon=spec.epsilon, delta=spec.delta) * RHO_UNITS))
    moved = mechanism.squared_sensitivity(spec, party, spec.adjacency)
    sigma = least_sigma(squared_sensitivity=moved, rho=target)
    if sigma > SIGMA_LIMIT:
        raise SpecError(f"epsilon {spec.epsilon} needs too much noise", remedy="Raise epsilon.")
    most = mechanism.squared_sensitivity(spec, party, Adjacency.REPLACE_ONE)
    return BlockPlan(
        party=party.name,
        columns=tuple(column.name for column in party.columns),
        rows=mechanism.rows(spec),
        sigma=sigma,
        step=mechanism.step(spec),
        loss=gaussian_loss(squared_sensitivity=moved, sigma=sigma),
        charge=gaussian_loss(squared_sensitivity=most, sigma=sigma),
    )


def plan_blocks(spec: ReleaseSpec) -> tuple[BlockPlan, ...]:
    """The plans of all parties, in the spec's order."""
    return tuple(plan_block(spec, party) for party in spec.parties)


def privacy_statement(spec: ReleaseSpec) -> PrivacyStatement:
    """The losses of a release: a function of its spec alone."""
    plans, mechanism = plan_blocks(spec), mechanism_of(spec)

    def scoped(own: Rho, replace_one: Rho) -> ScopedLoss:
        def loss(rho: Rho) -> StatedLoss:
            return StatedLoss(rho=rho.rounded_up, epsilon=stated_epsilon(spec.calibration, float(rho), spec.delta))

        return ScopedLoss(own=loss(own), replace_one=loss(replace_one))

    def outsiders() -> ScopedLoss:
        sigmas = [plan.sigma for plan in plans]
        return scoped(*(mechanism.outsider_loss(spec, sigmas, a) for a in (spec.adjacency, Adjacency.REPLACE_ONE)))

    return PrivacyStatement(
        adjacency=spec.adjacency,
        calibration=spec.calibration,
        delta=spec.delta,
        trust=mechanism.trust,
        per_party=tuple(PartyLoss(party=p.party, loss=scoped(p.loss, p.charge)) for p in plans),
        per_subject=scoped(sum((p.loss for p in plans), start=ZERO), sum((p.charge for p in plans), start=ZERO)),
        # earlier versions did not state it, and their calibration is another
        per_subject_outsiders=outsiders() if spec.calibration is Calibration.ANALYTIC else None,
    )


def published_columns(spec: ReleaseSpec) -> tuple[PublishedColumn, ...]:
    """The matrix's columns with their owner and noise: a function of the spec alone."""
    intercept = PublishedColumn(name=INTERCEPT, party=None, sigma=0)
    own = (
        PublishedColumn(name=name, party=plan.party, sigma=plan.sigma)
        for plan in plan_blocks(spec)
        for name in plan.columns
    )
    return (intercept, *own)


def published_step(spec: ReleaseSpec) -> float:
    """The published value is integer * step."""
    return mechanism_of(spec).step(spec)
