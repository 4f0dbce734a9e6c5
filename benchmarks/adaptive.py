"""The default prediction beside the label mean and the other estimators, over every real table at hand.

python -m benchmarks.adaptive [--quick] [--unrelated] [--data DIR] [--out DIR]

Each table is encoded by the agent's encoder, divided over three parties and planned as `commingle simulate` does it, at
delta 1e-5 and the planned k. What a release publishes enters a fit only by its second moments; those are drawn from
their law given the table (docs/prediction.md) instead of being computed from a published matrix, which makes thousands
of releases affordable. Scores are mean test R^2 over draws and over five ways to hold out a fifth of the rows.

Tables are divided, by a rule fixed before anything was tuned, into those the estimator was tuned on and those it was
only measured on: by the first byte of the SHA-256 of the name up to its first underscore, so that variants of one table
stay together. `--unrelated` takes the tuning half with a label made independent of the features: tables without signal.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import click
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.release_law import drawn_gram, drawn_moments, noise_variances
from benchmarks.tables import DATA, entries
from commingle.services.fit import ESTIMATORS, PreparedMoments
from commingle.services.simulation.dataset import StudyTable, holdout
from commingle.services.simulation.preparing import Wanted, prepare
from commingle.services.simulation.releases import Terms, plan_releases
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import encode_rows
from commingle.shared.estimation.system import build_system
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.rows.estimators import ESTIMATORS as ROW_ESTIMATORS
from commingle.shared.mechanisms.rows.signal import measure

Array = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0, 10.0)
TERMS = Terms(
    mechanisms=("rmgm", "dgm"),
    epsilons=EPSILONS,
    delta=1e-5,
    k=None,
    row_norm=None,
    subjects="listed",
    first_stage_share=None,  # the two stages are measured in `benchmarks.stages`
)
QUICK_TABLES = ("autompg", "concrete")
DEFAULT, CONSTANT = "shrunken", "constant"
SIGNAL = 0.05  # gain of the best estimator from which on there is something to keep
ALLOWED_DEFICIT, WANTED_SHARE = 0.03, 0.9
_INK, _MUTED, _TUNED, _REPORTED = "#222222", "#e4e4e4", "#b3b3b3", "#1f6fb4"


@dataclass(frozen=True, slots=True)
class Setting:
    """Mean test R^2 of every estimator on one table's releases of one kind."""

    table: str
    tuning: bool
    mechanism: str
    epsilon: float
    n: int
    k: int
    r2: dict[str, float]

    @property
    def best(self) -> float:
        """The best of the other estimators, known only afterwards."""
        return max(r2 for name, r2 in self.r2.items() if name != DEFAULT)

    @property
    def change(self) -> float:
        """Of the default over the constant predictor."""
        return self.r2[DEFAULT] - self.r2[CONSTANT]

    @property
    def gain(self) -> float:
        """Of the best over the constant predictor."""
        return self.best - self.r2[CONSTANT]

    @property
    def signal(self) -> bool:
        """Whether any estimator finds some: it beats the constant predictor and the true mean."""
        return self.gain > SIGNAL and self.best > 0


def is_tuning(table: str) -> bool:
    """Whether the estimator may be tuned on a table; fixed before it was."""
    return sha256(table.partition("_")[0].encode()).digest()[0] % 2 == 0


def encoded(dataset: StudyTable) -> Array:
    """(N, p) what agents would mix, the intercept first."""
    rows = encode_rows(dataset.attributes, dataset.table.columns) / SCALE
    return np.column_stack([np.ones(len(rows)), rows])


def without_signal(S: Array, target: int) -> Array:
    """Moments (p, p), the intercept first, with column `target` made uncorrelated with all others."""
    changed = S.copy()
    changed[target] = changed[:, target] = S[0] * S[0, target] / S[0, 0]
    changed[target, target] = S[target, target]
    return changed


def scores(
    S: Array, test: Array, dataset: StudyTable, spec: ReleaseSpec, *, draws: int, draw: np.random.Generator
) -> Iterator[list[float]]:
    """Test R^2 of every estimator, one list per draw; `test` is T^T T / m of the m held-out rows."""
    prepared = PreparedMoments.of(drawn_moments(spec, S, draw), spec.attributes)
    noise = noise_variances(spec)
    target = prepared.columns[dataset.target][0]
    features = tuple(i for a in dataset.features for i in prepared.columns[a.name])
    index = np.array([0, *features, target])
    held_out = test[np.ix_(index, index)]
    variance = held_out[-1, -1] - held_out[0, -1] ** 2
    if variance <= 0:  # of 23 rows a fifth may well have the same label
        return
    for _ in range(draws):
        prepared.gram[:] = drawn_gram(spec, S, noise, draw)
        system = build_system(prepared, target, features, intercept=True)
        mean = build_system(prepared, target, (), intercept=True)
        found = []
        for estimator in ROW_ESTIMATORS.values():
            chosen = system if estimator.uses_features else mean
            _, b = estimator.solve(chosen, measure(chosen))
            c = np.concatenate([-b, np.zeros(len(index) - 1 - len(b)), [1.0]])
            found.append(1 - float(c @ held_out @ c) / variance)
        yield found


def run(
    name: str,
    file: Path,
    target: str,
    features: Sequence[str],
    *,
    splits: int,
    draws: int,
    unrelated: bool = False,
) -> list[Setting]:
    """All releases of one table, or of the table with an unrelated label."""
    dataset = prepare(Wanted(table=file, target=target, parties=3, features=tuple(features)))
    rows = encoded(dataset)
    before = itertools.takewhile(lambda a: a.name != target, dataset.attributes)
    label = 1 + sum(len(a.columns) for a in before)
    moments = []
    for seed in range(splits):
        training, test = (rows[part] for part in holdout(len(rows), seed=seed))
        pair = training.T @ training, test.T @ test / len(test)
        moments.append((without_signal(pair[0], label), without_signal(pair[1], label)) if unrelated else pair)
    settings = []
    for number, planned in enumerate(plan_releases(dataset, TERMS)):
        spec = planned.spec
        draw = np.random.default_rng([number, *name.encode()])
        found = [r2 for S, test in moments for r2 in scores(S, test, dataset, spec, draws=draws, draw=draw)]
        means = dict(zip(ESTIMATORS, np.mean(found, axis=0).tolist(), strict=True))
        k = mechanism_of(spec).rows(spec)
        settings.append(Setting(name, is_tuning(name), spec.mechanism, spec.epsilon, spec.n, k, means))
    return settings


def losses(settings: Sequence[Setting]) -> dict[str, float | int | str]:
    """The first promise over some settings."""
    worst = min(settings, key=lambda s: s.change)
    return {
        "tables": len({s.table for s in settings}),
        "settings": len(settings),
        "worst_change": worst.change,
        "worst_at": _name(worst),
        "beyond_allowed": sum(s.change < -ALLOWED_DEFICIT for s in settings),
    }


def summary(settings: Sequence[Setting]) -> dict[str, float | int | str]:
    """The two promises over some settings."""
    with_signal = [s for s in settings if s.signal]
    shares = [s.change / s.gain for s in with_signal]
    return {
        **losses(settings),
        "with_signal": len(with_signal),
        "gain_kept": sum(s.change for s in with_signal) / sum(s.gain for s in with_signal),
        "least_share": min(shares),
        "least_share_at": _name(with_signal[int(np.argmin(shares))]),
        "below_wanted": sum(share < WANTED_SHARE for share in shares),
    }


def _name(s: Setting) -> str:
    return f"{s.table}, {s.mechanism}, ε = {s.epsilon:g}"


def markdown(settings: Sequence[Setting]) -> str:
    """Both summaries and every setting in which an estimator finds signal or the default loses by 0.01."""
    heads = ["tables", "settings", "worst against `constant`", "where", f"beyond -{ALLOWED_DEFICIT}"]
    heads += ["with signal", "gain kept", "least share", "where", f"below {WANTED_SHARE}"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for label, part in parts(settings).items():
        found = summary(part)
        lines.append(
            f"| {label} ({found['tables']}) | {found['settings']} | {found['worst_change']:+.3f} | {found['worst_at']} "
            f"| {found['beyond_allowed']} | {found['with_signal']} | {found['gain_kept']:.3f} "
            f"| {found['least_share']:.2f} | {found['least_share_at']} | {found['below_wanted']} |"
        )
    names = [name for name in ESTIMATORS if name != DEFAULT]
    lines += [
        "",
        f"| table | half | mechanism | ε | n | k | {DEFAULT} | {' | '.join(names)} | share of gain |",
        f"|{'---|' * (8 + len(names))}",
    ]
    for s in settings:
        if s.signal or s.change < -0.01:
            cells = " | ".join(f"{s.r2[name]:.3f}" for name in (DEFAULT, *names))
            share = f"{s.change / s.gain:.2f}" if s.signal else "-"
            half = "tuning" if s.tuning else "reporting"
            lines.append(f"| {s.table} | {half} | {s.mechanism} | {s.epsilon:g} | {s.n} | {s.k} | {cells} | {share} |")
    return "\n".join(lines) + "\n"


def parts(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """The halves that are not empty."""
    halves = {"tuning": [s for s in settings if s.tuning], "reporting": [s for s in settings if not s.tuning]}
    return {label: part for label, part in halves.items() if any(s.signal for s in part)}


def draw_picture(settings: Sequence[Setting], path: Path) -> None:
    """Gain of the default against the best estimator's, every setting a dot."""
    figure = Figure(figsize=(9.6, 4.9), dpi=150, layout="constrained")
    near, far = figure.subplots(1, 2)
    for ax, low, high, title in (
        (near, -0.08, 0.12, "little or no signal (dots at an edge lie beyond it)"),
        (far, -0.08, 1.0, "all"),
    ):
        ax.plot([0, high], [0, high], color=_INK, linewidth=0.8)
        ax.plot([0, high], [0, WANTED_SHARE * high], color=_INK, linewidth=0.8, linestyle=":")
        ax.axhline(-ALLOWED_DEFICIT, color=_INK, linewidth=0.8, linestyle="--")
        for tuning, color, label in ((True, _TUNED, "tuned on"), (False, _REPORTED, "measured only")):
            part = [s for s in settings if s.tuning is tuning]
            y = np.clip([s.change for s in part], low, high)
            x = np.clip([s.gain for s in part], 0, high)
            ax.scatter(x, y, s=18, color=color, marker="o", label=label, clip_on=False, zorder=3)
        ax.set(
            xlim=(0, high), ylim=(low, high), title=title, xlabel="gain of the best other estimator, known afterwards"
        )
        ax.grid(color=_MUTED)
        ax.spines[["top", "right"]].set_visible(False)
    near.set_ylabel(f"gain of {DEFAULT}")
    near.text(0.12, -ALLOWED_DEFICIT, "0.03 below the mean", ha="right", va="top", fontsize=8)
    far.legend(frameon=True, loc="lower right", scatterpoints=1)
    figure.suptitle("Mean test R² above the private label mean, one dot per table, mechanism and ε")
    figure.savefig(path)


@click.command()
@click.option("--quick", is_flag=True, help="Two small tables and few draws, for CI.")
@click.option("--unrelated", is_flag=True, help="Tuning half, the label made independent of the features; no files.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), default=DATA)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write JSON, table and picture here.")
def main(*, quick: bool, unrelated: bool, data: Path, out: Path | None) -> None:
    """Run every table and print both halves, or the tuning half with unrelated labels."""
    settings: list[Setting] = []
    for entry in entries(data):
        wanted = is_tuning(entry["name"]) or not unrelated
        if wanted and (not quick or entry["name"] in QUICK_TABLES):
            file, target, features = data / entry["file"], entry["target_column"], entry["feature_columns"]
            draws = 4 if quick else 40
            settings += run(entry["name"], file, target, features, splits=5, draws=draws, unrelated=unrelated)
    if unrelated:
        print(json.dumps(losses(settings), ensure_ascii=False, indent=1))
        return
    print(markdown(settings))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        found = {
            "summary": {k: summary(v) for k, v in parts(settings).items()},
            "settings": list(map(asdict, settings)),
        }
        (out / "adaptive.json").write_text(json.dumps(found, indent=1))
        (out / "adaptive.md").write_text(markdown(settings))
        draw_picture(settings, out / "adaptive.png")


if __name__ == "__main__":
    main()
