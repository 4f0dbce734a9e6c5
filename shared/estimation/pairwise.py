"""Moments over keyed subjects: what each pair of parties says about the subjects that both hold.

Of columns a at party i and b at party j a release has S[a, b], S[a, 1_j], S[1_i, b] and n_ij = S[1_i, 1_j], sums over
those whom both hold, 1_i being i's presence. So, with means over the pair,

    C_ab = S[a, b] / n_ij - (S[a, 1_j] / n_ij) (S[1_i, b] / n_ij),      m_a = S[1_i, a] / n_i,

hold for everybody if who is missing does not depend on values (docs/design/keyed.md).
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from commingle.shared.estimation.entry_noise import Array, PairLaw
from commingle.shared.estimation.errors import NoOverlapError

Places = NDArray[np.intp]
ENOUGH_SHARED = 4.0
"""Standard errors that a joint count is above none, for anything to be said across two parties."""
_FAR, _SURE = 1.5, 3.0
"""How many times a study's n, or a part of it, a count is beyond so many standard errors, for the n to be wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """How many subjects J parties hold, (J, J): own ones on the diagonal, joint ones beside it.

    Attributes:
        summed: those whom the moments sum over.
        held: those whom they hold: more, where some had to give way (docs/proofs/keyed-subjects.md, 5.2).
        errors: standard errors of `held`.
        strangers: rows of two parties that met although they are of different subjects (5.1 there).
        below: where own counts are traced back, the buckets: more subjects than that would look like fewer.
    """

    summed: Array
    held: Array
    errors: Array
    strangers: Array
    below: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Estimates over pairs of J parties, of m encoded columns.

    A party here is a presence: all subjects of one, or those among them who have a value of an attribute (`gaps`).

    Attributes:
        party: (m,) whose each column is.
        owner: (J,) the place of the party that holds the subjects of each: its own, or another for a part of these.
        means: (m,) over own subjects.
        joint_means: (m, J) over those shared with each party.
        sums: (J + m, J + m) S over presences and columns.
        undo: (J + m, p) presences and columns as combinations of published ones.
        centring: (J + m, p) rows 1_j and a - m_a 1_i, as such combinations.
        asked: the study's n, by which buckets and cutting were chosen, and nothing is estimated.
    """

    names: tuple[str, ...]
    party: Places
    counts: Counts
    means: Array
    joint_means: Array
    covariance: Array
    sums: Array
    undo: Array
    centring: Array
    noise: PairLaw
    asked: int
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
        """From an unbiased estimate `sums` of S; each presence is a party's where no `owner` is given."""
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
        """What is to be said where the study's n is far from how many that party holds, beyond noise."""
        n, reach = float(self.counts.held[party, party]), _SURE * float(self.counts.errors[party, party])
        if n - reach <= _FAR * self.asked and n + reach >= self.asked / _FAR:
            return None
        more = "" if self.counts.below is None else f", or else more than {self.counts.below:,}"
        return f"{self.names[party]} holds about {n:,.0f} people{more}, and the study said {self.asked:,}"

    @property
    def subjects(self) -> int:
        """What moments are scaled to: the fewest that a party holds."""
        return max(2, round(float(np.diag(self.counts.summed).min())))

    def shared(self, columns: Places) -> int:
        """The fewest that two parties of these columns share, or their one party holds."""
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
        """Refuse a fit across parties of these columns that share too few subjects."""
        for i, j in combinations(np.unique(self.party[columns]).tolist(), 2):
            joint, error = self.counts.held[i, j], self.counts.errors[i, j]
            if joint < max(ENOUGH_SHARED * error, 2.0):
                wrong = self.misjudged(i) or self.misjudged(j)
                again = f"Propose it again with the right n: {wrong}. Or fit" if wrong else "Fit"
                raise NoOverlapError(
                    f"how many people {self.names[i]} and {self.names[j]} share is too uncertain for a fit: about "
                    f"{max(joint, 0):,.0f}, give or take {2 * error:,.0f}",
                    remedy=f"{again} columns of one of them alone; or ask whether both write ids by the same rule.",
                )
