"""The expected fits of a release that is only being planned."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from commingle.shared.documents.row_maps import first_stage_of, row_map, row_sensitivity, undone
from commingle.shared.documents.terms import Terms, allowed_rho, settled
from commingle.shared.dp.fixed_point import FRACTION_BITS
from commingle.shared.dp.two_stages import MOST_SUBJECTS, expected_sums
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.pairwise import ENOUGH_SHARED


@dataclass(frozen=True, slots=True, eq=False)
class ColumnLaw:
    """Means and variances, (p - 1,) each, of all columns but the intercept, in encoded units."""

    means: Array
    variances: Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RegressionTask:
    """One regression of a label y on q columns x, centred, in encoded units."""

    target: str
    # x, y: indices into the published columns without the intercept
    x: tuple[int, ...]
    y: int
    labels: tuple[str, ...]  # q names of terms
    mean: Array  # (q,) of the features; `mean_y` of the label
    mean_y: float
    xx: Array  # (q, q) covariance of the features; `inverse` of it
    inverse: Array
    b: Array  # (q,) slopes
    yy: float  # variance of the label; `residual` is the part of it that the features leave
    residual: float
    # offset, scale: (q,) original = offset + scale * encoded; `unit` is the label's scale
    offset: Array
    scale: Array
    unit: float
    law: ColumnLaw  # of all columns, not only of these

    @property
    def r_squared(self) -> float:
        """What a fit without privacy explains."""
        return 1 - self.residual / self.yy


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Prediction:
    """Expected figures of one regression, in encoded units."""

    # (q, q) of the slopes of the default fit for inference, around the same fit on the private table; None where no fit
    # is possible
    covariance: Array | None
    level_variance: float  # of the mean of the label less the fit, which the intercept adds to the slopes' errors
    r_squared: float  # of the default fit for prediction, on rows of the same population
    r_squared_constant: float  # of the label's mean as the release tells it
    told_apart: bool  # whether an F test is expected to tell the fit from that mean, at 5 %; not where a fit is refused
    reliable: bool  # whether the default fit for inference is expected to come without a warning about its signal


class Planner(ABC):
    """A mechanism's part of the planner; terms are closed (`release.checks`)."""

    @abstractmethod
    def predict(self, terms: Terms, task: RegressionTask) -> Prediction:
        """The expected figures of one regression; a sketch must have its k."""

    def tells_apart(self, terms: Terms, task: RegressionTask) -> bool:
        """`told_apart` of a prediction; some mechanisms need less than a whole prediction for it."""
        return self.predict(terms, task).told_apart

    def sketch_bounds(self, terms: Terms) -> tuple[int, int] | None:  # noqa: ARG002 - there is none
        """Least and largest k to consider; None if there is no sketch."""
        return None

    def best_k(self, terms: Terms, task: RegressionTask) -> int | None:  # noqa: ARG002 - as above
        """The k that suits this regression best; None if there is no sketch."""
        return None

    def shared_error(self, terms: Terms) -> float | None:
        """The standard error of how many keyed subjects two parties share if they share all, for the worst two.

        None if subjects are listed, or there is one party. A sketch must have its k.
        """
        return self.count_error(terms) if terms.keyed and len(terms.parties) > 1 else None

    def count_error(self, terms: Terms) -> float | None:  # noqa: ARG002 - as above
        """`shared_error` of keyed subjects at several parties; None if a mechanism has no keyed ones."""
        return None

    def fits_across(self, terms: Terms) -> bool:
        """Whether n subjects whom all hold are enough to fit across parties, given the error of their number."""
        error = self.shared_error(terms)
        return error is None or terms.n >= ENOUGH_SHARED * error


def noise_variance(terms: Terms) -> Array:
    """(p - 1,) variance of the noise in one published entry of each column but the intercept, in encoded units.

    v = Delta^2 / (2 rho) of noisy rows, mixed or not (docs/design/privacy.md#noise), before sigma is rounded up to an
    integer. Noisy moments have another (`mechanisms.moments`). Raises ParameterError: epsilon, delta or a row norm
    outside its domain.
    """
    rho = allowed_rho(terms)
    found: list[float] = []
    for party in terms.parties:
        moved = row_sensitivity(terms, party, terms.adjacency) / 4**terms.fraction_bits
        found += [moved / (2 * rho * (1 - (settled(party.first_stage_share) or 0)))] * len(party.columns)
    return np.array(found)


def encoded_noise(terms: Terms, law: ColumnLaw) -> Array:
    """(p - 1, p - 1) covariance of the noise of `noise_variance`, once contrasts and suggested maps are undone."""
    return _encoded_noise(replace(terms, k=None), law)


@lru_cache(maxsize=4)  # a forecast asks for each k and each population that a public table may come from
def _encoded_noise(terms: Terms, law: ColumnLaw) -> Array:
    T = undoing(terms, law)[1:, 1:]
    found = np.asarray(T * noise_variance(terms) @ T.T)
    found.flags.writeable = False
    return found


def undoing(terms: Terms, law: ColumnLaw) -> Array:
    """T (p, p) with (1, encoded columns) = T @ published ones, if encoded ones have that law."""
    gains, centres = assumed_maps(terms, law)
    T, start = np.diag(np.append(1.0, 1 / gains)), 1
    T[1:, 0] = centres
    for party in terms.parties:
        own = slice(start, start := start + len(party.columns))
        if party.contrasted:
            T[own, own], T[own, 0] = undone(party, None, FRACTION_BITS)
    return T


def assumed_maps(terms: Terms, law: ColumnLaw) -> tuple[Array, Array]:
    """Gains and centres, (p - 1,) each: published columns are gain (x - centre) if x have that law.

    Rows that are cut at norm 1 are multiples of themselves. Their columns count as multiplied by the root of E
    min(|z|^2, 1) / E |z|^2, |z|^2 being like a gamma law with the degrees of freedom of its columns.
    """
    gains, centres = np.ones(len(law.means)), np.zeros(len(law.means))
    start = 0
    countable = replace(terms, n=min(terms.n, MOST_SUBJECTS))
    for party in terms.parties:
        own = slice(start, start + len(party.columns))
        start = own.stop
        stage = first_stage_of(countable, party)
        if stage is None:
            continue
        means, variances = law.means[own], law.variances[own]
        applied = row_map(countable, party, expected_sums(stage, means, variances + means**2).tolist())
        if applied is None:
            continue
        undone, centres[own] = applied.undo()
        gains[own] = 1 / np.diag(undone)
        gains[own] *= _left_by_cutting(gains[own] ** 2 * (variances + (means - centres[own]) ** 2))
    return gains, centres


def _left_by_cutting(squares: Array) -> float:
    """What cutting leaves of a column with these mean squares, (d,): sqrt(E min(X, t)), X gamma of mean 1, t = 1/sum.

    E min(X, t) = P(k + 1, k t) + t (1 - P(k, k t)) with shape k = (sum)^2 / (2 sum of squares).
    """
    from scipy.special import gammainc  # noqa: PLC0415 - loads slowly, and agents and coordinators start without it

    total = float(squares.sum())
    k, t = total**2 / (2 * float(squares @ squares)), 1 / total
    return float(np.sqrt(gammainc(k + 1, k * t) + t * (1 - gammainc(k, k * t))))
