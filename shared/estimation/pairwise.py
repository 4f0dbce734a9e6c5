"""Moments over keyed subjects: what each pair of parties says about the subjects that both hold, and its errors.

Of columns a at party i and b at party j a release has S[a, b], S[a, 1_j], S[1_i, b] and n_ij = S[1_i, 1_j], sums over
those whom both hold, 1_i being i's presence. So, with means over the pair,

    C_ab = S[a, b] / n_ij - (S[a, 1_j] / n_ij) (S[1_i, b] / n_ij),      m_a = S[1_i, a] / n_i,

hold for everybody if who is missing does not depend on values (docs/design/keyed.md). The means of i's columns over its
own subjects and over those shared with j are both published, so their difference is a test of that.

With a~ = a - m_a 1_i, errors E of S make to first order the errors

    dm_a = E[1_i, a~] / n_i,        dC_ab = E[a~, b~] / n_ij,

so every number of a fit has an error <W, E>, and its variance follows from W (`entry_noise`). Strangers that met add to
E[u, v], u at i and v at j, a sum over so many pairs of independent subjects (docs/proofs/keyed-subjects.md, 5.1).
"""

from dataclasses import dataclass
from itertools import combinations, permutations
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import NoOverlapError
from commingle.shared.estimation.entry_noise import Array, EntryNoise, PairLaw

Places = NDArray[np.intp]
ENOUGH_SHARED = 4.0  # a fit across two parties needs a joint count of so many standard errors
_LEAST = 2.0  # people of a fit
_FAR, _SURE = 1.5, 3.0  # a count so many times off, beyond so many standard errors, shows a wrong n


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """How many subjects J parties hold, (J, J): own ones on the diagonal, joint ones beside it."""

    summed: Array  # subjects in the sums of the moments
    held: Array  # subjects that they hold: more, if some had to give way (docs/proofs/keyed-subjects.md, 5.2)
    errors: Array  # standard errors of `held`
    strangers: Array  # rows of two parties that met although they are of different subjects (5.1 there)
    # the buckets, if own counts are traced back: more subjects than that would look like fewer
    below: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Estimates over pairs of J parties, of m encoded columns.

    A party here is a presence: all subjects of one, or those among them who have a value of an attribute (`gaps`).
    """

    names: tuple[str, ...]
    party: Places  # (m,) the party of each column
    counts: Counts
    means: Array  # (m,) over own subjects
    joint_means: Array  # (m, J) over those shared with each party
    covariance: Array
    sums: Array  # (J + m, J + m) S over presences and columns
    undo: Array  # (J + m, p) presences and columns as combinations of published ones
    centring: Array  # (J + m, p) rows 1_j and a - m_a 1_i, as such combinations
    noise: PairLaw
    asked: int  # the study's n, by which buckets and cutting were chosen, and nothing is estimated
    # (J,) the place of the party that holds the subjects of each: its own, or another for a part of these
    owner: Places

    @classmethod
    def of(
        cls,
        sums: Array,
        undo: Array,
        *,
        names: tuple[str, ...],
        party: Places,
        counts: Counts,
        noise: PairLaw,
        asked: int,
        owner: Places | None = None,
    ) -> "Pairs":
        """From an unbiased estimate `sums` of S; without `owner` each presence is a party's."""
        parties, S = len(names), sums
        shared = np.maximum(counts.summed, 1.0)
        joint_means = S[parties:, :parties] / shared[party]
        means = joint_means[np.arange(len(party)), party]
        paired = joint_means[:, party]
        centring = undo.copy()
        centring[parties:] -= means[:, None] * undo[party]
        return cls(
            names=names,
            party=party,
            counts=counts,
            means=means,
            joint_means=joint_means,
            covariance=S[parties:, parties:] / shared[np.ix_(party, party)] - paired * paired.T,
            sums=S,
            undo=undo,
            centring=centring,
            noise=noise,
            asked=asked,
            owner=np.arange(parties) if owner is None else owner,
        )

    def misjudged(self, party: int) -> str | None:
        """A warning if the study's n is far from how many that party holds, beyond noise."""
        n, reach = float(self.counts.held[party, party]), _SURE * float(self.counts.errors[party, party])
        if n - reach <= _FAR * self.asked and n + reach >= self.asked / _FAR:
            return None
        more = "" if self.counts.below is None else f", or else more than {self.counts.below:,}"
        return f"{self.names[party]} holds about {max(n, 0.0):,.0f} people{more}, and the study said {self.asked:,}"

    @property
    def subjects(self) -> int:
        """Moments are scaled to the fewest subjects that a party holds."""
        return max(2, round(float(np.diag(self.counts.summed).min())))

    def shared(self, columns: Places) -> int:
        """The fewest that two parties of these columns share, or that their one party holds."""
        parties = np.unique(self.party[columns])
        return max(2, round(float(self.counts.summed[np.ix_(parties, parties)].min())))

    def second_moments(self) -> Array:
        """N (C + m m^T) behind the intercept, (1 + m, 1 + m)."""
        means = np.append(1.0, self.means)
        found = np.outer(means, means)
        found[1:, 1:] += self.covariance
        return np.asarray(self.subjects * found)

    def entry_variance(self) -> Array:
        """Variances of the noise in the entries of `second_moments`, about the means: (1 + m, 1 + m)."""
        parties, n = len(self.names), self.subjects
        whose = np.append(np.arange(parties), self.party)
        spread = np.append(np.ones(parties), np.maximum(np.diag(self.covariance), 0.0))
        strangers = self.counts.strangers[np.ix_(whose, whose)] * np.outer(spread, spread)
        entries = self.noise.variances(self.centring, self.centring) + strangers
        shared = np.maximum(self.counts.summed, 1.0)
        found = np.zeros((1 + len(self.party),) * 2)
        found[1:, 1:] = entries[parties:, parties:] / shared[np.ix_(self.party, self.party)] ** 2
        at = np.arange(len(self.party))
        found[0, 1:] = found[1:, 0] = entries[self.party, parties + at] / shared[self.party, self.party] ** 2
        return np.asarray(n**2 * found)

    def require(self, columns: Places) -> None:
        """Refuse a fit across parties of these columns that share too few subjects, or of one left with none."""
        for i, j in combinations(np.unique(self.party[columns]).tolist(), 2):
            joint, error = self.counts.held[i, j], self.counts.errors[i, j]
            if joint < max(ENOUGH_SHARED * error, _LEAST):
                wrong = self.misjudged(i) or self.misjudged(j)
                again = f"Propose it again with the right n: {wrong}. Or fit" if wrong else "Fit"
                raise NoOverlapError(
                    f"how many people {self.names[i]} and {self.names[j]} share is too uncertain for a fit: about "
                    f"{max(joint, 0):,.0f}, give or take {2 * error:,.0f}",
                    remedy=f"{again} columns of one of them alone; or ask whether both write ids by the same rule.",
                )
        for i in np.unique(self.party[columns]).tolist():
            own, error = self.counts.held[i, i], self.counts.errors[i, i]
            if own < _LEAST:
                whom = f"people whom {self.names[i]} holds" if self.owner[i] == i else self.names[i]
                raise NoOverlapError(
                    f"the number of {whom} is too uncertain for a fit: about {max(own, 0):,.0f}, give or take "
                    f"{2 * error:,.0f}",
                    remedy="Ask describe for shares and means with their intervals, or use a release of more people or "
                    "with a larger epsilon.",
                )


_NEARLY = 0.95
"""A part with this share of its owner's subjects counts as all: many parts would take memory to the fourth power."""
SUSPICIOUS = 0.01  # the level of all tests of one fit together


@dataclass(frozen=True, slots=True, eq=False)
class PairNoise(EntryNoise):
    """Errors of the moments of (1, x, y), the m columns `used` besides 1, in the basis of a system; scaled to n.

    `variance` and `basis` are those of entries about their means, as if they were independent. Covariances are exact to
    first order, and without sampling.
    """

    pairs: Pairs
    used: NDArray[np.intp]
    n: int

    @classmethod
    def of(cls, pairs: Pairs, used: NDArray[np.intp], *, variance: Array, basis: Array, n: int) -> Self:
        """For moments (1 + m, 1 + m) seen in `basis`, (1 + m, p_x + 1)."""
        about_means = np.eye(1 + len(used))
        about_means[1:, 0] = pairs.means[used]  # a = a~ + m_a 1
        return cls(variance, about_means.T @ basis, pairs, used, n)

    def covariance(self, direction: Array) -> Array:
        size = self.basis.shape[1]
        forms = np.zeros((size - 1, size, size))
        each = np.arange(size - 1)
        forms[each, each] += direction / 2
        forms[each, :, each] += direction / 2
        return self._covariances(forms)

    def form_variance(self, form: Array) -> float:
        return float(self._covariances(form[None])[0, 0])

    def drawn_rows(self, random: np.random.Generator, count: int) -> Array:
        """Draws (count, 1 + m, 1 + m) of the errors of these moments about their means, if they are of noisy rows."""
        pairs, parties = self.pairs, len(self.pairs.names)
        whose, places = pairs.party[self.used], parties + self.used
        rows = np.append(np.arange(parties), places)
        columns = np.flatnonzero(pairs.centring[rows].any(axis=0))
        E = pairs.noise.on(columns).drawn_rows(random, count, left=pairs.centring[rows][:, columns])
        shared = np.maximum(pairs.counts.summed, 1.0)
        found = np.zeros((count, 1 + len(whose), 1 + len(whose)))
        found[:, 1:, 1:] = self.n / shared[np.ix_(whose, whose)] * E[:, parties:, parties:]
        level = self.n / shared[whose, whose] * E[:, whose, parties + np.arange(len(whose))]
        found[:, 0, 1:] = found[:, 1:, 0] = level
        return found

    @property
    def gave_way(self) -> float:
        """The largest share of the subjects of a pair of parties that are not in the moments, or lack a value there."""
        parties, counts = np.unique(self.pairs.party[self.used]), self.pairs.counts
        whole = self.pairs.owner[parties]
        held = np.maximum(counts.held[np.ix_(whole, whole)], 1.0)
        return float(np.max(1 - counts.summed[np.ix_(parties, parties)] / held).clip(0, 1))

    def sampling(self, direction: Array) -> Array:
        """Cov(v), (p_x, p_x), of drawing the subjects from the population.

        By the fourth moments of a normal law Cov(dC_ab, dC_cd) = w (C_ac C_bd + C_ad C_bc) and Cov(dm_a, dm_b) = w C_ab
        with w the share of draws in common (`_overlaps`).
        """
        pairs, C = self.pairs, self.pairs.covariance[np.ix_(self.used, self.used)]
        part, whole, size = pairs.party[self.used], pairs.owner[pairs.party[self.used]], np.diag(pairs.counts.summed)
        part = np.where(size[part] > _NEARLY * size[whole], whole, part)
        parties = np.union1d(part, whole)
        whose, owner = (np.searchsorted(parties, at) for at in (part, pairs.owner[parties]))
        w, single = _overlaps(pairs.counts.summed[np.ix_(parties, parties)], owner)
        along = self.basis @ direction
        level, c = along[0], along[1:]
        member = np.equal.outer(whose, np.arange(len(parties))) * 1.0  # (m, J)
        g = C @ (member * c[:, None])  # (m, J): g_tl = sum of C_td c_d over d at l
        s = (member * c[:, None]).T @ g
        both = w[whose][:, :, whose]  # (m, J, m, J): parties of t, j, u, l
        found = np.zeros((1 + len(c),) * 2)
        found[1:, 1:] = C * np.einsum("tjul,jl->tu", both, s) + np.einsum("tjul,tl,uj->tu", both, g, g)
        found[1:, 1:] += level**2 * single[np.ix_(whose, whose)] * C
        found[0, 0] = np.sum(single * s)
        found[0, 1:] = found[1:, 0] = level * np.sum(single[whose] * g, axis=1)
        terms = self.basis[:, :-1]
        return np.asarray(self.n**2 * terms.T @ found @ terms)

    def _covariances(self, forms: Array) -> Array:
        return form_covariances(self.pairs, self._centred(self.basis @ forms @ self.basis.T))

    def _centred(self, forms: Array) -> Array:
        pairs, parties = self.pairs, len(self.pairs.names)
        whose = pairs.party[self.used]
        shared = np.maximum(pairs.counts.summed, 1.0)
        found = np.zeros((len(forms),) + (parties + len(pairs.party),) * 2)
        places = parties + self.used
        found[:, places[:, None], places] = self.n / shared[np.ix_(whose, whose)] * forms[:, 1:, 1:]
        level = self.n / shared[whose, whose] * forms[:, 0, 1:]
        found[:, whose, places] = found[:, places, whose] = level
        return found


def form_covariances(pairs: Pairs, forms: Array) -> Array:
    """Covariances of <W, E> for t symmetric W, (t, J + m, J + m), over presences and centred columns: (t, t)."""
    parties = len(pairs.names)
    whose = np.append(np.arange(parties), pairs.party)
    law = np.eye(len(whose))
    law[parties:, parties:] = pairs.covariance
    law *= np.equal.outer(pairs.owner[whose], pairs.owner[whose])
    return covariances_of(
        forms, pairs.centring, pairs.noise, PairLaw(pairs.counts.strangers[np.ix_(whose, whose)], law)
    )


def covariances_of(forms: Array, undo: Array, noise: PairLaw, strangers: PairLaw) -> Array:
    """Covariances of the errors of <W, S> for t symmetric W over q columns, `undo` (q, p) of published ones: (t, t)."""
    used = np.flatnonzero(forms.any(axis=(0, 1)))
    forms, undo, met = forms[:, used[:, None], used], undo[used], strangers.on(used)
    columns = np.flatnonzero(undo.any(axis=0))
    undo = undo[:, columns]
    found = noise.on(columns).covariances(undo.T @ forms @ undo)
    return np.asarray(found + met.covariances(forms)) if met.s.any() else found


def _overlaps(n: Array, owner: NDArray[np.intp]) -> tuple[Array, Array]:
    """The shares of draws that estimates over two pairs have in common, (J, J, J, J), and over two parties, (J, J).

    That is n_AB / (n_A n_B) with n_AB those in all parties of A and B. If these are not published we assume that
    parties hold subjects independently of one another: then it is one over the number in the parties that A and B
    share. A part of a party's subjects shares that party with what else is of it.
    """
    n = np.maximum(n, 1.0)
    own, size = np.diag(n), len(n)
    single = n / np.outer(own, own)
    whole = np.flatnonzero(owner == np.arange(size))
    held = own[whole]
    joint = n[np.ix_(whole, whole)].sum() - held.sum()
    everybody = 1.0 / held[0] if len(whole) == 1 else float(joint / (held.sum() ** 2 - held @ held))
    i, j, k, l = np.ogrid[:size, :size, :size, :size]  # noqa: E741 - the indices of the formula
    shared = np.where(np.equal.outer(owner, owner), owner[:, None], -1)  # by two parties
    np.fill_diagonal(shared, np.arange(size))
    found = np.full((size,) * 4, everybody)
    alone = np.broadcast_to((i == j) & (k == l), found.shape)
    found[alone] = single.ravel()
    for one, other in ((j, k), (j, l), (i, k), (i, l)):
        met = shared[one, other]
        found = np.where((met >= 0) & ~(alone & (i != k)), np.maximum(found, 1 / own[met]), found)
    for one, other in ((shared[i, k], shared[j, l]), (shared[i, l], shared[j, k])):
        found = np.where((one >= 0) & (other >= 0), np.maximum(found, 1 / n[one, other]), found)
    return found, single


@dataclass(frozen=True, slots=True)
class Held:
    """How many subjects a party holds, or two of them together, the standard error of that, and how many count."""

    computed: ClassVar = ("interval",)

    parties: tuple[str, ...]
    subjects: float
    error: float
    kept: float

    @property
    def interval(self) -> tuple[float, float]:
        """An interval of about 95 % for how many they are."""
        return max(self.subjects - 2 * self.error, 0.0), self.subjects + 2 * self.error


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether the subjects that `party` shares with `other` differ from all its own.

    Attributes:
        column: place of the column whose means differ most, over their standard error.
        shift: of that column's mean, shared over own, in encoded units.
        statistic, degrees, p_value: of Wald's test over all columns that were compared.
    """

    party: str
    other: str
    column: int
    shift: float
    statistic: float
    degrees: int
    p_value: float


def held(pairs: Pairs) -> tuple[Held, ...]:
    """Own counts, then joint ones."""
    places = [*((i, i) for i in range(len(pairs.names))), *combinations(range(len(pairs.names)), 2)]
    return tuple(
        Held(
            tuple(dict.fromkeys((pairs.names[i], pairs.names[j]))),
            float(pairs.counts.held[i, j]),
            float(pairs.counts.errors[i, j]),
            float(pairs.counts.summed[i, j]),
        )
        for i, j in places
    )


def selections(pairs: Pairs, columns: NDArray[np.intp]) -> tuple[Selection, ...]:
    """A test for each party among those of these columns and each other one, but not of a part and its whole."""
    parties = np.unique(pairs.party[columns]).tolist()
    chosen = [(i, j) for i, j in permutations(parties, 2) if pairs.owner[i] != j]
    return tuple(_selection(pairs, columns[pairs.party[columns] == i], i, j) for i, j in chosen)


def _selection(pairs: Pairs, columns: NDArray[np.intp], i: int, j: int) -> Selection:
    """d_a = S[a, 1_j] / n_ij - S[1_i, a] / n_i has the noise E[a~, 1_j] / n_ij - E[1_i, a~] / n_i.

    Drawing n_ij of n_i subjects adds C (1/n_ij - 1/n_i).
    """
    from scipy.special import chdtrc  # noqa: PLC0415 - loads slowly, and no server needs it

    own, joint = (max(float(pairs.counts.summed[i, other]), 1.0) for other in (i, j))
    shift = pairs.joint_means[columns, j] - pairs.means[columns]
    forms = np.zeros((len(columns),) + (len(pairs.names) + len(pairs.party),) * 2)
    each, places = np.arange(len(columns)), len(pairs.names) + columns
    forms[each, places, j] = forms[each, j, places] = 0.5 / joint
    forms[each, places, i] = forms[each, i, places] = -0.5 / own
    C = pairs.covariance[np.ix_(columns, columns)]
    spread = form_covariances(pairs, forms) + max(1 / joint - 1 / own, 0.0) * C
    found = float(shift @ np.linalg.pinv(spread, hermitian=True) @ shift)
    degrees = int(np.linalg.matrix_rank(spread, hermitian=True))
    most = int(np.argmax(np.abs(shift) / np.sqrt(np.maximum(np.diag(spread), np.finfo(float).tiny))))
    return Selection(
        party=pairs.names[i],
        other=pairs.names[j],
        column=int(columns[most]),
        shift=float(shift[most]),
        statistic=found,
        degrees=degrees,
        p_value=float(chdtrc(degrees, max(found, 0.0))),
    )


def suspicious(found: tuple[Selection, ...]) -> tuple[Selection, ...]:
    """Tests that are no chance, however many were made."""
    return tuple(test for test in found if test.p_value * len(found) < SUSPICIOUS)
