"""The errors of a regression over keyed subjects, to first order: noise, strangers that met, and sampling.

With S the published moments, 1_i and a~ = a - m_a 1_i, errors E of S make errors of m_a = S[1_i, a] / n_i and of C_ab

    dm_a = E[1_i, a~] / n_i,        dC_ab = E[a~, b~] / n_ij,

so every number of a fit has an error <W, E>, and its variance follows from W (`published_noise`). Strangers that met
add to E[u, v], u at i and v at j, a sum over so many pairs of independent subjects (docs/proofs/keyed-subjects.md,
5.1).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.estimation.entry_noise import Array, EntryNoise
from commingle.shared.estimation.pairwise import Pairs

_NEARLY = 0.95
"""A part with this share of its owner's subjects is drawn as they are: many parts would take memory to the fourth."""


@dataclass(frozen=True, slots=True, eq=False)
class PairNoise(EntryNoise):
    """Errors of the moments of (1, x, y), m columns besides 1, in the basis of a system.

    `variance` and `basis` are those of entries about their means, as if they were independent; covariances are exact to
    first order.

    Attributes:
        pairs: of all columns.
        used: (m,) which of them.
        n: what moments are scaled to.
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
        """Cov(v), (p_x, p_x), of v = (E (-b, 1))_x, without sampling."""
        size = self.basis.shape[1]
        forms = np.zeros((size - 1, size, size))
        each = np.arange(size - 1)
        forms[each, each] += direction / 2
        forms[each, :, each] += direction / 2
        return self._covariances(forms)

    def form_variance(self, form: Array) -> float:
        """Var of sum_ij Q_ij E_ij for symmetric Q = `form`, (p_x + 1, p_x + 1), without sampling."""
        return float(self._covariances(form[None])[0, 0])

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
        """Of sum_ij Q_ij E_ij for t symmetric Q, (t, p_x + 1, p_x + 1), in the system's basis: (t, t)."""
        return form_covariances(self.pairs, self._centred(self.basis @ forms @ self.basis.T))

    def _centred(self, forms: Array) -> Array:
        """The same forms, (t, 1 + m, 1 + m), in the rows of `Pairs.centring`: (t, J + M, J + M)."""
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
    """Of <W, E> for t symmetric W, (t, J + m, J + m), over presences and centred columns: (t, t)."""
    used = np.flatnonzero(forms.any(axis=(0, 1)))
    forms = forms[:, used[:, None], used]
    centring = pairs.centring[used]
    columns = np.flatnonzero(centring.any(axis=0))
    centring = centring[:, columns]
    found = pairs.noise.on(columns).covariances(centring.T @ forms @ centring)
    strangers = pairs.counts.strangers
    if not strangers.any():
        return found
    parties = len(pairs.names)
    whose = np.append(np.arange(parties), pairs.party)[used]
    law = np.eye(parties + len(pairs.party))
    law[parties:, parties:] = pairs.covariance
    law = law[np.ix_(used, used)] * np.equal.outer(pairs.owner[whose], pairs.owner[whose])
    return np.asarray(found + of_strangers(forms, strangers[np.ix_(whose, whose)], law))


def of_strangers(forms: Array, strangers: Array, law: Array) -> Array:
    """What pairs of different subjects that met add to the covariances of <W, E>: 2 tr((W strangers) L U L), (t, t).

    docs/proofs/keyed-subjects.md, 5.1: subject s of one party and r of another add eps u_s w_r, eps = +-1 at random.

    Args:
        forms: (t, q, q) symmetric W.
        strangers: (q, q) how many pairs met, entry by entry of E.
        law: (q, q) L, second moments of one subject of each party; 0 between two parties.
    """
    k, l = np.triu_indices(len(law))  # noqa: E741 - both are symmetric
    met = forms[:, k, l] * (strangers[k, l] * np.where(k < l, 4, 2))
    return np.asarray(met @ (law @ forms @ law)[:, k, l].T)


def _overlaps(n: Array, owner: NDArray[np.intp]) -> tuple[Array, Array]:
    """The shares of draws that estimates over two pairs have in common, (J, J, J, J), and over two parties, (J, J).

    That is n_AB / (n_A n_B) with n_AB those in all parties of A and B. Where these are not published it is as if
    parties held subjects independently of one another: one over the number in the parties that A and B share. A part
    of a party's subjects shares that party with what else is of it.
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
