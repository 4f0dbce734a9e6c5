"""The Docker engine that answers on this machine."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]


class CommandError(Exception):
    """A docker command failed; what it said."""


def docker(*arguments: str, seconds: float = 120, environment: Mapping[str, str] | None = None) -> str:
    """Run a docker command, with more in its environment; what it prints. Raises CommandError."""
    try:
        done = subprocess.run(
            ["docker", *arguments],  # noqa: S607 - whichever the user has
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=os.environ | (environment or {}),
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(str(error)) from error
    if done.returncode:
        raise CommandError(f"docker {' '.join(arguments[:4])}: {done.stderr.strip()}")
    return done.stdout


def eventually(holds: Callable[[], bool], *, seconds: float) -> bool:
    """Whether something comes to hold in that time; while it cannot be asked it does not."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(CommandError, httpx.HTTPError):
            if holds():
                return True
        time.sleep(0.5)
    return False
