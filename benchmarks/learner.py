"""Fits per second on a release with 30 attributes, from moments, beside scikit-learn on the same matrix.

python -m benchmarks.learner [--quick] [--json FILE]

Both answer "regress the last attribute on the other 29" in one process and one run; the figure is the ratio. The
learner needs only the p x p moments, so its time does not depend on the number of rows.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.linear_model import LinearRegression

from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
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
    if json_file is not None:
        json_file.write_text(json.dumps({"attributes": ATTRIBUTES, "results": results}, indent=2))


if __name__ == "__main__":
    main()
