"""Sums of products of two columns over the subjects of a release, with the covariance of the noise in them.

For listed subjects a release has S = sum_s v_s v_s^T of v = (1, columns). For keyed ones each party i has its presence
1_i in place of the 1. Products of columns of two parties sum over those whom both hold and who met nobody in their
bucket (docs/proofs/keyed-subjects.md, 5). Counts, tables and group means are linear forms <W, S> = sum_kl W_kl S_kl:
unbiased, with noise <W, E> whose covariance is known.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import GAP, Attribute, NumericAttribute
from commingle.shared.errors import NoTablesError
from commingle.shared.estimation.entry_noise import Array, PairLaw, ProductNoise
from commingle.shared.estimation.pairwise import covariances_of
from commingle.shared.estimation.prepared import PreparedMoments


@dataclass(frozen=True, slots=True, eq=False)
class CrossProducts:
    """S and its noise E over q = J + m columns: presences of J parties (listed ones: J = 1), then encoded columns."""

    values: Array  # (q, q) symmetric S; `values[i, j]` of two presences counts subjects that both parties hold
    undo: Array  # (q, p) these columns as combinations of p published ones, which `noise` is of
    noise: PairLaw
    whose: NDArray[np.intp]  # (q,) the place of the presence that goes with each column
    strangers: Array  # (J, J) pairs of different subjects whose products are among the sums, with signs that cancel
    prepared: PreparedMoments

    @classmethod
    def of(cls, prepared: PreparedMoments) -> Self:
        """The sums of a release of moments. Raises NoTablesError: of rows, whose noise is in every product of one."""
        if prepared.entry_variance is None:
            raise NoTablesError(
                f"tables are read from releases of moments, and this one is of {prepared.mechanism}",
                remedy='Propose the study with "mechanism": "moments".',
            )
        pairs = prepared.pairs
        if pairs is None:
            undo, values = prepared.mixing, prepared.gram
            noise = PairLaw.of_entries(prepared.entry_variance)
            whose, strangers = np.zeros(len(values), np.intp), np.zeros((1, 1))
        else:
            undo, values, noise, strangers = pairs.undo, pairs.sums, pairs.noise, pairs.counts.strangers
            whose = np.append(np.arange(len(strangers)), pairs.party).astype(np.intp)
        return cls(values, undo, noise, whose, strangers, prepared)

    def present(self, name: str) -> Array:
        """(q,) the presence of the party that holds this attribute. Raises UnknownAttributeError."""
        _, at = self._places(name)
        found = np.zeros(len(self.values))
        found[self.whose[at[0]]] = 1.0
        return found

    def levels(self, name: str) -> tuple[tuple[str, ...], Array]:
        """Labels of the L levels of an attribute, a gap last, and their 0/1 indicators as combinations, (L, q).

        Raises NoTablesError: a number has no levels, or missing cells count as halfway between two;
        UnknownAttributeError.
        """
        attribute, at = self._places(name)
        if isinstance(attribute, NumericAttribute):
            raise NoTablesError(
                f"{name} is a number, so it has no levels",
                remedy="Leave it out, or ask for its mean by group or for a linear model. Or propose a study that "
                f"releases its intervals as levels: commingle study new --cut {name}=…",
            )
        if attribute.missing == "midpoint":
            raise NoTablesError(
                f"missing cells of {name} count as {attribute.stand_in}, so its levels cannot be counted",
                remedy='Propose the study with "missing": "indicator" for it: missing is then a level.',
            )
        unit, one = np.eye(len(self.values)), self.present(name)
        marked = attribute.missing == "indicator"
        gap = unit[at[-1]] if marked else np.zeros_like(one)
        if attribute.kind == "binary":  # -1 and 1, and 0 where there is a gap
            found = [(one - gap - unit[at[0]]) / 2, (one - gap + unit[at[0]]) / 2]
        else:
            others = list(unit[list(at[: len(at) - marked])])
            found = [one - gap - np.sum(others, axis=0), *others]
        labels = (*attribute.levels, *((GAP,) if marked else ()))
        return labels, np.array([*found, *([gap] if marked else [])])

    def exclusive(self, name: str) -> tuple[Array, Array]:
        """Indicators (z, q) each of two different levels of an attribute: both together have a sum of 0.

        There are none if rows may have been cut: then a person may have a bit of two. Nor are there for two levels of
        listed people, where a person whose row a member lost lies halfway between. Raises NoTablesError,
        UnknownAttributeError.
        """
        attribute, indicators = self.prepared.attribute(name), self.levels(name)[1]
        halfway = attribute.kind == "binary" and attribute.missing == "error" and attribute.intervals is None
        shared = name in self.prepared.shortened or (halfway and not self.prepared.keyed)
        one, other = np.triu_indices(0 if shared else len(indicators), 1)
        return indicators[one], indicators[other]

    def number(self, name: str) -> tuple[Array, Array]:
        """A number in original units as a combination of columns, (q,), 0 for people without one; and who has it, (q,).

        Raises NoTablesError: it is no number, or missing cells count as the midpoint; UnknownAttributeError.
        """
        attribute, at = self._places(name)
        if not isinstance(attribute, NumericAttribute) or attribute.missing == "midpoint":
            raise NoTablesError(
                f"{name} has no mean: it has levels, or missing cells that count as {attribute.stand_in}",
                remedy='Ask for a table of its levels; or propose the study with "missing": "indicator" for it.',
            )
        unit, has = np.eye(len(self.values)), self.present(name)
        if attribute.missing == "indicator":
            has = has - unit[at[-1]]
        column = attribute.columns[0]
        return column.offset * has + column.scale * unit[at[0]], has

    def sums(self, forms: Array) -> tuple[Array, Array]:
        """<W, S> for t symmetric W, (t, q, q): (t,) and the covariance of their noise, (t, t)."""
        return np.einsum("tkl,kl->t", forms, self.values), self.covariance(forms)

    def using(self, combinations: Array) -> tuple[Self, NDArray[np.intp]]:
        """The sums over all presences and the columns that some combinations (t, q) use, and their places."""
        kept = np.flatnonzero(combinations.any(axis=0) | (np.arange(len(self.values)) < len(self.strangers)))
        values = self.values[np.ix_(kept, kept)]
        return replace(self, values=values, undo=self.undo[kept], whose=self.whose[kept]), kept

    def people(self, indicators: Array) -> tuple[Array, Array]:
        """How many have each of t 0/1 combinations, (t, q): (t,), and the standard errors of their noise, (t,)."""
        counts, noise = self.sums(np.einsum("tk,tl->tkl", indicators, indicators))
        return counts, np.sqrt(np.maximum(np.diag(noise), 0.0))

    def covariance(self, forms: Array) -> Array:
        """(t, t) of the noise of <W, S> for t symmetric W, (t, q, q): of what was published, and strangers that met."""
        return covariances_of(forms, self.undo, self.noise, self._strangers(np.arange(len(self.whose))))

    def crossed(self, left: Array, right: Array) -> tuple[Array, ProductNoise]:
        """sum_s (l v_s)(r v_s) for each l of `left` (a, q) with each r of `right` (b, q): (a, b), and its noise."""
        used = np.flatnonzero(left.any(axis=0) | right.any(axis=0))
        values, left, right, undo = self.values[np.ix_(used, used)], left[:, used], right[:, used], self.undo[used]
        columns = np.flatnonzero(undo.any(axis=0))
        undo = undo[:, columns]
        parts = [(self.noise.on(columns), left @ undo, right @ undo)]
        if self.strangers.any():
            parts.append((self._strangers(used), left, right))
        return left @ values @ right.T, ProductNoise(tuple(parts))

    def _strangers(self, used: NDArray[np.intp]) -> PairLaw:
        whose = self.whose[used]
        counts = np.maximum(np.diag(self.values)[whose], 1.0)
        law = self.values[np.ix_(used, used)] / counts * np.equal.outer(whose, whose)
        return PairLaw(self.strangers[np.ix_(whose, whose)], law)

    def _places(self, name: str) -> tuple[Attribute, tuple[int, ...]]:
        attribute, before = self.prepared.attribute(name), len(self.strangers) - 1  # the intercept is a presence
        return attribute, tuple(before + i for i in self.prepared.columns[name])


def products(left: Array, right: Array) -> Array:
    """W with <W, S> = sum_s (l v_s)(r v_s) for each l of `left` (a, q) and r of `right` (b, q): (a b, q, q)."""
    each = np.einsum("ak,bl->abkl", left, right)
    whole: Array = (each + each.swapaxes(2, 3)) / 2
    return whole.reshape(-1, *each.shape[2:])
