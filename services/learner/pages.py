"""The learner's pages: what a release holds, fits and other questions, and the lines that ask the same.

A question is a GET, because it changes nothing: its address can be kept, sent to somebody and opened again.
"""

import csv
import io
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commingle.services.fit.fitting import PURPOSES, TO_PREDICT
from commingle.services.fit.result import COVERED
from commingle.services.learner.computing import Answer, fit, shown
from commingle.services.learner.memory import LoadedRelease
from commingle.services.learner.picture import WIDTH, picture_of
from commingle.services.learner.source import ReleaseSource
from commingle.services.learner.views import ReleaseDetail
from commingle.services.models import FAMILIES
from commingle.services.results import csv_text
from commingle.shared.documents.purpose import headline_of
from commingle.shared.documents.schema import Attribute
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.runtime.pages.reference import Document, add_reference
from commingle.shared.runtime.pages.site import HEADERS, Site

_TEMPLATES = Path(__file__).parent / "templates"
_PAGE = 100
_NOTHING = 0.01

Compute = Callable[[Callable[..., Answer], Request, str, bytes], Awaitable[Answer]]
"""Some work on a release, from the bytes of a body as the interface takes it."""
QUESTIONS = {"describe": "Who is in it", "table": "Two attributes", "glm": "Odds and rates"}
_FIELDS = {"describe": ("by",), "table": ("row", "column", "event", "reference"), "glm": ("target", "family")}
_PROPOSED = {"table": ("row", "column"), "glm": ("target",)}


def add_pages(
    app: Starlette,
    source: ReleaseSource,
    compute: Compute,
    *,
    coordinator: str,
    document: Callable[[], Document],
    status_of: Callable[[CommingleError], int],
) -> None:
    """Every page of a learner, and the reference of its interface. `coordinator` is where releases come from."""
    known = {"in_words": _in_words, "width": WIDTH, "purposes": PURPOSES, "predict": TO_PREDICT}
    site = Site(_TEMPLATES, name="Commingle learner", pages=(("/", "Releases"), ("/docs", "Interface")), shown=known)
    pages = _Pages(site, source, compute, coordinator, status_of)
    site.add_files(app)
    add_reference(app, site, document)
    app.router.routes += [
        Route(path, endpoint, methods=["GET"], include_in_schema=False)
        for path, endpoint in (
            ("/", pages.releases),
            ("/releases/{release}", pages.release),
            ("/releases/{release}/fit.{form}", pages.download),
            ("/releases/{release}/{question}", pages.question),
        )
    ]


class _Pages:
    def __init__(
        self,
        site: Site,
        source: ReleaseSource,
        compute: Compute,
        coordinator: str,
        status_of: Callable[[CommingleError], int],
    ) -> None:
        self._site, self._source, self._compute = site, source, compute
        self._coordinator, self._status_of = coordinator, status_of

    def releases(self, request: Request) -> Response:
        """What can be fitted."""
        try:
            page = self._source.page(cursor=request.query_params.get("cursor"), limit=_PAGE)
        except CommingleError as error:
            return self._refused(error)
        return self._site.page("releases.html", {"page": page})

    async def release(self, request: Request) -> Response:
        """What one release holds; with a label in its address, the fit of it."""
        try:
            held = await run_in_threadpool(self._source.fetch, request.path_params["release"])
        except CommingleError as error:
            return self._refused(error)
        asked, found, said, status = request.query_params, None, "", 200
        body = _body(asked, held)
        if "target" in asked:
            try:
                found = await self._fit(request, held, body)
            except CommingleError as error:
                said, status = error.diagnostics(), self._status_of(error)
        return self._site.page("release.html", {**self._shown(held, body, found), "error": said}, status=status)

    async def download(self, request: Request) -> Response:
        """A fit as a file: `csv` or `json`."""
        make = {"csv": _csv, "json": _json}.get(request.path_params["form"])
        if make is None:
            return self._site.refused("Nothing to see here", "There is no such file.", status=404, back=True)
        try:
            held = await run_in_threadpool(self._source.fetch, request.path_params["release"])
            found = await self._fit(request, held, _body(request.query_params, held))
        except CommingleError as error:
            return self._refused(error)
        form, name = request.path_params["form"], held.published.release[:16]
        disposition = {"Content-Disposition": f'attachment; filename="fit-{name}.{form}"'}
        kind = {"csv": "text/csv; charset=utf-8", "json": "application/json"}[form]
        return Response(make(found), media_type=kind, headers={**HEADERS, **disposition})

    async def question(self, request: Request) -> Response:
        """The answer to one question other than a fit; to the first that can be asked where the address has none."""
        question = request.path_params["question"]
        if question not in QUESTIONS:
            return self._site.refused("Nothing to see here", "There is no such question.", status=404, back=True)
        try:
            held = await run_in_threadpool(self._source.fetch, request.path_params["release"])
        except CommingleError as error:
            return self._refused(error)
        levels = {a.name: a.levels for a in held.published.spec.attributes if a.kind != "numeric"}
        if (target := held.published.spec.target) in levels:  # what a model is proposed for is the last
            levels[target] = levels.pop(target)
        asked = _asked(question, request.query_params, list(levels))
        if question == "glm" and asked.get("target") == target and "attributes" not in asked:
            asked |= {"attributes": list(held.published.spec.features or [])} if held.published.spec.features else {}
        body, answer, said, status = _question(question, asked, list(levels)), None, "", 200
        try:
            data = json.dumps(body).encode()
            found = await self._compute(partial(shown, question), request, held.published.release, data)
            answer = json.loads(found.content)
        except CommingleError as error:
            said, status = error.diagnostics(), self._status_of(error)
        held_as = {"it": ReleaseDetail.of(held), "levels": levels, "question": question, "questions": QUESTIONS}
        lines = {"command": _command(question, asked), "python": _python_of(self._coordinator, held, question, body)}
        context = {**held_as, **lines, "asked": asked, "answer": answer, "error": said, "families": FAMILIES}
        return self._site.page("question.html", context, status=status)

    async def _fit(self, request: Request, held: LoadedRelease, body: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        answer = await self._compute(fit, request, held.published.release, data)
        found: dict[str, Any] = json.loads(answer.content)
        return found

    def _refused(self, error: CommingleError) -> Response:
        status = self._status_of(error)
        return self._site.refused("This cannot be shown", error.diagnostics(), status=status, back=True)

    def _shown(self, held: LoadedRelease, body: Mapping[str, Any], fit: dict[str, Any] | None) -> Mapping[str, Any]:
        detail = ReleaseDetail.of(held)
        query = [("target", body["target"]), *(("feature", name) for name in body["features"])]
        query += [(name, str(body[name])) for name in ("estimator", "interval_for") if body.get(name)]
        return {
            "it": detail,
            "headline": _headline(fit) if fit else headline_of(detail.study, held.published.spec.stated),
            "stated": held.published.spec.stated_sentences,
            "weakest": min((c.signal_to_noise for c in detail.columns if c.signal_to_noise is not None), default=None),
            "labels": [a.name for a in detail.attributes if a.kind != "categorical"],
            "asked": body,
            "fit": fit,
            "covered": COVERED[fit["interval_for"]] if fit else "",
            "picture": picture_of(fit, detail.attributes) if fit else None,
            "query": urlencode(query),
            "python": _python(self._coordinator, held, body),
            "coordinator": self._coordinator,
            "questions": QUESTIONS,
            "understand": mechanism_of(held.prepared).fit.inference,
            "estimators": tuple(mechanism_of(held.prepared).fit.estimators),
        }


def _headline(fit: Mapping[str, Any]) -> str:
    """What was found, in a sentence."""
    *first, last = fit["features"]
    by, explained = f"{', '.join(first)} and {last}" if first else last, fit["diagnostics"]["r_squared"]
    if explained is None:
        return f"{fit['target']} by {by}"
    verb = "explain" if first else "explains"
    if explained < _NOTHING:
        return f"{by} {verb} next to nothing of {fit['target']}"
    return f"{by} {verb} about {100 * explained:.0f} % of what varies in {fit['target']}"


def _asked(question: str, asked: QueryParams, names: list[str]) -> dict[str, Any]:
    """What the form holds; before anything is asked, a table of the first two attributes, a model of the last."""
    proposed = dict(zip(_PROPOSED.get(question, ()), names[::-1] if question == "glm" else names, strict=False))
    given = {name: asked[name] for name in _FIELDS[question] if asked.get(name)}
    chosen = [name for name in asked.getlist("attributes") if name != (proposed | given).get("target")]
    return proposed | given | ({"attributes": chosen} if chosen else {})


def _question(question: str, asked: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The same as the interface takes it. Features are all attributes with levels where none is chosen."""
    if question != "glm":
        return dict(asked)
    others = [name for name in names if name != asked.get("target")]
    features = " + ".join(f"`{name}`" for name in asked.get("attributes", others))
    formula = f"`{asked.get('target', '')}` ~ {features}"
    return {"formula": formula} | ({"family": asked["family"]} if "family" in asked else {})


def _command(question: str, body: Mapping[str, Any]) -> str:
    """The command line that asks the same of a release that was saved."""
    if question == "glm":
        features = [word for name in body.get("attributes", []) for word in ("--features", name)]
        words = ["--target", body.get("target", ""), *features, "--family", body.get("family", "binomial")]
        return f"commingle fit ./release {shlex.join(words)}"
    places = [body[name] for name in _PROPOSED.get(question, ()) if name in body] + body.get("attributes", [])
    options = [
        word
        for name, value in body.items()
        if name not in {"attributes", *_PROPOSED.get(question, ())}
        for word in (f"--{name}", value)
    ]
    return f"commingle {question} ./release {shlex.join([*places, *options])}".rstrip()


def _python_of(coordinator: str, held: LoadedRelease, question: str, body: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in body.items())
    return f"{_fetched(coordinator, held)}print(release.{question}({arguments}).table().to_text())\n"


def _body(asked: QueryParams, held: LoadedRelease) -> dict[str, Any]:
    """What the form asks, as the interface takes it: the label is no feature of itself."""
    attributes, stated = held.published.spec.attributes, held.published.spec.stated
    names = [attribute.name for attribute in attributes]
    labels = [attribute.name for attribute in attributes if attribute.kind != "categorical"]
    target = asked.get("target") or stated.get("target") or (labels or names)[-1]
    usual = stated.get("features") or names
    chosen = asked.getlist("feature") if "target" in asked else usual
    return {
        "target": target,
        "features": [name for name in chosen if name != target],
        "estimator": asked.get("estimator") or None,
        "interval_for": asked.get("interval_for") or "table",
    }


def _in_words(attribute: Attribute) -> str:
    if attribute.kind == "numeric":
        unit = f" {attribute.unit}" if attribute.unit else ""
        return f"a number from {attribute.lower:g} to {attribute.upper:g}{unit}"
    *first, last = attribute.levels
    return f"{', '.join(first)} or {last}"


def _python(coordinator: str, held: LoadedRelease, body: Mapping[str, Any]) -> str:
    """Lines that fetch, verify and fit the same."""
    options = "".join(
        f", {name}={body[name]!r}" for name in ("estimator", "interval_for") if body[name] not in {None, "table"}
    )
    fitted = f"fit = release.fit({body['target']!r}, {body['features']!r}{options})\nprint(fit.summary())\n"
    return _fetched(coordinator, held) + fitted


def _fetched(coordinator: str, held: LoadedRelease) -> str:
    key = held.published.coordinator
    return (
        "from commingle import ReleaseClient\n\n"
        f'with ReleaseClient("{coordinator}", trusted_coordinator="{key}") as client:\n'
        f'    release = client.fetch("{held.published.release}")\n'
    )


def _json(fit: Mapping[str, Any]) -> bytes:
    return json.dumps(fit, indent=2).encode() + b"\n"


def _csv(fit: Mapping[str, Any]) -> bytes:
    """One line a term. A name that a spreadsheet would take for a formula is marked as text."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["term", "coefficient", "standard_error", "p_value", "low", "high"])
    columns = (fit[name] for name in ("terms", "coefficients", "standard_errors", "p_values", "intervals"))
    for term, coefficient, error, p_value, (low, high) in zip(*columns, strict=True):
        writer.writerow([csv_text(term), coefficient, error, p_value, low, high])
    return text.getvalue().encode()
