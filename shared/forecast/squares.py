"""Whether a study should release the square of its target, which lets intervals count residuals that spread unalike.

Intervals for the population rest on noise and on sampling, of variance residual xx^-1 / n. Unalike residuals change the
second alone, so the square is worth its noise where sampling is by far the larger part (ADR 48): a tenth of it leaves
room for a target that varies less than a uniform one.
"""

from dataclasses import replace

import numpy as np

from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.terms import Terms
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.forecast.errors import PlanningError
from commingle.shared.forecast.task import R_SQUARED, Assumptions, task_of
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.resolve import closed

_PART = 0.1
"""Of the variance of sampling, what that of noise may be; errors for the population then grow by 5 % at most."""


def square_words(terms: Terms, assumed: Assumptions) -> str | None:
    """That the square of the target costs little, and how to ask for it; None where it is of no use or costs more."""
    asked = _levels_alone(terms, assumed)
    if asked is None:
        return None
    own, plain = asked
    whole = _with_square(terms, own)
    try:
        (before, _), (after, sampling) = (_variances(each, plain) for each in (terms, whole))
    except PlanningError:  # too many columns
        return None
    if not np.mean(after / sampling) < _PART:
        return None
    growth = float(np.mean(np.sqrt((after + sampling) / (before + sampling))))
    more = " and --one-stage" if any(p.first_stage_share is not None for p in closed(terms).parties) else ""
    change = f"grow by {growth - 1:.1%}" if growth > 1 else f"fall by {1 - growth:.1%}"
    return (
        f'With the square of {own.name} (study new --product "{own.name} squared={own.name},{own.name}"{more}), '
        "intervals for the population would count that people with some levels may differ more than others in "
        f"{own.name}; their standard errors are expected to {change}. Those for the table, of noise alone, grow "
        "by more."
    )


def _levels_alone(terms: Terms, assumed: Assumptions) -> tuple[NumericAttribute, Assumptions] | None:
    """The target and what is asked, where a fit could use its square (`services.models.spread.knows_spread`)."""
    attributes = {a.name: a for a in terms.attributes}
    own = attributes.get(assumed.target or "")
    features = tuple(name for name in assumed.features or tuple(attributes) if name != assumed.target)
    levels = (attributes.get(name) for name in features)
    fits = (
        isinstance(own, NumericAttribute)
        and own.missing == "error"
        and own.product is None
        and not any(getattr(a, "product", None) == (own, own) for a in terms.attributes)
        and bool(features)
        and all(isinstance(a, BinaryAttribute | CategoricalAttribute) and a.missing != "midpoint" for a in levels)
        and assumed.r_squared <= R_SQUARED
        and mechanism_of(terms).interactive
        and all(p.whitening is None and p.row_norm is None and p.weighted is None for p in terms.parties)
    )
    if not fits or not isinstance(own, NumericAttribute):
        return None
    return own, replace(assumed, second_moments=None, public_rows=None, features=features)  # of other columns


def _with_square(terms: Terms, own: NumericAttribute) -> Terms:
    """These terms with the square, and with whole rows, which it needs."""
    square = NumericAttribute(name=f"{own.name} squared", lower=-1, upper=1, product=(own, own))
    made = terms.reopened()
    parties = (
        p.model_copy(
            update={
                "attributes": (*p.attributes, *((square,) if own in p.attributes else ())),
                "first_stage_share": None,
            }
        )
        for p in made.parties
    )
    return replace(made, parties=tuple(parties))


def _variances(terms: Terms, assumed: Assumptions) -> tuple[Array, Array]:
    """Of each slope by noise, and by the drawing of people."""
    made, task = closed(terms), task_of(terms, assumed)
    noise = mechanism_of(made).planner.predict(made, task).covariance
    if noise is None:
        raise PlanningError("no fit is possible", remedy="Ask for fewer columns, or for more people.")
    return np.diag(noise), task.residual * np.diag(task.inverse) / (made.kept or made.n)
