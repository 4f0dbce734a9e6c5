"""What a newcomer waits for: installing, the demo, the start of each command, a release, a fit, a check.

python -m benchmarks.first_minute                          # everything, in a fresh clone of what is committed here
python -m benchmarks.first_minute --case demo --case fit   # some, as the environment at hand has it

Seconds by the clock, seconds of all processors, and units. A unit is what this Python takes for ten million additions
in a loop at the top level of a script (half of that within a function), measured before and after each case. Processor
seconds are those of everything that was started and has ended, orphans too. The demo is `make demo` without make.
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

from benchmarks.latency import Consortium, Subject
from benchmarks.reporting import heading, row, write_json
from benchmarks.rounds import Asked, measure

_PR_SET_CHILD_SUBREAPER = 36
_ORPHANS_SECONDS = 3.0
_UNIT = compile("n = 0\nfor _ in range(10_000_000):\n    n += 1\n", "<unit>", "exec")
_HELP = ((), ("simulate",), ("plan",), ("fit",), ("verify",), ("members",), ("coordinator",), ("party",), ("learner",))
_RELEASE = "moments-epsilon-1"
_FIT = ("--target", "length_of_stay")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one thing took, in seconds; of processors none where that is not known."""

    what: str
    wall: float
    cpu: float | None

    def row(self, unit: float) -> str:
        """Of the table, where a unit took that many seconds."""
        cpu = ("-", "-") if self.cpu is None else (f"{self.cpu:.2f}", f"{self.cpu / unit:.1f}")
        return row(self.what, f"{self.wall:.2f}", *cpu, f"{unit:.3f}")


@dataclass(frozen=True, slots=True)
class Place:
    """A checkout with its environment, and a folder for what is made with it."""

    checkout: Path
    out: Path

    @property
    def subject(self) -> Subject:
        """Its command."""
        return Subject("", self.checkout / ".venv" / "bin" / "commingle")

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


def starts(place: Place) -> Iterator[Figures]:
    """Of each command as far as its help, and of each server until it listens; then the same again."""
    subject = place.subject
    for group in _HELP:
        for which in ("first", "second"):
            said = " ".join(("commingle", *group, "--help"))
            yield timed(f"{said}, {which} start", partial(subject.run, *group, "--help"))
    with TemporaryDirectory() as root:
        consortium = Consortium(subject, Path(root), rows=1000)
        consortium.prepare()
        party = ("party", "serve", "--home", Path(root) / "ward")
        hub = ("coordinator", "serve", "--home", consortium.hub)
        with subject.serving(*hub) as url:
            learner = ("learner", "serve", "--coordinator", url)
            for server in (hub, party, learner):
                for which in ("first", "second"):
                    said = f"commingle {server[0]} serve until it listens, {which} start"
                    yield timed(said, partial(_serve_once, subject, server))


def _serve_once(subject: Subject, server: tuple[str | Path, ...]) -> None:
    with subject.serving(*server):
        pass


def release(place: Place) -> Iterator[Figures]:  # noqa: ARG001 - of this environment
    """One of many in a consortium that runs: of `rmgm`, then of `moments` with proofs."""
    for mechanism, releases in (("rmgm", 10), ("moments", 1)):
        for members, rows in ((3, 48_000), (16, 5_000)):
            found = measure(Asked(members, rows, mechanism), releases=releases, uncounted=1)
            said = f"one {mechanism} release, {members} x {rows:,}"
            yield Figures(said, 60 / found["releases_per_minute"], sum(found["cpu_seconds"].values()))


def fit(place: Place) -> Iterator[Figures]:
    """Of a release of the demo, which is verified first."""
    released = place.released
    yield timed("one fit", lambda: place.subject.run("fit", released, *_FIT))


def verify(place: Place) -> Iterator[Figures]:
    """A release of the demo."""
    released = place.released
    yield timed("one verify", lambda: place.subject.run("verify", released))


CASES: dict[str, Callable[[Place], Iterator[Figures]]] = {
    "install": install,
    "starts": starts,
    "demo": demo,
    "release": release,
    "fit": fit,
    "verify": verify,
}


@click.command()
@click.option("--case", "cases", type=click.Choice([*CASES]), multiple=True, help="Repeatable.  [all]")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, cases: tuple[str, ...], json_file: Path | None) -> None:
    """Print a table, a row as soon as it is measured."""
    chosen = [name for name in CASES if name in cases or not cases]
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, Python {sys.version.split()[0]}\n")
    print(*heading("", "seconds", "CPU seconds", "units", "seconds a unit"), sep="\n")
    told, unit = [], unit_seconds()
    with TemporaryDirectory() as folder:
        fresh = Path(folder) / "checkout"
        place = Place(fresh if "install" in chosen else Path(__file__).parents[1], Path(folder))
        for name in chosen:
            for found in CASES[name](place):
                unit, before = unit_seconds(), unit
                mean = (unit + before) / 2
                print(found.row(mean), flush=True)
                told.append({**asdict(found), "unit": mean})
    write_json({"cases": told}, json_file)


if __name__ == "__main__":
    main()
