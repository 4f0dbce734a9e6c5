"""Named points in the code at which tests make a process fail (docs/faults.md).

Reaching one does nothing, unless a `serve` command was started with COMMINGLE_FAULT_POINT=NAME[:NTH]: then the process
is killed on the spot, as by `kill -9`, when it reaches that point for the n-th time.
"""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

VARIABLE = "COMMINGLE_FAULT_POINT"
Strike = Callable[[str], None]  # gets the name of each point that the process reaches, and decides what happens there


@dataclass(slots=True)
class _Armed:
    strike: Strike


_armed = _Armed(lambda _: None)


def reach(point: str) -> None:
    _armed.strike(point)


def arm(strike: Strike) -> Strike:
    """Let `strike` decide what happens at every point of this process. Returns the former one."""
    before, _armed.strike = _armed.strike, strike
    return before


def arm_from(environment: Mapping[str, str]) -> None:
    """Arm what the environment asks for, if anything. Called once, when a process is put together."""
    name, _, nth = environment.get(VARIABLE, "").partition(":")
    left = int(nth or 1)

    def strike(point: str) -> None:
        nonlocal left
        left -= point == name
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if name:
        arm(strike)
