"""The two designs of the public second moment paper: public and private rows, and what a fit is judged against."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.random import Generator

from benchmarks.tables import at_hand, columns
from commingle.party_agent.private.regression.problem import Floats

D = 10
WINE_PUBLIC = 249
_LEAST, _TRACE = 0.17, 15.32 * 0.17 * D
"""Smallest eigenvalue and trace of the second moment, so that tr/(d lambda_min) is the paper's 15.32."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Public rows, private rows and the coefficients that a fit should find."""

    public_x: Floats = field(repr=False)
    public_y: Floats = field(repr=False)
    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    truth: Floats = field(repr=False)

    def part(self, *, public: int | None = None, private: int | None = None) -> "Rows":
        """The first rows of each."""
        return Rows(self.public_x[:public], self.public_y[:public], self.x[:private], self.y[:private], self.truth)


def synthetic(draw: Generator, *, n: int, public: int) -> Rows:
    """Rows N(mu, Psi), beta ~ N(0, I), y = x beta + N(0, 0.05^2); tr(Psi + mu mu^T) = 26, lambda_min = 0.17.

    The paper's mu and Psi were not at hand: here Psi = diag(0.17 ... 5), evenly in the logarithm, turned at random, and
    mu, along the direction of the largest eigenvalue, makes up the trace.
    """
    values = np.geomspace(_LEAST, 5.0, D)
    turned = np.linalg.qr(np.random.default_rng(25).normal(size=(D, D)))[0]
    mu = np.sqrt(_TRACE - values.sum()) * turned[:, -1]
    x = mu + draw.normal(size=(n + public, D)) * np.sqrt(values) @ turned.T
    beta = draw.normal(size=D)
    y = x @ beta + draw.normal(0, 0.05, len(x))
    return Rows(x[:public], y[:public], x[public:], y[public:], beta)


def wine_table(data: Path) -> tuple[Floats, Floats] | None:
    """White wine, or None where it is not at hand."""
    return next((columns(data, name) for name in at_hand(data, ["winequality_white"])), None)


def wine(table: tuple[Floats, Floats], draw: Generator, *, row_norm: bool) -> Rows:
    """z-scores (which read private rows), rows then divided by their norms or not; 249 rows drawn to be public.

    The paper says "normalised"; of eight ways tried these two come nearest to its condition numbers. The truth is least
    squares on all private rows.
    """
    x, y = ((values - values.mean(axis=0)) / values.std(axis=0) for values in table)
    if row_norm:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    order = draw.permutation(len(y))
    x, y = x[order], y[order]
    rest_x, rest_y = x[WINE_PUBLIC:], y[WINE_PUBLIC:]
    return Rows(x[:WINE_PUBLIC], y[:WINE_PUBLIC], rest_x, rest_y, np.linalg.lstsq(rest_x, rest_y)[0].astype(np.float64))


def condition(moment: Floats) -> float:
    """The paper's averaged condition number tr / (d lambda_min)."""
    return float(np.trace(moment) / (len(moment) * np.linalg.eigvalsh(moment)[0]))
