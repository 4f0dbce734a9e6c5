"""The answers that a process of the pool computes, from the bytes of a body, and their pictures for pages.

The pool also parses bodies: a wrong body of a few megabytes keeps a validator busy for seconds.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from commingle.services.fit import Fit, fit_prepared
from commingle.services.fit.predicting import Predicted
from commingle.services.learner.requests import ANALYSES, QUESTIONS, FitBody, PlanBody, PredictionBody, RequestBody
from commingle.services.learner.views import EXAMPLES, Predictions
from commingle.services.models import SyntheticRows
from commingle.services.plotting import COLOURS, Array, Curves, Intervals, term_text
from commingle.services.results import Drawn, Result, ResultColumn, ResultTable, answer_of, number_text
from commingle.shared.documents.model import explain
from commingle.shared.errors import RowsError
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.forecast.forecast import plan as make_plan
from commingle.shared.forecast.result import Plan
from commingle.shared.runtime.errors import RequestBodyError
from commingle.shared.runtime.pool import ProcessWorker, Worker
from commingle.shared.text import ascii_json

_REMEDY = "Compare the request with /openapi.json."
_LONGEST_NAME = 100
_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
# modules of estimators, loaded before the first request
_PRELOAD = (__name__, "scipy.linalg", "scipy.optimize")

Body = TypeVar("Body", bound=RequestBody)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    release: str
    pinned: bool
    members_pinned: tuple[str, ...]
    prepared: PreparedMoments


@dataclass(frozen=True, slots=True)
class Answer:
    """The bytes of an answer, and the estimator of a fit."""

    content: bytes
    estimator: str | None = None


def start_worker() -> Worker:
    return ProcessWorker(preload=_PRELOAD)


def fit(asked: Asked, data: bytes) -> Answer:
    """Coefficients in original units with intervals, diagnostics and warnings."""
    return written("json", "fit", asked, data)


def predict(asked: Asked, data: bytes) -> Answer:
    """A fit, applied to rows given."""
    body = parse(PredictionBody, data)
    result = fit_prepared(asked.prepared, **body.model_dump(exclude={"rows", "extrapolate"}))
    predictions = _predictions(result, body)
    answer = Predictions(
        release=asked.release,
        target=result.target,
        estimator=result.estimator,
        predictions=predictions.values.tolist(),
        warnings=[*result.warnings, *predictions.warnings],
    )
    return Answer(ascii_json(answer.model_dump(mode="json")), result.estimator)


def plan(data: bytes) -> Answer:
    """What a release of a study would be worth: expected errors and R-squared, before any budget is spent."""
    body = parse(PlanBody, data)
    made = make_plan(body.study, body.assumptions())
    return Answer(ascii_json(_PLAN.dump_python(made, mode="json")))


def shown(kind: str, asked: Asked, data: bytes) -> Answer:
    """An answer for a page: a headline, a table as texts, and the places of its intervals."""
    result = _result(kind, asked, data)
    table = result.table()
    headline = getattr(result, "sentence", "") or table.title
    pictures = result.pictures() if isinstance(result, Drawn) else ()
    drawn = list(map(bars, table.columns)) if isinstance(result, Drawn) else lengths(table)
    columns = [
        {"heading": term_text(c.heading), "texts": c.numerals(), "reaches": c.reaches(), "bars": places}
        for c, places in zip(table.columns, drawn, strict=True)
        if not np.isnan(c.numbers).all()
    ]
    said: dict[str, Any] = {
        "headline": term_text(headline),
        "title": term_text(table.title),
        "columns": columns,
        "notes": [term_text(note) for note in table.notes if note != headline],
        "heading": table.heading,
        "labels": [term_text(label) if isinstance(label, str) else label for label in table.labels],
        "facts": table.facts,
        "warnings": list(map(term_text, table.warnings)),
        "figures": [found for one in pictures if isinstance(one, Intervals) and (found := figure(one))],
        "curves": [found for one in pictures if isinstance(one, Curves) and (found := curves(one))],
    }
    return Answer(ascii_json(said))


def written(form: str, kind: str, asked: Asked, data: bytes) -> Answer:
    """An answer in that form: everything as JSON, the table, or synthetic rows themselves."""
    result = _result(kind, asked, data)
    estimator = getattr(result, "estimator", None)
    if form == "json":
        pins = {"coordinator_pinned": asked.pinned, "members_pinned": list(asked.members_pinned)}
        return Answer(ascii_json({"release": asked.release, **pins, **result.to_dict()}), estimator)
    if form == "csv" and isinstance(result, SyntheticRows):
        return Answer(result.to_csv())
    table = result.table()
    return Answer((table.to_csv() if form == "csv" else table.to_latex()).encode(), estimator)


WRITTEN = {
    "csv": "text/csv; charset=utf-8",
    "tex": "text/x-tex; charset=utf-8",
    "json": "application/json",
}
"""Media types of files by suffix."""


def _result(kind: str, asked: Asked, data: bytes) -> Result:
    model, run = QUESTIONS[kind]
    return run(asked.prepared, **dict(parse(model, data)))


def parse(kind: type[Body], data: bytes) -> Body:
    """A request's body. Raises RequestBodyError: it is no JSON, or does not fit; names the first few fields."""
    try:
        value = from_json(data)
        if not isinstance(value, dict):
            raise RequestBodyError("the body is not a JSON object in braces { }", remedy=_REMEDY)
        if (unknown := next((name for name in value if name not in kind.model_fields), None)) is not None:
            raise _unknown_field(unknown, kind)
        return kind.model_validate(value)
    except ValidationError as error:
        raise RequestBodyError(f"body: {explain(error)}", remedy=_REMEDY) from None
    except ValueError:
        raise RequestBodyError("the body is not JSON", remedy=_REMEDY) from None


def _unknown_field(name: str, kind: type[RequestBody]) -> RequestBodyError:
    said = name[:_LONGEST_NAME]
    close = get_close_matches(said, kind.model_fields, n=1)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    return RequestBodyError(f"the body has no field {said!r}", remedy=f"{guess}Fields: {', '.join(kind.model_fields)}.")


def _predictions(result: Fit, body: PredictionBody) -> Predicted:
    lacking = next((i for i, row in enumerate(body.rows) if not row.keys() >= set(result.features)), None)
    if lacking is not None:
        missing = sorted(set(result.features) - body.rows[lacking].keys())
        raise RowsError(
            f"row {lacking} lacks {', '.join(map(repr, missing))}", remedy="Give every feature in every row."
        )
    columns: dict[str, Any] = {name: [row[name] for row in body.rows] for name in result.features}
    with np.errstate(all="ignore"):
        found = result.predictor.of(columns or {"": range(len(body.rows))}, extrapolate=body.extrapolate)
    if not np.isfinite(found.values).all():
        raise RowsError("a prediction is not a finite number", remedy="Give finite values of sensible size.")
    return found


_RELEASE = "/v1/releases/{release}"
_NAMES_BYTES, _MATRIX_BYTES, MAX_BODY_BYTES = 1 << 20, 4 << 20, 8 << 20


@dataclass(frozen=True, slots=True)
class Computation:
    """A route that computes, with its documentation.

    Attributes:
        takes: the model of its body, which has `most_bytes` at most.
        work: what it computes from the release, if the path names one, and the bytes of a body.
        gives: the model of an answer; `shows` is an example.
    """

    path: str
    name: str
    tag: str
    takes: type[RequestBody]
    work: Callable[..., Answer]
    description: str | None
    gives: Any
    shows: Mapping[str, Any] | None = None
    most_bytes: int = _NAMES_BYTES


def _given(kind: str) -> Any:  # noqa: ANN401 - a model or several
    _, run = QUESTIONS[kind]
    return answer_of(run.__annotations__["return"], release=str, coordinator_pinned=bool, members_pinned=list[str])


COMPUTATIONS = (
    Computation(f"{_RELEASE}/fits", "fit", "fits", FitBody, fit, fit.__doc__, _given("fit"), EXAMPLES["fit"]),
    Computation(
        path=f"{_RELEASE}/predictions",
        name="predict",
        tag="fits",
        takes=PredictionBody,
        work=predict,
        description=predict.__doc__,
        gives=Predictions,
        most_bytes=MAX_BODY_BYTES,
    ),
    Computation("/v1/plans", "plan", "plans", PlanBody, plan, plan.__doc__, Plan, most_bytes=_MATRIX_BYTES),
    *(
        Computation(
            path=f"{_RELEASE}/analyses/{kind}",
            name=kind.replace("-", "_"),
            tag="analyses",
            takes=takes,
            work=partial(written, "json", kind),
            description=takes.__doc__,
            gives=_given(kind),
            shows=EXAMPLES[kind],
        )
        for kind, (takes, _) in ANALYSES.items()
    ),
)


WIDTH = 400.0
"""The width of a picture, in its own units."""
HEIGHT = 200.0
"""The height of curves, in the same units."""
_DASHES = ("", "8 4", "2 4", "8 4 2 4")
_MARGIN = 0.04


def bars(column: ResultColumn) -> list[tuple[float, float, float] | None] | None:
    """Places of values and of both ends of intervals, for rows in the last row's form; an open end is the edge."""
    if column.interval is None:
        return None
    ends = np.column_stack([column.numbers, column.interval])
    ends[[form != column.forms[-1] for form in column.forms]] = np.nan
    finite = ends[np.isfinite(ends)]
    if len(finite) == 0:
        return None
    place = _places(min(0.0, float(finite.min())), float(finite.max()))
    return [
        None if math.isnan(value + low) else (place(value), place(low), WIDTH if math.isinf(high) else place(high))
        for value, low, high in ends.tolist()
    ]


def figure(picture: Intervals) -> dict[str, Any] | None:
    """Effects, or ratios on a log axis, as rows of a table; None for shares, which `bars` draws, and if all are 0.

    `rows` have label, text, the places of the value and of both ends of its interval or None, and whether each end is
    out of reach. `ticks` have place and text. `none` is the place of no effect.
    """
    ratios, (least, most) = picture.of == "ratios", picture.reach
    if picture.of == "shares" or least == most:
        return None
    along = math.log if ratios else float
    place = _places(along(least), along(most))

    def at(value: float) -> float | None:
        return None if math.isnan(value) else place(along(min(max(value, least), most)))

    column = ResultColumn("", picture.values, ".3g", picture.intervals)
    rows = [
        (term_text(label), text, at(value), at(low), at(high), low < least, high > most)
        for label, text, value, (low, high) in zip(
            picture.labels, column.texts(), picture.values.tolist(), picture.intervals.tolist(), strict=True
        )
    ]
    ticks = [(place(along(tick)), number_text(tick, ".3g")) for tick in picture.ticks]
    return {
        "axis": picture.axis,
        "rows": rows,
        "ticks": ticks,
        "none": place(along(1.0 if ratios else 0.0)),
        "of": picture.of,
    }


def lengths(table: ResultTable) -> list[list[tuple[float, float, float] | None]]:
    """Places of the numbers of a table without intervals: bars from 0, with one scale for all columns."""
    most = max((float(x) for c in table.columns for x in c.numbers if math.isfinite(x)), default=0.0)
    place = _places(0.0, most)
    return [
        [(place(x), place(0.0), place(x)) if math.isfinite(x) and x >= 0 else None for x in c.numbers.tolist()]
        for c in table.columns
    ]


def curves(picture: Curves) -> dict[str, Any] | None:
    """Curves in WIDTH by HEIGHT; None if no time has a share.

    Each group has points of its line and of its band, and its numbers at risk with places in percent of the width.
    """
    times, shown = picture.times, picture.told
    if len(times) == 1:
        return None
    along = picture.along.tolist()

    def points(shares: Array) -> list[tuple[float, float]]:
        places = zip(along, (shares / picture.top).tolist(), strict=True)
        return [(WIDTH * x, HEIGHT * (1 - y)) for x, y in places if math.isfinite(y)]

    drawn = [
        {
            "name": name,
            "colour": COLOURS[g % len(COLOURS)],
            "dash": _DASHES[g % len(_DASHES)],
            "line": points(picture.shares[g]),
            "band": [*points(picture.bands[g, :, 1]), *reversed(points(picture.bands[g, :, 0]))],
            "at_risk": [(100 * along[k], number_text(picture.at_risk[g, k], ",.0f")) for k in shown],
        }
        for g, name in enumerate(picture.groups)
    ]
    return {
        "title": picture.title,
        "share": picture.share,
        "axis": picture.time,
        "shares": [(f"{25 * k * picture.top:g} %", k / 4) for k in range(5)],
        "times": [(100 * along[k], f"{times[k]:g}") for k in shown],
        "curves": drawn,
    }


def _places(least: float, most: float) -> Callable[[float], float]:
    return lambda value: WIDTH * (_MARGIN + (1 - 2 * _MARGIN) * (value - least) / (most - least or 1.0))
