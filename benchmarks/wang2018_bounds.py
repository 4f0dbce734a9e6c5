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
from benchmarks.wang2018_methods import FROM_SUMS, PRIVATE, Fit, published
from benchmarks.wang2018_panels import Panel, draw_panels
from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.floating import objpert
from commingle.party_agent.private.regression.problem import Floats, Sample

_SIZES, _EPSILONS, _DELTA = tuple(2**power for power in (18, 20, 22, 24)), (0.3, 1.0, 3.0), 1e-12
_COLUMNS = (5, 10, 20, 40)
EXPONENTS: Mapping[str, tuple[float, float, float]] = {
    "OPS": (0, -1, 1),
    **dict.fromkeys(("ObjPert", "SSP", "AdaOPS", "AdaSSP"), (-1, -2, 2)),
}
"""Of F(theta) - F(theta*) in n and in epsilon where n is large: table 1, at a fixed condition of X^T X; in d
beside ||X||^2 ||Theta||^2, which grow with d themselves, and 1 / alpha where the bound has it: all but OPS."""


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


def objpert_in_the_cube(sample: Sample, privacy: Privacy, draw: np.random.Generator) -> Floats:
    """ObjPert with the radius that holds every theta_0."""
    return objpert(sample, privacy, draw, radius=sqrt(sample.d)).coefficients


_FITS: Mapping[str, Fit] = {
    **{name: PRIVATE[name] for name in ("OPS", "SSP", "AdaOPS", "AdaSSP")},
    "ObjPert": objpert_in_the_cube,
    **FROM_SUMS,
}


def bound_errors(*, trials: int) -> list[dict[str, Any]]:
    """Mean F(theta) - F(theta*) = ||X (theta - theta*)||^2 / 2 of every method; delta is the same for all n.

    Over n and epsilon at D columns, and over columns d at the largest n and epsilon 1.
    """
    found = [cell for n in _SIZES for cell in _excess(n, D, _EPSILONS, trials=trials)]
    return found + [cell for d in _COLUMNS if d != D for cell in _excess(max(_SIZES), d, (1.0,), trials=trials)]


def _excess(n: int, d: int, epsilons: Sequence[float], *, trials: int) -> list[dict[str, Any]]:
    """With the means of ||X||^2 ||theta_0||^2 and of alpha = d lambda_min / (n ||X||^2)."""
    samples, scale = [], []
    for trial in range(trials):
        sample, truth = simulated(n, np.random.default_rng([n, trial, 5]), d=d)
        samples.append(sample)
        least = np.linalg.eigvalsh(sample.x.T @ sample.x)[0]
        scale.append((sample.row_bound**2 * truth @ truth, d * least / (n * sample.row_bound**2)))
    best = [np.linalg.solve(s.x.T @ s.x, s.x.T @ s.y) for s in samples]
    size, alpha = np.mean(scale, axis=0).tolist()
    cells = []
    for epsilon in epsilons:
        found = {}
        for name, fit in _FITS.items():
            draws = [np.random.default_rng([n, trial, 6]) for trial in range(trials)]
            gaps = [
                s.x @ (fit(s, published(epsilon, _DELTA), draw) - b)
                for s, b, draw in zip(samples, best, draws, strict=True)
            ]
            found[name] = float(np.mean([gap @ gap / 2 for gap in gaps]))
        cells.append({"n": n, "d": d, "epsilon": epsilon, "size": size, "alpha": alpha, "excess": found})
    return cells


def rate_table(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Exponents by least squares: of n and epsilon over the cells at D columns, of d over those of the largest n."""
    lines = heading(
        "method",
        *(part for of in ("n", "ε", "d") for part in (f"exponent of {of}", "table 1")),
        "F(θ) - F(θ*) at the largest n, ε = 1",
    )
    many = [c for c in cells if c["d"] == D]
    wide = sorted((c for c in cells if c["n"] == max(_SIZES) and c["epsilon"] == 1.0), key=lambda c: c["d"])
    places = np.array([[1.0, np.log(c["n"]), np.log(c["epsilon"])] for c in many])
    columns = np.array([[1.0, np.log(c["d"])] for c in wide])
    for name in cells[0]["excess"]:
        _, *found = np.linalg.lstsq(places, np.log([c["excess"][name] for c in many]))[0]
        bounded = [c["size"] / (1 if name == "OPS" else c["alpha"]) for c in wide]
        excess = np.array([c["excess"][name] for c in wide])
        found.append(np.linalg.lstsq(columns, np.log(excess / bounded))[0][1])
        said = [f"{value:g}" for value in EXPONENTS.get(name, ())] or [""] * len(found)
        [last] = [c["excess"][name] for c in wide if c["d"] == D]
        figures = (part for value, theirs in zip(found, said, strict=True) for part in (f"{value:.2f}", theirs))
        lines.append(row(name, *figures, f"{last:.3g}"))
    return lines
