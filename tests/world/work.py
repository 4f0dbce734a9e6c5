"""Work for strangers without a process: what the fast tier computes with."""

from collections.abc import Callable
from typing import Any

from commingle.shared.runtime.pool import WorkPool


class InThread:
    """A worker that cannot be stopped."""

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        return function(*arguments)

    def stop(self) -> None:
        """It ends by itself."""


def pool_of_threads() -> WorkPool:
    """As large as the real one."""
    return WorkPool(InThread)
