"""Loops compiled by numba. Nothing imports this module, and numba with it, before something is computed.

Compiled code is kept in numba's cache (beside its module, else in the user's cache folder, else nowhere) and is loaded
from there.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(signature: str) -> Callable[[Function], Function]:
    """njit, cached where numba finds a folder that it may write; other threads go on meanwhile."""

    def compile_function(function: Function) -> Function:
        try:
            return cast(Function, njit(signature, cache=True, nogil=True)(function))
        except RuntimeError:  # numba's word for: no folder to keep it in
            return cast(Function, njit(signature, nogil=True)(function))

    return compile_function
