"""What a newcomer waits for: installing, the demo, a fit, a check. The start of each command: `benchmarks.latency`.

Everything in a fresh clone of what is committed here; some cases (--case demo --case fit) as the environment at hand
has it. Seconds by the clock, seconds of all processors, and units. A unit is what this Python takes for ten million
additions in a loop at the top level of a script (half of that within a function), measured before and after each case.
Processor seconds are those of everything that was started and has ended, orphans too.
"""

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from benchmarks.consortium import Commingle
from benchmarks.harness import Asked, Experiment, Report, heading, row

_PR_SET_CHILD_SUBREAPER = 36
_ORPHANS_SECONDS = 3.0
_UNIT = compile("n = 0\nfor _ in range(10_000_000):\n    n += 1\n", "<unit>", "exec")
_RELEASE = "moments-epsilon-1"
_FIT = ("--target", "length_of_stay")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one thing took, in seconds; of processors none where that is not known."""

    what: str
    wall: float
    cpu: float | None


@dataclass(frozen=True, slots=True)
class Place:
    """A checkout with its environment, and a folder for what is made with it."""

    checkout: Path
    out: Path

    @property
    def subject(self) -> Commingle:
        """Its command."""
        return Commingle("", self.checkout / ".venv" / "bin" / "commingle")

    @property
    def released(self) -> Path:
        """A release of the demo, which is made if it is not there."""
        if not (self.out / "demo" / _RELEASE).exists():
            self.subject.run("simulate", "--out", self.out / "demo")
        return self.out / "demo" / _RELEASE


def unit_seconds() -> float:
    """Of a processor, for ten million additions."""
    began = time.process_time()
    exec(_UNIT, {})  # noqa: S102 - the line above
    return time.process_time() - began


def timed(what: str, work: Callable[[], object]) -> Figures:
    """Of work that starts processes and ends them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # Linux's: who loses its parent becomes a child of this process
    began, before = time.perf_counter(), _children()
    work()
    wall = time.perf_counter() - began
    _reap()
    return Figures(what, wall, _children() - before)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reap() -> None:
    """Wait a moment for orphans to end, so that they count."""
    until = time.monotonic() + _ORPHANS_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)


def install(place: Place) -> Iterator[Figures]:
    """The environment of a fresh clone."""
    own = Path(__file__).parents[1]
    yield timed("git clone", lambda: _quietly("git", "clone", "--quiet", own, place.checkout))
    yield timed("install: make .venv/.ready", lambda: _quietly("make", "-C", place.checkout, ".venv/.ready"))


def _quietly(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def demo(place: Place) -> Iterator[Figures]:
    """Twice: the second finds what the first has left in caches."""
    for which in ("first", "second"):
        pictures: list[float] = []
        found = timed(f"{which} demo", partial(_simulate, place, pictures))
        yield found
        yield Figures(f"{which} demo, until its first picture", pictures[0], None)


def _simulate(place: Place, pictures: list[float]) -> None:
    """The demo, noting after how many seconds each picture was there."""
    began, command = time.perf_counter(), (place.subject.command, "simulate", "--out", place.out / "demo")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None  # noqa: S101 - a pipe was asked for
        pictures += [time.perf_counter() - began for line in running.stderr if line.startswith("Picture: ")]
    if running.returncode:
        raise SystemExit(f"the demo ended with code {running.returncode}")


def once_each(name: str, *words: str, place: Place) -> Iterator[Figures]:
    """One run of a command on a release of the demo; a fit verifies it first."""
    released = place.released
    yield timed(f"one {name}", lambda: place.subject.run(name, released, *words))


CASES: dict[str, Callable[[Place], Iterator[Figures]]] = {
    "install": install,
    "demo": demo,
    "fit": lambda place: once_each("fit", *_FIT, place=place),
    "verify": lambda place: once_each("verify", place=place),
}


def measure(asked: Asked) -> Report:
    """Every case, with the units before and after each figure."""
    names = ("fit", "verify") if asked.quick else asked.given["cases"]
    chosen = [name for name in CASES if name in names or not names]
    told, unit = [], unit_seconds()
    with TemporaryDirectory() as folder:
        fresh, own = Path(folder) / "checkout", Path(__file__).parents[1]
        place = Place(fresh if "install" in chosen else own, Path(folder))
        for name in chosen:
            for found in CASES[name](place):
                unit, before = unit_seconds(), unit
                told.append({**asdict(found), "unit": (unit + before) / 2})
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, Python {sys.version.split()[0]}"
    return {"machine": load, "cases": told}


def lines(report: Report) -> list[str]:
    """A row for each figure."""
    shown = [report["machine"], "", *heading("", "seconds", "CPU seconds", "units", "seconds a unit")]
    for r in report["cases"]:
        cpu = ("-", "-") if r["cpu"] is None else (f"{r['cpu']:.2f}", f"{r['cpu'] / r['unit']:.1f}")
        shown.append(row(r["what"], f"{r['wall']:.2f}", *cpu, f"{r['unit']:.3f}"))
    return shown


OPTIONS = (click.Option(["--case", "cases"], type=click.Choice([*CASES]), multiple=True, help="Repeatable.  [all]"),)
EXPERIMENT = Experiment("first_minute", __doc__, measure, lines, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
