"""Counts of two attributes and means by group, less the noise that shows itself elsewhere.

Counts c are unbiased sums of a release with noise of known covariance N. People are drawn from the population besides:
Cov(c) = N + diag(E c).

Some noise shows itself elsewhere (`Balanced`). A party that holds a column knows its mean over all its people well.
With each party that shares people with it, the release gives the same mean again, over the shared people. If who is
shared does not depend on values, the difference d of the two is noise, and part of it is the noise of every other sum
over these people. A sum z that is 0 for any people is noise alone: nobody has two levels of one attribute. So of means
t with noise of covariance V,

    t - G d,        G = Cov(t, d) Cov(d)^-1,

has less noise than t, and so has t - Cov(t, z) Cov(z)^-1 z. Drawing people adds to Cov(d), at most a known spread, so
that G is 0 without noise. If t is to be of those who are shared, however they were chosen, d moves besides by u times
their difference from the others, u the share of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from commingle.shared.documents.schema import GAP
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array, ProductNoise, TableNoise

Group = tuple[int, ...]  # the parties, one or two, whose people count
_STILL = 1e-12
ENTRIES = 4_000_000  # entries of all forms together: 32 megabytes, for about 600 cells, or for pairs of 50 levels


@dataclass(frozen=True, slots=True, eq=False)
class Balanced:
    """t means, and D of their people's columns that the release gives again."""

    values: Array  # (t,)
    forms: Array  # (t, q, q) their errors <W, E>
    covariance: Array  # (t, t) of the noise
    groups: list[Group]  # t + D
    again: Array  # (D, t) which combination of the means each of the D says again
    gain: Array  # (t, D) G
    doubt: Array  # (t, t) how far people who are not shared may move the means, besides the noise

    @classmethod
    def of(
        cls,
        sums: CrossProducts,
        forms: Array,  # of the means, then of those that the release gives again
        counts: Array,  # of their people; zeros leave a sum as it is
        groups: Sequence[Group],  # of each
        *,
        again: Array,  # (D, t), each of means over a party's own people
        spread: Array,  # (D, D) at most the covariance of what is averaged there, within one person
        selected: float = 0.0,  # standard deviations by which those who are not shared may differ from the others
        nothing: Array | None = None,  # (z, q, q) forms of sums that are 0 but for noise
    ) -> Self:
        """Means <W, S> / <N, S> by forms W and N, (t + D, q, q)."""
        values, errors = ratios(sums, forms, counts)
        if nothing is not None:
            values, errors = _without(sums, values, errors, nothing)
        V, (D, t) = sums.covariance(errors), again.shape
        if not D:
            return cls(values, errors, V, list(groups), again, np.zeros((t, 0)), np.zeros((t, t)))
        differ = np.hstack([again, -np.eye(D)])
        crossed = V @ differ.T
        own, shared = [groups[int(row.argmax())] for row in np.abs(again)], groups[t:]
        n, whole = held(sums, shared), held(sums, own)
        chosen = (selected * np.maximum(1 - n / whole, 0.0)) ** 2
        fewer = np.maximum(1 / n - 1 / whole, 0.0) + chosen
        alike = [[(a, b) == (c, d) for c, d in zip(own, shared, strict=True)] for a, b in zip(own, shared, strict=True)]
        drawn = np.where(alike, spread * fewer[:, None], 0.0)
        gain: Array = np.linalg.solve(differ @ crossed + drawn + _STILL * np.eye(D), crossed[:t].T).T.astype(np.float64)
        d = np.tensordot(differ, errors, axes=1)
        return cls(
            values[:t] - gain @ (differ @ values),
            errors[:t] - np.tensordot(gain, d, axes=1),
            V[:t, :t] - gain @ crossed[:t].T - crossed[:t] @ gain.T + gain @ (differ @ crossed) @ gain.T,
            list(groups),
            again,
            gain,
            gain @ np.where(alike, spread * chosen[:, None], 0.0) @ gain.T,
        )

    def mixed(self, B: Array) -> Array:
        """(p, t + D) of weights B (p, t) of the means, on all from which they were made."""
        along = B @ self.gain
        return np.hstack([B - along @ self.again, along])

    def extended(self, A: Array) -> Array:
        """(p, t + D) of covariances A (p, t) with what is averaged, for all that is."""
        return np.hstack([A, A @ self.again.T])

    def within(self, C: Array) -> Array:
        """(t + D, t + D) of covariances C (t, t) of what is averaged."""
        return self.extended(self.extended(C).T)


def level_shares(sums: CrossProducts, name: str) -> Array:
    """Shares (L,) of an attribute's levels among its party's people; as released if there are very many levels.

    Raises NoTablesError, UnknownAttributeError.
    """
    _, levels = sums.levels(name)
    used, kept = sums.using(levels)
    one, other = sums.exclusive(name)
    at, L = levels[:, kept], len(levels)
    present = np.tile(sums.present(name)[kept], (L, 1))
    if len(one) * len(kept) ** 2 > ENTRIES:
        held, people = (np.sum((of @ used.values) * present, axis=1) for of in (at, present))
        return np.asarray(held / np.maximum(people, 1.0))
    nothing = outer(one[:, kept], other[:, kept])
    groups, none = list(map(group, present, present)), np.zeros((0, 0))
    return Balanced.of(
        used, outer(at, present), outer(present, present), groups, again=np.zeros((0, L)), spread=none, nothing=nothing
    ).values


def _without(sums: CrossProducts, values: Array, errors: Array, nothing: Array) -> tuple[Array, Array]:
    t = len(values)
    V = sums.covariance(np.concatenate([errors, nothing]))
    gain = np.linalg.solve(V[t:, t:] + _STILL * np.eye(len(nothing)), V[t:, :t]).T
    found = np.einsum("zkl,kl->z", nothing, sums.values)
    return values - gain @ found, errors - np.tensordot(gain, nothing, axes=1)


def ratios(sums: CrossProducts, forms: Array, counts: Array) -> tuple[Array, Array]:
    """<W, S> / <N, S> (t,) of forms W and N (t, q, q), and to first order its errors as forms."""
    n = np.maximum(np.einsum("tkl,kl->t", counts, sums.values), 1.0)
    found = np.einsum("tkl,kl->t", forms, sums.values) / n
    errors = found[:, None, None] * counts  # in place: arrays are large
    np.subtract(forms, errors, out=errors)
    return found, np.divide(errors, n[:, None, None], out=errors)


def outer(left: Array, right: Array) -> Array:
    """Symmetric W with <W, S> = sum_s (l v_s)(r v_s) for each l of `left` with its r of `right`: (t, q, q)."""
    each = left[:, :, None] * (right / 2)[:, None, :]
    return np.asarray(each + each.swapaxes(1, 2))


def group(one: Array, other: Array) -> Group:
    """The parties of two presences, (q,) each."""
    return tuple(sorted({int(one.argmax()), int(other.argmax())}))


def held(sums: CrossProducts, groups: Sequence[Group]) -> Array:
    return np.array([max(float(sums.values[each[0], each[-1]]), 1.0) for each in groups])


def in_common(sums: CrossProducts, groups: Sequence[Group]) -> Array:
    """K of all groups with all, (groups, groups): Cov(mean over G, mean over H) = k Cov of one person.

    k = 1 / n of the parties in both; if there is none, 1 / N by n_ab = n_a n_b / N.
    """
    distinct = sorted(set(groups))
    n = np.maximum(sums.values[: len(sums.strangers), : len(sums.strangers)], 1.0)
    member = np.array([[i in each for i in range(len(n))] for each in distinct], np.float64)
    in_both = member @ member.T  # parties
    alone = (member * np.diag(n)) @ member.T  # n of the party, where that is one
    pair = np.array([n[each[0], each[-1]] for each in distinct])
    apart = member @ (n / np.outer(np.diag(n), np.diag(n))) @ member.T / np.outer(*[member.sum(axis=1)] * 2)
    n_both = np.where(np.eye(len(distinct), dtype=bool), pair, np.maximum(alone, 1.0))
    K = np.where(in_both > 0, 1 / n_both, apart)
    at = np.array([distinct.index(each) for each in groups], np.intp)
    return np.asarray(K[np.ix_(at, at)])


_SELECTED = 0.5  # standard deviations by which people whom another party holds may differ from all others
ENOUGH = 5.0
"""Standard errors, of noise and sampling, that a count is above none for intervals and tests to hold (measured)."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Counts of pairs of levels, (L1, L2), unbiased, so that some may be negative, and their noise; a gap is last."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Array
    noise: ProductNoise | TableNoise

    @classmethod
    def of(cls, sums: CrossProducts, row: str, column: str) -> Self:
        """The table of two attributes of a release. Raises NoTablesError, UnknownAttributeError."""
        return cls.between(sums, sums.levels(row), sums.levels(column))

    @classmethod
    def balanced(cls, sums: CrossProducts, row: str, column: str, *, entries: int = ENTRIES) -> Self:
        """The table, less what shows itself to be noise (`Balanced`).

        Parties give the shares of each level again, and nobody has two levels of one attribute. As `of` if there are
        very many cells: their forms have no more than `entries`. Raises NoTablesError, UnknownAttributeError.
        """
        cells, sides = cls.of(sums, row, column), [sums.levels(name)[1] for name in (row, column)]
        present = [sums.present(name) for name in (row, column)]
        used, kept = sums.using(np.vstack(sides))
        room = entries // len(kept) ** 2 - cells.counts.size - len(sums.strangers) * sum(map(len, sides))
        if row == column or cells.counts.sum() < 1 or room < 0:
            return cells
        pairs = [sums.exclusive(name) for name in (row, column)]
        one, other = (np.vstack(each)[:, kept] for each in zip(*pairs, strict=True))
        nothing = outer(one, other) if len(one) <= room else None
        found = _balanced(used, [side[:, kept] for side in sides], [one[kept] for one in present], nothing)
        shape, size = cells.counts.shape, cells.counts.size
        covariance = (found.covariance + found.doubt)[-size:, -size:]
        noise = TableNoise(covariance.reshape(*shape, *shape))
        return cls(cells.rows, cells.columns, found.values[-size:].reshape(shape), noise)

    @classmethod
    def between(
        cls, sums: CrossProducts, rows: tuple[tuple[str, ...], Array], columns: tuple[tuple[str, ...], Array]
    ) -> Self:
        """The table of labels and their 0/1 combinations of the columns of a release, (L1, q) and (L2, q)."""
        (row_labels, left), (column_labels, right) = rows, columns
        return cls(row_labels, column_labels, *sums.crossed(left, right))

    @property
    def errors(self) -> Array:
        return self.noise.errors

    def known(self) -> "Cells":
        """The counts of people both of whose cells are known."""
        rows, columns = ([i for i, label in enumerate(labels) if label != GAP] for labels in (self.rows, self.columns))
        return self.at(rows, columns)

    def at(self, rows: list[int], columns: list[int]) -> "Cells":
        return Cells(
            tuple(self.rows[i] for i in rows),
            tuple(self.columns[j] for j in columns),
            self.counts[rows][:, columns],
            self.noise.of(np.eye(len(self.rows))[rows], np.eye(len(self.columns))[columns]),
        )

    def covariance(self) -> Array:
        """(L1 L2, L1 L2) of the counts as a sample of the population: noise, and a Poisson law of the counts."""
        return np.asarray(self.noise.covariance + np.diag(np.maximum(self.counts, 0.0).ravel()))

    def sums(self, rows: Array, columns: Array) -> tuple[Array, Array]:
        """Counts by weights, `rows` (c, L1) and `columns` (d, L2): (c, d), and their covariance (c d, c d)."""
        c, d = len(rows), len(columns)
        two_rows, two_columns = ((one[:, None] * one).reshape(-1, one.shape[1]) for one in (rows, columns))
        drawn = (two_rows @ np.maximum(self.counts, 0.0) @ two_columns.T).reshape(c, c, d, d).transpose(0, 2, 1, 3)
        return rows @ self.counts @ columns.T, self.noise.of(rows, columns).covariance + drawn.reshape(c * d, c * d)

    def filled(self) -> "Cells":
        """Without levels that hardly anybody may have."""
        rows, columns = self._enough(0), self._enough(1)
        return self.at(rows, columns)

    def merged(self, row: str, column: str) -> "Cells":
        """The table with all levels that hardly anybody may have as one, in place of the first, if there are several.

        Only released counts decide. A gap, that row and that column stay as they are.
        """
        (rows, one), (columns, other) = self.together(0, row), self.together(1, column)
        return Cells(rows, columns, one @ self.counts @ other.T, self.noise.of(one, other))

    def together(self, axis: int, kept: str) -> tuple[tuple[str, ...], Array]:
        """Labels of `merged` along an axis, and which of its L levels each holds: (L', L) of 0 and 1."""
        labels, enough = (self.rows, self.columns)[axis], self._enough(axis)
        few = [i for i, label in enumerate(labels) if i not in enough and label not in {GAP, kept}]
        unit = np.eye(len(labels))
        if len(few) < 2:  # noqa: PLR2004 - as above
            return labels, unit
        left = [i for i in range(len(labels)) if i not in few[1:]]
        unit[few[0]] = unit[few].sum(axis=0)
        other = f"other ({', '.join(labels[i] for i in few)})"
        return tuple(other if i == few[0] else labels[i] for i in left), unit[left]

    def _enough(self, axis: int) -> list[int]:
        each, all_of = np.eye(self.counts.shape[axis]), np.ones((1, self.counts.shape[1 - axis]))
        noise = self.noise.of(each, all_of) if axis == 0 else self.noise.of(all_of, each)
        counts, drawn = self.counts.sum(axis=1 - axis), np.maximum(self.counts, 0.0).sum(axis=1 - axis)
        errors = np.sqrt(noise.variances.ravel() + drawn)
        return np.flatnonzero(counts > ENOUGH * errors).tolist()


def _balanced(sums: CrossProducts, sides: Sequence[Array], present: Sequence[Array], nothing: Array | None) -> Balanced:
    """Shares of all levels among their party's people, then counts of cells."""
    (rows, columns), (here, there) = sides, present
    a, b = len(rows), len(columns)
    levels, whose = np.vstack([rows, columns]), np.vstack([np.tile(here, (a, 1)), np.tile(there, (b, 1))])
    parties = np.eye(len(here))[: len(sums.strangers)]
    # all levels but the first, which follows from them, with every other party
    again = [(i, p) for i in range(a + b) for p in parties if i not in {0, a} and not np.array_equal(p, whose[i])]
    level, party = [i for i, _ in again], np.array([p for _, p in again]).reshape(-1, len(here))
    cells = outer(np.repeat(rows, b, axis=0), np.tile(columns, (a, 1)))
    shares, people = outer(levels, whose), outer(whose, whose)
    said, among = outer(levels[level], party), outer(whose[level], party)
    of_levels, _ = ratios(sums, shares[level], people[level])
    return Balanced.of(
        sums,
        np.concatenate([shares, cells, said]),
        np.concatenate([people, np.zeros_like(cells), among]),
        [*map(group, whose, whose), *[group(here, there)] * (a * b), *map(group, whose[level], party)],
        again=np.eye(a + b + a * b)[level],
        spread=np.diag(np.maximum(of_levels, 0.0)),
        selected=_SELECTED,
        nothing=nothing,
    )
