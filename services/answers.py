"""Results as JSON documents: a model of each, made of the dataclass that it is and of what its docstring says.

`Result.to_dict` gives what these describe; tests hold every answer of a command or route against its model.
"""

from dataclasses import fields, is_dataclass
from functools import lru_cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypeAliasType

from commingle.services.results import json_names
from commingle.shared.documents.model import words_of, words_of_fields

_Row = list[float | None]
Numbers = TypeAliasType("Numbers", _Row | list[_Row] | list[list[_Row]] | list[list[list[_Row]]])
"""An array of up to four dimensions, by rows; null for what is no finite number."""


def answer_of(result: Any, **beside: Any) -> Any:  # noqa: ANN401 - a dataclass, or a union of some
    """The model of a result's JSON, or of one of several, with more fields before its own."""
    if get_origin(result) is UnionType:
        return reduce(or_, (answer_of(one, **beside) for one in get_args(result)))
    return _model(result, tuple(beside.items()))


@lru_cache
def _model(result: type, beside: tuple[tuple[str, Any], ...] = ()) -> type[BaseModel]:
    kinds = {field.name: field.type for field in fields(result)}
    words = words_of_fields(result)

    def described(name: str) -> Any:  # noqa: ANN401 - what `create_model` takes for a field
        made = None if name in kinds else getattr(result, name).fget
        kind = _in_json(kinds[name] if made is None else made.__annotations__["return"])
        default = None if NoneType in get_args(kind) else ...  # clients may leave null out, as OpenAPI's examples do
        return kind, Field(default, description=words.get(name) if made is None else made.__doc__)

    made: dict[str, Any] = {name: (kind, ...) for name, kind in beside}
    made |= {name: described(name) for name in json_names(result)}
    config = ConfigDict(extra="forbid")
    name = f"{result.__name__}Answer" if beside else result.__name__  # some are also parts of others
    return create_model(name, __config__=config, __doc__=words_of(result), **made)


def _in_json(kind: Any) -> Any:  # noqa: ANN401 - any annotation
    if kind is float:
        return float | None
    if is_dataclass(kind):
        return _model(kind)  # type: ignore[arg-type] # it is no object
    origin, inner = get_origin(kind), get_args(kind)
    if origin is np.ndarray:
        return Numbers
    if origin in {Union, UnionType}:
        return reduce(or_, map(_in_json, inner))
    return tuple.__class_getitem__(tuple(map(_in_json, inner))) if origin is tuple else kind
