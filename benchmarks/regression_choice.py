"""Does `--method auto` take the best of the methods it knows? Its forecasts beside measured errors.

python -m benchmarks.regression_choice [--quick] [--data DIR] [--json FILE]

Made-up rows within [-1, 1]: `even` fills its bounds, `narrow` has standard deviations from 0.02 to 0.5 and correlated
columns, which `auto` sees only through 200 public rows. Errors are root mean squares of what noise moves predictions
by, over the root mean square of what the features explain; medians of repeats. 1 is as bad as publishing nothing.

Tables: a tenth of the rows is public and gives bounds (least and greatest) and moments; errors are root mean squares on
a tenth that is tested, over those of the public mean. Constants of the choice may be chosen on made-up rows and on
`TUNING`; `REPORTING` is what is reported.
"""

import json
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from pathlib import Path

import click
import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from benchmarks.tables import DATA, columns, entries
from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.measuring import FloatingPoint
from commingle.party_agent.private.regression.methods import METHODS, STAGED, WITH_PUBLIC_ROWS, ExactMethod
from commingle.party_agent.private.regression.problem import Floats, clip_sample
from commingle.party_agent.private.regression.public_moment import PublicMoments, transform
from commingle.party_agent.private.regression.row_map import RowMap
from commingle.party_agent.private.regression.sums import sums_loss
from commingle.party_agent.private.regression.two_stage import adjacency_of
from commingle.party_agent.regression.forecasts import RegressionDesign
from commingle.party_agent.regression.outlook import assumed_moment, choose, predict
from commingle.shared.documents.regression import RegressionMethod, measured_attributes
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.dp.two_stages import TwoStages, plan_two_stages

TUNING = ("concrete", "airfoil", "skillcraft", "winequality_white", "pol", "elevators", "protein", "gpu_sgemm")
REPORTING = ("autompg", "parkinsons", "support2", "nhanes_bp", "bike", "kin40k", "keggundirected", "diabetes130")
_NAMES: tuple[RegressionMethod, ...] = ("two_stage", "ssp", "adassp", "boosted_adassp", "dp_pmtolse")
_PUBLIC_ROWS = 200
_FOLDS = 10


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded rows with a column of ones first, and labels within [-1, 1]: private ones, public ones, tested ones."""

    x: Floats
    y: Floats
    public_x: Floats
    public_y: Floats
    tested_x: Floats
    tested_y: Floats

    @property
    def public(self) -> PublicMoments:
        """Of the public rows; a thousandth on the diagonal, since columns of tables may follow from each other."""
        second = self.public_x.T @ self.public_x / len(self.public_x) + 1e-3 * np.eye(self.x.shape[1])
        return PublicMoments(second.astype(np.float64), float(np.mean(self.public_y**2)))


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting with the errors of each method and the method chosen, with and without public rows at hand."""

    rows: str
    n: int
    features: int
    epsilon: float
    measured: dict[RegressionMethod, float]
    forecast: dict[RegressionMethod, float]
    chosen: RegressionMethod
    chosen_without: RegressionMethod


def thetas(rows: Rows, privacy: Privacy, draw: Generator) -> dict[RegressionMethod, Floats]:
    """Coefficients of each method, once."""
    bound, public, noise = sqrt(rows.x.shape[1]), rows.public, FloatingPoint(draw)
    plain = clip_sample(rows.x, rows.y, row_bound=bound, label_bound=1.0)
    mapped = transform(rows.x, rows.y, public, make=clip_sample)
    found: dict[RegressionMethod, Floats] = {}
    for name in _NAMES:
        method = METHODS.get(name)
        if name in STAGED:
            found[name] = two_stage_theta(rows, privacy, draw)
        elif isinstance(method, ExactMethod):
            found[name] = method.run(plain, privacy, noise).coefficients
        else:
            found[name] = WITH_PUBLIC_ROWS[name].run(mapped, public, privacy, noise).coefficients
    return found


def two_stage_theta(rows: Rows, privacy: Privacy, draw: Generator) -> Floats:
    """Coefficients of `two_stage`, with noise that a generator draws instead of the operating system."""

    def noise(sigma: int, count: int) -> NDArray[np.int64]:
        return np.rint(draw.normal(0, sigma, count)).astype(np.int64)

    q = quantise(np.column_stack([rows.x[:, 1:], rows.y]))
    stages = planned_stages(len(q), q.shape[1], privacy)
    return STAGED["two_stage"].run(q, stages, privacy, noise, intercept=True).coefficients


def planned_stages(n: int, columns: int, privacy: Privacy) -> TwoStages:
    """For so many columns, all numbers, the label among them."""
    *features, label = numbers(columns)
    rho, attributes = sums_loss(privacy).rho, measured_attributes(label, tuple(features))
    return plan_two_stages(attributes, n=n, rho=rho, adjacency=adjacency_of(privacy))


def numbers(count: int) -> tuple[NumericAttribute, ...]:
    """Columns that are encoded already."""
    return tuple(NumericAttribute(name=f"x{j}", lower=-1, upper=1) for j in range(count))


def cell(rows: Rows, name: str, privacy: Privacy, measured: dict[RegressionMethod, float]) -> Cell:
    """What was measured beside what is forecast and chosen."""
    n, d, public = len(rows.y), rows.x.shape[1], rows.public
    seen = RegressionDesign(public.features, public.label, n, sqrt(d), 1.0, len(rows.public_y))
    blind = unseen(n, d)
    outlooks = {name: predict(name, seen, privacy) for name in _NAMES}
    forecast = {name: o.error / o.signal for name, o in outlooks.items() if o is not None}
    chosen, without = choose(seen, privacy).method, choose(blind, privacy).method
    return Cell(name, n, d - 1, privacy.epsilon, measured, forecast, chosen, without)


def unseen(n: int, d: int) -> RegressionDesign:
    """What is assumed without public rows."""
    return RegressionDesign(assumed_moment(numbers(d - 1), RowMap())[0], 1 / 3, n, sqrt(d), 1.0)


def measure(shape: str, n: int, features: int, epsilon: float, *, repeats: int) -> Cell:
    """One setting of made-up rows."""
    draw = default_rng((n, features, int(epsilon * 10)))
    x, y = _rows(draw, shape, n + _PUBLIC_ROWS, features)
    own_x, own_y = x[_PUBLIC_ROWS:], y[_PUBLIC_ROWS:]
    rows = Rows(own_x, own_y, x[:_PUBLIC_ROWS], y[:_PUBLIC_ROWS], own_x, own_y)
    privacy, best = Privacy(epsilon, 1e-6), np.linalg.lstsq(own_x, own_y)[0]
    signal = sqrt(float(np.mean((own_x @ best) ** 2)))
    fits = [thetas(rows, privacy, draw) for _ in range(repeats)]
    measured = {
        name: float(np.median([sqrt(float(np.mean((own_x @ (fit[name] - best)) ** 2))) for fit in fits])) / signal
        for name in _NAMES
    }
    return cell(rows, shape, privacy, measured)


def measure_table(table: tuple[Floats, Floats], name: str, epsilon: float, *, repeats: int) -> Cell:
    """One table; each repeat tests another tenth."""
    privacy, errors = Privacy(epsilon, 1e-6), []
    for repeat in range(repeats):
        rows = split_rows(*table, tested=1 + repeat % (_FOLDS - 1))
        trivial = float(np.mean((rows.tested_y - rows.public_y.mean()) ** 2))
        fits = thetas(rows, privacy, default_rng(repeat))
        errors.append({m: float(np.mean((rows.tested_y - rows.tested_x @ fits[m]) ** 2)) / trivial for m in _NAMES})
    measured = {method: sqrt(float(np.median([e[method] for e in errors]))) for method in _NAMES}
    return cell(rows, name, privacy, measured)


def split_rows(x: Floats, y: Floats, *, tested: int) -> Rows:
    fold = default_rng(13).permutation(len(y)) % _FOLDS
    public, test = fold == 0, fold == tested
    private = ~(public | test)
    varied = np.ptp(x[public], axis=0) > 0
    z = np.column_stack([np.ones(len(y)), _within(x[:, varied], public)])
    label = _within(y[:, None], public)[:, 0]
    return Rows(z[private], label[private], z[public], label[public], z[test], label[test])


def _within(values: Floats, public: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """Columns brought to [-1, 1] by the public rows' least and greatest values, and cut there."""
    low, high = values[public].min(axis=0), values[public].max(axis=0)
    encoded: Floats = np.clip((2 * values - low - high) / (high - low), -1, 1)
    return encoded


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


def regrets(cells: list[Cell]) -> dict[str, list[float]]:
    """The chosen method's error over that of the best, with public rows and without (without dp_pmtolse)."""
    return {
        "with public rows": [c.measured[c.chosen] / min(c.measured.values()) for c in cells],
        "without": [c.measured[c.chosen_without] / min(c.measured[name] for name in _NAMES[:-1]) for c in cells],
    }


def show(title: str, cells: list[Cell]) -> None:
    """A table: measured errors, forecasts in brackets, what auto takes; then how often that was the best."""
    print(f"{title:18} {'n':>8} {'d':>3} {'eps':>4} " + " ".join(f"{name:>20}" for name in _NAMES) + "  auto, blind")
    for c in cells:
        figures = " ".join(f"{c.measured[name]:10.3g} ({c.forecast[name]:7.2g})" for name in _NAMES)
        print(f"{c.rows:18} {c.n:8} {c.features:3} {c.epsilon:4} {figures}  {c.chosen}, {c.chosen_without}")
    for what, regret in regrets(cells).items():
        print(f"{what}: best within 10 % in {np.mean(np.array(regret) < 1.1):.0%}, worst {max(regret):.2f} times it")


@click.command()
@click.option("--quick", is_flag=True)
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA)
@click.option("--json", "out", type=click.Path(path_type=Path, dir_okay=False))
def main(*, quick: bool, data: Path, out: Path | None) -> None:
    """Print three tables: made-up rows, tuning tables, reporting tables."""
    sizes, repeats = ((1_000,), 3) if quick else ((1_000, 10_000, 100_000, 1_000_000), 9)
    grid = product(("even", "narrow"), sizes, (3, 10), (0.1, 1.0, 3.0))
    found = {"made-up": [measure(*setting, repeats=repeats) for setting in grid]}
    at_hand = {entry["name"] for entry in entries(data)}
    for title, names in {"tuning": TUNING[: 1 if quick else None], "reporting": REPORTING}.items():
        chosen = [name for name in names if name in at_hand and not (quick and title == "reporting")]
        tables = {name: columns(data, name) for name in chosen}
        found[title] = [
            measure_table(table, name, e, repeats=repeats)
            for name, table in tables.items()
            for e in (0.1, 0.3, 1.0, 3.0)
        ]
    for title, cells in found.items():
        if cells:
            show(title, cells)
    if out is not None:
        out.write_text(json.dumps({title: [asdict(c) for c in cells] for title, cells in found.items()}, indent=1))


if __name__ == "__main__":
    main()
