"""A fitted linear model in original units, and the curve of one of its numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import stdtr, stdtrit

from commingle.services.fit.predicting import Predictor, Values, public_ranges, term_matrix
from commingle.services.intervals import around, percent, standard_errors
from commingle.services.plotting import COLOURS, INK, Axes, Intervals, axes_on, entitle, tidy
from commingle.services.results import Drawn, ResultColumn, ResultTable, three_digits
from commingle.shared.documents.schema import Attribute, CategoricalAttribute, NumericAttribute, as_registered
from commingle.shared.documents.schema import Intervals as IntervalsOfNumber
from commingle.shared.errors import UnknownAttributeError
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import Coverage, Diagnostics
from commingle.shared.estimation.pairwise import Held
from commingle.shared.estimation.shares import mapped
from commingle.shared.mechanisms import mechanism_named

_POINTS = 101
_SHOWN = 10  # steps of a table


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Curve(Drawn):
    """The expected target at each value of a number, less the expected target at the middle of its bounds.

    Factors that the number is multiplied with stay at the middle of their bounds, or at their first level.

    Attributes:
        number: the number as it is registered.
        at: (m,) values, from one bound to the other.
        differences: (m,), in the target's unit.
        intervals: (m, 2), each for itself, with the fit's confidence; NaN where the fit has none.
        cut: the intervals, if the number was released in these alone; None for a curve without steps.
    """

    computed: ClassVar = ("attribute",)

    number: NumericAttribute = field(repr=False)
    target: str
    at: Array
    differences: Array
    intervals: Array
    confidence_level: float
    cut: IntervalsOfNumber | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """The number's name."""
        return self.number.name

    @property
    def middle(self) -> float:
        """The value at which the curve is 0."""
        return self.number.columns[0].offset

    def table(self) -> ResultTable:
        if self.cut is None:
            shown = np.round(np.linspace(0, len(self.at) - 1, _SHOWN + 1)).astype(np.intp)
        else:
            shown = np.searchsorted(self.at, _middles(self.cut))
        unit = f" {self.number.unit}" if self.number.unit else ""
        change = ResultColumn(f"difference of {self.target}", self.differences[shown], interval=self.intervals[shown])
        return ResultTable(
            title=f"{self.target} by {self.attribute}, beside {self.attribute} of {self.middle:g}{unit}",
            heading=self.attribute,
            labels=self.at[shown].tolist() if self.cut is None else self.cut.levels,
            columns=(change,),
            notes=(f"Each {percent(self.confidence_level)} interval is for its own line.",),
            warnings=self.warnings,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the curve with its band, on `ax` or a new figure."""
        ax = axes_on(ax, rows=7)
        ax.axhline(0, color=INK, linewidth=0.9)
        ax.fill_between(self.at, *self.intervals.T, color=COLOURS[0], alpha=0.2, linewidth=0)
        ax.plot(self.at, self.differences, color=COLOURS[0], linewidth=2)
        name, unit = self.attribute, f" ({self.number.unit})" if self.number.unit else ""
        y = f"change of {self.target} from {name} of {self.middle:g}"
        entitle(ax, f"{self.target} by {name}", f"{name}{unit}", y)
        tidy(ax)
        return ax


def _middles(cut: IntervalsOfNumber) -> Array:
    ends = np.array([cut.lower, *cut.cuts, cut.upper])
    return np.asarray((ends[:-1] + ends[1:]) / 2)


def curve_of(fit: "Fit", name: str) -> Curve:
    """The curve of a number in a fit: of its own term, of its intervals, and of products that it is a factor of.

    Raises UnknownAttributeError: no term of the fit is made of a number of that name.
    """
    numbers = {part.name: part for part in _values_of(fit.schema) if isinstance(part, NumericAttribute)}
    if name not in numbers:
        raise UnknownAttributeError(name, numbers, said=f"{name!r} is no number among the features of this fit")
    number = numbers[name]
    at, middle = np.linspace(number.lower, number.upper, _POINTS), number.columns[0].offset
    of_number = [a for a in fit.schema if name in {part.name for part in as_registered(a)}]
    cut = of_number[0].intervals if len(of_number) == 1 and of_number[0].kind == "categorical" else None
    if cut is not None:
        at = np.union1d(at, _middles(cut))
    terms = _terms(fit, name, [*at.tolist(), middle])
    change = terms[:-1] - terms[-1]
    errors = standard_errors(mapped(change, fit.covariance))
    reach = stdtrit(fit.degrees_of_freedom, (1 + fit.confidence_level) / 2) * errors
    differences = np.asarray(change @ fit.coefficients)
    return Curve(
        number=number,
        target=fit.target,
        at=at,
        differences=differences,
        intervals=around(differences, reach),
        confidence_level=fit.confidence_level,
        cut=cut,
        warnings=fit.warnings,
    )


def _values_of(schema: tuple[Attribute, ...]) -> Iterator[Attribute]:
    """The columns of rows to predict from: numbers and levels as registered, but pairs as released."""
    for attribute in schema:
        is_pairs = isinstance(attribute, CategoricalAttribute) and attribute.cross is not None
        yield from (attribute,) if is_pairs else as_registered(attribute)


def _terms(fit: "Fit", name: str, values: list[float]) -> Array:
    rows: dict[str, Values] = {name: values}
    for part in _values_of(fit.schema):
        if isinstance(part, NumericAttribute):
            rows.setdefault(part.name, [part.columns[0].offset] * len(values))
        else:
            rows.setdefault(part.name, [part.levels[0]] * len(values))
    return term_matrix(rows, fit.schema, intercept=fit.intercept)


COVERED = {
    "table": "Intervals are for the same fit on the full private table: p asks whether a slope in these very rows "
    "is 0, not in the population.",
    "population": "Intervals are for the population the table was drawn from, if residuals spread alike everywhere; "
    "where they do not, they may hold a slope far less often (docs/coverage.md).",
    "spread": "Intervals are for the population the table was drawn from, and count how differently residuals "
    "spread by level.",
    "release": "Intervals are for the noisy release itself, not for the private table.",
    "none": "There are no intervals for this fit.",
}
_NOTHING = 0.01


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fit(Drawn):
    """Coefficients in units of the target per unit of the attribute, or per level against the reference level.

    Attributes:
        features: attributes in use; none for `constant`.
        terms: p_x labels, the intercept first if there is one.
        coefficients: (p_x,).
        covariance: (p_x, p_x) of the coefficients; NaN where there is none, and so are errors, intervals and tests.
        interval_for: what the intervals cover and p-values ask about: the coefficients of the `population`, those of
            the same fit on the private `table`, those of an endless noisy `release` like this one (`ols`), or `none`.
        counts_spread: whether intervals for the population count that residuals spread differently by level.
        epsilon, delta: of each member of the release; None for a fit of moments alone.
        rows: published rows; n where there are none.
        schema: the attributes of `features`.
        response: the attribute of `target`.
        imputed: a sentence on missing cells for each attribute in use that accepts them.
        subjects: sentences on how many people members hold and share, where this is not known exactly.
        counts: these counts as numbers; for listed data sets, the length of the list.
    """

    computed: ClassVar = ("standard_errors", "t_values", "p_values", "intervals")

    estimator: str
    target: str
    features: tuple[str, ...]
    intercept: bool
    terms: tuple[str, ...]
    coefficients: Array
    covariance: Array
    degrees_of_freedom: int
    confidence_level: float
    interval_for: Coverage
    n: int
    rows: int
    mechanism: str
    diagnostics: Diagnostics
    warnings: tuple[str, ...]
    schema: tuple[Attribute, ...] = field(repr=False)
    response: Attribute = field(repr=False)
    imputed: tuple[str, ...] = ()
    counts_spread: bool = False
    epsilon: float | None = field(default=None, repr=False)
    delta: float | None = field(default=None, repr=False)
    subjects: tuple[str, ...] = ()
    counts: tuple[Held, ...] = ()

    @property
    def standard_errors(self) -> Array:
        """(p_x,)."""
        return standard_errors(self.covariance)

    @property
    def t_values(self) -> Array:
        """Coefficient over standard error, (p_x,); infinite where an error is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.coefficients / self.standard_errors

    @property
    def p_values(self) -> Array:
        """Two-sided tail of t with `degrees_of_freedom`, (p_x,)."""
        return np.asarray(2 * stdtr(self.degrees_of_freedom, -np.abs(self.t_values)))

    @property
    def intervals(self) -> Array:
        """(p_x, 2), t quantiles with `degrees_of_freedom`, at `confidence_level`."""
        reach = stdtrit(self.degrees_of_freedom, (1 + self.confidence_level) / 2) * self.standard_errors
        return around(self.coefficients, reach)

    @property
    def predictor(self) -> Predictor:
        """The model, as it predicts."""
        return Predictor(self.coefficients, self.schema, self.response, intercept=self.intercept)

    def predict(self, rows: Mapping[str, Values], *, extrapolate: bool = False) -> Array:
        """Expected target, (m,), for m rows in original units: numbers, or levels as strings, by attribute name.

        Clips numbers and predictions to public bounds, with an OutsideBoundsWarning, unless `extrapolate`. `constant`
        takes its m from any attribute that you give.

        Raises RowsError: an attribute is missing, has another length, or holds a value that it cannot have.
        """
        return self.predictor.warned(rows, extrapolate=extrapolate)

    def curve(self, name: str) -> Curve:
        """How the target changes over a number's public range, by all terms that the number is in.

        Raises UnknownAttributeError: no term of the fit is made of a number of that name.
        """
        return curve_of(self, name)

    def table(self) -> ResultTable:
        low, high = self.intervals.T
        level = f"{100 * self.confidence_level:g} %"
        return ResultTable(
            title=f"Linear model of {self.target}",
            facts=(
                ("estimator", self.estimator),
                ("mechanism", self.mechanism),
                ("people", f"{self.n:,}"),
                ("degrees of freedom", f"{self.degrees_of_freedom:,}"),
                *((("published rows", f"{self.rows:,}"),) if mechanism_named(self.mechanism).of_rows else ()),
                *(() if self.epsilon is None else (("epsilon per member", f"{self.epsilon:g}"),)),
                *(() if self.delta is None else (("delta", f"{self.delta:g}"),)),
                ("expected R²", _r_squared(self.diagnostics)),
                ("signal to noise", three_digits(self.diagnostics.signal_to_noise)),
            ),
            heading="term",
            labels=self.terms,
            columns=(
                ResultColumn("coefficient", self.coefficients),
                ResultColumn("standard error", self.standard_errors),
                ResultColumn("t", self.t_values, ".2f"),
                ResultColumn("p", self.p_values, "p"),
                ResultColumn(f"{level} low", low),
                ResultColumn(f"{level} high", high),
            ),
            notes=(COVERED["spread" if self.counts_spread else self.interval_for], *self.imputed, *self.subjects),
            warnings=self.warnings,
        )

    @property
    def sentence(self) -> str:
        """The fit in one sentence, without a figure where noise hides it."""
        if not self.features:
            return f"The mean of {self.target} alone"
        *first, last = self.features
        by, found = f"{', '.join(first)} and {last}" if first else last, self.diagnostics
        verb = "explain" if first else "explains"
        if found.r_squared is None or found.r_squared_error is None:
            return f"{self.target} by {by}"
        if found.hides_r_squared:
            return f"Noise hides what {by} {verb} of {self.target}"
        if found.r_squared < _NOTHING:
            return f"{by} {verb} next to nothing of {self.target}"
        return f"{by} {verb} about {100 * found.r_squared:.0f} % of what varies in {self.target}"

    def pictures(self) -> tuple[Intervals, ...]:
        """The change of the target over each term's public range."""
        start, width = int(self.intercept), public_ranges(self.schema)
        intervals = self.intervals[start:] * width[:, None]
        covered = "no intervals" if np.isnan(intervals).all() else f"{percent(self.confidence_level)} interval"
        picture = Intervals(
            title=f"{self.target} by {self.estimator}",
            axis=f"change of {self.target} over a feature's public range ({covered})",
            labels=self.terms[start:],
            values=self.coefficients[start:] * width,
            intervals=intervals,
            of="effects",
        )
        return (picture,)


def _r_squared(found: Diagnostics) -> str:
    if found.r_squared is None:
        return "none"
    if found.hides_r_squared:
        return "hidden by noise"
    error = "" if found.r_squared_error is None else f" (se {found.r_squared_error:.3f})"
    return f"{found.r_squared:.3f}{error}"
