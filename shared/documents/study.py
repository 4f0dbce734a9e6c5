"""A study as a person writes it down, and the release spec that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.model import LEFT_OUT, Count, Name, WireModel, explain
from commingle.shared.documents.purpose import StatedPurpose
from commingle.shared.documents.row_maps import AUTO, MAPPED_ROW_NORM, chosen_cross_weight, chosen_share
from commingle.shared.documents.schema import Attribute, Whitening
from commingle.shared.documents.spec import (
    MAX_COLUMNS,
    MAX_PARTIES,
    Bounds,
    Buckets,
    FirstStageShare,
    MechanismName,
    PartySpec,
    Projection,
    ReleaseSpec,
    Title,
)
from commingle.shared.documents.subject_ids import IdRules
from commingle.shared.documents.terms import delta_implementation
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.errors import PrivacyError
from commingle.shared.dp.sensitivity import Adjacency, unit_of
from commingle.shared.registry import KEYED, mechanism_of

AskedShare = FirstStageShare | Literal["auto"] | None
Subjects = Literal["keyed", "listed"]
DEFAULT_MECHANISM = "rmgm"
_REMEDY = "Correct the study file and propose it again."


def keyed_by_default(mechanism: object, projection: object) -> bool:
    """Whether subjects are keyed where nobody says: where the mechanism offers it and mixes rows as it does there."""
    return mechanism in KEYED and projection is None


class StudyParty(WireModel):
    """What one party is asked to contribute.

    Attributes:
        name: of the party, as the consortium knows it.
        dataset: which of its data sets.
        attributes: the columns asked for, with public bounds or levels.
        row_norm: rows are clipped to this norm before noise is added; left out, they are not, or as a first stage asks.
        whitening: a public map of its columns; left out, none.
        first_stage_share: of its rho for sums of its columns; null for none. Left out, it is what suits the mechanism,
            n and epsilon, and none beside a row norm or a whitening.
    """

    name: Name
    dataset: Name
    attributes: Annotated[tuple[Attribute, ...], Field(max_length=MAX_COLUMNS)]
    row_norm: float | None = None
    whitening: Whitening | None = None
    first_stage_share: Annotated[AskedShare, Field(exclude_if=lambda share: share == AUTO)] = AUTO


class Study(StatedPurpose):
    """A study file. What it is for is optional, and so is `k`: the planner chooses one where the mechanism needs it.

    Attributes:
        study: its title.
        mechanism: rmgm, dgm or moments.
        k: rows of the published matrix; left out, the planner chooses them where the mechanism has some.
        calibration: how noise follows from epsilon and delta.
        epsilon: of each party's block; of keyed subjects about their presence (`add_remove`), of listed ones about
            their values (`replace_one`).
        delta: of each party's block.
        lifetime_hours: how long parties may take to approve.
        parties: everybody who is asked, and for what.
        projection: "sparse" where each subject's row is to go to one row of the sketch; left out, to all of them.
        id_rules: how each column that identifies a subject is written at every party; left out, one column, exactly.
        bounds: where parties exchange, whether members prove that they keep theirs (the default) or are trusted to.
        subjects: "listed" where all parties hold the same people, and their list is public to them; "keyed" where each
            holds people of its own, and who they are is protected. Left out, keyed of rmgm and moments, and listed of
            dgm and of a sparse projection.
        n: subjects, as many as every party has; where they are keyed about as many as a party holds, for planning.
        buckets: of keyed rows that are exchanged; left out, as many as the planner finds worth their seconds.
    """

    study: Title
    mechanism: MechanismName = DEFAULT_MECHANISM
    k: int | None = None
    projection: Annotated[Projection | None, LEFT_OUT] = None
    subjects: Annotated[Subjects | None, LEFT_OUT] = None
    calibration: Annotated[Calibration, Field(strict=False)] = Calibration.ANALYTIC
    epsilon: float
    delta: float
    id_rules: Annotated[IdRules | None, LEFT_OUT] = None
    n: Annotated[Count, Field(ge=2)]
    lifetime_hours: Annotated[float, Field(gt=0, le=24 * 90)] = 72.0
    bounds: Annotated[Bounds | None, LEFT_OUT] = None
    buckets: Annotated[Buckets | None, LEFT_OUT] = None
    parties: Annotated[tuple[StudyParty, ...], Field(min_length=1, max_length=MAX_PARTIES)]

    @property
    def keyed(self) -> bool:
        """Whether subjects are."""
        if self.subjects is not None:
            return self.subjects == "keyed"
        return keyed_by_default(self.mechanism, self.projection)

    @property
    def adjacency(self) -> Adjacency:
        """In which epsilon and delta are meant."""
        return unit_of(keyed=self.keyed)

    @property
    def proved(self) -> bool:
        """Whether bounds are, where parties exchange."""
        return self.bounds != "trusted"

    @property
    def delta_implementation(self) -> float:
        """The part of delta that is no noise's."""
        return delta_implementation(self)

    @property
    def contributors(self) -> tuple[StudyParty, ...]:
        """The parties, whose first stages may be left open."""
        return self.parties


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
        study: what is asked, with its k, where its mechanism has one.
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
            version=2 if mechanism_of(study).interactive else 1,
            study=study.study,
            created=now,
            expires=now + timedelta(hours=study.lifetime_hours),
            mechanism=study.mechanism,
            k=study.k,
            projection=study.projection,
            fraction_bits=mechanism_of(study).fraction_bits,
            seed=seed.hex(),
            alignment="keyed" if study.keyed else "exact",
            id_rules=study.id_rules,
            calibration=study.calibration,
            epsilon=study.epsilon,
            delta=study.delta,
            n=study.n,
            parties=tuple(_party(party, study, members[party.name]) for party in study.parties),
            proposer=proposer,
            bounds=study.bounds or ("proved" if mechanism_of(study).interactive else None),
            **study.stated,
            buckets=study.buckets or mechanism_of(study).buckets(study),
        )
    except ValidationError as error:
        raise SpecError(f"the study cannot become a release: {explain(error)}", remedy=_REMEDY) from None
    except PrivacyError as error:
        raise SpecError(str(error), remedy=error.remedy) from None


def _party(party: StudyParty, study: Study, member: Member) -> PartySpec:
    share = chosen_share(study, party)
    return PartySpec(
        name=party.name,
        signing_key=member.signing_key,
        sealing_key=member.sealing_key,
        dataset=party.dataset,
        attributes=party.attributes,
        row_norm=MAPPED_ROW_NORM if share is not None and party.row_norm is None else party.row_norm,
        whitening=party.whitening,
        first_stage_share=share,
        cross_weight=None if share is None or study.keyed else chosen_cross_weight(study),
        subjects="keyed" if study.keyed else None,
    )
