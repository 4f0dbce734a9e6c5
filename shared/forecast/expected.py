"""The release that is expected of people as they are assumed, as learners take it: no noise is drawn, and all is known.

Counts and intervals of tables are read from it by the code that reads releases, so there is no second formula of what
they are worth. Keyed parties hold the same people.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.row_maps import first_stage_of, row_map
from commingle.shared.documents.spec import ReleaseSpec, kept_of
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.first_stage import expected_sums
from commingle.shared.estimation import keyed, prepared
from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.cross_products import Array, CrossProducts
from commingle.shared.estimation.cutting import Stage
from commingle.shared.forecast.task import Assumptions, table_law, uniform_law
from commingle.shared.release.drafting import tried
from commingle.shared.release.matrix import prepared_release, second_moments
from commingle.shared.release.resolve import closed

_NOBODY = "0" * 64
_HALVINGS = 60

Share = tuple[str, str, float]
"""An attribute, one of its levels, and the share of people who have it."""


def expected_release(terms: Terms, assumed: Assumptions) -> CrossProducts:
    """The sums of a release of moments of these terms, with the covariance of their noise.

    Raises:
        SpecError: the terms cannot become a release.
        PlanningError: second moments that do not fit them.
    """
    spec, given = _spec(terms), assumed.second_moments
    mean, covariance = uniform_law(terms.parties) if given is None else table_law(given, columns=len(terms.columns))
    made = closed(spec)
    widths = np.cumsum([0, *(len(party.columns) for party in terms.parties)])
    squares = np.diag(covariance) + mean**2
    stages = [
        _stage(made, party, mean[first:last], squares[first:last])
        for party, first, last in zip(made.parties, widths, widths[1:], strict=False)
    ]
    law = np.outer(np.append(1.0, mean), np.append(1.0, mean))
    law[1:, 1:] += covariance
    applied = [stage.applied for stage in stages]
    undo = keyed.undoing(spec, applied)[0] if spec.keyed else prepared.undoing(spec, applied)
    columns = np.append(np.zeros(len(undo) - len(mean), np.intp), 1 + np.arange(len(mean)))
    back = np.linalg.inv(undo)
    gram = (kept_of(spec) or spec.n) * back @ law[np.ix_(columns, columns)] @ back.T
    blank = second_moments(spec, _NOBODY, np.zeros_like(gram, np.int64))
    found = blank.model_copy(update={"gram": tuple(map(tuple, ((gram + gram.T) / 2).tolist()))})
    if not spec.keyed:
        found = found.model_copy(update={"gram": ((float(spec.n), *found.gram[0][1:]), *found.gram[1:])})
    said = {party.name: stage.sums for party, stage in zip(terms.parties, stages, strict=True)}
    return CrossProducts.of(prepared_release(found, spec, said))


def _stage(terms: Terms, party: PartyTerms, mean: Array, squares: Array) -> Stage:
    planned = first_stage_of(terms, party)
    sums = None if planned is None else tuple(expected_sums(planned, mean, squares).tolist())
    return Stage(planned, sums, row_map(terms, party, sums))


def _spec(terms: Terms) -> ReleaseSpec:
    """As it would be proposed, with keys that nobody holds."""
    parties = tuple(
        StudyParty(
            name=party.name,
            dataset="any",
            attributes=party.attributes,
            row_norm=party.row_norm,
            first_stage_share=party.first_stage_share,
            weighted=party.weighted,
        )
        for party in terms.parties
    )
    asked = Study(
        study="forecast",
        mechanism=terms.mechanism,
        subjects="keyed" if terms.keyed else "listed",
        calibration=terms.calibration,
        epsilon=terms.epsilon,
        delta=terms.delta,
        n=terms.n,
        bounds=terms.bounds,
        buckets=terms.buckets,
        parties=parties,
    )
    return tried(asked, now=datetime(2000, 1, 1, tzinfo=UTC))


def with_shares(sums: CrossProducts, shares: Iterable[Share]) -> CrossProducts:
    """The same of people among whom so many have these levels, whatever else they are."""
    for name, level, share in shares:
        labels, forms = sums.levels(name)
        before = margin(sums, name)
        place = labels.index(level)
        others = np.delete(before, place).sum()
        changed = before * (1 - share) / (others or 1.0)
        changed[place] = share
        at, values = _values(forms)
        n = sums.values[sums.whose, sums.whose]
        means = sums.values[np.arange(len(n)), sums.whose] / n
        held, found = n[at[0]], sums.values.copy()
        found[at] = held * np.outer(values.T @ changed, means)
        found[:, at] = found[at].T
        found[np.ix_(at, at)] = held * values.T @ np.diag(changed) @ values
        sums = replace(sums, values=found)
    return sums


def margin(sums: CrossProducts, name: str) -> Array:
    """Shares of an attribute's levels, a gap last."""
    counts, _ = sums.people(sums.levels(name)[1])
    found = np.maximum(counts, 0.0)
    return np.asarray(found / found.sum())


def with_odds_ratio(sums: CrossProducts, table: tuple[str, str], at: tuple[int, int, int], ratio: float) -> Cells:
    """Counts of two attributes, one level having so many times the odds of an event as another.

    Margins are as they were. All other levels have the share of everybody.

    Args:
        sums: of the release.
        table: names of the attributes.
        at: places of the level, of the other one, and of the event among levels of the second.
        ratio: of their odds.
    """
    level, base, event = at
    rows, columns = (margin(sums, name) for name in table)
    known = np.arange(len(columns)) < len(Cells.of(sums, *table).known().columns)
    whole = float(columns[known].sum())
    of_all = columns[event] / whole
    shares = np.full(len(rows), of_all)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):  # (r_i p_i + r_0 p_0) / (r_i + r_0) grows with p_0
        shares[base] = (low + high) / 2
        shares[level] = ratio * shares[base] / (1 - shares[base] + ratio * shares[base])
        enough = rows[level] * shares[level] + rows[base] * shares[base] > (rows[level] + rows[base]) * of_all
        low, high = (low, shares[base]) if enough else (shares[base], high)
    others = np.where(known, columns, 0.0)
    others[event] = 0.0
    law = np.outer(1 - shares, whole * others / others.sum()) + np.outer(np.ones(len(rows)), columns * ~known)
    law[:, event] = whole * shares
    law *= rows[:, None]
    (_, left), (_, right) = sums.levels(table[0]), sums.levels(table[1])
    (first, one), (second, other) = _values(left), _values(right)
    n, found = sums.values[first[0], second[0]], sums.values.copy()
    found[np.ix_(first, second)] = n * one.T @ law @ other
    found[np.ix_(second, first)] = found[np.ix_(first, second)].T
    return Cells.of(replace(sums, values=found), *table)


def _values(forms: Array) -> tuple[NDArray[np.intp], Array]:
    """Places of the columns of L levels, (L,), their presence first, and what each level has there, (L, L)."""
    at = np.flatnonzero(forms.any(axis=0))
    return at.astype(np.intp), np.asarray(np.linalg.inv(forms[:, at]).T, np.float64)
