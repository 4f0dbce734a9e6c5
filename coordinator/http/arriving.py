"""Bodies that this process is receiving: one for each place, and of each member no more than it may have kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from commingle.coordinator.http.bodies import Body
from commingle.shared.runtime.errors import BusyError


@dataclass(frozen=True, slots=True)
class _Upload:
    party: str
    limit: int
    body: Body


@dataclass(frozen=True, slots=True)
class Arriving:
    """For one event loop. What is kept for good the database counts; these files are gone when they are closed."""

    _uploads: dict[str, _Upload] = field(default_factory=dict)

    @contextmanager
    def only(self, place: str, party: str, body: Body, *, limit: int, most: int) -> Iterator[None]:
        """While a body is received and stored; one that is still coming to the same place is given up for it.

        Args:
            place: whom and what it is for.
            party: whose signature let it in.
            body: what is received.
            limit: its bytes at most.
            most: bytes at most of all that the party sends at once.

        Raises:
            BusyError: the one before is being stored, or the party sends too much at once.
        """
        remedy = "Send it again in a few seconds."
        if (before := self._uploads.get(place)) is not None:
            if before.body.complete:
                raise BusyError("the same is being stored just now", remedy=remedy)
            before.body.give_up()
        others = sum(one.limit for at, one in self._uploads.items() if one.party == party and at != place)
        if others + limit > most:
            raise BusyError(f"{party} sends more at once than it may have kept here", remedy=remedy)
        self._uploads[place] = own = _Upload(party, limit, body)
        try:
            yield
        finally:
            if self._uploads.get(place) is own:
                del self._uploads[place]
