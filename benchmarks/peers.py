"""Other programs on a trusted holder's joined rows, for benchmarks that name a peer; it needs nothing of ours.

PYTHON -m benchmarks.peers NAME FILE, PYTHON being of an environment that has the program. FILE is JSON; `cpu_seconds`
in it ends the program after as many, or where it asks for more than 12 GiB.

diffprivlib: `diffprivlib`, which needs `scikit-learn<1.9`. FILE has `files` of NumPy with rows (n, d), a column of ones
first and all within [-1, 1], and a label; and `epsilon`. It prints coefficients for each file.

lifelines: Cox's model and Kaplan-Meier curves without privacy. FILE has `times`, `events`, indicators `x`, places of
`groups` and `ends`; it prints log ratios, and shares at `ends` for each group.
lifelines-NAME: `columns` of a table that the package ships.

All others print synthetic rows, as places of levels. FILE has `codes` of each person, `sizes`, how many levels there
are, `rows`, how many to draw, and one guarantee, add or remove one person, as `rho` and as `epsilon` and `delta`.
opendp-fixed, opendp-mst, opendp-aim: `opendp[mbi]`, `pandas`; `fixed` is all pairs of attributes with the same noise.
`aim` in FILE has AIM's own options. MST spends a billionth less than it is given, as it refuses a sum that is rounded.
Both programs draw independent rows: the rounding that mbi 1.1.0 proposes orders the rows of each group alike for every
further attribute, which makes attributes go together that do not.
smartnoise-mst, smartnoise-aim: `smartnoise-synth`, `private-pgm`; it is told the levels and how many people there are.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partialmethod
from importlib import import_module
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Asked = dict[str, Any]
Rows = list[list[Any]]
_MOST_BYTES = 12 << 30
SYNTHETIC = ("opendp-fixed", "opendp-mst", "opendp-aim", "smartnoise-mst", "smartnoise-aim")


def opendp(algorithm: str, asked: Asked) -> Rows:
    dp: Any = import_module("opendp.prelude")
    pl: Any = import_module("polars")

    dp.enable_features("contrib")
    names = [f"c{i}" for i in range(len(asked["sizes"]))]
    pairs = [dp.mbi.Count(pair) for pair in combinations(names, 2)]
    made = {
        "fixed": lambda: dp.mbi.Fixed(queries=pairs),
        "mst": dp.mbi.MST,
        "aim": lambda: dp.mbi.AIM(queries=pairs, **asked["aim"]),
    }
    mst: Any = import_module("opendp.extras.mbi._mst")
    mst.prior = lambda spent: spent * (1 - 1e-9)
    frame = pl.LazyFrame(asked["codes"], schema=dict.fromkeys(names, pl.Int64), orient="row")
    loss = dp.loss_of(rho=asked["rho"])
    held = dp.Context.compositor(data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=loss)
    keys = {name: list(range(size)) for name, size in zip(names, asked["sizes"], strict=True)}
    table = held.query(rho=asked["rho"]).contingency_table(keys=keys, algorithm=made[algorithm]()).release()
    drawn = table.synthesize(rows=asked["rows"], method="sample")
    rows: Rows = drawn.drop_nulls().to_numpy().tolist()  # null: a level it adds
    return rows


def smartnoise(algorithm: str, asked: Asked) -> Rows:
    synthesizer: Any = import_module("snsynth").Synthesizer
    model: Any = import_module("mbi").MarkovRandomField
    model.synthetic_data = partialmethod(model.synthetic_data, method="sample")

    columns = [f"c{i}" for i in range(len(asked["sizes"]))]
    frame = import_module("pandas").DataFrame(asked["codes"], columns=columns)
    made = synthesizer.create(algorithm, epsilon=asked["epsilon"], delta=asked["delta"])
    made.fit(frame, categorical_columns=columns)
    rows: Rows = made.sample(asked["rows"])[columns].to_numpy().tolist()
    return rows


def diffprivlib(asked: Asked) -> Rows:
    """The intercept, then slopes; pure epsilon, one row replaced."""
    numpy: Any = import_module("numpy")
    model: Any = import_module("diffprivlib.models").LinearRegression
    found = []
    for seed, file in enumerate(asked["files"]):
        held = numpy.load(file)
        chosen = model(epsilon=asked["epsilon"], bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=seed)
        fitted = chosen.fit(held["x"][:, 1:], held["y"])
        found.append([float(fitted.intercept_), *fitted.coef_.tolist()])
    return found


def lifelines(table: str, asked: Asked) -> Rows:
    pandas: Any = import_module("pandas")
    if table:
        held = pandas.read_csv(files("lifelines.datasets") / f"{table}.csv")
        return [held[name].tolist() for name in asked["columns"]]
    lines: Any = import_module("lifelines")
    times, events = (pandas.Series(asked[name]) for name in ("times", "events"))
    rows = pandas.DataFrame(asked["x"]).add_prefix("x").assign(times=times, events=events)
    cox = lines.CoxPHFitter().fit(rows, "times", "events")
    groups = pandas.Series(asked["groups"])
    shares = [
        lines.KaplanMeierFitter().fit(times[groups == g], events[groups == g]).predict(asked["ends"]).tolist()
        for g in sorted(set(asked["groups"]))
    ]
    return [cox.params_.tolist(), *shares]


def by_peer(name: str, python: str, asked: Asked) -> Rows:
    """Raises CalledProcessError, with what the program said."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "asked.json")
        file.write_text(json.dumps(asked))
        command = [python, str(__file__), name, str(file)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: Rows = json.loads(said.splitlines()[-1])
    return found


def main(words: Sequence[str]) -> None:
    name, file = words
    asked = json.loads(Path(file).read_text())
    if seconds := asked.get("cpu_seconds"):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES,) * 2)
    of = {"opendp": opendp, "smartnoise": smartnoise, "lifelines": lifelines}
    program, _, algorithm = name.partition("-")
    print(json.dumps(of[program](algorithm, asked) if program in of else diffprivlib(asked)))


if __name__ == "__main__":
    main(sys.argv[1:])
