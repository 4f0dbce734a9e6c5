"""Second moments of a release: all that fits need, computed once (docs/design/estimation.md#second-moments)."""

from typing import Annotated, Literal

from pydantic import Field

from commingle.shared.documents.model import Count, Digest, WireModel
from commingle.shared.documents.spec import MechanismName


class SecondMoments(WireModel):
    """An estimate G of S = A^T A of the n encoded rows, in encoded units, and what noise is in it.

    E[G] = S + rows * diag(noise_variance). For rmgm and dgm G = P^T P of the published matrix P (rows x p); for moments
    it is S plus noise.

    Attributes:
        columns: p names, the intercept first.
        gram: p x p, symmetric.
        noise_variance: p variances of one entry's noise in P, 0 for the intercept; all 0 for moments.
        rows: k for rmgm, n for dgm and moments.
        n: subjects.
        entry_variance: p x p variances of the noise of the entries of G, 0 for exact ones; None for rmgm and dgm.
    """

    type: Literal["commingle/moments"] = "commingle/moments"
    version: Literal[1] = 1
    release: Digest
    mechanism: MechanismName
    columns: tuple[str, ...]
    gram: tuple[tuple[float, ...], ...]
    noise_variance: tuple[Annotated[float, Field(ge=0)], ...]
    rows: Count
    n: Count
    entry_variance: tuple[tuple[Annotated[float, Field(ge=0)], ...], ...] | None = None
