"""The learner's pages: a release, fits and other questions, and the same questions as commands and code.

A question is a GET, because it changes nothing: you can keep its address, send it to somebody and open it again.
"""

import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
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

from commingle.services.client.metadata import citation
from commingle.services.fit.fitting import PURPOSES, TO_PREDICT
from commingle.services.learner.computing import HEIGHT, WIDTH, WRITTEN, Answer, shown, written
from commingle.services.learner.requests import MAX_ROWS
from commingle.services.learner.source import ReleaseSource
from commingle.services.learner.views import LoadedRelease, ReleaseDetail
from commingle.services.models import FAMILIES
from commingle.shared.documents.schema import Attribute, BinaryAttribute, Levelled
from commingle.shared.documents.spec import headline_of
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.runtime.pages.doors import Door, entrance
from commingle.shared.runtime.pages.site import HEADERS, Site, add_reference

_TEMPLATES = Path(__file__).parent / "templates"
_PAGE = 100

Compute = Callable[[Callable[..., Answer], Request, str, bytes], Awaitable[Answer]]
"""Runs some work on a release, for the bytes of a body as the API takes it."""

_QUESTIONS = {
    "fit": "A linear model",
    "describe": "Who is in it",
    "table": "Two attributes",
    "glm": "Odds and rates",
    "survival": "Survival",
    "synthesize": "Synthetic rows",
}
_LEVELLED = {"table": 2, "glm": 1, "survival": 1, "synthesize": 1}
"""How many attributes with levels a question needs at least."""
_TOO_FEW = (
    "This question needs attributes with levels, and the release has too few.\n"
    "Ask for a linear model, or propose a study whose numbers have cuts: commingle study new --cut NAME=…"
)
_USUAL_ROWS = 1000
_OWN_LIBRARIES = 'Sys.unsetenv("LD_LIBRARY_PATH")  # R names its own libraries there, and Python would load them'
_ALSO = {"hazard-ratios": "survival"}
_FIELDS = {
    "fit": ("target", "estimator", "interval_for"),
    "describe": ("by",),
    "table": ("row", "column", "within", "event", "reference"),
    "glm": ("target", "family", "event", "offset"),
    "survival": ("outcome", "by", "event"),
    "synthesize": ("rows",),
}
_PLACES = {"table": ("row", "column"), "survival": ("outcome",), "hazard-ratios": ("outcome",)}


@dataclass(frozen=True, slots=True)
class _Ask:
    kind: str
    body: Mapping[str, Any]


def _question_of(kind: str) -> str:
    return _ALSO.get(kind, kind)


def _followed(attributes: Sequence[Attribute]) -> dict[str, tuple[str, Levelled]]:
    """Crossed attributes of time by event, with the name of the time and the event."""
    crossed = [(a.name, a.cross) for a in attributes if a.kind == "categorical" and a.cross is not None]
    return {
        name: (time.name, event)
        for name, (time, event) in crossed
        if time.intervals is not None and event.intervals is None
    }


def _targets(attributes: Sequence[Attribute]) -> list[str]:
    return [a.name for a in attributes if a.kind != "categorical"]


def _asked_of(question: str, given: QueryParams, attributes: Sequence[Attribute]) -> dict[str, Any]:
    """What the form holds. It proposes the first two attributes or the last one before you ask."""
    names = [a.name for a in attributes if a.kind != "numeric"]
    proposals: dict[str, tuple[tuple[str, ...], Sequence[str | int]]] = {
        "table": (("row", "column"), names),
        "fit": (("target",), _targets(attributes)[-1:]),
        "glm": (("target",), ([a.name for a in attributes if isinstance(a, BinaryAttribute)] or names)[-1:]),
        "survival": (("outcome",), list(_followed(attributes)) or names[-1:]),
        "synthesize": (("rows",), [_USUAL_ROWS]),
    }
    proposed: dict[str, Any] = dict(zip(*proposals.get(question, ((), ())), strict=False))
    chosen: dict[str, Any] = {name: given[name] for name in _FIELDS[question] if given.get(name)}
    if chosen.get("rows", "").isdecimal():
        chosen |= {"rows": int(chosen["rows"][:20])}
    itself = {(proposed | chosen).get(name) for name in ("target", "outcome")}
    ticked = [name for name in given.getlist("attributes") if name not in itself]
    return proposed | chosen | ({"attributes": ticked} if ticked else {})


def _asks(question: str, asked: Mapping[str, Any], attributes: Sequence[Attribute]) -> list[_Ask]:
    """The questions for the API. Features are all attributes with levels if you choose none."""
    if question == "survival":
        curves = {name: value for name, value in asked.items() if name not in {"attributes", "event"}}
        ratios = {"outcome": asked.get("outcome", ""), "features": asked.get("attributes", [])}
        ratios |= {"event": asked["event"]} if "event" in asked else {}
        return [_Ask("survival", curves), *([_Ask("hazard-ratios", ratios)] if ratios["features"] else [])]
    if question != "glm":
        renamed = {"attributes": "features"} if question == "fit" else {}
        return [_Ask(question, {renamed.get(name, name): value for name, value in asked.items()})]
    features = " + ".join(f"`{name}`" for name in _features(asked, attributes))
    formula = f"`{asked.get('target', '')}`{_event(asked)} ~ {features}"
    return [_Ask("glm", {"formula": formula} | {name: asked[name] for name in ("family", "offset") if name in asked})]


def _features(asked: Mapping[str, Any], attributes: Sequence[Attribute]) -> Sequence[str]:
    ticked: Sequence[str] | None = asked.get("attributes")
    return ticked or [a.name for a in attributes if a.kind != "numeric" and a.name != asked.get("target")]


def _in_r(commands: Sequence[str]) -> str:
    # a string of JSON is one of R too, if no character is escaped as a pair of surrogates
    names = ["answer"] if len(commands) == 1 else [f"answer_{place}" for place, _ in enumerate(commands, start=1)]
    quoted = (json.dumps(f"{command} --json", ensure_ascii=False) for command in commands)
    reading = (f"{name} <- jsonlite::fromJSON(pipe({text}))" for name, text in zip(names, quoted, strict=True))
    return "\n".join((_OWN_LIBRARIES, *reading))


def _event(asked: Mapping[str, Any]) -> str:
    return f"[{asked['event']}]" if asked.get("event") and asked.get("family", "binomial") == "binomial" else ""


def _command(ask: _Ask, asked: Mapping[str, Any]) -> str:
    ticked = asked.get("attributes", [])
    if ask.kind == "glm":
        features = [word for name in ticked for word in ("--features", name)]
        words = [
            "--target",
            asked.get("target", "") + _event(asked),
            *features,
            "--family",
            asked.get("family", "binomial"),
            *(("--offset", asked["offset"]) if "offset" in asked else ()),
        ]
        return f"commingle fit ./release {shlex.join(words)}"
    places = [ask.body[name] for name in _PLACES.get(ask.kind, ()) if name in ask.body]
    options = [
        word
        for name, value in ask.body.items()
        if name not in {"attributes", "features", *_PLACES.get(ask.kind, ())}
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    flag = "--features" if ask.kind == "fit" else "--ratios"
    options += [word for name in ask.body.get("features", []) for word in (flag, name)]
    options += ["--out", "rows.csv"] if ask.kind == "synthesize" else []
    words = [*places, *ask.body.get("attributes", []), *options]
    return f"commingle {_question_of(ask.kind)} ./release {shlex.join(words)}".rstrip()


def _asking(ask: _Ask) -> str:
    method = "stratified" if "within" in ask.body else ask.kind.replace("-", "_")
    arguments = ", ".join(f"{name}={value!r}" for name, value in ask.body.items())
    written = 'answer.write("rows.csv")\n' if ask.kind == "synthesize" else ""
    return f"answer = release.{method}({arguments})\nprint(answer.summary())\n{written}"


def add_pages(
    app: Starlette,
    source: ReleaseSource,
    compute: Compute,
    *,
    coordinator: str,
    status_of: Callable[[CommingleError], int],
    door: Door | None,
) -> None:
    """Add every page of a learner, and the reference of its API. `coordinator` is where releases come from."""
    known: dict[str, Any] = {
        "in_words": _in_words,
        "width": WIDTH,
        "height": HEIGHT,
        "purposes": PURPOSES,
        "predict": TO_PREDICT,
        "most_rows": MAX_ROWS,
        "families": FAMILIES,
    }
    if door is not None:
        known["csrf"] = ""  # the only form signs people out, and the guard takes it from its own pages only
    site = Site(_TEMPLATES, name="Commingle learner", pages=(("/", "Releases"), ("/docs", "Interface")), shown=known)
    pages = _Pages(site, source, compute, coordinator, status_of)
    app.router.routes += [] if door is None else entrance(door, site)
    add_reference(app, site)
    app.router.routes += [
        Route(path, endpoint, methods=["GET"], include_in_schema=False)
        for path, endpoint in (
            ("/", pages.releases),
            ("/releases/{release}", pages.release),
            ("/releases/{release}/{kind}.{form}", pages.written),
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
        try:
            page = self._source.page(cursor=request.query_params.get("cursor"), limit=_PAGE)
        except CommingleError as error:
            return self._refused(error)
        return self._site.page("releases.html", {"page": page})

    def release(self, request: Request) -> Response:
        try:
            held = self._source.fetch(request.path_params["release"])
        except CommingleError as error:
            return self._refused(error)
        detail, spec = ReleaseDetail.of(held), held.published.spec
        context = {
            "it": detail,
            "headline": headline_of(detail.study, spec.stated),
            "stated": spec.stated_sentences,
            "weakest": min((c.signal_to_noise for c in detail.columns if c.signal_to_noise is not None), default=None),
            "coordinator": self._coordinator,
            "citation": citation(held.published),
            "kept": _kept(self._coordinator, detail),
            "questions": _questions(held),
        }
        return self._site.page("release.html", context)

    async def question(self, request: Request) -> Response:
        """The answer to one question; if the address asks nothing, to the question that the form proposes."""
        question = request.path_params["question"]
        if question not in _QUESTIONS:
            return self._site.refused("Nothing to see here", "There is no such question.", status=404, back=True)
        try:
            held = await run_in_threadpool(self._source.fetch, request.path_params["release"])
        except CommingleError as error:
            return self._refused(error)
        target, features = held.published.spec.target, held.published.spec.features
        # the last is proposed
        attributes = sorted(held.published.spec.terms.attributes, key=lambda a: a.name == target)
        asked = _asked_of(question, request.query_params, attributes)
        if question in {"fit", "glm"} and not request.query_params and asked.get("target") == target and features:
            asked = {"attributes": list(features)} | asked
        levels, outcomes = {a.name: a.levels for a in attributes if a.kind != "numeric"}, _followed(attributes)
        asking, answers, said, status = _asks(question, asked, attributes), list[Any](), "", 200
        if len(levels) < _LEVELLED.get(question, 0):
            asking, said, status = [], _TOO_FEW, 422
        for ask in asking:
            try:
                answer = await self._answer(shown, request, held, ask)
                answers.append({"kind": ask.kind, **json.loads(answer.content)})
            except CommingleError as error:
                said, status = error.diagnostics(), self._status_of(error)
                break
        commands = [_command(ask, {**asked, "attributes": _features(asked, attributes)}) for ask in asking]
        of_outcome = outcomes.get(asked.get("outcome", ""))
        followed = {*outcomes, *((of_outcome[0], of_outcome[1].name) if of_outcome else ())}
        context = {
            "it": ReleaseDetail.of(held),
            "names": [a.name for a in held.published.spec.terms.attributes],
            "targets": _targets(attributes),
            "levels": levels,
            "outcomes": outcomes,
            "ends": of_outcome[1].levels[1:] if of_outcome else (),
            "not_followed": [name for name in levels if name not in followed],
            "understand": mechanism_of(held.prepared).fit.inference,
            "estimators": tuple(mechanism_of(held.prepared).fit.estimators),
            "question": question,
            "title": _QUESTIONS[question],
            "questions": _questions(held),
            "asked": asked,
            "answers": answers,
            "error": said,
            "command": "\n".join(commands),
            "in_r": _in_r(commands),
            "python": _fetched(self._coordinator, held) + "".join(map(_asking, asking)),
            "query": urlencode(asked, doseq=True),
        }
        return self._site.page("question.html", context, status=status)

    async def written(self, request: Request) -> Response:
        kind, form, asking = request.path_params["kind"], request.path_params["form"], list[_Ask]()
        try:
            held = await run_in_threadpool(self._source.fetch, request.path_params["release"])
            attributes = held.published.spec.terms.attributes
            if (question := _question_of(kind)) in _QUESTIONS:
                asking = _asks(question, _asked_of(question, request.query_params, attributes), attributes)
            ask = next((one for one in asking if one.kind == kind and form in WRITTEN), None)
            if ask is None:
                return self._site.refused("Nothing to see here", "There is no such file.", status=404, back=True)
            answer = await self._answer(partial(written, form), request, held, ask)
        except CommingleError as error:
            return self._refused(error)
        disposition = f'attachment; filename="{kind}-{held.published.release[:16]}.{form}"'
        headers = {**HEADERS, "Content-Disposition": disposition}
        return Response(answer.content, media_type=WRITTEN[form], headers=headers)

    async def _answer(self, work: Callable[..., Answer], request: Request, held: LoadedRelease, ask: _Ask) -> Answer:
        data = json.dumps(ask.body).encode()
        return await self._compute(partial(work, ask.kind), request, held.published.release, data)

    def _refused(self, error: CommingleError) -> Response:
        status = self._status_of(error)
        return self._site.refused("This cannot be shown", error.diagnostics(), status=status, back=True)


def _questions(held: LoadedRelease) -> dict[str, str]:
    attributes = held.published.spec.terms.attributes
    levelled, outcomes = sum(a.kind != "numeric" for a in attributes), _followed(attributes)
    enough = {name: said for name, said in _QUESTIONS.items() if levelled >= _LEVELLED.get(name, 0)}
    return {name: said for name, said in enough.items() if name != "survival" or outcomes}


def _kept(coordinator: str, detail: ReleaseDetail) -> str:
    members = [word for one in detail.members for word in ("--member", f"{one.name}={one.fingerprint}")]
    keep = ["commingle", "export", coordinator, "--release", detail.id, "--save", "./release", "--to", "files"]
    verify = ["commingle", "verify", "./release", "--coordinator-key", detail.coordinator, *members]
    return f"{shlex.join(keep)}\n{shlex.join(verify)}"


def _in_words(attribute: Attribute) -> str:
    if attribute.kind == "numeric":
        unit = f" {attribute.unit}" if attribute.unit else ""
        return f"a number from {attribute.lower:g} to {attribute.upper:g}{unit}"
    if attribute.kind == "categorical" and attribute.cross is not None:
        return " by ".join(f"{part.name} ({_in_words(part)})" for part in attribute.cross)
    *first, last = attribute.levels
    return f"{', '.join(first)} or {last}"


def _fetched(coordinator: str, held: LoadedRelease) -> str:
    key = held.published.coordinator
    return (
        "from commingle import ReleaseClient\n\n"
        f'with ReleaseClient("{coordinator}", trusted_coordinator="{key}") as client:\n'
        f'    release = client.fetch("{held.published.release}")\n'
    )
