"""Wang 2018's bounds: where they say that privacy costs nothing (figure 1), and exponents of tables 1 and 2 measured.

Bounds are up to constants and logarithms, so of figure 1 the shape is theirs and the height is not.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reporting import heading, row
from benchmarks.wang2018_efficiency import D, simulated
from benchmarks.wang2018_methods import FROM_SUMS, PRIVATE, published
from benchmarks.wang2018_panels import Panel, draw_panels

_SIZES, _EPSILONS, _DELTA = tuple(2**power for power in (18, 20, 22, 24)), (0.3, 1.0, 3.0), 1e-12
_METHODS = ("OPS", "SSP", "AdaOPS", "AdaSSP")
EXPONENTS: Mapping[str, tuple[float, float]] = {"OPS": (0, -1), **dict.fromkeys(("SSP", "AdaOPS", "AdaSSP"), (-1, -2))}
"""Of F(theta) - F(theta*) in n and in epsilon where n is large: table 1, at a fixed condition of X^T X."""


def least_epsilon(n: float, d: int, alpha: float, *, wide: bool) -> float:
    """Figure 1: the least epsilon whose bound is within the rate without privacy.

    `wide` is the paper's second case: coefficients so long that ||X|| ||Theta|| is about sqrt(d) ||Y||.
    """
    if wide:
        return min(max(sqrt(d), d * sqrt(d) / n), max(d / sqrt(n * alpha), d * sqrt(d) / (n * sqrt(alpha))))
    return min(max(1 / sqrt(d), sqrt(d / n)), max(d / sqrt(n * sqrt(n) * alpha), sqrt(d / (n * alpha))))


def draw_regions(path: Path) -> None:
    """The lines above which privacy is free, one panel for each case."""
    sizes, panels = np.geomspace(D, 1e8, 22).tolist(), []
    for wide, title in ((False, "‖X‖‖Θ‖ ≈ ‖Y‖"), (True, "‖X‖‖Θ‖ ≈ √d ‖Y‖")):
        lines = {
            f"\N{GREEK SMALL LETTER ALPHA}* = {alpha:g}": [(n, least_epsilon(n, D, alpha, wide=wide)) for n in sizes]
            for alpha in (1.0, 0.1, 0.001)
        }
        panels.append(Panel(f"Figure 1: {title}, d = {D}", "rows n", "least ε", lines, {}))
    draw_panels(path, panels)


def bound_errors(*, trials: int) -> list[dict[str, Any]]:
    """Mean F(theta) - F(theta*) = ||X (theta - theta*)||^2 / 2 of every method; delta is the same for all n."""
    fits, cells = {**{name: PRIVATE[name] for name in _METHODS}, **FROM_SUMS}, []
    for n in _SIZES:
        samples = [simulated(n, np.random.default_rng([n, trial, 5]))[0] for trial in range(trials)]
        best = [np.linalg.solve(s.x.T @ s.x, s.x.T @ s.y) for s in samples]
        for epsilon in _EPSILONS:
            found = {}
            for name, fit in fits.items():
                draws = [np.random.default_rng([n, trial, 6]) for trial in range(trials)]
                gaps = [
                    s.x @ (fit(s, published(epsilon, _DELTA), draw) - b)
                    for s, b, draw in zip(samples, best, draws, strict=True)
                ]
                found[name] = float(np.mean([gap @ gap / 2 for gap in gaps]))
            cells.append({"n": n, "epsilon": epsilon, "excess": found})
    return cells


def rate_table(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Exponents of n and epsilon by least squares over all cells, beside those of table 1."""
    lines = heading(
        "method", "exponent of n", "table 1", "exponent of ε", "table 1", "F(θ) - F(θ*) at the largest n, ε = 1"
    )
    places = np.array([[1.0, np.log(c["n"]), np.log(c["epsilon"])] for c in cells])
    for name in cells[0]["excess"]:
        _, of_n, of_epsilon = np.linalg.lstsq(places, np.log([c["excess"][name] for c in cells]))[0]
        said = [f"{value:g}" for value in EXPONENTS.get(name, ())] or ["", ""]
        [last] = [c["excess"][name] for c in cells if c["epsilon"] == 1.0 and c["n"] == max(_SIZES)]
        lines.append(row(name, f"{of_n:.2f}", said[0], f"{of_epsilon:.2f}", said[1], f"{last:.3g}"))
    return lines
