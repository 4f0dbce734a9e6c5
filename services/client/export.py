"""A release as files that R, Stata, SAS and spreadsheets read: moments, tables, a codebook, metadata.

Nothing here costs privacy, and nothing here counts the noise: take intervals from `commingle fit` and `commingle table`
(docs/questions.md#r-stata-and-sas).
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from unicodedata import combining, normalize

import numpy as np

from commingle.services.analysis.covariance import Covariance, columns_of, estimate
from commingle.services.client.metadata import Distribution, citation, croissant, dcat, privacy_sentence
from commingle.services.errors import NoSignalError, write_for_everyone
from commingle.services.fit.subjects import cut_words, of_those_who_have, whose
from commingle.services.results import Result, ResultColumn, ResultTable, csv_text, markdown_row
from commingle.shared.documents.schema import GAP, Attribute, NumericAttribute
from commingle.shared.errors import EstimationError, NoTablesError
from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.release.verification import PublishedRelease

_LONGEST = 32
"""The most characters of a name in Stata and SAS. Names begin with a letter, and SAS does not tell A from a."""
_IGNORED = (
    "Other programs take these numbers for exact: their standard errors and p values count how many people there were "
    "and not the privacy noise. Take intervals from commingle fit and commingle table."
)
_CODEBOOK = ("variable", "label", "attribute", "kind", "level", "member", "unit", "lower", "upper", "missing")
_MOMENTS = {"variable": False, "n": True, "mean": True, "sd": True}
_TABLES = {
    "attribute_1": False,
    "level_1": False,
    "attribute_2": False,
    "level_2": False,
    "count": True,
    "noise_error": True,
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Export(Result):
    """A release as files.

    Attributes:
        variables: names of the p columns of the covariance in these files.
        labels: their names in the release.
        n: how many people the moments are of; 0 if there are none.
        means: (p,) in original units.
        deviations: (p,) standard deviations, without that of the noise.
        files: contents by file name.
    """

    release: str
    variables: tuple[str, ...]
    labels: tuple[str, ...]
    n: int
    means: Array
    deviations: Array
    warnings: tuple[str, ...]
    subjects: tuple[str, ...]
    files: Mapping[str, bytes] = field(repr=False)

    def table(self) -> ResultTable:
        variables = (f"{name}: {label}" for name, label in zip(self.variables, self.labels, strict=True))
        return ResultTable(
            title="Exported",
            facts=(("people", f"{self.n:,}"), ("files", f"{len(self.files)}")),
            heading="variable",
            labels=tuple(variables),
            columns=(ResultColumn("mean", self.means), ResultColumn("standard deviation", self.deviations)),
            notes=(_IGNORED, *self.subjects),
            warnings=self.warnings,
        )

    def write(self, directory: Path | str) -> tuple[Path, ...]:
        """Write the files, over those of the same names. Raises OutputError."""
        files = {Path(directory) / name: data for name, data in self.files.items()}
        return write_for_everyone(directory, files, remedy="Choose another directory.")


def export(
    published: PublishedRelease, prepared: PreparedMoments, attributes: str | Sequence[str] | None = None
) -> Export:
    """The files of a release, or of some of its attributes.

    Raises EstimationError: an attribute is unknown, or named twice.
    """
    columns = columns_of(prepared, attributes)
    names = [name for name, at in prepared.columns.items() if set(at) <= set(columns)]
    moved, gaps = of_those_who_have(prepared, names)
    columns = columns_of(moved, names)
    variables = dict(zip(columns, variable_names([prepared.labels[i] for i in columns]), strict=True))
    kept, covariance, warnings = _covariance(moved, names)
    scale = prepared.scale[list(kept)]
    means = prepared.offset[list(kept)] + scale * moved.gram[0, list(kept)] / moved.gram[0, 0]
    values = np.zeros((0, 0)) if covariance is None else covariance.values * np.outer(scale, scale)
    deviations, n = np.sqrt(np.diag(values)), 0 if covariance is None else covariance.n
    called = tuple(variables[i] for i in kept)
    book = list(_codebook(published, prepared, names, variables))
    moments = [(name, n, *rest) for name, *rest in zip(called, means.tolist(), deviations.tolist(), strict=True)]
    files = [
        _csv("codebook.csv", "Every variable, attribute and level.", dict.fromkeys(_CODEBOOK, False), book),
        _csv("moments.csv", "People, means and standard deviations.", _MOMENTS, moments),
        _csv(
            "covariance.csv",
            "Covariances in original units, the noise taken off.",
            {"variable": False, **dict.fromkeys(called, True)},
            [(name, *row) for name, row in zip(called, values.tolist(), strict=True)],
        ),
    ]
    if counted := _counts(prepared, names):
        files.append(_csv("tables.csv", "Counts of one level, and of two, with noise.", _TABLES, counted))
    listed = [file for file, _ in files]
    documents = {"croissant.json": croissant(published, listed), "dcat.jsonld": dcat(published, listed)}
    return Export(
        release=published.release,
        variables=called,
        labels=tuple(prepared.labels[i] for i in kept),
        n=n,
        means=means,
        deviations=deviations,
        warnings=tuple(warnings),
        subjects=(*whose(moved, kept), *gaps),
        files={
            **{file.name: data for file, data in files},
            "codebook.md": _markdown(published, book).encode(),
            **{name: json.dumps(said, indent=2, ensure_ascii=False).encode() for name, said in documents.items()},
        },
    )


def _covariance(
    prepared: PreparedMoments, names: Sequence[str]
) -> tuple[tuple[int, ...], Covariance | None, list[str]]:
    kept, twice, buried = list[int](), list[str](), list[str]()
    for name in names:
        if _parts(prepared.attributes[name]) & set(names):  # columns of its part are sums of its own
            twice.append(name)
            continue
        for i in prepared.columns[name]:
            try:
                estimate(prepared, (i,))
            except NoSignalError:
                buried.append(prepared.labels[i])
            else:
                kept.append(i)
    said = [f"Not in the covariance, as noise hides their variance: {', '.join(buried)}."] if buried else []
    said += [f"Not in the covariance, as it holds a part of each: {', '.join(twice)}."] if twice else []
    if not kept:
        return (), None, said
    try:
        found = estimate(prepared, tuple(kept))
    except EstimationError as error:
        return (), None, [*said, f"There is no covariance: {error}. {error.remedy}"]
    return tuple(kept), found, [*said, *found.warnings, *cut_words(prepared, kept)]


def _parts(attribute: Attribute) -> set[str]:
    cross = None if isinstance(attribute, NumericAttribute) else getattr(attribute, "cross", None)
    return {part.name for part in cross or ()}


def variable_names(labels: Iterable[str]) -> list[str]:
    """Names for R, Stata and SAS: letters, digits and underscores, the first a letter, all different in any case.

    Letters lose their accents.
    """
    found = dict[str, str]()
    for label in labels:
        bare = "".join(c for c in normalize("NFKD", label) if not combining(c))
        plain = re.sub(r"[^A-Za-z0-9]+", "_", bare).strip("_")
        plain = plain if plain[:1].isalpha() else f"v{plain}"
        name, again = plain[:_LONGEST], 1
        while name.lower() in found:
            again += 1
            name = f"{plain[: _LONGEST - 1 - len(str(again))]}_{again}"
        found[name.lower()] = name
    return list(found.values())


def _codebook(
    published: PublishedRelease, prepared: PreparedMoments, names: Sequence[str], variables: Mapping[int, str]
) -> Iterable[tuple[object, ...]]:
    member = {a.name: party.name for party in published.spec.parties for a in party.attributes}
    for name in names:
        attribute = prepared.attributes[name]
        by_label = {prepared.labels[i]: variables.get(i, "") for i in prepared.columns[name]}
        marked = any(by_label.values()) and "" in by_label.values()
        levels = ("",) if isinstance(attribute, NumericAttribute) else attribute.levels
        of = attribute if isinstance(attribute, NumericAttribute) else attribute.intervals
        bounds = ("", "", "") if of is None else (of.unit or "", of.lower, of.upper)
        gap = (GAP,) if f"{name}[{GAP}]" in by_label else ()
        for level in (*levels, *gap):
            label = f"{name}[{level}]" if level else name
            about = (name, attribute.kind, level, member[name], *bounds, _missing(attribute, left_out=marked))
            yield (by_label.get(label, ""), label, *about)


def _missing(attribute: Attribute, *, left_out: bool) -> str:
    if attribute.missing == "error":
        return ""
    if left_out:
        return "counts for nobody: figures are of those who have one"
    beside = f", beside {attribute.name}[{GAP}]" if attribute.missing == "indicator" else ""
    return f"counts as {attribute.stand_in}{beside}"


def _counts(prepared: PreparedMoments, names: Sequence[str]) -> list[tuple[object, ...]]:
    found, levelled = list[tuple[object, ...]](), list[str]()
    try:
        sums = CrossProducts.of(prepared)
    except NoTablesError:
        return []
    for name in names:
        try:
            labels, indicators = sums.levels(name)
        except NoTablesError:
            continue
        levelled.append(name)
        counts, noise = sums.crossed(indicators, sums.present(name)[None])
        cells = zip(labels, counts.ravel().tolist(), noise.errors.ravel().tolist(), strict=True)
        found += [(name, level, "", "", count, error) for level, count, error in cells]
    for one, other in combinations(levelled, 2):
        table = Cells.balanced(sums, one, other)
        places = [(row, column) for row in table.rows for column in table.columns]
        cells_of = zip(places, table.counts.ravel().tolist(), table.errors.ravel().tolist(), strict=True)
        found += [(one, row, other, column, count, error) for (row, column), count, error in cells_of]
    return found


def _csv(
    name: str, about: str, columns: Mapping[str, bool], rows: Iterable[Iterable[object]]
) -> tuple[Distribution, bytes]:
    """RFC 4180, with a mark before texts, but not numbers, that a spreadsheet would take for a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([csv_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    data = out.getvalue().encode()
    return Distribution.of(name, "text/csv", about, data, columns), data


def _markdown(published: PublishedRelease, book: Iterable[Iterable[object]]) -> str:
    rows = [markdown_row(map(str, cells)) for cells in (_CODEBOOK, ["---"] * len(_CODEBOOK), *book)]
    whom = published.spec.terms.subset_words
    said = (*whom, privacy_sentence(published), _IGNORED, f"Cite as: {citation(published)}")
    return "\n".join([f"# {published.spec.study}", "", *rows, "", "\n\n".join(said), ""])
