"""A study as a person writes it down, and the release spec that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from shared.privacy.calibration import Calibration, calibrated_rho
from shared.privacy.errors import PrivacyError
from shared.privacy.fixed_point import SCALE
from shared.privacy.sensitivity import Adjacency, squared_sensitivity
from shared.protocol.documents import Count, Name, WireModel, explain
from shared.protocol.errors import SpecError
from shared.protocol.keys import Fingerprint
from shared.protocol.schema import Attribute
from shared.protocol.spec import MAX_COLUMNS, MAX_PARTIES, PartySpec, ReleaseSpec, Title

_ASSUMED_EIGENVALUE = 0.1
_REMEDY = "Correct the study file and propose it again."


class StudyParty(WireModel):
    """What one party is asked to contribute."""

    name: Name
    dataset: Name
    attributes: Annotated[tuple[Attribute, ...], Field(max_length=MAX_COLUMNS)]
    row_norm: float | None = None


class Study(WireModel):
    """A study file. `k` is chosen by `default_k` where it is left out."""

    study: Title
    mechanism: Literal["rmgm", "dgm"] = "rmgm"
    k: int | None = None
    adjacency: Annotated[Adjacency, Field(strict=False)] = Adjacency.REPLACE_ONE
    calibration: Annotated[Calibration, Field(strict=False)] = Calibration.ZCDP
    epsilon: float
    delta: float
    n: Annotated[Count, Field(ge=2)]
    lifetime_hours: Annotated[float, Field(gt=0, le=24 * 90)] = 72.0
    parties: Annotated[tuple[StudyParty, ...], Field(min_length=1, max_length=MAX_PARTIES)]


@dataclass(frozen=True, slots=True)
class Member:
    """An enrolled party's public keys, hex."""

    signing_key: str
    sealing_key: str


def build_spec(
    study: Study, *, members: Mapping[str, Member], proposer: Fingerprint, seed: bytes, now: datetime
) -> ReleaseSpec:
    """The release spec of a study.

    Args:
        study: what is asked.
        members: keys of the enrolled parties, by name.
        proposer: fingerprint of the key that will sign the spec.
        seed: 32 bytes from the operating system.
        now: when it is proposed.

    Raises:
        SpecError: an unknown party, or a study that makes no sense; names every field at fault.
    """
    unknown = [party.name for party in study.parties if party.name not in members]
    if unknown:
        raise SpecError(f"not enrolled: {', '.join(unknown)}", remedy="Invite and enrol every party first.")
    empty = [party.name for party in study.parties if not party.attributes]
    if empty:
        raise SpecError(f"no attributes are asked of {', '.join(empty)}", remedy="Give each at least one attribute.")
    try:
        return ReleaseSpec(
            study=study.study,
            created=now,
            expires=now + timedelta(hours=study.lifetime_hours),
            mechanism=study.mechanism,
            k=default_k(study) if study.mechanism == "rmgm" and study.k is None else study.k,
            seed=seed.hex(),
            adjacency=study.adjacency,
            calibration=study.calibration,
            epsilon=study.epsilon,
            delta=study.delta,
            n=study.n,
            parties=tuple(_party(party, members[party.name]) for party in study.parties),
            proposer=proposer,
        )
    except ValidationError as error:
        raise SpecError(f"the study cannot become a release: {explain(error)}", remedy=_REMEDY) from None
    except PrivacyError as error:
        raise SpecError(str(error), remedy=error.remedy) from None


def default_k(study: Study) -> int:
    """A sketch size from public quantities alone.

    Few rows lose information (relative variance about p / 2k), many rows drown in noise (attenuation about
    k v / (n lambda)); the squares balance at k = (p/4)^(1/3) (n lambda / v)^(2/3). Never above n^(2/3) (Wu et al.
    2022, theorem 2), never below three rows per column. lambda = 0.1 stands for the least eigenvalue of the features'
    second moment.
    """
    rho = calibrated_rho(study.calibration, epsilon=study.epsilon, delta=study.delta)
    columns = 1 + sum(len(a.columns) for party in study.parties for a in party.attributes)
    noise = max(
        squared_sensitivity([a.geometry for a in party.attributes], row_norm=party.row_norm, adjacency=study.adjacency)
        / (SCALE**2 * 2 * rho)
        for party in study.parties
    )
    paper: float = study.n ** (2 / 3)
    # a row_norm below the resolution of fixed point leaves nothing to hide
    balanced: float = (columns / 4) ** (1 / 3) * (study.n * _ASSUMED_EIGENVALUE / noise) ** (2 / 3) if noise else paper
    wanted = min(balanced, paper)
    return min(study.n, max(3 * columns, round(wanted)))


def _party(party: StudyParty, member: Member) -> PartySpec:
    return PartySpec(
        name=party.name,
        signing_key=member.signing_key,
        sealing_key=member.sealing_key,
        dataset=party.dataset,
        attributes=party.attributes,
        row_norm=party.row_norm,
    )
