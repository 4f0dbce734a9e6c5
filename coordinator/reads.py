"""Nonces of signed requests that read, kept in memory: to remember one durably would make every read a write.

Another replica, or this process after a restart, would answer a replay within the few minutes for which a signature
holds. Only who saw the request under its encryption could send one, and it changes nothing.
"""

from datetime import datetime
from heapq import heappop, heappush
from threading import Lock

from commingle.shared.runtime.request_signing import SignedRequest


class Reads:
    """Those that were answered here and whose signatures still hold. Only members' are: strangers cannot fill it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: set[tuple[str, str]] = set()
        self._due: list[tuple[datetime, tuple[str, str]]] = []

    def remember(self, request: SignedRequest, *, now: datetime) -> bool:
        """Remember a request's nonce for as long as its signature holds; False if it is remembered already."""
        place = request.signer, request.nonce
        with self._lock:
            while self._due and self._due[0][0] < now:
                self._known.discard(heappop(self._due)[1])
            if place in self._known:
                return False
            self._known.add(place)
            heappush(self._due, (request.forget, place))
            return True
