"""What a weight of the label would bring to a fit, and what it would cost other sums (docs/planning.md#weights)."""

from dataclasses import replace
from math import sqrt

import numpy as np

from commingle.shared.documents.schema import Weighted
from commingle.shared.documents.terms import Terms
from commingle.shared.forecast.forecast import predicted
from commingle.shared.mechanisms.prediction import RegressionTask
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.resolve import closed

_WEIGHTS = (2, 3, 4)
_WORTH_SAYING, _AS_GOOD = 0.95, 0.02


def weight_words(terms: Terms, task: RegressionTask) -> str | None:
    """The weight that this task's label should have, in words; None where none is of use, or one is given already."""
    if not mechanism_of(terms).interactive or any(p.weighted or p.whitening for p in terms.parties):
        return None
    plain, found = _standard_errors(terms, task), dict[int, float]()
    for weight in _WEIGHTS:
        errors = _standard_errors(_weighted(terms, task.target, weight), task)
        if plain is None or errors is None:
            return None
        found[weight] = float(np.mean(errors / plain))
    least = min(found.values())
    if least > _WORTH_SAYING:
        return None
    weight = next(w for w, ratio in found.items() if ratio <= least + _AS_GOOD)
    holder = next(p.name for p in terms.parties if task.target in {a.name for a in p.attributes})
    return (
        f'With "weighted": {{"attribute": "{task.target}", "weight": {weight}}} at {holder}, standard errors of this '
        f"fit are expected to be {found[weight]:.2f} times these; {_others(terms, task.target, weight)}."
    )


def _weighted(terms: Terms, name: str, weight: int) -> Terms:
    heavy = Weighted(attribute=name, weight=weight)
    parties = (replace(p, weighted=heavy if name in {a.name for a in p.attributes} else None) for p in terms.parties)
    return replace(terms, parties=tuple(parties))


def _standard_errors(terms: Terms, task: RegressionTask) -> np.ndarray | None:
    covariance = predicted(terms, task).covariance
    return None if covariance is None else np.sqrt(np.diag(covariance))


def _others(terms: Terms, name: str, weight: int) -> str:
    """Noise of sums without the label, in terms of that without a weight: the roots of what sensitivities grow by."""
    before, after = closed(terms), closed(_weighted(terms, name, weight))
    if any(p.first_stage_share is not None for p in before.parties):
        return "the columns beside it are cut shorter, and sums of other attributes get more noise"
    grown = [_moved(after, i) / _moved(before, i) for i in range(len(before.parties))]
    return f"the noise in sums of other attributes grows by {sqrt(min(grown)) - 1:.0%} to {sqrt(max(grown)) - 1:.0%}"


def _moved(terms: Terms, place: int) -> float:
    party = terms.parties[place]
    moved = mechanism_of(terms).squared_sensitivity(terms, party, terms.adjacency)  # type: ignore[arg-type] # of terms
    return float(moved) / float(16**terms.fraction_bits)
