"""What is asked in query strings, and a release as it is answered in detail."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

from pydantic import Field

from commingle.coordinator.errors import CursorError
from commingle.coordinator.store.database import as_recorded
from commingle.coordinator.store.releases import ReleaseRow
from commingle.shared.documents.model import Digest, Name
from commingle.shared.documents.spec import MAX_PARTIES
from commingle.shared.documents.statements import NO_HEAD
from commingle.shared.mechanisms import mechanism_named
from commingle.shared.release.rounds import State
from commingle.shared.runtime.problem import QueryParameters
from commingle.shared.wire import ExchangeProgress, ReleaseDetails

_HIGHEST = 1 << 62


class PageQuery(QueryParameters):
    """Which page of a list."""

    cursor: Annotated[str, Field(max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class HeadsQuery(QueryParameters):
    """Which ledger heads: those of less than a height."""

    below: Annotated[int, Field(ge=0, lt=_HIGHEST)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class AfterQuery(QueryParameters):
    """The head that another one follows."""

    after: Digest = NO_HEAD


class ReleasesQuery(PageQuery):
    """Which releases: in one state, of those that are over or not, of those that name a member."""

    state: State | None = None
    over: bool | None = None
    party: Name | None = None


class EventsQuery(QueryParameters):
    """Which events, and how long to wait for the first."""

    after: Annotated[int, Field(ge=0, lt=_HIGHEST)] = 0
    wait_seconds: Annotated[float, Field(ge=0, le=30)] = 0


class SendersQuery(QueryParameters):
    """Whose messages of an exchange."""

    of: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_PARTIES)]


def encode_cursor(number: int | None) -> str | None:
    return None if number is None else urlsafe_b64encode(b"v1:%d" % number).decode().rstrip("=")


def decode_cursor(text: str | None) -> int | None:
    """The row number in a cursor. Raises CursorError."""
    if text is None:
        return None
    try:
        version, _, number = urlsafe_b64decode(text + "=" * (-len(text) % 4)).partition(b":")
        value = int(number) if version == b"v1" and number.isdigit() and len(number) < len(str(_HIGHEST)) else None
    except ValueError:
        value = None
    if value is None:
        raise CursorError("not a cursor of this coordinator", remedy="Use `next` of the previous page, or none.")
    return value


@as_recorded()
def release_details(release: ReleaseRow) -> ReleaseDetails:
    blocks, exchange = release.signed("block"), None
    if mechanism_named(release.listed.mechanism).interactive:
        exchange = ExchangeProgress(columns=release.signed("columns"), replies=release.signed("reply"))
    return ReleaseDetails(
        **dict(release.listed),
        spec=release.spec,
        approvals=release.signed("approval"),
        blocks={name: block for name, block in blocks.items() if release.shares[name].body},
        rejections=release.signed("rejection"),
        exchange=exchange,
    )
