"""Wire models: frozen, strict, nothing unknown allowed. Signed documents are bytes, models are a view of them."""

import json
from hashlib import sha256
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from commingle.shared.documents.errors import DocumentError
from commingle.shared.text import printable

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]

_SHOWN_PROBLEMS = 5
_LONGEST_PLACE = 100


class WireModel(BaseModel):
    """A document or a part of one as it travels."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def text_digest(text: str) -> str:
    """SHA-256 of a text, hex."""
    return sha256(text.encode()).hexdigest()


Model = TypeVar("Model", bound=WireModel)


def encode(document: WireModel) -> bytes:
    """Compact JSON with sorted keys: the bytes that get signed and hashed."""
    value = document.model_dump(mode="json")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def explain(error: ValidationError) -> str:
    """What is wrong, field by field, without repeating any value."""
    problems = [f"{_place(e['loc'])}: {e['msg']}" for e in error.errors(include_input=False)]
    more = f" (and {len(problems) - _SHOWN_PROBLEMS} more)" if len(problems) > _SHOWN_PROBLEMS else ""
    return "; ".join(problems[:_SHOWN_PROBLEMS]) + more


def _place(location: tuple[int | str, ...]) -> str:
    """Of a field. Unknown fields and keys of mappings have names that their author chose."""
    return printable(".".join(map(str, location)))[:_LONGEST_PLACE] or "document"


def decode(kind: type[Model], payload: bytes) -> Model:
    """Parse and validate one document.

    Raises:
        DocumentError: the bytes are not a valid document of that kind.
    """
    try:
        return kind.model_validate_json(payload)
    except ValidationError as error:
        raise DocumentError(
            f"not a valid {kind.__name__}: {explain(error)}",
            remedy="Compare the document with docs/protocol.md; both sides must run the same version.",
        ) from None
