"""Query parameters; a parameter nobody knows is refused rather than ignored."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from commingle.shared.release.rounds import State


class PageQuery(BaseModel):
    """Which page of a list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cursor: Annotated[str, Field(max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class ReleasesQuery(PageQuery):
    """Which releases."""

    state: State | None = None


class EventsQuery(BaseModel):
    """Which events, and how long to wait for the first."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    after: Annotated[int, Field(ge=0, lt=1 << 62)] = 0
    wait_seconds: Annotated[float, Field(ge=0, le=30)] = 0
