"""The OpenAPI descriptions of the three services, as they are kept in docs/openapi.

python -m tests.packaging.openapi    writes them anew
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from commingle import ReleaseClient
from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.http.app import create_app as coordinator_app
from commingle.coordinator.http.streams import Feed
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.store.store import Store, open_store
from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app as party_app
from commingle.services.learner.app import create_app as learner_app
from commingle.services.learner.source import ReleaseSource

FOLDER = Path(__file__).parents[2] / "docs" / "openapi"
_REFERENCE = re.compile(r"#/components/schemas/(\w+)")


def descriptions() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        return _descriptions(open_store(f"sqlite:///{folder}/store.sqlite"))


def _descriptions(store: Store) -> dict[str, str]:
    hub = Coordinator("hub", cast("Any", None), store, cast("Any", None), cast("Any", None))
    apps = {
        "coordinator": coordinator_app(hub, Publisher(hub), Feed(store)),
        "party-agent": party_app(LocalApi(agents=cast("Any", None), loops=None, peer_is_operator=True)),
        "learner": learner_app(ReleaseSource(ReleaseClient("http://127.0.0.1:1"))),
    }
    store.close()
    return {f"{name}.json": json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n" for name, app in apps.items()}


class Promise(NamedTuple):
    """What an OpenAPI document says of an operation, a parameter, a body or a field.

    Attributes:
        kinds: what it can be: types, values, names of schemas.
        required: whether it is never left out.
        sent, answered: by whom a client meets it: in what it sends, in what it is answered.
        limits: of what is sent: numbers, lengths, patterns.
    """

    kinds: tuple[str, ...]
    required: bool
    sent: bool
    answered: bool
    limits: dict[str, Any] = {}  # noqa: RUF012 - never changed


Promises = dict[str, Promise]
"""By name: `GET /v1/parties`, then ` ?after`, ` body` or ` 200`; of a schema `ReleasePage`, then ` items`."""


def promises(document: Mapping[str, Any]) -> Promises:
    """What clients can rely on, without words and examples."""
    told, schemas = Promises(), document["components"]["schemas"]
    met = {sent: set[str]() for sent in (True, False)}

    def take(name: str, schema: Mapping[str, Any], *, sent: bool, required: bool = True) -> None:
        known = told.get(name, Promise((), required=required, sent=False, answered=False))
        said = sent or known.sent
        limits = _limits(schema) if said else {}
        told[name] = Promise(_kinds(schema), required, said, not sent or known.answered, limits)
        for reference in _REFERENCE.findall(json.dumps(schema)):
            if reference not in met[sent]:
                met[sent].add(reference)
                take(reference, schemas[reference], sent=sent)
        for field, inner in schema.get("properties", {}).items():
            take(f"{name} {field}", inner, sent=sent, required=field in schema.get("required", ()))

    for name, schema, sent, required in _places(document):
        take(name, schema, sent=sent, required=required)
    return told


def _places(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool, bool]]:
    """Where operations have schemas: the place's name, the schema, whether it is sent, and whether it has to be."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name, body = f"{method.upper()} {path}", operation.get("requestBody", {})
            asked = operation.get("security", document.get("security")) or [{"anybody": []}]
            yield name, {"enum": sorted({scheme for one in asked for scheme in one})}, True, False
            for parameter in operation.get("parameters", ()):
                yield f"{name} ?{parameter['name']}", parameter["schema"], True, parameter.get("required", False)
            for media, content in body.get("content", {}).items():
                yield f"{name} body:{media}", content["schema"], True, body.get("required", False)
            for status, answer in operation["responses"].items():
                for media, content in answer.get("content", {}).items():
                    shown = media if status == "default" else f"{name} {status}:{media}"  # there is one kind of problem
                    yield shown, content.get("schema", {}), False, True


def breaks(before: Promises, after: Promises) -> Iterator[tuple[str, str]]:
    """What a client that was written by `before` can stumble over: the name of each promise, and what became of it."""
    for name, was in before.items():
        now = after.get(name)
        if now is None:
            yield name, "is gone"
            continue
        if was.sent and (fewer := sorted(set(was.kinds) - set(now.kinds))):
            yield name, f"may no longer be {' or '.join(fewer)}"
        tighter = (key for key, limit in now.limits.items() if was.sent and _tighter(key, was.limits.get(key), limit))
        yield from ((name, f"may no longer be beyond its {key}") for key in tighter)
        if was.answered and (more := sorted(set(now.kinds) - set(was.kinds))):
            yield name, f"may be {' or '.join(more)} now"
        if was.sent and now.required and not was.required:
            yield name, "has to be sent now"
        if was.answered and was.required and not now.required:
            yield name, "may be missing now"
    for name, now in after.items():
        if name not in before and now.sent and now.required and name.rpartition(" ")[0] in before:
            yield name, "is new and has to be sent"


_UPPER = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"}
_LOWER = {"minimum", "exclusiveMinimum", "minLength", "minItems"}


def _limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: schema[key] for key in sorted(schema) if key in {*_UPPER, *_LOWER, "pattern"}}
    inner = [("", one) for several in ("anyOf", "oneOf", "allOf") for one in schema.get(several, ())]
    inner += [("items ", schema["items"])] if isinstance(schema.get("items"), dict) else []
    return found | {f"{where}{key}": limit for where, one in inner for key, limit in _limits(one).items()}


def _tighter(key: str, was: Any, now: Any) -> bool:
    last = key.rpartition(" ")[2]
    return was is None or (now < was if last in _UPPER else now > was if last in _LOWER else now != was)


def _kinds(schema: Mapping[str, Any]) -> tuple[str, ...]:
    if "$ref" in schema:
        return (schema["$ref"].rpartition("/")[2],)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return tuple(sorted({kind for one in schema[several] for kind in _kinds(one)}))
    if "enum" in schema or "const" in schema:
        return tuple(sorted(json.dumps(value) for value in schema.get("enum", [schema.get("const")])))
    kind = ":".join(schema[part] for part in ("type", "format") if part in schema) or "anything"
    inside = [schema[part] for part in ("items", "additionalProperties") if isinstance(schema.get(part), dict)]
    return tuple(f"{kind} of {inner}" for inner in _kinds(inside[0])) if inside else (kind,)


def all_promises() -> dict[str, Promises]:
    """Of the descriptions that are kept, by service."""
    return {path.stem: promises(json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.json"))}


if __name__ == "__main__":
    for name, text in descriptions().items():
        (FOLDER / name).write_text(text)
