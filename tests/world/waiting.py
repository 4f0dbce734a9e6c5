"""Waiting for what other processes and threads do."""

import time
from collections.abc import Callable

_POLL_SECONDS = 0.05


def eventually(holds: Callable[[], bool], *, what: str, seconds: float = 120.0) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(_POLL_SECONDS)
