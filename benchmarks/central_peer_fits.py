"""Linear regressions of diffprivlib and OpenDP; run by `benchmarks.central_peers` in an environment of their own.

python -I central_peer_fits.py versions
python -I central_peer_fits.py fit ASKED.npz FITS.json

Imports nothing of ours. Rows come standardised, with public bounds; neighbours replace one row.

diffprivlib: the functional mechanism (Zhang et al. 2012), pure epsilon; its sensitivities are ranges over a row's
values, so they are those of replacing one. Its noise is floating point (Holohan, Braghin 2021 mix four uniforms).
OpenDP: Theil-Sen in one column, pure epsilon or zCDP; its map counts rows added or removed and is read at two. Its
medians are chosen by a mechanism that is exact in floating point; it needs "contrib", whose proofs are not all vetted,
and "honest-but-curious" for the pairing, a function in Python.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PACKAGES = ("diffprivlib", "opendp", "scikit-learn", "numpy", "scipy")
_REPLACED = 2  # one row out, one in


def bounded(x: Floats, row_bound: float) -> Floats:
    """Rows (n x d) longer than the bound are shortened to it."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    shortened: Floats = x * np.minimum(1.0, row_bound / np.maximum(norms, 1e-300))
    return shortened


def diffprivlib_fit(model: Callable[..., Any], x: Floats, y: Floats, *, sizes: Floats, **settings: Any) -> Floats:  # noqa: ANN401 - an untyped library
    """Slopes (d) on columns within +-sizes and labels within +-1; `settings` are epsilon and random_state."""
    limits = {"bounds_X": (-sizes, sizes), "bounds_y": (-1.0, 1.0), "fit_intercept": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where noise left no minimum
        found = model(**limits, **settings).fit(np.clip(x, -sizes, sizes), np.clip(y, -1, 1)).coef_
    return np.asarray(found, np.float64)


def theil_sen(model: Callable[..., Any], measure: object, *, budget: float, power: int, bound: float) -> Any:  # noqa: ANN401 - as above
    """OpenDP's regression of labels in +-1 on one column, its bulk in +-bound, with the noise that spends the budget.

    Its map falls with the scale, like scale^-1 (pure epsilon) or scale^-2 (zCDP); `power` is 1 or 2. OpenDP checks.
    """

    def make(scale: float) -> Any:  # noqa: ANN401 - as above
        return model(measure, x_bounds=[(-bound, bound)], y_bounds=(-1.0, 1.0), scale=scale)

    spent = make(1.0).measurement.map(_REPLACED)
    found = make((spent / budget) ** (1 / power) * (1 + 1e-9))
    if not found.measurement.check(_REPLACED, budget):
        raise ArithmeticError("OpenDP's map does not fall with the scale as it did")
    return found


def _diffprivlib(asked: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - an open npz file
    model, bound = import_module("diffprivlib.models").LinearRegression, float(asked["row_bound"])
    d = asked["x"].shape[1]
    for fold, x, y in _parts(asked):
        kinds = {"largest sizes": (x, asked["sizes"]), "row norm": (bounded(x, bound), np.full(d, bound))}
        for kind, (rows, sizes) in kinds.items():
            for epsilon in asked["epsilons"].tolist():
                for run in range(int(asked["runs"])):
                    seed = int(np.random.default_rng([fold, run]).integers(2**31))
                    slopes = diffprivlib_fit(model, rows, y, sizes=sizes, epsilon=epsilon, random_state=seed)
                    where = {"epsilon": epsilon, "fold": fold, "run": run}
                    yield {"peer": f"diffprivlib, {kind}", **where, "slopes": slopes.tolist(), "intercept": 0.0}


def _opendp(asked: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - an open npz file
    if asked["x"].shape[1] != 1:  # it refuses more
        return
    import_module("opendp.mod").enable_features("contrib", "honest-but-curious")
    bound, measures = float(asked["row_bound"]), import_module("opendp.measures")
    model = import_module("opendp.extras.sklearn.linear_model").LinearRegression
    kinds = (
        ("pure", measures.max_divergence(), asked["epsilons"], 1),
        ("zCDP", measures.zero_concentrated_divergence(), asked["rhos"], 2),
    )
    for kind, measure, budgets, power in kinds:
        for epsilon, budget in zip(asked["epsilons"].tolist(), budgets.tolist(), strict=True):
            regression = theil_sen(model, measure, budget=budget, power=power, bound=bound)
            for fold, x, y in _parts(asked):
                for run in range(int(asked["runs"])):
                    with np.errstate(divide="ignore", invalid="ignore"):  # it divides before it drops equal x
                        found = regression.fit(x, y)
                    where = {"epsilon": epsilon, "fold": fold, "run": run}
                    line = {"slopes": found.coef_.tolist(), "intercept": float(found.intercept_)}
                    yield {"peer": f"OpenDP, {kind}", **where, **line}


def _parts(asked: Any) -> Iterator[tuple[int, Floats, Floats]]:  # noqa: ANN401 - an open npz file
    """Private rows and labels per test fold."""
    for fold in asked["tests"].tolist():
        private = ~np.isin(asked["fold"], [fold, int(asked["public"])])
        yield fold, asked["x"][private], asked["y"][private]


def main(words: list[str]) -> None:
    """Print versions, or fit what is asked and write it."""
    if words == ["versions"]:
        print(json.dumps({name: version(name) for name in PACKAGES}))
        return
    _, source, target = words
    with np.load(source) as file:
        asked = dict(file)
    with open(target, "w", encoding="utf-8") as out:  # noqa: PTH123 - the script stays free of what it does not need
        json.dump([*_diffprivlib(asked), *_opendp(asked)], out)


if __name__ == "__main__":
    main(sys.argv[1:])
