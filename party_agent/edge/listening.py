"""Being told which releases took a step: by a stream that stays open, else by asking each time.

Streams do not come through a proxy that keeps an answer until its end.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from commingle.party_agent.wire.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import UnreachableError
from commingle.shared.wire import ReleaseSteps

_log = structlog.get_logger()
_MOST_SILENT = 2  # streams one after the other of which nothing came, though the coordinator was there just before


@dataclass(slots=True)
class Listener:
    """Listens to one coordinator for one party. Methods raise RemoteError where that cannot be asked."""

    client: CoordinatorClient
    party: str
    _last: int | None = None
    _stream: Iterator[ReleaseSteps] | None = None
    _silent: int = 0

    def begin(self) -> None:
        """Note what has happened so far, before everything is looked at: `next` tells what follows."""
        if self._last is None:
            self._last = self.client.newest_event()

    def lose(self) -> None:
        """The coordinator was away, and its database may be another one when it is back: begin anew."""
        self._last = self._stream = None

    def next(self, seconds: int, *, alone: bool) -> ReleaseSteps:
        """The next steps, or none after some seconds.

        `alone`: exactly that many seconds, as a stream that is open tells of none in its own time.
        """
        streamed = not alone and self._silent < _MOST_SILENT
        began, self._stream = self._stream if streamed else None, None
        told = began or self.client.steps(self.party, after=self._last or 0, seconds=seconds, streamed=streamed)
        try:
            steps = next(told)
        except UnreachableError:
            if streamed and began is None:
                self._be_silent()
            raise
        self._last = steps.last
        if streamed:
            self._stream, self._silent = told, 0
        return steps

    def _be_silent(self) -> None:
        self._silent += 1
        if self._silent == _MOST_SILENT:
            _log.warning("streams do not come through", coordinator=str(self.client.http.base_url))
