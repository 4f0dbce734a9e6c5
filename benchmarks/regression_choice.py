"""Does `--method auto` take the best of the methods it knows? Its forecasts beside measured errors.

python -m benchmarks.regression_choice [--quick] [--json FILE]

Synthetic rows within [-1, 1]: `even` fills its bounds, `narrow` has standard deviations from 0.02 to 0.5 and correlated
columns, which `auto` sees only through 200 public rows. Errors are root mean squares of what noise moves predictions
by, over the root mean square of what the features explain; medians of repeats. 1 is as bad as publishing nothing.
"""

import json
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from pathlib import Path

import click
import numpy as np
from numpy.random import Generator, default_rng

from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.measuring import FloatingPoint
from commingle.party_agent.private.regression.methods import METHODS, WITH_PUBLIC_ROWS, ExactMethod
from commingle.party_agent.private.regression.problem import Floats, clip_sample
from commingle.party_agent.private.regression.public_moment import PublicMoments, transform
from commingle.party_agent.regression.outlook import RegressionDesign, assumed_moment, choose, predict
from commingle.shared.documents.regression import RegressionMethod
from commingle.shared.documents.schema import NumericAttribute

_NAMES: tuple[RegressionMethod, ...] = ("ssp", "adassp", "boosted_adassp", "dp_pmtolse")
_PUBLIC_ROWS = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting with the errors of each method and the method chosen, with and without public rows at hand."""

    shape: str
    n: int
    features: int
    epsilon: float
    measured: dict[RegressionMethod, float]
    forecast: dict[RegressionMethod, float]
    chosen: RegressionMethod
    chosen_without: RegressionMethod


def measure(shape: str, n: int, features: int, epsilon: float, *, repeats: int) -> Cell:
    """One setting."""
    draw = default_rng((n, features, int(epsilon * 10)))
    x, y = _rows(draw, shape, n + _PUBLIC_ROWS, features)
    public = PublicMoments.of(x[:_PUBLIC_ROWS], y[:_PUBLIC_ROWS])
    x, y = x[_PUBLIC_ROWS:], y[_PUBLIC_ROWS:]
    privacy, bound = Privacy(epsilon, 1e-6), sqrt(1 + features)
    plain, mapped = clip_sample(x, y, row_bound=bound, label_bound=1.0), transform(x, y, public, make=clip_sample)
    best = np.linalg.lstsq(x, y)[0]
    signal = sqrt(float(np.mean((x @ best) ** 2)))

    def error(name: RegressionMethod) -> float:
        noise = FloatingPoint(draw)
        method = METHODS.get(name)
        if isinstance(method, ExactMethod):
            theta = method.run(plain, privacy, noise).coefficients
        else:
            theta = WITH_PUBLIC_ROWS[name].run(mapped, public, privacy, noise).coefficients
        return sqrt(float(np.mean((x @ (theta - best)) ** 2))) / signal

    measured = {name: float(np.median([error(name) for _ in range(repeats)])) for name in _NAMES}
    seen = RegressionDesign(public.features, public.label, n, bound, 1.0, _PUBLIC_ROWS)
    attributes = tuple(NumericAttribute(name=f"x{j}", lower=-1, upper=1) for j in range(features))
    blind = RegressionDesign(assumed_moment(attributes, None), 1 / 3, n, bound, 1.0)
    outlooks = {name: predict(name, seen, privacy) for name in _NAMES}
    forecast = {name: o.error / o.signal for name, o in outlooks.items() if o is not None}
    chosen, without = choose(seen, privacy).method, choose(blind, privacy).method
    return Cell(shape, n, features, epsilon, measured, forecast, chosen, without)


def _rows(draw: Generator, shape: str, n: int, features: int) -> tuple[Floats, Floats]:
    """Rows with a column of ones first, and labels of which the features explain half."""
    if shape == "even":
        x = draw.uniform(-1, 1, (n, features))
    else:
        common = draw.normal(size=(n, 1))
        x = np.clip(np.geomspace(0.02, 0.5, features) * (0.6 * common + 0.8 * draw.normal(size=(n, features))), -1, 1)
    mean = (x - x.mean(axis=0)) / x.std(axis=0) @ draw.normal(size=features)
    y = mean / mean.std() + draw.normal(size=n)
    return np.column_stack([np.ones(n), x]), np.clip(0.4 * y, -1, 1)


@click.command()
@click.option("--quick", is_flag=True)
@click.option("--json", "out", type=click.Path(path_type=Path, dir_okay=False))
def main(*, quick: bool, out: Path | None) -> None:
    """Print a table: measured errors, forecasts in brackets, what auto takes."""
    sizes = (1_000,) if quick else (1_000, 10_000, 100_000, 1_000_000)
    grid = product(("even", "narrow"), sizes, (3, 10), (0.1, 1.0, 3.0))
    cells = [measure(*setting, repeats=3 if quick else 9) for setting in grid]
    print(f"{'rows':7} {'n':>8} {'d':>3} {'eps':>4} " + " ".join(f"{name:>20}" for name in _NAMES) + "  auto, blind")
    for c in cells:
        figures = " ".join(f"{c.measured[name]:10.3g} ({c.forecast[name]:7.2g})" for name in _NAMES)
        print(f"{c.shape:7} {c.n:8} {c.features:3} {c.epsilon:4} {figures}  {c.chosen}, {c.chosen_without}")
    regrets = {
        "with public rows": [c.measured[c.chosen] / min(c.measured.values()) for c in cells],
        "without": [c.measured[c.chosen_without] / min(c.measured[name] for name in _NAMES[:-1]) for c in cells],
    }
    for what, regret in regrets.items():
        print(f"{what}: best within 10 % in {np.mean(np.array(regret) < 1.1):.0%}, worst {max(regret):.2f} times it")
    if out is not None:
        out.write_text(json.dumps([asdict(c) for c in cells], indent=1))


if __name__ == "__main__":
    main()
