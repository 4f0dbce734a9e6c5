"""From published moments to what is fitted: checked against the mechanism, every map of rows undone."""

from collections.abc import Mapping
from types import MappingProxyType

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import first_stage_of, row_map
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.estimation.cutting import Stage
from commingle.shared.estimation.errors import MomentsMismatchError
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.resolve import closed

NO_SUMS: Mapping[str, Sums | None] = MappingProxyType({})


def prepared_release(
    moments: SecondMoments, spec: ReleaseSpec, sums: Mapping[str, Sums | None] = NO_SUMS
) -> PreparedMoments:
    """Moments of a release in encoded units.

    Args:
        moments: as published.
        spec: of the release.
        sums: what each party with a first stage published of its columns, by party.

    Raises:
        MomentsMismatchError: they are not of that release.
        SpecError: the sums are not.
    """
    _require_kind(moments)
    terms, stages = closed(spec), []
    for party in spec.parties:
        said = sums.get(party.name)
        stages.append(Stage(first_stage_of(terms, party), said, row_map(terms, party, said)))
    return PreparedMoments.of_release(moments, spec, stages)


def prepared_moments(moments: SecondMoments, attributes: tuple[Attribute, ...]) -> PreparedMoments:
    """Moments of encoded columns with the attributes of a spec, in the spec's order.

    Raises:
        MomentsMismatchError: they are not of one release.
    """
    _require_kind(moments)
    return PreparedMoments.of(moments, attributes)


def _require_kind(moments: SecondMoments) -> None:
    """Moments come with variances of their noise exactly where their mechanism does not publish rows."""
    if not moments.keyed and (moments.entry_variance is None) is not mechanism_of(moments).of_rows:
        raise MomentsMismatchError(
            "these moments do not have the noise of their mechanism", remedy="Take them from the release again."
        )
