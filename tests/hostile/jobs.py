"""Jobs for workers, which import this module: a worker that a command prepared lacks libraries that tests import."""

from collections.abc import Callable
from time import process_time


def cost_of(function: Callable[..., object], *arguments: object) -> float:
    """CPU seconds of this process, all of its threads."""
    before = process_time()
    function(*arguments)
    return process_time() - before


def spin() -> None:
    while True:
        pass
