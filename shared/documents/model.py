"""Wire models: frozen, strict, nothing unknown allowed; and explanations of what is wrong with a document.

Signed documents are bytes, and models are a view of them. An error in what a person has written names the column and
says what to type.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from commingle.shared.errors import DocumentError
from commingle.shared.text import printable

_SHOWN_PROBLEMS = 5
_LONGEST_PLACE = 100
_ONE_OF = {"parties": "party", "attributes": "attribute", "levels": "level", "features": "feature"}
_OFTEN_MEANT = {
    "min": "lower",
    "minimum": "lower",
    "max": "upper",
    "maximum": "upper",
    "type": "kind",
    "categories": "levels",
    "values": "levels",
    "columns": "attributes",
    "schema": "attributes",
    "eps": "epsilon",
    "title": "study",
    "label": "target",
    "outcome": "target",
    "members": "parties",
}
_OF_STUDIES = {"cuts", "cross"}
_PATTERNS = {
    r"^[a-z0-9][a-z0-9_.-]{0,62}$": "up to 63 of a-z, 0-9, _ . -, beginning with a letter or digit",
    r"^[^\x00-\x1f\x7f=\[\]]{1,80}$": "1 to 80 characters without = and brackets",
    r"^[^\x00-\x1f\x7f]{1,80}$": "1 to 80 characters",
    r"^[0-9a-f]{64}$": "64 of 0-9 and a-f",
    r"^digits-after:[A-Za-z_.:#/-]{1,16}/1$": "like 'digits-after:P-/1', its prefix up to 16 of A-Z, a-z, _ . : # / -",
    r"^every [0-9]{1,9}(\.[0-9]{1,9})?$": 'like "every 10"',
}
_BRACKETS, _BRACES = "is to be a list in brackets [ ]", "is to be an object in braces { }"
_NUMBER, _WHOLE = "is to be a number, without quotation marks", "is to be a whole number, without quotation marks"
_WORDS: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    "missing": "is missing",
    "string_type": "is to be text in quotation marks",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "is to be a finite number",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "bool_type": "is to be true or false",
    "bool_parsing": "is to be true or false",
    "literal_error": lambda told: f"is to be {told['expected']}",
    "enum": lambda told: f"is to be {told['expected']}",
    "string_pattern_mismatch": lambda told: f"is to be {_PATTERNS.get(told['pattern'], 'written otherwise')}",
    "string_too_short": "is empty",
    "string_too_long": lambda told: f"is to have {told['max_length']} characters at most",
    "too_short": lambda told: _too_few(told["min_length"]),
    "too_long": lambda told: _too_many(told["max_length"]),
    "greater_than": lambda told: f"is to be above {told['gt']:g}",
    "greater_than_equal": lambda told: f"is to be {told['ge']:g} or more",
    "less_than": lambda told: f"is to be below {told['lt']:g}",
    "less_than_equal": lambda told: f"is to be {told['le']:g} or less",
    "tuple_type": _BRACKETS,
    "list_type": _BRACKETS,
    "frozen_set_type": _BRACKETS,
    "dict_type": _BRACES,
    "mapping_type": _BRACES,
    "model_type": _BRACES,
    "model_attributes_type": _BRACES,
    "union_tag_not_found": lambda told: f"needs a {_tag(told)[0]}: {_tag(told)[1]}",
    "union_tag_invalid": lambda told: f"has a {_tag(told)[0]} that is none: {_tag(told)[1]}",
    "none_required": "is to be null",
}


def explain(error: ValidationError, said: object = None, kind: type[BaseModel] | None = None) -> str:
    """What is wrong, field by field, without repeating any value but the name of an entry that has one.

    `said` is the document as its author wrote it, if the author reads this: entries are called by their names. `kind`
    is the intended model: its fields are proposed for one that it does not have.
    """
    found = dict[str, list[str]]()
    errors = error.errors(include_input=False)
    inside = {each["loc"][:end] for each in errors for end in range(len(each["loc"]))}
    for each in errors:
        if each["type"] == "too_short" and each["loc"] in inside:
            continue  # entries that are wrong are not counted
        about_a_field = each["type"] in {"missing", "extra_forbidden"}
        where = _place(each["loc"], said, last_is_a_field=about_a_field)
        problem = _problem(each["type"], each["msg"], each.get("ctx", {}))
        if each["type"] == "extra_forbidden":
            problem = "is no field of this" + _meant(str(each["loc"][-1]), kind)
        if each["type"].startswith("union_tag") and not {"cross", "product"}.isdisjoint(each["loc"]):
            problem += "; write the whole attribute there, not its name alone"
        if problem not in (problems := found.setdefault(where, [])):
            problems.append(problem)
    if (whole := found.get("")) is not None:
        found[""] = [f"the document {problem}" if problem.startswith("is ") else problem for problem in whole]
    sentences = [f"{where}: {', or '.join(problems)}".removeprefix(": ") for where, problems in found.items()]
    more = f" (and {len(sentences) - _SHOWN_PROBLEMS} more)" if len(sentences) > _SHOWN_PROBLEMS else ""
    return "; ".join(sentences[:_SHOWN_PROBLEMS]) + more


def as_written(payload: bytes | str) -> object:
    """The document in which `explain` names places; None if it is none."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None


def _problem(kind: str, message: str, told: Mapping[str, Any]) -> str:
    words = _WORDS.get(kind)
    if words is not None:
        return words if isinstance(words, str) else words(told)
    if kind == "json_invalid":
        return f"this is not valid JSON: {_ENDS.sub('it ends too early, at', told['error'])}"
    return message.removeprefix("Value error, ").replace("Input should be", "is to be")


def _tag(told: Mapping[str, Any]) -> tuple[str, str]:
    if told["discriminator"] in {"'kind'", "_said()"}:
        return '"kind"', "numeric, binary or categorical"
    return told["discriminator"].replace("'", '"'), told.get("expected_tags", "which of them").replace("'", "")


def _too_few(least: int) -> str:
    if least == 1:
        return "is empty"
    levels = '; an attribute with two levels is of "kind": "binary"' if least == 3 else ""  # noqa: PLR2004 - of levels
    return f"is to have {least} entries at least{levels}"


def _too_many(most: int) -> str:
    levels = '; an attribute with more levels is of "kind": "categorical"' if most == 2 else ""  # noqa: PLR2004 - as above
    return f"is to have {most} entries at most{levels}"


def _place(location: tuple[int | str, ...], said: object, *, last_is_a_field: bool) -> str:
    words, at, entry = list[str](), said, "attribute"
    for part in location:
        if isinstance(at, Mapping) and (part in at or (last_is_a_field and part == location[-1])):
            at = at.get(part)
            if isinstance(at, list) and str(part) in _ONE_OF and part != location[-1]:
                entry = _ONE_OF[str(part)]
                continue
            words, entry = [*words, str(part)], str(part)
        elif isinstance(at, list) and isinstance(part, int):
            at = at[part] if part < len(at) else None
            name = at.get("name") if isinstance(at, Mapping) else None
            words = words[:-1] if words[-1:] == [entry] else words
            words.append(f"{entry} {name}" if isinstance(name, str) and name else f"{entry} number {part + 1}")
    named = ", ".join(words) or ".".join(map(str, location))  # parts left out say which of several kinds was tried
    return printable(named)[:_LONGEST_PLACE]


def _meant(name: str, kind: type[BaseModel] | None) -> str:
    if kind is None:
        return ""
    schema = kind.model_json_schema()
    known = {field for one in (schema, *schema.get("$defs", {}).values()) for field in one.get("properties", {})}
    if name in known:  # of another part of the document
        return ""
    if name in _OF_STUDIES:
        return f"; leave it out here, and say it in the study (commingle study new --{name.removesuffix('s')})"
    close = [_OFTEN_MEANT[name.lower()]] if name.lower() in _OFTEN_MEANT else get_close_matches(name, known, n=1)
    return f"; do you mean {close[0]}?" if known.issuperset(close) and close else ""


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]

_ENDS = re.compile(r"^EOF while parsing an? \w+ at")
_ATTRIBUTES = "\n\nAttributes:\n"
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): ((?:.+)(?:\n     +.+)*)", re.MULTILINE)


def whole_number(value: object) -> object:
    if type(value) is not int:
        raise ValueError("Input should be 1")
    return value


Version = Annotated[Literal[1], BeforeValidator(whole_number)]
"""The version of a document: 1, and neither 1.0 nor true, which a literal alone lets pass."""


LEFT_OUT = Field(exclude_if=lambda value: value is None)
"""For a field that most documents do not have: it is left out if it is None."""


def words_of(kind: type) -> str:
    """A docstring without its attributes."""
    return inspect.cleandoc(kind.__doc__ or "").partition(_ATTRIBUTES)[0]


def words_of_fields(kind: type) -> dict[str, str]:
    """What docstrings say of attributes, by name; a subclass's words count."""
    words = dict[str, str]()
    for base in reversed(kind.__mro__):
        _, _, entries = inspect.cleandoc(base.__doc__ or "").partition(_ATTRIBUTES)
        for names, text in _ENTRY.findall(entries):
            words |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return words


class WireModel(BaseModel):
    """A document or a part of one as it travels. Its JSON schema, and so OpenAPI, has the words of docstrings.

    Attributes:
        largest_bytes: an honest document of this kind, signed, is no longer.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
    largest_bytes: ClassVar[int] = 32 << 10

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = handler(core)
        schema, words = handler.resolve_ref_schema(made), words_of_fields(cls)
        if cls.__doc__:
            schema["description"] = words_of(cls)
        for name, field in schema.get("properties", {}).items():
            if name in words:
                field.setdefault("description", words[name])
        return made

    @classmethod
    def signed_as(cls) -> str:
        """The kind of document in the media type of its envelope: its `type` without the prefix."""
        named: str = cls.model_fields["type"].default
        return named.removeprefix("commingle/")


def tagged_by(name: str) -> ConfigDict:
    """The configuration of one of several models that this field tells apart: documents always have it."""
    return ConfigDict(json_schema_extra=lambda schema: schema.update(required=[name, *schema.get("required", ())]))


def text_digest(text: str) -> str:
    """SHA-256 of a text, hex."""
    return sha256(text.encode()).hexdigest()


Model = TypeVar("Model", bound=WireModel)
Checks = Callable[[Any], list[str]]
"""More reasons to refuse a document, a sentence each, which the model cannot know (`release.checks`)."""


def encode(document: WireModel) -> bytes:
    """Compact JSON with sorted keys: the bytes that get signed and hashed."""
    return canonical_json(document.model_dump(mode="json"))


_COMPARE = "Compare the document with docs/protocol.md; both sides must run the same version."


def decode(kind: type[Model], payload: bytes, checks: Checks | None = None, *, remedy: str = _COMPARE) -> Model:
    """Parse and validate one document that names nothing twice; some models use `checks`.

    Raises DocumentError, with that `remedy` if it is not valid.
    """
    document = _parse(kind, payload, checks, remedy)
    require_names_once(payload)
    return document


def require_names_once(payload: bytes) -> None:
    """Raises DocumentError if an object of this JSON gives a name twice: readers do not agree which one counts."""
    # figures stay text: only the names are looked at
    json.loads(payload, object_pairs_hook=_refuse_names_given_twice, parse_float=str, parse_int=str)


def decode_canonical(kind: type[Model], payload: bytes, checks: Checks | None = None) -> Model:
    """Parse and validate a document that was signed: it must have its only canonical bytes.

    A field that has a default may be left out. What a field says is written as `encode` writes it: no white space, no
    name twice, no other way to write a number, a date or a letter. Raises DocumentError: it is not valid, or not
    canonical.
    """
    document = _parse(kind, payload, checks, _COMPARE)
    if canonical_json(document.model_dump(mode="json", exclude_unset=True)) != payload:
        raise DocumentError(
            f"this {kind.__name__} is not in its canonical encoding",
            remedy="Sign compact JSON with sorted keys, everything in the form docs/design/documents.md gives it.",
        )
    return document


def _parse(kind: type[Model], payload: bytes, checks: Checks | None, remedy: str) -> Model:
    try:
        return kind.model_validate_json(payload, context=checks)
    except ValidationError as error:
        said = f"not a valid {kind.__name__}: {explain(error, as_written(payload), kind)}"
        raise DocumentError(said, remedy=remedy) from None


def canonical_json(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """The one way in which signed documents are written: compact, sorted keys, letters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _refuse_names_given_twice(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise DocumentError("an object gives one name twice", remedy="Give every field once.")
