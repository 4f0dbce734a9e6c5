"""Principal components and partial correlations of columns, from the covariance that a release gives.

Covariance and components are those of the posterior mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from commingle.services.errors import NoSignalError
from commingle.services.fit.subjects import about_subjects, cut_words, of_those_who_have, whose
from commingle.services.plotting import COLOURS, INK, Axes, axes_on, entitle, plain_label, tidy
from commingle.services.results import Result, ResultColumn, ResultTable
from commingle.shared.errors import FeaturesError
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import IntervalFor, names_of, require_interval
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.system import System, build_system, centre
from commingle.shared.mechanisms import mechanism_of

_ROUNDING = 1e-10  # of the largest eigenvalue


@dataclass(frozen=True, slots=True, eq=False)
class Covariance:
    """The covariance of p columns per subject, in encoded units, with the intercept partialled out.

    Attributes:
        labels: names of the columns.
        total: (p, p) as released, noise included.
        noise: (p, p) the noise in `total`, on average.
        values: (p, p) of the posterior mode; without noise `total` itself.
        root: (p, p) with values = root^T root: p rows whose moments are exactly these, for solvers that take rows.
        buried: how many directions have less variance in `total` than in `noise`; the prior decides these.
        rows: degrees of freedom in `total`.
        doubts: warnings about the number of people, and that missing cells depend on values.
        subsets: which people a study chose, a sentence for each member of these columns.
    """

    labels: tuple[str, ...]
    total: Array
    noise: Array
    values: Array
    root: Array
    buried: int
    rows: int
    n: int
    doubts: tuple[str, ...]
    subsets: tuple[str, ...]

    @property
    def deviations(self) -> Array:
        """(p,) standard deviations."""
        return np.sqrt(np.diag(self.values))

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self.buried:
            return self.doubts
        warning = (
            f"In {self.buried} of {len(self.labels)} directions there is less than the noise that is expected. What is "
            "said about them is what is assumed of any table, and not to be relied on. Name fewer attributes."
        )
        return (warning, *self.doubts)


def estimate(prepared: PreparedMoments, columns: tuple[int, ...]) -> Covariance:
    """Estimate the covariance of these columns.

    Raises:
        NoSignalError: noise hides all variance of one of them.
        TooFewRowsError: there are no more published rows than columns.
    """
    # the label of this system is one of its terms; nothing solves it
    system = build_system(prepared, columns[0], columns, intercept=True)
    c, regular = centre(system), system.regularised()
    total, V = _per_subject(system, c.X / c.rows), _per_subject(system, c.V)
    visible, buried = _above_noise(total - V, V)
    empty = visible <= _ROUNDING * np.diag(total)
    if empty.any():
        raise NoSignalError(
            f"no variance of {system.terms[1 + int(np.argmax(empty))]} is left once the noise is taken off",
            remedy="Leave it out, or use a release with a larger epsilon.",
        )
    mode = centre(regular)
    values = _per_subject(regular, mode.X / mode.rows)
    roots, axes = np.linalg.eigh(values)
    root = np.sqrt(np.maximum(roots, 0.0))[:, None] * axes.T
    n, doubts = prepared.shared(columns), about_subjects(prepared, np.array(columns) - 1).doubts
    who = whose(prepared, columns)
    return Covariance(system.terms[1:], total, V, values, root, buried, c.rows, n, doubts, who)


def _per_subject(system: System, of_a_row: Array) -> Array:
    return of_a_row * (system.rows / system.n)


def _above_noise(C: Array, V: Array) -> tuple[Array, int]:
    """Each column's variance in the directions of L^-1 C L^-T that are not negative, (p,), and how many are negative.

    V = L L^T, so that noise is white in these directions.
    """
    L = np.linalg.cholesky(V) if (np.diag(V) > 0).all() else np.eye(len(C))
    inverse = np.linalg.inv(L)
    values, vectors = np.linalg.eigh(inverse @ C @ inverse.T)
    negative = values < -_ROUNDING * np.abs(values).max()
    return (L @ vectors) ** 2 @ np.maximum(values, 0.0), int(negative.sum())


def columns_of(prepared: PreparedMoments, names: str | Sequence[str] | None) -> tuple[int, ...]:
    """Indices of the columns of these attributes, or of all.

    Raises UnknownAttributeError; FeaturesError: no attribute is named, or one twice.
    """
    chosen = names_of(prepared.attributes if names is None else names)
    for name in chosen:
        prepared.attribute(name)
    if not chosen or len(set(chosen)) < len(chosen):
        raise FeaturesError("no attributes are named, or one twice", remedy="Name each attribute once.")
    return tuple(i for name in chosen for i in prepared.columns[name])


def _of_attributes(
    prepared: PreparedMoments, attributes: str | Sequence[str] | None
) -> tuple[PreparedMoments, Covariance]:
    names = names_of(prepared.attributes if attributes is None else attributes)
    prepared, gaps = of_those_who_have(prepared, names)
    columns = columns_of(prepared, names)
    found = estimate(prepared, columns)
    doubts, subsets = (*found.doubts, *cut_words(prepared, columns)), (*found.subsets, *gaps)
    return prepared, replace(found, doubts=doubts, subsets=subsets)


_PLOT_ROWS, _PLOT_INCHES = 16, 7.5
_LABEL_WIDTH, _LABEL_HEIGHT = 0.2, 0.04  # of half an axis


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PrincipalComponents(Result):
    """Components in order of variance. No standard errors: see the warnings and `signal_to_noise`.

    Attributes:
        labels: names of the p columns.
        standardised: whether every column was scaled to variance 1; otherwise columns are in encoded units.
        variances: (p,) variance of each component.
        shares: (p,) share of each component in the sum of variances.
        loadings: (p, p), one component per row, of length 1; its largest entry is positive.
        signal_to_noise: (p,) variance of a component over the noise in it; NaN where rows hold no noise.
    """

    labels: tuple[str, ...]
    standardised: bool
    variances: Array
    shares: Array
    loadings: Array
    signal_to_noise: Array
    n: int
    rows: int
    warnings: tuple[str, ...]
    subjects: tuple[str, ...] = ()

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw each column on the first two components, on `ax` or a new figure.

        An arrow ends at loadings times the components' standard deviations: at correlations, if columns are
        standardised.
        """
        ax = axes_on(ax, rows=_PLOT_ROWS, width_inches=_PLOT_INCHES)
        ends = np.zeros((2, len(self.labels)))
        ends[: len(self.loadings)] = (self.loadings * np.sqrt(self.variances)[:, None])[:2]
        arrow = {"arrowstyle": "->", "color": COLOURS[0], "shrinkA": 0, "shrinkB": 0}
        reach = 1.3 * (float(np.abs(ends).max()) or 1.0)
        heights = _apart(ends[0], ends[1], reach)
        for label, x, y, height in zip(self.labels, ends[0], ends[1], heights, strict=True):
            ax.annotate("", (x, y), (0, 0), arrowprops=arrow)
            side = "left" if x >= 0 else "right"
            ax.text(x, height, f" {plain_label(label)} ", fontsize=8, color=INK, ha=side, va="bottom")
        ax.set_xlim(-reach, reach)
        ax.set_ylim(-reach, reach)
        tidy(ax)
        entitle(ax, "Principal components", self._share_of(0), self._share_of(1))
        return ax

    def _share_of(self, component: int) -> str:
        if component >= len(self.shares):
            return ""
        signal = self.signal_to_noise[component]
        said = "" if np.isnan(signal) else f", signal to noise {signal:.2g}"
        return f"component {component + 1}: {self.shares[component]:.0%} of the variance{said}"

    def table(self) -> ResultTable:
        return ResultTable(
            title="Principal components",
            facts=(("units", "standardised" if self.standardised else "encoded"), ("subjects", f"{self.n:,}")),
            heading="component",
            labels=tuple(str(i + 1) for i in range(len(self.labels))),
            columns=(
                ResultColumn("variance", self.variances),
                ResultColumn("share", self.shares, ".1%"),
                ResultColumn("signal to noise", self.signal_to_noise, ".3g"),
                *(ResultColumn(label, self.loadings[:, i], ".3f") for i, label in enumerate(self.labels)),
            ),
            notes=self.subjects,
            warnings=self.warnings,
        )


def _apart(x: Array, y: Array, reach: float) -> list[float]:
    placed: dict[int, float] = {}
    for i in np.argsort(y, kind="stable"):
        near = [other for j, other in placed.items() if abs(x[i] - x[j]) < _LABEL_WIDTH * reach]
        placed[i] = max([float(y[i]), *(other + _LABEL_HEIGHT * reach for other in near)])
    return [placed[i] for i in range(len(y))]


def pca(
    prepared: PreparedMoments, attributes: str | Sequence[str] | None = None, *, standardise: bool = True
) -> PrincipalComponents:
    """Principal components of these attributes, or of all. Each level of a categorical attribute is a column.

    Raises EstimationError: an attribute is unknown, or noise hides it wholly.
    """
    prepared, covariance = _of_attributes(prepared, attributes)
    units = covariance.deviations if standardise else np.ones(len(covariance.labels))
    _, roots, loadings = np.linalg.svd(covariance.root / units)
    loadings *= np.sign(loadings[np.arange(len(units)), np.abs(loadings).argmax(axis=1)])[:, None]
    variances = roots**2
    signal_to_noise = _against_noise(covariance, loadings / units, variances)
    return PrincipalComponents(
        labels=covariance.labels,
        standardised=standardise,
        variances=variances,
        shares=variances / variances.sum(),
        loadings=loadings,
        signal_to_noise=signal_to_noise,
        n=covariance.n,
        rows=prepared.rows,
        subjects=covariance.subsets,
        warnings=(*covariance.warnings, *_faint(covariance, signal_to_noise)),
    )


def _against_noise(covariance: Covariance, directions: Array, variances: Array) -> Array:
    noise = np.einsum("ij,jk,ik->i", directions, covariance.noise, directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(noise > 0, variances / noise, np.nan)


def _faint(covariance: Covariance, signal_to_noise: Array) -> tuple[str, ...]:
    """Noise of m rows and p columns has eigenvalues up to (1 + sqrt(p/m))^2 (Marchenko and Pastur 1967)."""
    edge = (1 + np.sqrt(len(covariance.labels) / covariance.rows)) ** 2 - 1
    faint = np.flatnonzero(signal_to_noise < edge)
    if not len(faint):
        return ()
    which = ", ".join(str(i + 1) for i in faint)
    return (f"Components {which} cannot be told from noise, which alone reaches a signal to noise of {edge:.2g}.",)


_SINGULAR = 1e-10  # of a correlation matrix
_UNSURE = 0.3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PartialCorrelations(Result):
    """Partial correlations of every pair of columns.

    Attributes:
        labels: names of the p columns.
        values: (p, p), 1 on the diagonal.
        standard_errors: (p, p), NaN on the diagonal, and everywhere if this kind of release has none.
        interval_for: what the errors measure the distance to: the population, or the private table.
    """

    labels: tuple[str, ...]
    values: Array
    standard_errors: Array
    interval_for: IntervalFor
    n: int
    rows: int
    warnings: tuple[str, ...]
    subjects: tuple[str, ...] = ()

    def table(self) -> ResultTable:
        return ResultTable(
            title="Partial correlations",
            facts=(("subjects", f"{self.n:,}"),),
            heading="column",
            labels=self.labels,
            columns=tuple(ResultColumn(label, self.values[:, i], ".3f") for i, label in enumerate(self.labels)),
            notes=(f"Standard errors: {_extent(self.standard_errors)}.", *self.subjects),
            warnings=self.warnings,
        )


def partial_correlations(
    prepared: PreparedMoments,
    attributes: str | Sequence[str] | None = None,
    *,
    interval_for: IntervalFor = "population",
) -> PartialCorrelations:
    """Correlation of each pair of these attributes, or of all, given the others named.

    Raises:
        NoSignalError: noise leaves no variance in some direction, or a column follows from the others.
        EstimationError: an attribute or the interval is unknown.
    """
    require_interval(interval_for)
    prepared, covariance = _of_attributes(prepared, attributes)
    units = covariance.deviations
    R = covariance.values / np.outer(units, units)
    if covariance.buried or np.linalg.eigvalsh(R)[0] <= _SINGULAR:
        raise NoSignalError(
            "some combination of the columns has no variance once the noise is taken off",
            remedy="Name fewer attributes, or use a release with a larger epsilon.",
        )
    P = np.linalg.inv(R)
    U = P / np.sqrt(np.diag(P)) / units[:, None]  # columns u_i with C U scaled so that u_i^T C u_i = 1
    values = -P / np.sqrt(np.outer(np.diag(P), np.diag(P)))
    np.fill_diagonal(values, 1.0)
    errors = _errors(prepared, covariance, values, U.T @ covariance.total @ U, interval_for)
    return PartialCorrelations(
        labels=covariance.labels,
        values=values,
        standard_errors=errors,
        interval_for=interval_for,
        n=covariance.n,
        rows=prepared.rows,
        subjects=covariance.subsets,
        warnings=(*covariance.warnings, *_unsure(errors)),
    )


def _errors(prepared: PreparedMoments, c: Covariance, r: Array, T: Array, interval_for: IntervalFor) -> Array:
    """Delta method for m rows of N(0, total), T = U^T total U, per pair of columns.

    d r_ij = u_i^T dC u_j + r (u_i^T dC u_i + u_j^T dC u_j) / 2, hence with a = T_ii, b = T_jj, c = T_ij
    Var(r_ij) = [(r a + c)^2 + 2 (a + r c)(b + r c) + (r b + c)^2] / 2m,
    which is (1 - r^2)^2 / m without noise: what the rows of dgm vary around the table by not doing, and those of rmgm
    around the population by doing once more over n.
    """
    mechanism = mechanism_of(prepared)
    if not mechanism.of_rows:
        return np.full_like(r, np.nan)
    a, b = np.diag(T)[:, None], np.diag(T)[None]
    variance = ((r * a + T) ** 2 + 2 * (a + r * T) * (b + r * T) + (r * b + T) ** 2) / (2 * c.rows)
    variance += mechanism.fit.sampling(rows=c.rows, n=c.n, interval_for=interval_for) * (1 - r**2) ** 2
    np.fill_diagonal(variance, np.nan)
    return np.sqrt(np.maximum(variance, 0.0))


def _unsure(errors: Array) -> tuple[str, ...]:
    known = errors[np.isfinite(errors)]
    if not len(known):
        return ()
    unsure = int((known > _UNSURE).sum()) // 2
    pairs = len(known) // 2
    return (
        (f"{unsure} of {pairs} pairs have a standard error above {_UNSURE}: noise dominates them.",) if unsure else ()
    )


def _extent(errors: Array) -> str:
    known = errors[np.isfinite(errors)]
    return f"{known.min():.2g} to {known.max():.2g}" if len(known) else "not known for this kind of release"
