"""The moments of one regression, in the units in which it is solved.

With an intercept these are the encoded units, in which the formulas of docs/design/estimation.md#systems are stated.
Without one the model must have none in original units, so each column becomes original / scale = encoded + offset /
scale. The exact intercept column makes that an affine change of basis which adds no noise: V stays what it is.

A binary attribute is encoded as -1 and 1, and as 0 where a cell is missing and marked. In original units it is 0 there,
as at its first level, so that the mark's coefficient is against that level, as it is for three levels or more.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import BinaryAttribute
from commingle.shared.errors import TooFewRowsError
from commingle.shared.estimation.entry_noise import Array, EntryNoise
from commingle.shared.estimation.pairwise import PairNoise
from commingle.shared.estimation.posterior import regularised
from commingle.shared.estimation.prepared import PreparedMoments

_LEVEL_AND_MARK = 2  # columns


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """Moments of p_x terms x and the label y."""

    # xx, xy, yy: blocks of G, (p_x, p_x), (p_x,) and a number
    xx: Array
    xy: Array
    yy: float
    # V_xx, v_xy, v_yy: the same blocks of V, the covariance of the noise in one published row
    V_xx: Array
    v_xy: Array
    v_yy: float
    root: Array  # (p_x + 1, r) F with V = F F^T over (x, y)
    intercept: bool  # whether the first term is the intercept
    # to_original, shift: coefficients in original units = to_original @ b + shift
    to_original: Array
    shift: Array
    terms: tuple[str, ...]
    # the release; label and features, without intercept, are its columns `target` and `features`
    prepared: PreparedMoments
    target: int
    features: tuple[int, ...]
    rows: int
    # (p_x + 1,) what cutting took of the mean squares of terms and label, None if it is not known; and with an error
    lost: Array | None = None
    may_have_lost: Array | None = None
    # the noise in the entries of the blocks, where a release comes with it; it has no other
    entries: EntryNoise | None = None

    @property
    def n(self) -> int:
        return self.prepared.n

    @property
    def degrees_of_freedom(self) -> int:
        """Published rows less terms: k - p_x."""
        return self.rows - len(self.xy)

    def regularised(self) -> "System":
        """This system cut from the posterior mode, as if n rows had no noise."""
        return build_system(regularised(self.prepared), self.target, self.features, intercept=self.intercept)


@dataclass(frozen=True, slots=True, eq=False)
class Centred:
    """The system with its noiseless intercept partialled out; unchanged if it has none."""

    # X, g, yy: the centred blocks, (q, q), (q,) and a number
    X: Array
    g: Array
    yy: float
    # V, v: (q, q) and (q,), of the features, and of each with the label; V = root root^T, (q, r)
    V: Array
    v: Array
    root: Array
    means: Array | None  # (q,) row of the intercept, over its own moment; None without intercept
    label_mean: float  # the same of the label; 0 without intercept
    weight: float  # moment of the intercept
    rows: int  # degrees of freedom left in X: k - 1, or k

    @property
    def centring(self) -> Array:
        """T (q, p_x), the terms' intercept partialled out: X = T G_xx T^T."""
        features = np.eye(len(self.g))
        return features if self.means is None else np.column_stack([-self.means, features])

    @property
    def about_mean(self) -> Array:
        """The c of the label about its mean, (p_x + 1,): g = T G_x. c and yy = c^T G c."""
        direction = np.append(np.zeros(self.centring.shape[1]), 1.0)
        direction[0] -= self.label_mean
        return direction

    def with_intercept(self, inverse: Array) -> Array:
        """H (p_x, p_x) with H G_xy = the coefficients of `inverse` @ g and their intercept."""
        if self.means is None:
            return inverse
        # T^T inverse T, T = (-means, I), and 1 / weight for the intercept
        level = -inverse @ self.means
        return np.block([[1 / self.weight - self.means @ level, level], [level[:, None], inverse]])


def build_system(prepared: PreparedMoments, target: int, features: tuple[int, ...], *, intercept: bool) -> System:
    """Cut the moments of columns `features` (and the intercept) and column `target`."""
    index = np.array([0, *features, target])
    rows = prepared.rows
    if prepared.pairs is not None:
        prepared.pairs.require(index[1:] - 1)
        rows = min(rows, prepared.pairs.shared(index[1:] - 1))
    block = np.ix_(index, index)
    gram, V, root = prepared.gram[block], prepared.V[block], prepared.root[index]
    scale, zero = prepared.scale[index], prepared.offset[index] / prepared.scale[index]
    unit = scale[-1]
    to_original = np.diag(unit / scale[:-1])
    shift = np.zeros(len(index) - 1)
    first = 0 if intercept else 1
    for level, mark in _marked_binaries(prepared, index):
        # b (x - off m) + (c + off b) m = b x + c m: x is off in a gap, where its level now is 0, as a reference level's
        to_original[mark] += prepared.offset[index[level]] * to_original[level]
    basis = np.eye(len(index))
    if intercept:
        # y = off_y + s_y (b_0 + sum_j b_j (x_j - off_j) / s_j)
        to_original[0, 1:] = -unit * zero[1:-1]
        shift[0] = prepared.offset[target]
    else:
        basis[0, 1:] = zero[1:]
        gram = basis.T @ gram @ basis
        to_original, shift = to_original[1:, 1:], shift[1:]
    if rows <= len(shift) + intercept:
        raise TooFewRowsError(
            f"{rows} published rows cannot determine {len(shift)} coefficients",
            remedy="Name fewer features.",
        )
    return System(
        xx=gram[first:-1, first:-1],
        xy=gram[first:-1, -1],
        yy=float(gram[-1, -1]),
        V_xx=V[first:-1, first:-1],
        v_xy=V[first:-1, -1],
        v_yy=float(V[-1, -1]),
        root=root[first:, root.any(axis=0)],
        intercept=intercept,
        to_original=to_original,
        shift=shift,
        terms=tuple(prepared.labels[i] for i in index[first:-1]),
        prepared=prepared,
        target=target,
        features=features,
        rows=rows,
        lost=None if prepared.lost is None else prepared.lost[index][first:],
        may_have_lost=None if prepared.may_have_lost is None else prepared.may_have_lost[index][first:],
        entries=_entry_noise(prepared, index, basis[:, first:]),
    )


def _marked_binaries(prepared: PreparedMoments, index: NDArray[np.int64]) -> list[tuple[int, int]]:
    # the places in index of the columns, level and mark, of each binary feature that marks missing cells
    place = {column: i for i, column in enumerate(index[:-1].tolist())}
    return [
        (place[columns[0]], place[columns[1]])
        for name, attribute in prepared.attributes.items()
        if isinstance(attribute, BinaryAttribute)
        and len(columns := prepared.columns[name]) == _LEVEL_AND_MARK
        and all(column in place for column in columns)
    ]


def _entry_noise(prepared: PreparedMoments, index: NDArray[np.int64], basis: Array) -> EntryNoise | None:
    if prepared.entry_variance is None:
        return None
    if prepared.pairs is not None:
        variance = prepared.entry_variance[np.ix_(index, index)]
        return PairNoise.of(prepared.pairs, index[1:] - 1, variance=variance, basis=basis, n=prepared.n)
    made = prepared.mixing[index]
    columns = np.append(index, np.setdiff1d(np.flatnonzero(made.any(axis=0)), index))
    return EntryNoise(prepared.entry_variance[np.ix_(columns, columns)], made[:, columns].T @ basis)


def centre(system: System) -> Centred:
    """X = G_xx - G_x1 G_1x / G_11 and likewise g and yy, with k - 1 degrees of freedom."""
    if not system.intercept:
        blocks = system.xx, system.xy, system.yy, system.V_xx, system.v_xy, system.root[:-1]
        return Centred(*blocks, means=None, label_mean=0.0, weight=0.0, rows=system.rows)
    weight = float(system.xx[0, 0])
    means = system.xx[0, 1:] / weight
    label = float(system.xy[0])
    return Centred(
        X=system.xx[1:, 1:] - weight * np.outer(means, means),
        g=system.xy[1:] - label * means,
        yy=system.yy - label * label / weight,
        V=system.V_xx[1:, 1:],
        v=system.v_xy[1:],
        root=system.root[1:-1],
        means=means,
        label_mean=label / weight,
        weight=weight,
        rows=system.rows - 1,
    )
