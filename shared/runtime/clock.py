"""The clock, as something that can be handed over."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Now, in UTC, to the second: what documents carry."""
    return datetime.now(UTC).replace(microsecond=0)
