"""Means of a release over people whom two parties share, without noise that the same means elsewhere show.

A party that holds a column knows its mean, over all its people, well. With whom it shares people, the release says the
same mean again, over those. If who is shared does not depend on values, the difference d of the two is noise, and part
of it is the noise of every other sum over these people. A sum z that is 0 whoever the people are is noise alone: nobody
has two levels of one attribute. So of means t with noise of covariance V,

    t - G d,        G = Cov(t, d) Cov(d)^-1,

has less noise than t, and so has t - Cov(t, z) Cov(z)^-1 z. Drawing people adds to Cov(d), by at most a known spread,
so that G is 0 where there is no noise. If t is to be of those who are shared, however they were chosen, d moves besides
by u times their difference from the others, u the share of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array

Group = tuple[int, ...]
"""The parties, one or two, whose people count."""
_STILL = 1e-12
ENTRIES = 4_000_000
"""Of all forms that are looked at together: 32 megabytes, of 600 cells or so, or of pairs of 50 levels."""


@dataclass(frozen=True, slots=True, eq=False)
class Balanced:
    """t means, and D of their people's columns that are said again.

    Attributes:
        values: (t,).
        forms: (t, q, q) their errors <W, E>.
        covariance: (t, t) of the noise.
        groups: t + D.
        again: (D, t) which combination of the means each of the D says again.
        gain: (t, D) G.
        doubt: (t, t) by how much those who are not shared may move the means, which the noise does not hold.
    """

    values: Array
    forms: Array
    covariance: Array
    groups: list[Group]
    again: Array
    gain: Array
    doubt: Array

    @classmethod
    def of(
        cls,
        sums: CrossProducts,
        forms: Array,
        counts: Array,
        groups: Sequence[Group],
        *,
        again: Array,
        spread: Array,
        selected: float = 0.0,
        nothing: Array | None = None,
    ) -> Self:
        """Means <W, S> / <N, S> by forms W and N, (t + D, q, q).

        Args:
            sums: of a release.
            forms: of the means, then of those that are said again.
            counts: of their people; zeros leave a sum as it is.
            groups: of each.
            again: (D, t), each of means over a party's own people.
            spread: (D, D) at most the covariance of what is averaged there, within one person.
            selected: by how many standard deviations those who are not shared may differ from the others.
            nothing: (z, q, q) forms of sums that are 0 but for noise.
        """
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
        """(p, t + D) of weights B (p, t) of the means, on all that they were made of."""
        along = B @ self.gain
        return np.hstack([B - along @ self.again, along])

    def extended(self, A: Array) -> Array:
        """(p, t + D) of covariances A (p, t) with what is averaged, for all that is."""
        return np.hstack([A, A @ self.again.T])

    def within(self, C: Array) -> Array:
        """(t + D, t + D) of covariances C (t, t) of what is averaged."""
        return self.extended(self.extended(C).T)


def level_shares(sums: CrossProducts, name: str) -> Array:
    """Shares (L,) of an attribute's levels among its party's people, as released where there are very many levels.

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
    """How many people each group holds."""
    return np.array([max(float(sums.values[each[0], each[-1]]), 1.0) for each in groups])


def in_common(sums: CrossProducts, groups: Sequence[Group]) -> Array:
    """K of all groups with all, (groups, groups): Cov(mean over G, mean over H) = k Cov of one person.

    k = 1 / n of the parties in both, and where there is none 1 / N by n_ab = n_a n_b / N.
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
