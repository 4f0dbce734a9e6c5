"""Synthetic rows of a release, drawn from its weighted rows, for programs that take nothing but rows.

They keep a release's tables of two attributes. On three attributes they say what follows from pairs. Nothing in them
counts the noise: take intervals from `commingle table` and `commingle fit` (docs/questions.md#synthetic-rows).
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from commingle.services.errors import OutputError, RowCountError, write_for_everyone
from commingle.services.fit.subjects import about_tables
from commingle.services.models.factors import Factor, in_use
from commingle.services.models.weighted_rows import WeightedRows, level_pairs, weighted_rows
from commingle.services.results import Result, ResultColumn, ResultTable, csv_text
from commingle.shared.documents.schema import Levelled, NumericAttribute
from commingle.shared.errors import FeaturesError, MissingExtraError, NoTablesError
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import names_of
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.text import counted

if TYPE_CHECKING:  # slow to import
    import pyarrow as pa

MOST = 10_000_000
_SEEN = 0.0005  # in percent with one decimal
KEPT = (
    "Kept: tables of one and two attributes. Distance is the total variation between the table of the rows and the "
    "released one. By noise is how far noise puts the released table from the people, on average. Beyond noise is what "
    "noise does not explain of the distance."
)
LOST = "Lost: interactions of three attributes. Rows have of them what follows from pairs."
NO_INTERVALS = (
    "Intervals and p values belong to commingle table and commingle fit. If another program makes some of these rows, "
    "they do not count the noise of the release, and they follow the number of rows, which you chose."
)
CHUNK = 200_000


def _coded(schema: Sequence[Levelled], codes: NDArray[np.int16]) -> "pa.Table":
    """Rows of codes (rows, d); one past the last level is a missing cell."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    columns = {}
    for attribute, places in zip(schema, codes.T, strict=True):
        kept = pa.array(places, pa.int16(), mask=places >= len(attribute.levels))
        columns[attribute.name] = pa.DictionaryArray.from_arrays(kept, pa.array(attribute.levels, pa.string()))
    return pa.table(columns)


def _dictionary(attribute: Levelled) -> dict[str, Any]:
    of = attribute.intervals
    marked = {text: csv_text(text) for text in (attribute.name, *attribute.levels) if csv_text(text) != text}
    return {
        "name": attribute.name,
        "kind": attribute.kind,
        "levels": list(attribute.levels),
        "unit": None if of is None else of.unit,
        "intervals": None if of is None else {"lower": of.lower, "upper": of.upper, "cuts": list(of.cuts)},
        "missing": "An empty cell is a missing value, about as frequent as in the release."
        if attribute.missing == "indicator"
        else "No cell is empty. Members whose table lacks a value leave the person out (keyed data sets) or count "
        f"it as {attribute.stand_in} (listed data sets).",
        **({"in_csv": marked} if marked else {}),
    }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SyntheticRows(Result):
    """Made-up rows whose tables of two attributes are near those of a release.

    Attributes:
        rows: how many rows there are.
        different: how many different rows there are.
        pairs: P pairs of attributes.
        distances: (P,) total variation between the table of the rows and the released table.
        by_noise: (P,) expected total variation between the released table and that of the people.
        beyond: (P,) the part of the distance that noise does not explain.
        mean, largest: of `beyond`; NaN for one attribute.
        endless: the mean for endlessly many rows of the same law; NaN for one attribute.
        left_out: attributes without levels.
        release: the id of the release, if known.
        privacy: what the release costs, and that the rows cost no more.
        coded: the d columns as an Arrow table.
        dictionary: the data dictionary's entry of each column.
    """

    rows: int
    different: int
    attributes: tuple[str, ...]
    pairs: tuple[str, ...]
    distances: Array
    by_noise: Array
    beyond: Array
    mean: float
    largest: float
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]
    subjects: tuple[str, ...]
    release: str = ""
    privacy: str = ""
    endless: float = field(repr=False)
    coded: "pa.Table" = field(repr=False)
    dictionary: tuple[dict[str, Any], ...] = field(repr=False)

    @property
    def columns(self) -> dict[str, list[str | None]]:
        """All rows as levels by attribute; None is a missing cell."""
        found: dict[str, list[str | None]] = self.coded.to_pydict()
        return found

    @property
    def sentence(self) -> str:
        """How near the rows are to the release, in one sentence."""
        if not self.pairs:
            return f"{counted(self.rows, 'row')} of {self.attributes[0]}, drawn from its released shares."
        these = "this 1 row is" if self.rows == 1 else f"these {self.rows:,} rows are"
        left = f" but {self.mean:.1%}" if self.mean >= _SEEN else ""
        few = f" Few rows leave more: endlessly many would leave {self.endless:.1%}."
        return (
            f"In tables of two attributes {these} {self.distances.mean():.1%} off the release on average; the noise of "
            f"the release explains all{left}.{few if self.mean - self.endless >= _SEEN else ''}"
        )

    def to_csv(self) -> bytes:
        """The rows, comma-separated. Marks as text what a spreadsheet would take for a formula."""
        return b"".join(csv_rows(self.coded))

    def to_frame(self) -> Any:  # noqa: ANN401 - pandas is optional, so its types cannot be named here
        """The rows as a `pandas.DataFrame` of categories. Raises MissingExtraError without pandas."""
        try:
            return self.coded.to_pandas()
        except ImportError:
            raise MissingExtraError("pandas", extra="notebook") from None

    def table(self) -> ResultTable:
        rows = f"{self.rows:,} ({self.different:,} different)"
        mean, noise = f"{self.mean:.4f}", f"{self.by_noise.mean():.4f}" if self.pairs else ""
        found = (("mean by noise", noise), ("mean beyond noise", mean), ("largest", f"{self.largest:.4f}"))
        return ResultTable(
            title="Synthetic rows",
            facts=(("rows", rows), *(found if self.pairs else ())),
            heading="pair",
            labels=self.pairs,
            columns=(
                ResultColumn("distance", self.distances, ".4f"),
                ResultColumn("by noise", self.by_noise, ".4f"),
                ResultColumn("beyond noise", self.beyond, ".4f"),
            ),
            notes=(KEPT, LOST, NO_INTERVALS, *([self.privacy] if self.privacy else []), *self.subjects),
            warnings=self.warnings,
        )

    def write(self, path: Path | str) -> tuple[Path, ...]:
        """Write the rows to a .csv or .parquet file, with a data dictionary and a report beside it; return the paths.

        Raises OutputError: it is another kind of file, or cannot be written.
        """
        path = Path(path)
        if path.suffix not in _KINDS:
            raise OutputError(
                f"rows are not written as {path.suffix or path.name}",
                remedy="Name a file that ends in .csv or .parquet.",
            )
        about = {"release": self.release, "rows": self.rows, "privacy": self.privacy, "left_out": list(self.left_out)}
        dictionary = {**about, "file": path.name, "columns": self.dictionary}
        files: dict[Path, bytes | Iterator[bytes]] = {
            path: _KINDS[path.suffix](self.coded),
            path.with_suffix(".dictionary.json"): json.dumps(dictionary, indent=2, ensure_ascii=False).encode() + b"\n",
            path.with_suffix(".report.txt"): self.table().to_text().rstrip().encode() + b"\n",
        }
        return write_for_everyone(path, files, remedy="Choose another file.")


def synthesize(
    prepared: PreparedMoments,
    rows: int,
    attributes: str | Sequence[str] | None = None,
    *,
    entropy: int | Sequence[int] = 0,
) -> SyntheticRows:
    """Draw synthetic rows from the weighted rows of a release of moments.

    Args:
        prepared: the release.
        rows: how many, from 1 to 10 million.
        attributes: which attributes; all that have levels where left out.
        entropy: seeds the drawing; the same seed gives the same rows.

    Raises:
        RowCountError: you ask for fewer rows, or more.
        SeedError: the entropy is no seed.
        NoTablesError: the release has rows; no attribute has levels, or one that you named has none.
        UnknownAttributeError: the release has no attribute of that name.
        FeaturesError: you name an attribute twice, or there are too many levels to fit together.
        NoOverlapError: two parties share too few subjects.
    """
    rows = _number_of_rows(rows)
    sums = CrossProducts.of(prepared)
    factors, left_out = _factors(sums, attributes)
    sums, factors, _ = in_use(sums, factors)
    law = weighted_rows(sums, factors, entropy=entropy, to_be_drawn=True)
    places = _drawn(law, rows, np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(1,))))
    codes = law.codes.astype(np.int16)
    schema = [a for f in factors if not isinstance(a := prepared.attributes[f.name], NumericAttribute)]  # none is
    weights = np.bincount(places, minlength=len(codes)) / rows
    both = np.array([weights, law.weights / law.weights.sum()])
    found = np.array([_fidelity(sums, law, both, pair) for pair in combinations(range(len(factors)), 2)])
    distances, by_noise, beyond, endless = found.reshape(-1, 4).T
    whose = about_tables(prepared, (f.name for f in factors))
    said = [f"Left out, as they have no levels that can be counted: {', '.join(left_out)}."] if left_out else []
    single = sum(len(f.labels) - 1 for f in factors)  # all of them are fitted
    if (pairs := len(level_pairs(factors)) - single) > (fitted := len(law.V) - single):
        said.append(
            f"These attributes have {pairs:,} pairs of levels. The rows fit the {fitted:,} that are farthest from "
            "independence, and the others follow from those. Read how far each table is off beyond noise."
        )
    return SyntheticRows(
        rows=rows,
        different=int(np.count_nonzero(weights)),
        attributes=tuple(f.name for f in factors),
        pairs=tuple(f"{one.name} and {other.name}" for one, other in combinations(factors, 2)),
        distances=distances,
        by_noise=by_noise,
        beyond=beyond,
        mean=float(beyond.mean()) if len(beyond) else float("nan"),
        largest=float(beyond.max()) if len(beyond) else float("nan"),
        endless=float(endless.mean()) if len(beyond) else float("nan"),
        left_out=left_out,
        warnings=(*said, *whose.doubts),
        subjects=whose.notes,
        coded=_coded(schema, codes[places]),
        dictionary=tuple(map(_dictionary, schema)),
    )


def _number_of_rows(asked: object) -> int:
    whole = f"Ask for a whole number from 1 to {MOST:,}."
    try:
        rows = index(asked)  # type: ignore[arg-type] # what has none raises TypeError
    except TypeError:
        raise RowCountError(f"{asked!r} is no whole number of rows", remedy=whole) from None
    if isinstance(asked, bool):
        raise RowCountError(f"{asked!r} is no whole number of rows", remedy=whole)
    if not 1 <= rows <= MOST:
        raise RowCountError(f"{rows:,} synthetic rows cannot be drawn", remedy=whole)
    return rows


def _factors(sums: CrossProducts, asked: str | Sequence[str] | None) -> tuple[list[Factor], tuple[str, ...]]:
    names = tuple(sums.prepared.attributes) if asked is None else tuple(names_of(asked))
    if asked is not None and (not names or len(set(names)) < len(names)):
        raise FeaturesError("no attribute is named, or one twice", remedy="Name each attribute once.")
    factors, left_out = list[Factor](), list[str]()
    for name in names:
        try:
            factors.append(Factor.of(sums, name))
        except NoTablesError:
            if asked is not None:
                raise
            left_out.append(name)
    if not factors:
        raise NoTablesError(
            "no attribute of this release has levels that can be counted",
            remedy='Propose the study with "cuts" for its numbers, or with "missing": "indicator".',
        )
    return factors, tuple(left_out)


def _drawn(law: WeightedRows, rows: int, draw: np.random.Generator) -> NDArray[np.intp]:
    """Places of weighted rows, (rows,), in any order: one from each equal part of the weight, similar rows adjacent.

    So the chance of a row is its weight, and tables are nearer to the law's than those of independent draws.
    """
    order = np.lexsort(law.codes.T[::-1])
    ends = np.cumsum(law.weights[order])
    places = np.searchsorted(ends / ends[-1], (np.arange(rows) + draw.random(rows)) / rows, side="right")
    found = order[np.minimum(places, len(order) - 1)]
    draw.shuffle(found)
    return found


def _fidelity(
    sums: CrossProducts, law: WeightedRows, weights: Array, pair: tuple[int, int]
) -> tuple[float, float, float, float]:
    """Distances of one table: rows from release, release from people by noise, and rows from release beyond noise.

    `weights` (2, rows) are of the rows and of endlessly many; the last number is beyond noise for these.
    With shares p = c / T, s^2 = Var(c - p T) / T^2, Var = N_ii - 2 p_i (N 1)_i + p_i^2 1' N 1, and D the rows' less p:
    sum |D| / 2, E sum |e| / 2 = sum s / sqrt(2 pi), and sum |D| / 2 sqrt(1 - sum s^2 / sum D^2), or 0.
    """
    one, other = (law.factors[place] for place in pair)
    counts, noise = sums.crossed(one.indicators, other.indicators)
    total = max(float(counts.sum()), 1.0)
    p, along = counts.ravel() / total, noise.along(np.ones_like(counts))
    variance = noise.variances.ravel() - 2 * p * along.ravel() + p**2 * along.sum()
    s = np.sqrt(np.maximum(variance, 0.0)) / total
    cells = law.codes[:, pair[0]] * len(other.labels) + law.codes[:, pair[1]]

    def off(weights: Array) -> tuple[float, float]:
        D = np.bincount(cells, weights, minlength=len(p)) - p
        distance, squares = float(np.abs(D).sum()) / 2, float(D @ D)
        left = max(1 - float(s @ s) / squares, 0.0) if squares else 0.0
        return distance, distance * float(np.sqrt(left))

    (distance, beyond), (_, endless) = map(off, weights)
    return distance, float(s.sum() / np.sqrt(2 * np.pi)), beyond, endless


def csv_rows(rows: "pa.Table") -> Iterator[bytes]:
    """CSV in chunks: text in quotation marks, nothing for a missing cell, a mark before what looks like a formula."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyarrow.csv import WriteOptions, write_csv  # noqa: PLC0415 - slow to import

    names, marked = [], []
    for name, column in zip(rows.column_names, rows.combine_chunks().columns, strict=True):
        held: Any = column.chunk(0)
        levels = pa.array([csv_text(level) for level in held.dictionary.to_pylist()], pa.string())
        names.append(csv_text(name))
        marked.append(pa.DictionaryArray.from_arrays(held.indices, levels))
    table, text = pa.Table.from_arrays(marked, names), pa.schema([(name, pa.string()) for name in names])
    for start in range(0, len(table), CHUNK):
        sink = io.BytesIO()
        write_csv(table.slice(start, CHUNK).cast(text), sink, WriteOptions(include_header=start == 0))
        yield sink.getvalue()


def _parquet(rows: "pa.Table") -> bytes:
    from pyarrow.parquet import write_table  # noqa: PLC0415 - slow to import

    sink = io.BytesIO()
    write_table(rows, sink, row_group_size=CHUNK)
    return sink.getvalue()


_KINDS: Mapping[str, Callable[["pa.Table"], bytes | Iterator[bytes]]] = {".csv": csv_rows, ".parquet": _parquet}
