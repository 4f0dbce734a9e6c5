"""What one party's block will look like and cost: known to everybody from the spec alone (protocol.md 4 and 5)."""

from dataclasses import dataclass

from shared.privacy.accounting import RHO_UNITS, SIGMA_LIMIT, Rho, gaussian_loss, least_sigma
from shared.privacy.calibration import calibrated_rho
from shared.privacy.sensitivity import Adjacency
from shared.protocol.errors import SpecError
from shared.protocol.mechanisms import mechanism_of
from shared.protocol.spec import PartySpec, ReleaseSpec


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Shape, noise and privacy loss of one party's block.

    Attributes:
        party: its name.
        columns: names of the encoded columns, in order.
        rows: of the block: k for rmgm, n for dgm, p for moments.
        sigma: standard deviation of the integer noise, in steps; of its largest entries for moments.
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
