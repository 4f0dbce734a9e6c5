"""A study as a person writes it down; `release.checks.build_spec` makes a release spec of it."""

from typing import Annotated, Literal

from pydantic import Field

from commingle.shared.documents.model import LEFT_OUT, Count, Name, WireModel
from commingle.shared.documents.purpose import StatedPurpose
from commingle.shared.documents.schema import Attribute, Whitening
from commingle.shared.documents.spec import MAX_COLUMNS, MAX_PARTIES, Buckets, Title
from commingle.shared.documents.subject_ids import IdRules
from commingle.shared.documents.terms import AUTO, AskedShare, Bounds, MechanismName, Projection
from commingle.shared.dp.calibration import Calibration

Subjects = Literal["keyed", "listed"]
DEFAULT_MECHANISM = "rmgm"


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
