"""The regression that a forecast is about, and what a public sample of few rows leaves open.

A regression fitted to m rows explains more of them than of anybody else. Under a normal law and a g-prior of the slopes
(Zellner 1986) with a factor s of shrinkage of density 1/(1 - s) (the hyper-g prior of Liang et al. 2008, a = 2), given
the sample's R^2 of q features and the variance yy of its label:

    p(s) ~ (1 - s)^(q/2 - 1) (1 - s R^2)^(-(m-1)/2),
    residual | s ~ m yy (1 - s R^2) / chi^2_(m-1),
    b | s, residual ~ N(s b_hat, (s residual / m) xx^-1).

On average the explained part is about that of the adjusted R^2. The covariance of the features is drawn apart from b,
as that of m rows of a normal law whose covariance is the sample's.

Whether a study should release the square of its target (`square_words`): intervals for the population rest on noise and
on sampling, of variance residual xx^-1 / n. Residuals that spread unalike change the second alone, so the square is
worth its noise where sampling is by far the larger part (ADR 48): a tenth of it leaves room for a target that varies
less than a uniform one.
"""

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    EncodedColumn,
    NumericAttribute,
)
from commingle.shared.documents.spec import MAX_COLUMNS, StatedPurpose
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.errors import PlanningError
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.mechanisms import mechanism_of, sketched_names
from commingle.shared.mechanisms.prediction import ColumnLaw, RegressionTask, encoded_noise
from commingle.shared.release.checks import closed

R_SQUARED = 0.3
_UNEXPLAINED = 1e-9  # least part of a standardised column that the others must leave
_STILL = 1e-24  # variance of a column that says nothing
_GAPS = 0.1  # of cells, if a schema marks missing ones and no table says how many there are
_ROUNDING = 1e-9
COVERED = 0.9  # by the 2nd least to the 2nd largest of 39, or by the least to the largest of 19
_DRAWS, _DRAWS_OF_WIDE, _WIDE = 39, 19, 64
_SEED = 0
_LEFT = np.geomspace(1e-6, 1, 400)  # 1 - s, by steps that have a prior of the same size
_FACTORS = 1 - _LEFT
_NEARLY_ALL = 1 - 1e-9


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Assumptions:
    """Assumptions about rows that nobody has seen, and the question that will be put to them."""

    # the label's part that the features explain, in (0, 1); `second_moments` give it themselves
    r_squared: float = R_SQUARED
    # name of the label; None for the one in the middle of all possible ones, by noise per variance
    target: str | None = None
    features: tuple[str, ...] | None = None  # names of attributes; None for all but the label
    # (p, p) A^T A / n of encoded rows, the intercept first, of a public table with the same attributes; None for
    # attributes that are independent and uniform on their bounds or levels
    second_moments: Array | None = None
    public_rows: int | None = None  # how many rows that table has; None for moments that are to be taken as exact
    odds_ratio: float = 1.5  # that tables are asked to show, in either direction from 1
    # shares of people who have a level, whatever else they are: its attribute, the level, the share
    shares: tuple[tuple[str, str, float], ...] = ()


def assumptions_of(asked: StatedPurpose, assumed: Assumptions | None = None) -> Assumptions:
    """The assumptions, with the target and the features of a study or spec unless they name others."""
    assumed = assumed or Assumptions()
    if assumed.target not in {None, asked.target}:
        return assumed
    return replace(assumed, target=asked.target, features=assumed.features or asked.features)


def task_of(terms: Terms, assumed: Assumptions) -> RegressionTask:
    """The assumed regression.

    Without a table all standardised slopes are equal, b_j = c / sqrt(xx_jj), with b^T xx b = R^2 yy.
    """
    if not 0 < assumed.r_squared < 1:
        raise PlanningError(f"an R^2 of {assumed.r_squared} is not between 0 and 1", remedy="Assume 0.3, for example.")
    mechanism = mechanism_of(terms)
    if terms.k is not None and not (mechanism.sketched and 2 <= terms.k <= terms.n):  # noqa: PLR2004 - of a spec
        with_k = " and ".join(sketched_names())
        raise PlanningError(f"k cannot be {terms.k} here", remedy=f"Only {with_k} has a k, between 2 and n.")
    columns = _columns(terms)
    given = assumed.second_moments
    mean, covariance = uniform_law(terms.parties) if given is None else table_law(given, columns=len(columns))
    if assumed.public_rows is not None:
        covariance = _apart(covariance, assumed.public_rows)
    law = ColumnLaw(mean, np.diag(covariance))
    x, y, target = _chosen(terms, assumed, law)
    labels = tuple(columns[i].label for i in x)
    xx, yy = covariance[np.ix_(x, x)], float(covariance[y, y])
    _require_determined(xx, yy, (*labels, target))
    if given is None:
        alike = 1 / np.sqrt(np.diag(xx))
        b = alike * sqrt(assumed.r_squared * yy / float(alike @ xx @ alike))
    else:
        b = np.asarray(np.linalg.solve(xx, covariance[list(x), y]), dtype=np.float64)
    return RegressionTask(
        target=target,
        x=x,
        y=y,
        labels=labels,
        mean=mean[list(x)],
        mean_y=float(mean[y]),
        xx=xx,
        inverse=np.asarray(np.linalg.inv(xx), dtype=np.float64),
        b=b,
        yy=yy,
        residual=max(0.0, yy - float(b @ xx @ b)),
        offset=np.array([columns[i].offset for i in x]),
        scale=np.array([columns[i].scale for i in x]),
        unit=columns[y].scale,
        law=law,
    )


def _columns(terms: Terms) -> tuple[EncodedColumn, ...]:
    empty = [party.name for party in terms.parties if not party.attributes]
    if empty:
        raise PlanningError(f"no attributes are asked of {empty[0]}", remedy="Give each member at least one attribute.")
    width = 1 + len(terms.columns)
    if width > MAX_COLUMNS:
        raise PlanningError(f"{width} encoded columns; at most {MAX_COLUMNS} fit one release", remedy="Ask for fewer.")
    return terms.columns


def _chosen(terms: Terms, assumed: Assumptions, law: ColumnLaw) -> tuple[tuple[int, ...], int, str]:
    names = [a.name for a in terms.attributes]
    features = set(names if assumed.features is None else assumed.features)
    unknown = sorted({*features, assumed.target or names[0]} - {*names})
    if unknown:
        raise PlanningError(f"there is no attribute {unknown[0]!r}", remedy=f"Available: {', '.join(names)}.")
    starts = np.cumsum([0, *(len(a.columns) for a in terms.attributes)])
    ratio = np.diag(encoded_noise(closed(terms), law)) / np.maximum(law.variances, _STILL)
    labels = [
        (ratio[start], start, a.name)
        for a, start in zip(terms.attributes, starts.tolist(), strict=False)
        if not isinstance(a, CategoricalAttribute)
        and assumed.target in {None, a.name}
        and (assumed.features is None or a.name not in features)
    ]
    if not labels or not features - {labels[0][2]}:
        raise PlanningError(
            "no attribute can be the target of a linear model on others",
            remedy="Ask for a numeric or binary target and at least one other attribute.",
        )
    _, y, target = sorted(labels)[len(labels) // 2]
    owners = [a.name for a in terms.attributes for _ in a.columns]
    return tuple(i for i, owner in enumerate(owners) if owner in features - {target}), y, target


def _apart(covariance: Array, rows: int) -> Array:
    deviation = np.sqrt(np.maximum(np.diag(covariance), _STILL))
    if np.linalg.eigvalsh(covariance / np.outer(deviation, deviation))[0] >= _UNEXPLAINED:
        return covariance
    return np.asarray((rows * covariance + np.diag(np.diag(covariance))) / (rows + 1))


def _require_determined(xx: Array, yy: float, labels: tuple[str, ...]) -> None:
    variance = np.append(np.diag(xx), yy)
    still = [label for label, v in zip(labels, variance, strict=True) if not v > _STILL]
    if still:
        said = f"{still[0]} does not vary"
    elif np.linalg.eigvalsh(xx / np.sqrt(np.outer(variance[:-1], variance[:-1])))[0] < _UNEXPLAINED:
        said = "some terms follow from others"
    else:
        return
    raise PlanningError(
        f"{said}: no coefficients can be forecast",
        remedy="Leave such attributes out of the features, or forecast without a table.",
    )


def uniform_law(parties: tuple[PartyTerms, ...]) -> tuple[Array, Array]:
    """Mean (p - 1,) and covariance of encoded attributes that are independent and uniform on their bounds or levels.

    Numbers have variance 1/3, two levels 1, indicators of L levels (delta_ij - 1/L) / L; of marked missing cells there
    is a tenth. A row norm C scales a party's columns by min(1, C / root mean square norm of its rows). Whitened columns
    have mean 0 and variance C^2 / d.
    """
    means, blocks = [], []
    for party in parties:
        if party.whitening is not None:
            d = len(party.columns)
            means.append(np.zeros(d))
            blocks.append(np.eye(d) * (party.row_norm or 0.0) ** 2 / d)
            continue
        laws = [attribute_law(a) for a in party.attributes]
        mean = np.concatenate([mean for mean, _ in laws])
        block = _block_diagonal([covariance for _, covariance in laws])
        norm = float(np.sqrt(np.trace(block) + mean @ mean))
        gain = 1.0 if party.clipped_at is None else min(1.0, party.clipped_at / norm)
        means.append(gain * mean)
        blocks.append(gain**2 * block)
    return np.concatenate(means), _block_diagonal(blocks)


def table_law(second_moments: Array, *, columns: int) -> tuple[Array, Array]:
    """Mean and covariance from (p, p) moments A^T A / n of a public table, the intercept first.

    Raises PlanningError: not a symmetric matrix of that size with entries in [-1, 1] and 1 in its corner.
    """
    shape = (columns + 1, columns + 1)
    if (
        second_moments.shape != shape
        or not (np.abs(second_moments) <= 1 + _ROUNDING).all()
        or not np.allclose(second_moments, second_moments.T)
        or not np.isclose(second_moments[0, 0], 1)
    ):
        raise PlanningError(
            f"the second moments are not a symmetric matrix of {columns + 1} columns in [-1, 1] with 1 in its corner",
            remedy="Give A^T A / n of encoded rows, the intercept first.",
        )
    mean = second_moments[0, 1:]
    return mean, second_moments[1:, 1:] - np.outer(mean, mean)


def attribute_law(attribute: Attribute) -> tuple[Array, Array]:
    """Mean (width,) and covariance of one attribute, as `uniform_law` has it."""
    levels = len(attribute.levels) if isinstance(attribute, CategoricalAttribute) else 0
    mean = np.full(len(attribute.columns), 1 / levels if levels else 0.0)
    if attribute.missing == "indicator":
        return _marked_law(attribute, mean)
    if levels:
        return mean, np.eye(levels - 1) / levels - 1 / levels**2
    return mean, np.array([[_number_square(attribute)]])


def _marked_law(attribute: Attribute, mean: Array) -> tuple[Array, Array]:
    mean = np.append((1 - _GAPS) * mean[:-1], _GAPS)
    squares = mean.copy()  # an indicator is its own square
    if not isinstance(attribute, CategoricalAttribute):
        squares[0] = (1 - _GAPS) * _number_square(attribute)
    return mean, np.diag(squares) - np.outer(mean, mean)


def _number_square(attribute: Attribute) -> float:
    return 1.0 if isinstance(attribute, BinaryAttribute) else 1 / 3


def _block_diagonal(blocks: list[Array]) -> Array:
    ends = np.cumsum([0, *map(len, blocks)])
    whole = np.zeros((ends[-1], ends[-1]))
    for start, block in zip(ends, blocks, strict=False):
        whole[start : start + len(block), start : start + len(block)] = block
    return whole


def populations(task: RegressionTask, rows: int) -> tuple[RegressionTask, ...]:
    """Regressions of some populations that a sample of `rows` rows with this regression may come from."""
    draw = np.random.default_rng(_SEED)
    count = _DRAWS if len(task.b) <= _WIDE else _DRAWS_OF_WIDE
    return tuple(_drawn(task, rows, draw) for _ in range(count))


def ends(values: list[float]) -> tuple[int, int]:
    """Places of the two values that hold `COVERED` of the law between them, by their ranks."""
    order = np.argsort(values).tolist()
    beyond = round((1 - COVERED) / 2 * (len(order) + 1))
    return order[beyond - 1], order[-beyond]


def expected(task: RegressionTask, rows: int) -> RegressionTask:
    """The sample's regression with slopes that explain as much as those of the populations do on average."""
    weights, r_squared = _factors(task, rows)
    residual = rows * task.yy * (1 - _FACTORS * r_squared) / max(1, rows - 3)
    explained = _FACTORS**2 * r_squared * task.yy + _FACTORS * len(task.b) * residual / rows
    length = sqrt(float(weights @ explained) / (r_squared * task.yy)) if r_squared > 0 else 0.0
    return _with_slopes(task, task.xx, length * task.b, float(weights @ residual))


def _factors(task: RegressionTask, rows: int) -> tuple[Array, float]:
    r_squared = min(task.r_squared, _NEARLY_ALL)
    log = len(task.b) / 2 * np.log(_LEFT) - (rows - 1) / 2 * np.log1p(-_FACTORS * r_squared)
    weights: Array = np.exp(log - log.max())
    return weights / weights.sum(), r_squared


def _drawn(task: RegressionTask, rows: int, draw: np.random.Generator) -> RegressionTask:
    weights, r_squared = _factors(task, rows)
    q, s = len(task.b), float(draw.choice(_FACTORS, p=weights))
    residual = rows * task.yy * (1 - s * r_squared) / draw.chisquare(rows - 1)
    root = np.linalg.cholesky(task.xx)
    b = s * task.b + sqrt(s * residual / rows) * np.linalg.solve(root.T, draw.normal(size=q))
    degrees = max(rows - 1, q + 2)  # fewer leave no inverse
    sample = root @ _wishart_root(q, degrees, draw)
    return _with_slopes(task, sample @ sample.T / degrees, b, residual)


def _wishart_root(q: int, degrees: int, draw: np.random.Generator) -> Array:
    """L with L L^T of a Wishart law of covariance I (Bartlett 1933): its size does not grow with the degrees."""
    lower = np.tril(draw.normal(size=(q, q)), -1)
    return np.asarray(lower + np.diag(np.sqrt(draw.chisquare(degrees - np.arange(q)))))


def _with_slopes(task: RegressionTask, xx: Array, b: Array, residual: float) -> RegressionTask:
    inverse = np.asarray(np.linalg.inv(xx), dtype=np.float64)
    return replace(task, xx=xx, inverse=inverse, b=b, yy=float(b @ xx @ b) + residual, residual=residual)


_PART = 0.1  # the variance of noise over that of sampling, at most; errors for the population then grow by 5 % at most


_CUTS = (
    "The square of {} is of no use to intervals where rows may be cut: say --one-stage, which cuts none, or leave the "
    "square out."
)


def square_words(terms: Terms, assumed: Assumptions) -> str | None:
    """Advice about the square of the target: it costs little, or the terms have it and it is of no use.

    None if it is of use, or costs more.
    """
    asked = _levels_alone(terms, assumed)
    if asked is None:
        return None
    own, plain = asked
    cut = any(p.first_stage_share is not None for p in closed(terms).parties)
    if any(getattr(a, "product", None) == (own, own) for a in terms.attributes):
        return _CUTS.format(own.name) if cut else None
    whole = _with_square(terms, own)
    try:
        (before, _), (after, sampling) = (_variances(each, plain) for each in (terms, whole))
    except PlanningError:  # too many columns
        return None
    if not np.mean(after / sampling) < _PART:
        return None
    growth = float(np.mean(np.sqrt((after + sampling) / (before + sampling))))
    more = " and --one-stage" if cut else ""
    change = f"grow by {growth - 1:.1%}" if growth > 1 else f"fall by {1 - growth:.1%}"
    return (
        f'With the square of {own.name} (study new --product "{own.name} squared={own.name},{own.name}"{more}), '
        "intervals for the population would count that people with some levels may differ more than others in "
        f"{own.name}; their standard errors are expected to {change}. Those for the table, of noise alone, grow "
        "by more."
    )


def _levels_alone(terms: Terms, assumed: Assumptions) -> tuple[NumericAttribute, Assumptions] | None:
    # a fit can use the square where `services.models.spread.knows_spread` says so
    attributes = {a.name: a for a in terms.attributes}
    own = attributes.get(assumed.target or "")
    others = tuple(name for name, a in attributes.items() if getattr(a, "product", None) != (own, own))
    features = tuple(name for name in assumed.features or others if name != assumed.target)
    levels = (attributes.get(name) for name in features)
    fits = (
        isinstance(own, NumericAttribute)
        and own.missing == "error"
        and own.product is None
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
    # and with whole rows, which a square needs
    square = NumericAttribute(name=f"{own.name} squared", lower=-1, upper=1, product=(own, own))
    return terms.reopened().with_parties(
        lambda p: {
            "attributes": (*p.attributes, square) if own in p.attributes else p.attributes,
            "first_stage_share": None,
        }
    )


def _variances(terms: Terms, assumed: Assumptions) -> tuple[Array, Array]:
    # of each slope: by noise, and by the drawing of people
    made, task = closed(terms), task_of(terms, assumed)
    noise = mechanism_of(made).planner.predict(made, task).covariance
    if noise is None:
        raise PlanningError("no fit is possible", remedy="Ask for fewer columns, or for more people.")
    return np.diag(noise), task.residual * np.diag(task.inverse) / (made.kept or made.n)
