"""A fitted generalised linear model: its figures, and how they are shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from commingle.services.fit.terms import Values, level_places
from commingle.services.models.outcome import Outcome
from commingle.services.plotting import INK, draw_ratios, new_axes, plain_label
from commingle.services.results import Drawn, ResultColumn, ResultTable
from commingle.shared.documents.schema import Levelled
from commingle.shared.estimation.errors import RowsError
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.request import IntervalFor

if TYPE_CHECKING:  # matplotlib is slow to import and only plots need it
    from matplotlib.axes import Axes

COVERED = {
    "table": "Intervals are for the same fit on the full private table, and count the privacy noise.",
    "population": "Intervals are for the population, and count the privacy noise and the drawing of these people.",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GeneralisedFit(Drawn):
    """A generalised linear model with the family's own link: logit of an event's chance, log of an expected count.

    Attributes:
        family: binomial or poisson.
        outcome: attribute, with the event in brackets where it has levels.
        features: attributes.
        terms: p labels, the intercept first; a level is against the first one of its attribute.
        coefficients: (p,), log odds or rate ratios.
        standard_errors: (p,).
        intervals: (p, 2) of the coefficients.
        p_values: (p,) two-sided, of the normal law.
        ratios: (p,) odds or rate ratios; of the intercept, the odds or the rate where all levels are the first.
        ratio_intervals: (p, 2).
        covariance: (p, p).
        marginal_effects: (p,) mean change of the expected outcome, a level in place of the first; NaN first.
        marginal_errors: (p,).
        auc: expected where the model is right, and `auc_interval` (2,); None of counts.
        levels: labels of all levels of all features, for `expected`.
        expected: (t,) mean outcome by level, by the model.
        observed: (t,) as released, with `observed_errors` of noise and drawing.
        n: people with an outcome, and `n_interval` (2,).
        interval_for: whom intervals are for.
        sentence: what the clearest term says.
        about: whom the model speaks of.
        prior: what was assumed of coefficients.
        schema: the features.
        law: of the outcome.
    """

    family: str
    outcome: str
    features: tuple[str, ...]
    terms: tuple[str, ...]
    coefficients: Array
    standard_errors: Array
    intervals: Array
    p_values: Array
    ratios: Array
    ratio_intervals: Array
    covariance: Array
    marginal_effects: Array
    marginal_errors: Array
    auc: float | None
    auc_interval: tuple[float, float] | None
    levels: tuple[str, ...]
    expected: Array
    observed: Array
    observed_errors: Array
    n: int
    n_interval: tuple[int, int]
    confidence_level: float
    interval_for: IntervalFor
    sentence: str
    about: str
    prior: str
    subjects: tuple[str, ...]
    warnings: tuple[str, ...]
    schema: tuple[Levelled, ...] = field(repr=False)
    law: Outcome = field(repr=False)

    def predict(self, rows: Mapping[str, Values]) -> Array:
        """Expected outcomes, (m,): chances within 0 and 1, or rates.

        A value is a level, a number where levels are its intervals, or None for a missing cell.

        Raises:
            RowsError: a feature is missing, of another length, or holds what is not one of its levels.
        """
        lacking = [name for name in self.features if name not in rows]
        if lacking or len({len(rows[name]) for name in self.features}) != 1:
            raise RowsError("a feature is missing, or of another length", remedy=f"Give {', '.join(self.features)}.")
        blocks = [_indicators(attribute, rows[attribute.name]) for attribute in self.schema]
        X = np.hstack([np.ones((len(blocks[0]), 1)), *blocks])
        return self.law.prediction(X, self.coefficients)

    def table(self) -> ResultTable:
        """Ratios with intervals, a row for each term."""
        ratio = self.law.ratio
        low, high = self.n_interval
        counted = f"{self.n:,}" if low == high else f"about {self.n:,} ({low:,} to {high:,})"
        found = () if self.auc is None or self.auc_interval is None else (("AUC", _auc(self.auc, self.auc_interval)),)
        return ResultTable(
            title=f"{self.family.capitalize()} model of {self.outcome}",
            facts=(("people", counted), *found, ("intervals", f"{100 * self.confidence_level:g} %")),
            heading="term",
            labels=self.terms,
            columns=(
                ResultColumn(ratio, self.ratios, ".3f", interval=self.ratio_intervals),
                ResultColumn("coefficient", self.coefficients, ".3f"),
                ResultColumn("standard error", self.standard_errors, ".3f"),
                ResultColumn("p", self.p_values, "p"),
                ResultColumn("marginal effect", self.marginal_effects, ".4f"),
            ),
            notes=(self.sentence, COVERED[self.interval_for], self.about, self.prior, *self.subjects),
            warnings=self.warnings,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the ratio of every level against the first one, with its interval; on `ax` or a new figure."""
        start = len(self.law.intercepts)
        if ax is None:
            ax = new_axes(rows=len(self.terms) - start)
        draw_ratios(ax, tuple(map(plain_label, self.terms[start:])), self.ratios[start:], self.ratio_intervals[start:])
        ax.set_title(plain_label(self.outcome), fontsize=11, color=INK)
        covered = f"{100 * self.confidence_level:g} % intervals"
        ax.set_xlabel(f"{self.law.ratio} against the first level ({covered})", fontsize=9)
        return ax

    def summary(self) -> str:
        """The table as text."""
        return self.table().to_text()

    def calibration(self) -> ResultTable:
        """Mean outcomes by level: what the model expects beside what was released."""
        return ResultTable(
            title=f"Calibration of {self.outcome}",
            heading="level",
            labels=self.levels,
            columns=(
                ResultColumn("expected", self.expected, ".4f"),
                ResultColumn("observed", self.observed, ".4f"),
                ResultColumn("standard error", self.observed_errors, ".4f"),
            ),
        )


def _auc(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


def _indicators(attribute: Levelled, values: Values) -> Array:
    """(m, L - 1), a marked gap being the last of the L levels."""
    size = len(attribute.levels) + (attribute.missing == "indicator")
    return np.asarray(np.eye(size)[level_places(attribute, values), 1:])
