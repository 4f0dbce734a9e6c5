"""Fits per second on a release with 30 attributes, from moments, beside scikit-learn on the same matrix.

python -m benchmarks.learner [--quick] [--json FILE]

Both answer "regress the last attribute on the other 29" in one process and one run; the figure is the ratio. The
learner needs only the p x p moments, so its time does not depend on the number of rows. Then `shrunken` on noisy
moments, whose mode is searched once a release: processor time of a first fit, of another label, of the same again.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.linear_model import LinearRegression

from benchmarks.moments_noise import entry_variance, moments_release
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
from commingle.services.simulation.dataset import PartyShare
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import NumericAttribute

ATTRIBUTES = 30
SUBJECTS = 1_000_000
_ESTIMATORS = ("ols", "debiased", "measurement_error", "shrunken")


def published(rows: int) -> tuple[np.ndarray[Any, np.dtype[np.float64]], SecondMoments]:
    """A matrix like one that rmgm publishes (rows x 31, the intercept first), and its moments."""
    draw = np.random.default_rng(0)
    signal = draw.normal(0, np.sqrt(SUBJECTS / 3 / rows), (rows, ATTRIBUTES))
    signal[:, -1] = signal[:, :-1] @ draw.uniform(-0.3, 0.3, ATTRIBUTES - 1) + 0.3 * signal[:, -1]
    intercept = draw.normal(0, np.sqrt(SUBJECTS / rows), (rows, 1))
    matrix = np.hstack([intercept, signal + draw.normal(0, 1, signal.shape)])
    moments = SecondMoments(
        release="0" * 64,
        mechanism="rmgm",
        columns=("(intercept)", *(f"x{i}" for i in range(ATTRIBUTES))),
        gram=tuple(tuple(row) for row in (matrix.T @ matrix).tolist()),
        noise_variance=(0.0, *([1.0] * ATTRIBUTES)),
        rows=rows,
        n=SUBJECTS,
    )
    return matrix, moments


def per_second(work: Callable[[], object], *, seconds: float) -> float:
    """How often `work` runs in a second, over about that many seconds."""
    work()
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        work()
        count += 1
    return count / passed


def milliseconds_of_moments(*, releases: int) -> dict[str, float]:
    """Median processor time of a `shrunken` fit on a release of moments, three parties of ten columns, epsilon 1."""
    attributes = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(ATTRIBUTES))
    parties = [PartyShare(f"party-{i}", attributes[i : i + 10]) for i in range(0, ATTRIBUTES, 10)]
    random, times = np.random.default_rng(0), []
    mixed = random.normal(0, 0.3, (SUBJECTS // 100, ATTRIBUTES)) @ random.normal(0, 0.2, (ATTRIBUTES, ATTRIBUTES))
    rows = np.column_stack([np.ones(len(mixed)), np.clip(mixed, -1, 1)])
    variance = entry_variance(parties, epsilon=1.0, delta=1e-5)
    for _ in range(releases):
        made, labels = moments_release(rows.T @ rows, variance, attributes, random), ("x29", "x0", "x29")
        times.append([processor_milliseconds(made, label) for label in labels])
    return dict(zip(("first fit", "another label", "the same again"), np.median(times, axis=0).tolist(), strict=True))


def processor_milliseconds(made: PreparedMoments, label: str) -> float:
    """Of one fit."""
    begun = time.process_time()
    fit_prepared(made, FitRequest(target=label, estimator="shrunken"))
    return 1000 * (time.process_time() - begun)


def measure(*, rows: int, seconds: float) -> dict[str, Any]:
    """One size: fits per second of every estimator and of scikit-learn, and the ratios."""
    matrix, moments = published(rows)
    attributes = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(ATTRIBUTES))
    prepared = PreparedMoments.of(moments, attributes)
    target = f"x{ATTRIBUTES - 1}"
    peer = LinearRegression(fit_intercept=False)
    theirs = per_second(lambda: peer.fit(matrix[:, :-1], matrix[:, -1]), seconds=seconds)
    result: dict[str, Any] = {"rows": rows, "scikit_learn_per_second": theirs}
    for name in _ESTIMATORS:
        request = FitRequest(target=target, estimator=name)
        ours = per_second(lambda request=request: fit_prepared(prepared, request), seconds=seconds)  # type: ignore[misc]
        result[name] = {"per_second": ours, "times_faster": ours / theirs}
    return result


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, json_file: Path | None) -> None:
    """Print the table and, if asked, write it as JSON."""
    sizes = (500,) if quick else (1_000, 10_000, 100_000)
    results = [measure(rows=rows, seconds=0.1 if quick else 2.0) for rows in sizes]
    print(f"{'rows':>8} {'scikit-learn/s':>15}" + "".join(f"{name + '/s':>22}{'ratio':>8}" for name in _ESTIMATORS))
    for result in results:
        ours = "".join(f"{result[n]['per_second']:>22.0f}{result[n]['times_faster']:>8.1f}" for n in _ESTIMATORS)
        print(f"{result['rows']:>8} {result['scikit_learn_per_second']:>15.1f}{ours}")
    of_moments = milliseconds_of_moments(releases=3 if quick else 50)
    print(
        "shrunken on moments: " + ", ".join(f"{what} {ms:.1f} ms of one processor" for what, ms in of_moments.items())
    )
    if json_file is not None:
        report = {"attributes": ATTRIBUTES, "results": results, "milliseconds_of_moments": of_moments}
        json_file.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
