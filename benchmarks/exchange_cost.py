"""What the exchange of a moments release costs: CPU seconds, traffic and memory, each step of each party a process.

A step is what an agent does in it: `encrypt` keeps the rows on disk and encrypts them, `reply` reads the columns of the
parties before and replies to them, `submit` opens the replies of those after and makes the block. Every case runs with
bounds that are trusted and with bounds that are proved, where encrypting and replying make proofs, a reply comes
after the proofs of everybody's columns are verified, and submitting after those of the replies are. Messages are files,
as at an agent, there is no network, and noise is left out, so that every block can be held against exact products. CPU
seconds are of all parties, without starting Python and loading the kernels; memory is the whole of the largest process,
of which its own table in 64-bit words is a part. Traffic is all columns and replies, up once, and down to whom each is
for. At the end what a megabyte of each kind of work takes: `SECONDS` of the product's forecast of costs.
"""

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

from benchmarks.harness import Asked, Experiment, Report
from commingle.party_agent.private.privatise import KeptRows
from commingle.party_agent.rounds.release_files import ExchangeFiles
from commingle.shared.documents.terms import Bounds
from commingle.shared.mechanisms.moments.block import largest_opening
from commingle.shared.mechanisms.moments.entries import places
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Exchange, Reply, Stored
from commingle.shared.mechanisms.moments.exchange.products import submission, verify_bounds, verify_reply
from commingle.shared.mechanisms.moments.exchange.sizes import Sizes
from commingle.shared.release.plan import plan_block
from commingle.shared.ring.residues import kernels
from tests.world.noise import no_noise
from tests.world.side import Integers, approved, traffic

STEPS = ("encrypt", "reply", "submit")
BOUNDS: tuple[Bounds, ...] = ("trusted", "proved")


def matrix(party: int, n: int, columns: int) -> Integers:
    """A party's rows (n x columns): fixed point of 14 bits in [-1, 1]."""
    return np.random.default_rng([7, party]).integers(-(2**14), 2**14, (n, columns), endpoint=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A release: subjects, columns of each party, parties, and whether bounds are proved."""

    n: int
    columns: int
    parties: int = 3
    bounds: Bounds = "trusted"

    def exchange(self) -> Exchange:
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
        self._files(name).make_secret(self._release)
        self._rows(name).keep([rows])

    def encrypt(self, name: str) -> None:
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
                sender = spec.party(other)
                largest = largest_opening(spec.terms, sender, sigma=plan_block(spec, sender).sigma)
                opened[other] = rows.open(reply, largest=largest)
        sigma = plan_block(spec, spec.party(name)).sigma
        return submission(exchange, party=name, moments=rows.moments(), opened=opened, sigma=sigma, draw=no_noise)

    @property
    def _release(self) -> str:
        return self.exchange.spec.digest

    def _columns(self, held: ExitStack, name: str) -> dict[str, Columns]:
        exchange = self.exchange
        return {
            party: Columns(exchange, party, self._view(held, party, "columns", exchange.columns_size(party)))
            for party in exchange.senders(name)
        }

    def _no_noise(self, owner: str, evaluator: str) -> Integers:
        return np.zeros((self.exchange.width(owner), self.exchange.width(evaluator)), np.int64)

    def _view(self, held: ExitStack, sender: str, kind: str, size: int) -> Stored:
        return self._files(sender).view(held, self._release, kind, sender=sender, size=size)

    def _files(self, name: str) -> ExchangeFiles:
        return ExchangeFiles(self.root / name)

    def _rows(self, name: str) -> KeptRows:
        files = self._files(name)
        return KeptRows(self.exchange, name, files.file(self._release, "rows"), files.secret(self._release))


def run_step(case: Case, folder: str, place: int, step: str) -> tuple[dict[str, float], Integers | None]:
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
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu": cpu, "wall": wall, "megabytes": megabytes}, block


def of_case(case: Case, beside: int = 1) -> dict[str, Any]:
    """All figures of one case, so many parties at a time; SystemExit where a block is not exact."""
    used, blocks, spawn = {step: list[dict[str, float]]() for step in STEPS}, list[Integers](), get_context("spawn")
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
        "cpu": {step: sum(found["cpu"] for found in steps) for step, steps in used.items()},
        "steps": used,
        "total": sum(step["cpu"] for step in every),
        "wall": sum(step["wall"] for step in every),
        "megabytes": max(step["megabytes"] for step in every),
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
    matrices = [matrix(place, case.n, case.columns) for place in range(case.parties)]
    spec = exchange.spec.document
    at = places(spec.terms)
    for place, block in enumerate(blocks):
        exact = np.zeros_like(block)
        exact[0] = matrices[place].sum(axis=0) << spec.fraction_bits
        for later in range(place, case.parties):
            exact[at[exchange.parties[later]]] = matrices[later].T @ matrices[place]
        if not np.array_equal(block, exact):
            raise SystemExit("a block is not exact")


def measure(asked: Asked) -> Report:
    usual = (Case(500, 2, 2),) if asked.quick else (*USUAL, *((LARGE,) if asked.given["large"] else ()))
    cases = [replace(case, bounds=b) for case in [Case(*c) for c in asked.given["only"]] or usual for b in BOUNDS]
    load = f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    results = [of_case(case, asked.given["beside"]) for case in cases]
    return {"load": load, "exchange": results, "seconds": fitted(results)}


OPTIONS = (
    click.Option(["--large"], is_flag=True, help="A million subjects, too."),
    click.Option(
        ["--case", "only"], type=(int, int, int), multiple=True, help="Only so many subjects, columns, parties."
    ),
    click.Option(
        ["--beside"], type=int, default=1, show_default=True, help="Parties that take a step at the same time."
    ),
)
EXPERIMENT = Experiment("exchange_cost", __doc__, measure, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
