"""Outside peers of `benchmarks.central`, run as a process in an environment built for them: group `peers` of uv.lock.

diffprivlib 0.6.6 does not import beside the scikit-learn locked for this project, and OpenDP's regression imports all
of OpenDP; so neither is imported here. Rows go and fits come by files in a temporary folder.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.regression.problem import Floats

SCRIPT = Path(__file__).with_name("central_peer_fits.py")
_BUILD_SECONDS, _FIT_SECONDS = 600, 3600
_REASON_CHARACTERS = 600


@dataclass(frozen=True, slots=True)
class Absent:
    """Why no peer ran."""

    reason: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What a peer is to fit: on all rows but those of the public fold and the tested one, for each tested fold.

    Attributes:
        x, y, fold: rows (n x d) and labels standardised by public rows, and the fold of each.
        sizes: largest public size per column.
        row_bound: the row norm our methods clip to.
        rhos: the zCDP budget of each epsilon.
    """

    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    fold: NDArray[np.int64] = field(repr=False)
    sizes: Floats
    row_bound: float
    epsilons: Sequence[float]
    rhos: Sequence[float]
    public: int
    tests: Sequence[int]
    runs: int


@dataclass(frozen=True, slots=True)
class Fit:
    """One fit of a peer: slopes (d) of the standardised columns and an intercept."""

    peer: str
    epsilon: float
    fold: int
    run: int
    slopes: Floats
    intercept: float


@dataclass(frozen=True, slots=True)
class Peers:
    """The command that runs the peers, and the versions it told."""

    command: tuple[str, ...]
    versions: Mapping[str, str]

    def fits(self, asked: Asked) -> list[Fit]:
        """All fits of all peers; SystemExit where the process fails, which is a fault and no omission."""
        with TemporaryDirectory() as folder:
            source, target = Path(folder, "asked.npz"), Path(folder, "fits.json")
            arrays: dict[str, Any] = {name: np.asarray(getattr(asked, name)) for name in Asked.__slots__}
            np.savez(source, **arrays)
            done = _run([*self.command, "fit", str(source), str(target)], _FIT_SECONDS)
            if isinstance(done, Absent):
                raise SystemExit(f"the peers' process failed: {done.reason}")
            found = json.loads(target.read_text(encoding="utf-8"))
        return [Fit(**{**each, "slopes": np.array(each["slopes"], np.float64)}) for each in found]


def started(command: Sequence[str]) -> Peers | Absent:
    """The peers behind a command, if it can tell their versions."""
    told = _run([*command, "versions"], _BUILD_SECONDS)
    return told if isinstance(told, Absent) else Peers(tuple(command), json.loads(told))


@contextmanager
def built(*, uv: str | None = None) -> Iterator[Peers | Absent]:
    """Peers in an environment of their own, which is deleted afterwards; wheels alone, every hash checked."""
    with TemporaryDirectory() as folder:
        made, project = Path(folder, "made"), str(SCRIPT.parents[1])
        locked = ["--locked", "--only-group", "peers", "--no-build", "--python", sys.executable, "--project", project]
        words = [uv or _uv(), "sync", "--quiet", *locked]
        done = _run(words, _BUILD_SECONDS, environment={**os.environ, "UV_PROJECT_ENVIRONMENT": str(made)})
        yield done if isinstance(done, Absent) else started([str(made / "bin" / "python"), "-I", str(SCRIPT)])


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv") or "uv"


def _run(words: Sequence[str], timeout_seconds: int, *, environment: Mapping[str, str] | None = None) -> str | Absent:
    """Its standard output, or why there is none."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=timeout_seconds, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Absent(str(error))
    return Absent(done.stderr.strip()[-_REASON_CHARACTERS:] or "no reason given") if done.returncode else done.stdout
