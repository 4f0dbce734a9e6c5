"""Questions of the learner's pages: what their forms hold, the same as the interface takes it, and as lines to copy."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from commingle.shared.documents.schema import Attribute, BinaryAttribute

QUESTIONS = {
    "describe": "Who is in it",
    "table": "Two attributes",
    "glm": "Odds and rates",
    "survival": "Survival",
    "synthesize": "Synthetic rows",
}
USUAL_ROWS = 1000
_ALSO = {"hazard-ratios": "survival"}
_FIELDS = {
    "describe": ("by",),
    "table": ("row", "column", "within", "event", "reference"),
    "glm": ("target", "family"),
    "survival": ("outcome", "by"),
    "synthesize": ("rows",),
}
_PLACES = {"table": ("row", "column"), "survival": ("outcome",), "hazard-ratios": ("outcome",)}


@dataclass(frozen=True, slots=True)
class Ask:
    """An analysis, and a body of its fields."""

    kind: str
    body: Mapping[str, Any]


def question_of(kind: str) -> str:
    """The question whose page shows that analysis."""
    return _ALSO.get(kind, kind)


def followed(attributes: Sequence[Attribute]) -> dict[str, tuple[str, str]]:
    """Crossed attributes that are intervals of time by whether an event came, with the names of both parts."""
    crossed = [(a.name, a.cross) for a in attributes if a.kind == "categorical" and a.cross is not None]
    return {
        name: (time.name, event.name)
        for name, (time, event) in crossed
        if time.intervals is not None and isinstance(event, BinaryAttribute)
    }


def asked_of(question: str, given: QueryParams, attributes: Sequence[Attribute]) -> dict[str, Any]:
    """What the form holds; before anything is asked what it proposes, the first two attributes or the last one."""
    names = [a.name for a in attributes if a.kind != "numeric"]
    proposals: dict[str, tuple[tuple[str, ...], Sequence[str | int]]] = {
        "table": (("row", "column"), names),
        "glm": (("target",), names[-1:]),
        "survival": (("outcome",), list(followed(attributes)) or names[-1:]),
        "synthesize": (("rows",), [USUAL_ROWS]),
    }
    proposed: dict[str, Any] = dict(zip(*proposals.get(question, ((), ())), strict=False))
    chosen: dict[str, Any] = {name: given[name] for name in _FIELDS[question] if given.get(name)}
    if chosen.get("rows", "").isdecimal():
        chosen |= {"rows": int(chosen["rows"][:20])}
    itself = {(proposed | chosen).get(name) for name in ("target", "outcome")}
    ticked = [name for name in given.getlist("attributes") if name not in itself]
    return proposed | chosen | ({"attributes": ticked} if ticked else {})


def asks(question: str, asked: Mapping[str, Any], attributes: Sequence[Attribute]) -> list[Ask]:
    """The same as the interface takes it. Features are all attributes with levels where none is chosen."""
    if question == "survival":
        curves = {name: value for name, value in asked.items() if name != "attributes"}
        ratios = {"outcome": asked.get("outcome", ""), "features": asked.get("attributes", [])}
        return [Ask("survival", curves), *([Ask("hazard-ratios", ratios)] if ratios["features"] else [])]
    if question != "glm":
        return [Ask(question, dict(asked))]
    others = [a.name for a in attributes if a.kind != "numeric" and a.name != asked.get("target")]
    features = " + ".join(f"`{name}`" for name in asked.get("attributes", others))
    formula = f"`{asked.get('target', '')}` ~ {features}"
    return [Ask("glm", {"formula": formula} | ({"family": asked["family"]} if "family" in asked else {}))]


def command(ask: Ask, asked: Mapping[str, Any]) -> str:
    """The command line that asks the same of a release that was saved."""
    ticked = asked.get("attributes", [])
    if ask.kind == "glm":
        features = [word for name in ticked for word in ("--features", name)]
        words = ["--target", asked.get("target", ""), *features, "--family", asked.get("family", "binomial")]
        return f"commingle fit ./release {shlex.join(words)}"
    places = [ask.body[name] for name in _PLACES.get(ask.kind, ()) if name in ask.body]
    options = [
        word
        for name, value in ask.body.items()
        if name not in {"attributes", "features", *_PLACES.get(ask.kind, ())}
        for word in (f"--{name}", str(value))
    ]
    options += [word for name in ask.body.get("features", []) for word in ("--ratios", name)]
    options += ["--out", "rows.csv"] if ask.kind == "synthesize" else []
    words = [*places, *ask.body.get("attributes", []), *options]
    return f"commingle {question_of(ask.kind)} ./release {shlex.join(words)}".rstrip()


def python(ask: Ask) -> str:
    """The lines that ask the same of a release in Python."""
    method = "stratified" if "within" in ask.body else ask.kind.replace("-", "_")
    arguments = ", ".join(f"{name}={value!r}" for name, value in ask.body.items())
    if ask.kind == "synthesize":
        return f'rows = release.synthesize({arguments})\nprint(rows.table().to_text())\nrows.write("rows.csv")\n'
    return f"print(release.{method}({arguments}).table().to_text())\n"
