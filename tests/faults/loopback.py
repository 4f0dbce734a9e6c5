"""A coordinator and two agents as processes on loopback, from keys to registered data, and what must hold of them."""

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from commingle.party_agent.home.home import Home
from commingle.shared.documents.model import encode
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.errors import BlockError
from commingle.shared.release.matrix import decode_block
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import State
from commingle.shared.runtime.errors import UnreachableError
from commingle.testing import Agent, Consortium, Coordinator, Dataset, ProcessError
from tests.faults.witness import SETTLED, Observed, Witness, charges_on_disk, check_history, check_published, files_left
from tests.world.command import eventually
from tests.world.consortium import SCHEMAS, rows_of, write_csv
from tests.world.local_api import operator_client

ROWS = 200
SKETCH = 20
PARTIES = ("clinic", "insurer")


@dataclass
class Loopback:
    """Use `set_up`, then propose, and `close`."""

    root: Path
    settings: tuple[str, ...] = ()
    _stack: ExitStack = field(default_factory=ExitStack)
    _before: frozenset[Path] = frozenset()

    def set_up(self) -> None:
        self.root.mkdir(exist_ok=True)
        tables = {
            name: Dataset(rows=write_csv(self.root / f"{name}.csv", rows_of(name, ROWS)), attributes=SCHEMAS[name])
            for name in PARTIES
        }
        self.consortium = self._stack.enter_context(
            Consortium(
                tables,
                keyed=False,
                processes=True,
                epsilon_cap=100,
                delta_cap=1e-5,
                settings=self.settings,
                folder=self.root,
                links=False,
                network=False,
            )
        )

    @property
    def hub(self) -> Coordinator:
        return self.consortium.coordinator

    @property
    def agents(self) -> dict[str, Agent]:
        return self.consortium.agents

    def home(self, name: str) -> Home:
        return Home(self.agents[name].home)

    def propose(self, *, mechanism: str = "rmgm", lifetime_hours: float = 1.0) -> str:
        self._before = self._blobs()
        study = self.consortium.study(
            study=f"after {time.monotonic_ns()}",
            mechanism=mechanism,
            k=SKETCH if mechanism == "rmgm" else None,
            epsilon=1.0,
            lifetime_hours=lifetime_hours,
        )
        return self.consortium.propose(study)

    def propose_in_vain(self) -> None:
        """The coordinator does not answer; its operator's command says so."""
        with pytest.raises(ProcessError):
            self.propose()

    @property
    def asked(self) -> Observed:
        return Observed(self.hub.url)

    def view(self, release: str) -> Any:
        return self.asked.view(release)

    def listed(self) -> set[str]:
        return {item["id"] for item in self.asked.get("/v1/releases").json()["items"]}

    def state(self, release: str) -> State | None:
        """Where a release stands; None while the coordinator does not answer."""
        with suppress(httpx.TransportError, KeyError):
            return self.asked.state(release)
        return None

    def wait_for(self, release: str, *states: State) -> None:
        eventually(lambda: self.state(release) in states, what=f"{release} is {self.state(release)}")

    def charge(self, name: str, release: str) -> str | None:
        found = charges_on_disk(self.home(name)).get(release)
        return None if found is None else found.state

    def decide(self, name: str, release: str, decision: str) -> int | None:
        """A person decides through the agent's local API; None where it dies instead of answering."""
        try:
            with operator_client(self.home(name)) as http:
                return http.put(f"/v1/proposals/{release}/{decision}").status_code
        except UnreachableError:
            return None

    def regress(self, name: str, request: RegressionRequest) -> Any:
        """A regression through the agent's local API; None where it dies instead of answering."""
        try:
            with operator_client(self.home(name)) as http:
                answer = http.post("/v1/regressions", content=encode(request))
        except UnreachableError:
            return None
        return answer.raise_for_status().json()

    def check(self, release: str, expected: State) -> None:
        """Everything that must hold once a release is over, whatever was killed on the way."""
        self.wait_for(release, expected)
        for name in PARTIES:
            eventually(partial(self._has_finished, name, release), what=f"{name}: {self.charge(name, release)}")
        ended = self.asked.ended(release)
        check_history(ended.history, expected)
        bodies = {name: self._check_charge(name, release, ended.spec) for name in PARTIES}
        assert self._blocks_received(release, ended.spec) <= set(bodies.values())
        eventually(lambda: not (self.hub.home / "blobs" / "running" / release).exists(), what="messages are kept")
        if expected is State.PUBLISHED:
            assert ended.files is not None
            sent = {(release, name): body for name, body in bodies.items() if body is not None}
            witness = Witness({name: self.home(name) for name in PARTIES}, bodies=sent)
            check_published(witness, ended.files, release=release, coordinator=self.hub.key)

    def close(self) -> None:
        self._stack.close()

    def _check_charge(self, name: str, release: str, spec: ReleaseSpec) -> str | None:
        charge = charges_on_disk(self.home(name)).get(release)
        if charge is None:
            return None
        if charge.attempt:
            assert charge.state in SETTLED - {"released"}
            assert charge.rho_units >= plan_block(spec, spec.party(name)).loss.units
        return charge.body_sha256

    def _blocks_received(self, release: str, spec: ReleaseSpec) -> set[str]:
        """Digests of the blocks of this release that ever reached the coordinator's disk, recorded or not."""
        received, elsewhere = set(), self._bodies_of_others(release)
        for plan in (plan_block(spec, party) for party in spec.parties):
            for path in self._blobs() - self._before:
                with suppress(BlockError):
                    if path.name in elsewhere:  # a coordinator that was set back is sent published blocks again
                        continue
                    decode_block(path.read_bytes(), columns=plan.columns, rows=plan.rows)
                    received.add(path.name)
        return received

    def _bodies_of_others(self, release: str) -> set[str | None]:
        return {
            charge.body_sha256
            for name in PARTIES
            for other, charge in charges_on_disk(self.home(name)).items()
            if other != release
        }

    def _blobs(self) -> frozenset[Path]:
        found = (self.hub.home / "blobs").glob("*/*")
        return frozenset(path for path in found if path.is_file() and not path.name.startswith("."))

    def _has_finished(self, name: str, release: str) -> bool:
        return self.charge(name, release) in {None, *SETTLED} and not files_left(self.home(name), release)
