"""Checks of a process's surroundings: each says what is well, or raises what is wrong with its remedy."""

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from rich.console import Console
from rich.text import Text

from commingle.shared.errors import CommingleError
from commingle.shared.runtime.cli import EXIT_FAULT, emit
from commingle.shared.runtime.errors import RuntimeFaultError

_OTHERS = 0o077
_LEAST_FREE_BYTES = 1 << 30
_GREATEST_SKEW = timedelta(seconds=60)


class UnhealthyError(RuntimeFaultError):
    """A fault that a check found."""

    code = "unhealthy"


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check; `remedy` is empty if all is well."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def look(name: str, check: Callable[[], str]) -> Check:
    """Run one check: it returns what is well, or raises an error of ours or of the operating system."""
    try:
        return Check(name, ok=True, found=check())
    except CommingleError as error:
        return Check(name, ok=False, found=str(error), remedy=error.remedy)
    except OSError as error:
        said = f"{error.filename or name}: {error.strerror}"
        return Check(name, ok=False, found=said, remedy="Fix the path, its permissions or the disk.")


def report(checks: Iterable[Check]) -> None:
    """Print the checks, and exit with code 1 if one of them failed."""
    done = tuple(checks)
    healthy = all(check.ok for check in done)

    def text(console: Console) -> None:
        for check in done:
            sign, style = ("✓", "green") if check.ok else ("✗", "red")
            console.print(Text.assemble((f"{sign} {check.name}: ", style), check.found), soft_wrap=True)
            if not check.ok:
                console.print(Text(f"    {check.remedy}"), soft_wrap=True)

    emit({"healthy": healthy, "checks": [asdict(check) for check in done]}, text=text)
    if not healthy:
        sys.exit(EXIT_FAULT)


def private_files(paths: Iterable[Path]) -> str:
    """That only their owner can read these files. Raises UnhealthyError, OSError."""
    names = []
    for path in paths:
        if path.stat().st_mode & _OTHERS:
            raise UnhealthyError(f"{path} can be read by others", remedy=f"Run: chmod 600 {path}")
        names.append(path.name)
    return f"private: {', '.join(names)}"


def disk_space(directory: Path) -> str:
    """How much room there is for blocks and ledgers. Raises UnhealthyError, OSError."""
    free = shutil.disk_usage(directory).free
    said = f"{free / (1 << 30):.1f} GiB free at {directory}"
    if free < _LEAST_FREE_BYTES:
        raise UnhealthyError(said, remedy="Free space before the next release; a block needs 8 bytes a cell.")
    return said


def clock_skew(answer: httpx.Response, now: datetime) -> str:
    """How far this clock is from the clock of the service that answered. Raises UnhealthyError."""
    try:
        theirs = parsedate_to_datetime(answer.headers["Date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return "the answer carries no date; clocks were not compared"
    apart = abs(now - theirs)
    said = f"clocks are {apart.total_seconds():.0f} seconds apart"
    if apart > _GREATEST_SKEW:
        raise UnhealthyError(
            f"{said}: {theirs:%Y-%m-%dT%H:%M:%SZ} there, {now:%Y-%m-%dT%H:%M:%SZ} here",
            remedy="Set the clock by NTP on both sides; signed requests are refused at 300 seconds.",
        )
    return said
