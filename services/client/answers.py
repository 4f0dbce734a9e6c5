"""What a coordinator says about itself and its releases. None of it is believed: `fetch` verifies what counts."""

from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.protocol.documents import Digest, Hex32, explain
from shared.runtime.errors import NonsenseError

Kind = TypeVar("Kind", bound=BaseModel)


class Answer(BaseModel):
    """A response body. Fields a newer coordinator adds are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class CoordinatorIdentity(Answer):
    """`GET /v1/coordinator`."""

    name: str
    signing_key: Hex32
    fingerprint: Digest
    software: str


class Participant(Answer):
    """A party of a release and how far it is."""

    name: str
    approved: bool
    uploaded: bool


class ReleaseSummary(Answer):
    """One line of the list of releases. `epsilon` and `delta` are per party, in the release's own adjacency."""

    id: Digest
    study: str
    mechanism: str
    state: str
    reason: str | None = None
    created: datetime
    expires: datetime
    n: int
    k: int | None = None
    epsilon: float
    delta: float
    parties: tuple[Participant, ...]


class ReleasePage(Answer):
    """`GET /v1/releases`. `next` is the cursor of the page that follows."""

    items: tuple[ReleaseSummary, ...]
    next: str | None = None


def read_answer(kind: type[Kind], body: bytes, *, where: str) -> Kind:
    """A response body as its model.

    Raises:
        NonsenseError: it is something else.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise NonsenseError(
            f"{where} did not answer as a coordinator does: {explain(error)}",
            remedy="Check that the address is a Commingle coordinator of the same version.",
        ) from None
