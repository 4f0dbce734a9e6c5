"""Which outcome a formula and a family ask for."""

import numpy as np

from commingle.services.models.errors import FamilyError
from commingle.services.models.formula import Formula
from commingle.services.models.ordered import Ordered
from commingle.services.models.outcome import Outcome, Scalar
from commingle.shared.documents.schema import GAP, Attribute, NumericAttribute
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.errors import CategoricalTargetError

FAMILIES = ("binomial", "poisson", "ordinal")


def outcome_of(sums: CrossProducts, formula: Formula, family: str) -> Outcome:
    """That of a release.

    Raises:
        FamilyError: an unknown family, or an outcome that it cannot have.
        CategoricalTargetError: three levels or more, and no event is named.
        NoTablesError: missing cells count as something else, or a release without sums.
        UnknownAttributeError: none of that name.
    """
    attribute = sums.prepared.attribute(formula.outcome)
    if family in {"binomial", "ordinal"}:
        return _of_levels(sums, formula, attribute, family)
    if family != "poisson":
        raise FamilyError(f"there is no family {family!r}", remedy=f"Families: {', '.join(FAMILIES)}.")
    if formula.event is not None or not isinstance(attribute, NumericAttribute) or attribute.lower < 0:
        raise FamilyError(
            f"{formula.outcome} is no count: it has levels, or its lower bound is negative",
            remedy='Choose a number that cannot be negative, or the family "binomial" for levels.',
        )
    value, known = sums.number(formula.outcome)
    present = sums.present(formula.outcome)
    (total, squares, n), _ = sums.sums(
        np.concatenate([products(value[None], np.array([present, value])), products(known[None], present[None])])
    )
    mean = max(float(total / max(n, 1.0)), 1e-3)
    gaps = attribute.missing == "indicator"
    return Scalar(
        name=formula.outcome,
        family=family,
        value=value,
        known=known,
        present=present,
        gaps=gaps,
        centre=mean,
        square=float(squares / max(n, 1.0)),
    )


def _of_levels(sums: CrossProducts, formula: Formula, attribute: Attribute, family: str) -> Outcome:
    name, event = formula.outcome, formula.event
    if isinstance(attribute, NumericAttribute):
        raise FamilyError(
            f"{name} is a number, and the outcome of a model of the family {family!r} has levels",
            remedy='Choose an attribute with levels; or propose the study with "cuts" for it.',
        )
    labels, indicators = sums.levels(name)
    known = [label for label in labels if label != GAP or attribute.missing != "indicator"]
    if family == "ordinal":
        if event is not None:
            raise FamilyError("an ordinal model has no event", remedy=f"Write {name} ~ …; its levels are in order.")
        return Ordered.of(sums, name, tuple(known), indicators[: len(known)], gaps=len(labels) > len(known))
    if event is None and len(known) > 2:  # noqa: PLR2004 - a binary outcome
        raise CategoricalTargetError(
            f"{name!r} has more than two levels, and no event is named",
            remedy=f"Write {name}[{known[-1]}] ~ …, with one of: {', '.join(known)}; or use the family ordinal.",
        )
    event = known[-1] if event is None else event
    if event not in known:
        raise FamilyError(f"{name} has no level {event!r}", remedy=f"Its levels: {', '.join(known)}.")
    place = known.index(event)
    return Scalar(
        name=f"{name}[{event}]",
        family="binomial",
        value=indicators[place],
        known=indicators[: len(known)].sum(axis=0),
        present=sums.present(name),
        gaps=len(labels) > len(known),
        centre=0.5,
    )
