"""Wire models: frozen, strict, nothing unknown allowed. Signed documents are bytes, models are a view of them."""

import inspect
import json
import re
from collections.abc import Callable
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

from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.explained import as_written, explain

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]

_ATTRIBUTES = "\n\nAttributes:\n"
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): ((?:.+)(?:\n     +.+)*)", re.MULTILINE)


def whole_number(value: object) -> object:
    if type(value) is not int:
        raise ValueError("Input should be 1")
    return value


Version = Annotated[Literal[1], BeforeValidator(whole_number)]
"""The version of a document: 1, and neither 1.0 nor true, which a literal alone lets pass."""


LEFT_OUT = Field(exclude_if=lambda value: value is None)
"""Of a field that most documents do not have: it is left out where it is None."""


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
        schema, words = handler.resolve_ref_schema(made), dict[str, str]()
        for kind in reversed(cls.__mro__):  # what a subclass says of a field is what counts
            _, _, entries = inspect.cleandoc(kind.__doc__ or "").partition(_ATTRIBUTES)
            for names, text in _ENTRY.findall(entries):
                words |= dict.fromkeys(names.split(", "), " ".join(text.split()))
        if cls.__doc__:
            schema["description"] = inspect.cleandoc(cls.__doc__).partition(_ATTRIBUTES)[0]
        for name, field in schema.get("properties", {}).items():
            if name in words:
                field.setdefault("description", words[name])
        return made

    @classmethod
    def signed_as(cls) -> str:
        """The kind of document that it is signed as, in the media type of its envelope: what its `type` says."""
        named: str = cls.model_fields["type"].default
        return named.removeprefix("commingle/")


def tagged_by(name: str) -> ConfigDict:
    """The configuration of one of several models that are told apart by this field: documents always have it."""
    return ConfigDict(json_schema_extra=lambda schema: schema.update(required=[name, *schema.get("required", ())]))


def text_digest(text: str) -> str:
    """SHA-256 of a text, hex."""
    return sha256(text.encode()).hexdigest()


Model = TypeVar("Model", bound=WireModel)
Checks = Callable[[Any], list[str]]
"""What else a document is refused for, a sentence each: what the model cannot know (`release.checks`)."""


def encode(document: WireModel) -> bytes:
    """Compact JSON with sorted keys: the bytes that get signed and hashed."""
    return canonical_json(document.model_dump(mode="json"))


def decode(kind: type[Model], payload: bytes, checks: Checks | None = None) -> Model:
    """Parse and validate one document; it names nothing twice. Its model says whether it has use for `checks`.

    Raises:
        DocumentError: the bytes are not a valid document of that kind.
    """
    document = _parse(kind, payload, checks)
    # figures stay text: only the names are looked at
    json.loads(payload, object_pairs_hook=_refuse_names_given_twice, parse_float=str, parse_int=str)
    return document


def decode_canonical(kind: type[Model], payload: bytes, checks: Checks | None = None) -> Model:
    """Parse and validate one document that was signed: its bytes are the only ones it can have.

    A field that has a default may be left out; whatever it says is said as `encode` would say it: no white space, no
    name twice, no other way to write a number, a date or a letter.

    Raises:
        DocumentError: the bytes are not a valid document of that kind, or not its canonical encoding.
    """
    document = _parse(kind, payload, checks)
    if canonical_json(document.model_dump(mode="json", exclude_unset=True)) != payload:
        raise DocumentError(
            f"this {kind.__name__} is not in its canonical encoding",
            remedy="Sign compact JSON with sorted keys, everything in the form docs/design/documents.md gives it.",
        )
    return document


def _parse(kind: type[Model], payload: bytes, checks: Checks | None) -> Model:
    try:
        return kind.model_validate_json(payload, context=checks)
    except ValidationError as error:
        raise DocumentError(
            f"not a valid {kind.__name__}: {explain(error, as_written(payload), kind)}",
            remedy="Compare the document with docs/protocol.md; both sides must run the same version.",
        ) from None


def canonical_json(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """The one way in which signed documents are written: compact, sorted keys, letters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _refuse_names_given_twice(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise DocumentError("an object gives one name twice", remedy="Give every field once.")
