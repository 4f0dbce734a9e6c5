"""What a newcomer waits for: installing, the demo, a fit, a check. The start of each command: `benchmarks.latency`.

Everything in a fresh clone of what is committed here; some cases (--case demo --case fit) as the environment at hand
has it. Seconds by the clock, seconds of all processors, and units. A unit is what this Python takes for ten million
additions in a loop at the top level of a script (half of that within a function), measured before and after each case.
Processor seconds are those of everything that was started and has ended, orphans too.
"""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from benchmarks.consortium import Commingle, timed
from benchmarks.harness import Asked, Experiment, Report

_PR_SET_CHILD_SUBREAPER = 36
_ORPHANS_SECONDS = 3.0
_UNIT = compile("n = 0\nfor _ in range(10_000_000):\n    n += 1\n", "<unit>", "exec")
_RELEASE = "release"
_FIT = ("--target", "readmitted")


Figures = tuple[str, float, float | None]
"""What took so many seconds, and of processors, None where that is not known."""


@dataclass(frozen=True, slots=True)
class Place:
    """A checkout with its environment, and a folder for what is made with it."""

    checkout: Path
    out: Path

    @property
    def subject(self) -> Commingle:
        return Commingle("", self.checkout / ".venv" / "bin" / "commingle")

    @property
    def released(self) -> Path:
        if not (self.out / "demo" / _RELEASE).exists():
            self.subject.run("demo", "--out", self.out / "demo")
        return self.out / "demo" / _RELEASE


def unit_seconds() -> float:
    began = time.process_time()
    exec(_UNIT, {})  # noqa: S102 - the line above
    return time.process_time() - began


def _timed(what: str, work: Callable[[], object]) -> Figures:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # Linux's: who loses its parent becomes a child of this process
    return what, *timed(work, _reap)


def _reap() -> None:
    """Wait a moment for orphans to end, so that they count."""
    until = time.monotonic() + _ORPHANS_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)


def install(place: Place) -> Iterator[Figures]:
    own = Path(__file__).parents[1]
    yield _timed("git clone", lambda: _quietly("git", "clone", "--quiet", own, place.checkout))
    yield _timed("install: make .venv/.ready", lambda: _quietly("make", "-C", place.checkout, ".venv/.ready"))


def _quietly(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def demo(place: Place) -> Iterator[Figures]:
    """Twice: the second finds what the first has left in caches. Then a simulation, whose first picture comes early."""
    for which in ("first", "second"):
        yield _timed(f"{which} demo", lambda: place.subject.run("demo", "--out", place.out / "demo"))
    pictures: list[float] = []
    yield _timed("simulation", partial(_simulate, place, pictures))
    yield "simulation, until its first picture", pictures[0], None


def _simulate(place: Place, pictures: list[float]) -> None:
    began, command = time.perf_counter(), (place.subject.command, "simulate", "--out", place.out / "simulated")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None  # noqa: S101 - a pipe was asked for
        pictures += [time.perf_counter() - began for line in running.stderr if line.startswith("Picture: ")]
    if running.returncode:
        raise SystemExit(f"the simulation ended with code {running.returncode}")


def once_each(name: str, *words: str, place: Place) -> Iterator[Figures]:
    released = place.released
    yield _timed(f"one {name}", lambda: place.subject.run(name, released, *words))


CASES: dict[str, Callable[[Place], Iterator[Figures]]] = {
    "install": install,
    "demo": demo,
    "fit": lambda place: once_each("fit", *_FIT, place=place),
    "verify": lambda place: once_each("verify", place=place),
}


def measure(asked: Asked) -> Report:
    names = ("fit", "verify") if asked.quick else asked.given["cases"]
    chosen = [name for name in CASES if name in names or not names]
    told, unit = [], unit_seconds()
    with TemporaryDirectory() as folder:
        fresh, own = Path(folder) / "checkout", Path(__file__).parents[1]
        place = Place(fresh if "install" in chosen else own, Path(folder))
        for name in chosen:
            for what, wall, cpu in CASES[name](place):
                unit, before = unit_seconds(), unit
                told.append({"what": what, "wall": wall, "cpu": cpu, "unit": (unit + before) / 2})
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, Python {sys.version.split()[0]}"
    return {"machine": load, "cases": told}


OPTIONS = (click.Option(["--case", "cases"], type=click.Choice([*CASES]), multiple=True, help="Repeatable.  [all]"),)
EXPERIMENT = Experiment("first_minute", __doc__, measure, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
