"""Other programs on a trusted holder's joined rows, for `benchmarks.questions` and `.choice`; this needs none of ours.

PYTHON -m benchmarks.peers NAME FILE, PYTHON being of an environment that has the program. FILE is JSON: `codes`, places
of levels for each person, `sizes`, how many levels there are, `epsilon`, `delta`, and `rho` of the Gaussian mechanism
at that guarantee. It prints the counts of every pair of attributes.

diffprivlib: `diffprivlib`, which needs `scikit-learn<1.9`. FILE has `files` of NumPy with rows (n, d), a column of ones
first and all within [-1, 1], and a label; and `epsilon`. It prints coefficients for each file.

opendp-mbi: `opendp[mbi]`, contingency tables of all pairs, made consistent by Private-PGM.
aim, mst: `smartnoise-synth`, rows synthesised from tables of its choice; it is given how many people there are.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Asked = dict[str, Any]


def opendp(asked: Asked) -> Iterator[list[float]]:
    """Every pair with the same noise."""
    dp: Any = import_module("opendp.prelude")
    pl: Any = import_module("polars")

    dp.enable_features("contrib")
    names = [f"c{i}" for i in range(len(asked["sizes"]))]
    frame = pl.LazyFrame(asked["codes"], schema=dict.fromkeys(names, pl.Int64), orient="row")
    pairs = list(combinations(names, 2))
    held = dp.Context.compositor(
        data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=asked["rho"])
    )
    keys = {name: list(range(size)) for name, size in zip(names, asked["sizes"], strict=True)}
    algorithm = dp.mbi.Fixed(queries=[dp.mbi.Count(pair) for pair in pairs])
    table = held.query(rho=asked["rho"]).contingency_table(keys=keys, algorithm=algorithm).release()
    for pair in pairs:
        counts = table.project(pair)
        yield [float(count) for row in counts for count in row]


def smartnoise(name: str, asked: Asked) -> Iterator[list[float]]:
    """Of 200,000 synthetic rows."""
    synthesizer: Any = import_module("snsynth").Synthesizer

    columns = [f"c{i}" for i in range(len(asked["sizes"]))]
    frame = import_module("pandas").DataFrame(asked["codes"], columns=columns)
    made = synthesizer.create(name, epsilon=asked["epsilon"], delta=asked["delta"])
    made.fit(frame, categorical_columns=columns)
    rows = made.sample(200_000)
    for (i, one), (j, other) in combinations(enumerate(columns), 2):
        counts = rows.groupby([one, other]).size()
        sizes = asked["sizes"]
        yield [float(counts.get((a, b), 0)) for a in range(sizes[i]) for b in range(sizes[j])]


def diffprivlib(asked: Asked) -> Iterator[list[float]]:
    """The intercept, then slopes; pure epsilon, one row replaced."""
    numpy: Any = import_module("numpy")
    model: Any = import_module("diffprivlib.models").LinearRegression
    for seed, file in enumerate(asked["files"]):
        held = numpy.load(file)
        chosen = model(epsilon=asked["epsilon"], bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=seed)
        fitted = chosen.fit(held["x"][:, 1:], held["y"])
        yield [float(fitted.intercept_), *fitted.coef_.tolist()]


def by_peer(name: str, python: str, asked: Asked) -> list[list[float]]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "asked.json")
        file.write_text(json.dumps(asked))
        command = [python, str(__file__), name, str(file)]
        found: list[list[float]] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def main(words: Sequence[str]) -> None:
    name, file = words
    asked = json.loads(Path(file).read_text())
    others = {"opendp-mbi": opendp, "diffprivlib": diffprivlib}
    print(json.dumps(list(others[name](asked) if name in others else smartnoise(name, asked))))


if __name__ == "__main__":
    main(sys.argv[1:])
