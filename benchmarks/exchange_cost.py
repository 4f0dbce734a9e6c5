"""What the exchange of a moments release costs: CPU seconds, traffic and memory, each step of each party a process.

python -m benchmarks.exchange_cost [--large] [--case N COLUMNS PARTIES]... [--beside P] [--quick] [--json FILE]

A step is what an agent does in it: `encrypt` keeps the rows on disk and encrypts them, `reply` reads the columns of the
parties before and replies to them, `submit` opens the replies of those after and makes the block. Every case runs with
bounds that are trusted and with bounds that are proved, where encrypting and replying make proofs, a reply comes
after the proofs of everybody's columns are verified, and submitting after those of the replies are. Messages are files,
as at an agent, there is no network, and noise is left out, so that every block can be held against exact products. CPU
seconds are of all parties, without starting Python and loading the kernels; memory is the whole of the largest process,
of which its own table in 64-bit words is a part. Traffic is all columns and replies, up once, and down to whom each is
for. Beside MPyC, on the same matrices in the same run, ours is one process (`benchmarks.mpyc_products`).
"""

import importlib.util
import json
import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy.optimize import nnls

from benchmarks.exchanged import Integers, approved, no_noise, traffic
from benchmarks.mpyc_products import PARTIES, matrix, mpyc, ours
from commingle.party_agent.private.kept_rows import KeptRows
from commingle.party_agent.release_files import ExchangeFiles
from commingle.shared.documents.spec import Bounds
from commingle.shared.mechanisms.moments.block import largest_opening, places
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Reply, Stored
from commingle.shared.mechanisms.moments.exchange.products import verify_bounds, verify_reply
from commingle.shared.mechanisms.moments.exchange.sizes import Sizes
from commingle.shared.mechanisms.moments.exchange.submission import submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.plan import plan_block
from commingle.shared.ring.residues import kernels

STEPS = ("encrypt", "reply", "submit")
BOUNDS: tuple[Bounds, ...] = ("trusted", "proved")
_MPYC_ROWS, _MPYC_COLUMNS = 400_000, 4


@dataclass(frozen=True, slots=True)
class Case:
    """A release: subjects, columns of each party, parties, and whether bounds are proved."""

    n: int
    columns: int
    parties: int = PARTIES
    bounds: Bounds = "trusted"

    def exchange(self) -> Exchange:
        """The same in every process."""
        entropy = np.random.default_rng(0).bytes
        return approved(self.n, self.columns, self.parties, bounds=self.bounds, entropy=entropy).exchange


USUAL = (Case(10_000, 10), Case(100_000, 10), Case(100_000, 80, 2))
LARGE = Case(1_000_000, 10)


@dataclass(frozen=True, slots=True)
class Agents:
    """What all parties keep, one folder each."""

    exchange: Exchange
    root: Path

    def keep(self, name: str, rows: Integers) -> None:
        """Store that party's rows."""
        self._files(name).make_secret(self._release)
        self._rows(name).keep([rows])

    def encrypt(self, name: str) -> None:
        """That party's columns."""
        self._files(name).put(self._release, "columns", self._rows(name).encrypted(os.urandom))

    def reply(self, name: str) -> None:
        """That party's replies, after it has verified the others' columns."""
        exchange = self.exchange
        with ExitStack() as held:
            sent = self._columns(held, name)
            for party, columns in sent.items():
                if exchange.proved and party != name:
                    verify_bounds(columns)
            owners = {owner: sent[owner] for owner in exchange.owners(name)}
            made = self._rows(name).reply(sent[name], owners, lambda owner: self._no_noise(owner, name), os.urandom)
            self._files(name).put(self._release, "reply", made)

    def submit(self, name: str) -> Integers:
        """That party's block, after it has verified the replies."""
        exchange, rows, opened = self.exchange, self._rows(name), {}
        spec = exchange.spec.document
        with ExitStack() as held:
            sent = self._columns(held, name) if exchange.proved else {}
            for other in exchange.evaluators(name):
                reply = Reply(exchange, other, self._view(held, other, "reply", exchange.reply_size(other)))
                if exchange.proved:
                    verify_reply(reply, sent)
                largest = largest_opening(spec, spec.party(other), sigma=plan_block(spec, spec.party(other)).sigma)
                opened[other] = rows.open(reply, largest=largest)
        sigma = plan_block(spec, spec.party(name)).sigma
        return submission(exchange, party=name, moments=rows.moments(), opened=opened, sigma=sigma, draw=no_noise)

    @property
    def _release(self) -> str:
        return self.exchange.spec.digest

    def _columns(self, held: ExitStack, name: str) -> dict[str, Columns]:
        """Those that the party works with."""
        exchange = self.exchange
        return {
            party: Columns(exchange, party, self._view(held, party, "columns", exchange.columns_size(party)))
            for party in exchange.senders(name)
        }

    def _no_noise(self, owner: str, evaluator: str) -> Integers:
        return np.zeros((self.exchange.columns(owner), self.exchange.columns(evaluator)), np.int64)

    def _view(self, held: ExitStack, sender: str, kind: str, size: int) -> Stored:
        """A message as its reader has it once it is fetched: a file."""
        return self._files(sender).view(held, self._release, kind, sender=sender, size=size)

    def _files(self, name: str) -> ExchangeFiles:
        return ExchangeFiles(self.root / name)

    def _rows(self, name: str) -> KeptRows:
        files = self._files(name)
        return KeptRows(self.exchange, name, files.file(self._release, "rows"), files.secret(self._release))


@dataclass(frozen=True, slots=True)
class Used:
    """By one step of one party; megabytes are of 2^20 bytes."""

    cpu: float
    wall: float
    megabytes: float


def run_step(case: Case, folder: str, place: int, step: str) -> tuple[Used, Integers | None]:
    """In a process of its own."""
    kernels()
    agents = Agents(case.exchange(), Path(folder))
    name, block = agents.exchange.parties[place], None
    rows = matrix(place, case.n, case.columns) if step == "encrypt" else None
    cpu, wall = time.process_time(), time.perf_counter()
    if rows is not None:
        agents.keep(name, rows)
        agents.encrypt(name)
    elif step == "reply":
        agents.reply(name)
    else:
        block = agents.submit(name)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Used(cpu, wall, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), block


def measure(case: Case, beside: int = 1) -> dict[str, Any]:
    """All figures of one case, so many parties at a time; SystemExit where a block is not exact."""
    used: dict[str, list[Used]] = {step: [] for step in STEPS}
    blocks = []
    spawn = get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(beside, mp_context=spawn, max_tasks_per_child=1) as processes,
    ):
        for step in STEPS:
            for run in [processes.submit(run_step, case, folder, place, step) for place in range(case.parties)]:
                found, block = run.result()
                used[step].append(found)
                blocks += [] if block is None else [block]
    exchange = case.exchange()
    require_exact(case, exchange, blocks)
    every = [step for steps in used.values() for step in steps]
    return {
        **asdict(case),
        "cpu": {step: sum(found.cpu for found in steps) for step, steps in used.items()},
        "steps": {step: [asdict(found) for found in steps] for step, steps in used.items()},
        "total": sum(step.cpu for step in every),
        "wall": sum(step.wall for step in every),
        "megabytes": max(step.megabytes for step in every),
        "bytes": traffic(exchange),
    }


def fitted(results: list[dict[str, Any]]) -> list[float]:
    """Seconds a megabyte of each kind of `Sizes.work`, by least squares of relative errors: `sizes.SECONDS`."""
    work, seconds = [], []
    for case in results:
        sizes = Sizes.of(case["n"], [case["columns"]] * case["parties"], proved=case["bounds"] == "proved")
        for place in range(case["parties"]):
            work.append(sizes.work(place))
            seconds.append(sum(steps[place]["cpu"] for steps in case["steps"].values()))
    found: list[float] = nnls(np.array(work) / np.array(seconds)[:, None], np.ones(len(seconds)))[0].tolist()
    return found


def require_exact(case: Case, exchange: Exchange, blocks: list[Integers]) -> None:
    """SystemExit unless these are the blocks of those matrices without noise."""
    matrices = [matrix(place, case.n, case.columns) for place in range(case.parties)]
    spec = exchange.spec.document
    at = places(spec)
    for place, block in enumerate(blocks):
        exact = np.zeros_like(block)
        exact[0] = matrices[place].sum(axis=0) << spec.fraction_bits
        for later in range(place, case.parties):
            exact[at[exchange.parties[later]]] = matrices[later].T @ matrices[place]
        if not np.array_equal(block, exact):
            raise SystemExit("a block is not exact")


@click.command()
@click.option("--large", is_flag=True, help="A million subjects, too.")
@click.option("--case", "only", type=(int, int, int), multiple=True, help="Only so many subjects, columns, parties.")
@click.option("--beside", type=int, default=1, show_default=True, help="Parties that take a step at the same time.")
@click.option("--quick", is_flag=True, help="Few subjects and no MPyC, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(
    *, large: bool, only: tuple[tuple[int, int, int], ...], beside: int, quick: bool, json_file: Path | None
) -> None:
    """Print the figures and, if asked, write them as JSON."""
    usual = (Case(500, 2),) if quick else (*USUAL, *((LARGE,) if large else ()))
    sizes = [Case(*size) for size in only] or usual
    cases = [replace(case, bounds=bounds) for case in sizes for bounds in BOUNDS]
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    titles = (*STEPS, "CPU s", "clock s", "MB sent", "MiB")
    print(f"{'subjects, columns, bounds':<32}{''.join(f'{title:>10}' for title in titles)}")
    results = []
    for case in cases:
        found = measure(case, beside)
        results.append(found)
        figures = (*found["cpu"].values(), found["total"], found["wall"], found["bytes"] / 1e6, found["megabytes"])
        size = f"{case.n:,}, {case.parties} x {case.columns}, {case.bounds}"
        print(f"{size:<32}{''.join(f'{figure:>10.2f}' for figure in figures)}", flush=True)
    per_megabyte = fitted(results)
    print("seconds a megabyte:", ", ".join(f"{found:.2g}" for found in per_megabyte))
    mpyc_too = {} if quick or only else _beside_mpyc()
    if json_file is not None:
        json_file.write_text(json.dumps({"exchange": results, "seconds": per_megabyte, "beside": mpyc_too}, indent=2))


def _beside_mpyc() -> dict[str, Any]:
    """Ours and MPyC on the same matrices; nothing where it is not installed."""
    if importlib.util.find_spec("mpyc") is None:
        print("MPyC is not installed, so nothing stands beside")
        return {}
    n, columns = _MPYC_ROWS, _MPYC_COLUMNS
    both = {"ours": ours(n, columns), "mpyc": mpyc(n, columns)}
    for name, used in both.items():
        figures = f"{used['cpu']:.2f} CPU s, {used['wall']:.2f} s, {used['bytes'] / 1e6:.1f} MB"
        print(f"{f'{n:,}, {PARTIES} x {columns}, {name}':<24}{figures}")
    print(f"MPyC over ours: {both['mpyc']['cpu'] / both['ours']['cpu']:.1f} of CPU seconds")
    return {"n": n, "columns": columns, **both}


if __name__ == "__main__":
    main()
