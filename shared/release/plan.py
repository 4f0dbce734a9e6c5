"""The shape, noise and cost of one party's block, from the spec alone (docs/design/privacy.md#noise)."""

from dataclasses import dataclass
from functools import lru_cache

from commingle.shared.documents.manifest import (
    PROTECTS,
    PartyLoss,
    PrivacyStatement,
    PublishedColumn,
    ScopedLoss,
    StatedLoss,
)
from commingle.shared.documents.row_maps import first_stage_of, stage_targets
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import BlockStatement
from commingle.shared.dp.accounting import FREE, SIGMA_LIMIT, Cost, Loss, Rho, delta_left, gaussian_loss, least_sigma
from commingle.shared.dp.calibration import Calibration, stated_epsilon
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import FirstStage, first_stage_loss
from commingle.shared.errors import SpecError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import closed


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Shape, noise and privacy loss of one party's block."""

    party: str
    columns: tuple[str, ...]
    rows: int
    sigma: int  # standard deviation of the integer noise, in steps; the largest if entries differ
    step: float  # the published value is integer * step
    cost: Cost  # the whole debit: of one or both stages, and the part of delta that noise does not use
    first_stage: FirstStage | None  # the noise of the sums from which the map of the rows follows, if there are any

    @property
    def loss(self) -> Rho:
        """Rho in the release's adjacency."""
        return self.cost.loss.rho

    def describes(self, statement: BlockStatement) -> bool:
        """Whether rows, columns, noise and number of sums in that statement are those that the spec calls for."""
        sums = 0 if statement.sums is None else len(statement.sums)
        said = (statement.rows, statement.columns, statement.sigma, sums)
        return said == (self.rows, self.columns, self.sigma, 0 if self.first_stage is None else self.first_stage.size)


@lru_cache(maxsize=256)  # a function of the spec alone, asked for at every step of a release
def plan_block(spec: ReleaseSpec, party: PartySpec) -> BlockPlan:
    """The plan of one party's block.

    sigma is the least integer s with Delta^2 <= 2 rho s^2, Delta^2 the block's squared sensitivity and rho that of
    epsilon and the part of delta that is left for noise, rounded down, less the part of a first stage. Raises
    SpecError: epsilon so small that the noise leaves exact arithmetic; ParameterError: the same of a first stage.
    """
    mechanism, terms = mechanism_of(spec), closed(spec)
    stage = first_stage_of(terms, party)
    _, target = stage_targets(terms, party)
    sigma = least_sigma(squared_sensitivity=mechanism.squared_sensitivity(terms, party, terms.adjacency), rho=target)
    if sigma > SIGMA_LIMIT:
        raise SpecError(f"epsilon {spec.epsilon} needs too much noise", remedy="Raise epsilon.")

    def loss(adjacency: Adjacency) -> Loss:
        block = gaussian_loss(squared_sensitivity=mechanism.squared_sensitivity(terms, party, adjacency), sigma=sigma)
        whole = block if stage is None else first_stage_loss(stage, adjacency) + block
        return Loss(whole, terms.taken_by_exchange)

    return BlockPlan(
        party=party.name,
        columns=tuple(column.name for column in party.block_columns),
        rows=mechanism.rows(terms),
        sigma=sigma,
        step=mechanism.step(terms),
        cost=Cost.of(terms.adjacency, loss),
        first_stage=stage,
    )


def plan_blocks(spec: ReleaseSpec) -> tuple[BlockPlan, ...]:
    return tuple(plan_block(spec, party) for party in spec.parties)


def privacy_statement(spec: ReleaseSpec) -> PrivacyStatement:
    """The losses of a release: a function of its spec alone."""
    plans, mechanism = plan_blocks(spec), mechanism_of(spec)
    taken = closed(spec).taken_by_exchange
    left = delta_left(spec.delta, taken)

    def stated(loss: Loss) -> StatedLoss:
        epsilon, guess = stated_epsilon(spec.calibration, float(loss.rho), left), Loss(loss.rho, taken).guess_percent
        return StatedLoss(rho=loss.rho.rounded_up, epsilon=epsilon, guess_percent=guess)

    def scoped(cost: Cost) -> ScopedLoss:
        other = None if cost.replacement is None else stated(cost.replacement)
        return ScopedLoss(own=stated(cost.loss), replacement=other)

    def of_outsiders(adjacency: Adjacency) -> Loss:
        return Loss(mechanism.outsider_loss(spec.terms, [plan.sigma for plan in plans], adjacency))

    first = [_of_first_stage(plan, spec.terms.adjacency) for plan in plans]
    return PrivacyStatement(
        adjacency=spec.terms.adjacency,
        calibration=spec.calibration,
        delta=spec.delta,
        delta_implementation=taken,
        protects=PROTECTS[spec.terms.adjacency],
        trust=mechanism.trust(proved=spec.terms.proved),
        per_party=tuple(
            PartyLoss(
                party=plan.party,
                loss=scoped(plan.cost),
                first_stage=None if plan.first_stage is None else scoped(cost),
            )
            for plan, cost in zip(plans, first, strict=True)
        ),
        per_subject=scoped(sum((plan.cost for plan in plans), start=FREE)),
        # earlier versions did not state it, and their calibration is another
        per_subject_outsiders=scoped(sum(first, start=Cost.of(spec.terms.adjacency, of_outsiders)))
        if spec.calibration is Calibration.ANALYTIC
        else None,
    )


def _of_first_stage(plan: BlockPlan, unit: Adjacency) -> Cost:
    stage = plan.first_stage
    return FREE if stage is None else Cost.of(unit, lambda adjacency: Loss(first_stage_loss(stage, adjacency)))


def published_columns(spec: ReleaseSpec) -> tuple[PublishedColumn, ...]:
    """The matrix's columns with their owner and noise: a function of the spec alone."""
    first = (PublishedColumn(name=column.name, party=None, sigma=0) for column in spec.intercept)
    own = (
        PublishedColumn(name=name, party=plan.party, sigma=plan.sigma)
        for plan in plan_blocks(spec)
        for name in plan.columns
    )
    return (*first, *own)
