"""What a coordinator says about itself and its releases. None of it is believed: `fetch` verifies what counts."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from commingle.shared.documents.model import Digest, Hex32


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
