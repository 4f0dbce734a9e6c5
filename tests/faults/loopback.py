"""A coordinator and two agents as processes on loopback, from keys to registered data, and what must hold of them."""

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from commingle.party_agent.home.home import Home
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.documents.errors import BlockError
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import BlockStatement
from commingle.shared.release.block import decode_block
from commingle.shared.release.checks import read_spec
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import State
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime.errors import UnreachableError
from commingle.testing import Agent, Consortium, Coordinator, Dataset, ProcessError
from tests.faults.witness import SETTLED, charges_on_disk, check_history, files_left
from tests.world.consortium import SCHEMAS, rows_of, write_csv
from tests.world.local_api import operator_client
from tests.world.waiting import eventually

ROWS = 200
SKETCH = 20
PARTIES = ("clinic", "insurer")
_PUBLISHED = ("manifest", "matrix", "moments")


@dataclass
class Loopback:
    """Use `set_up`, then propose, and `close`."""

    root: Path
    settings: tuple[str, ...] = ()
    _stack: ExitStack = field(default_factory=ExitStack)
    _before: frozenset[Path] = frozenset()

    def set_up(self) -> None:
        """Everything runs."""
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
        """Propose a small release; its id."""
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

    def view(self, release: str) -> Any:
        return self._get(f"/v1/releases/{release}").json()

    def newest(self) -> Any:
        return self._get("/v1/releases").json()["items"][0]

    def state(self, release: str) -> State | None:
        """Where a release stands; None while the coordinator does not answer."""
        with suppress(httpx.TransportError, KeyError):
            return State(self.view(release)["state"])
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
        view = self.view(release)
        events = [event for event in self._events() if event["release"] == release]
        check_history([(e["seq"], e["kind"], e.get("party"), State(e["state"])) for e in events], expected)
        spec = read_spec(parse_envelope(json.dumps(view["spec"]).encode()).payload_bytes)
        bodies = {name: self._check_charge(name, release, spec) for name in PARTIES}
        assert self._blocks_received(release, spec) <= set(bodies.values())
        eventually(lambda: not (self.hub.home / "blobs" / "running" / release).exists(), what="messages are kept")
        if expected is State.PUBLISHED:
            self._check_published(release, bodies)

    def close(self) -> None:
        self._stack.close()

    def _check_charge(self, name: str, release: str, spec: ReleaseSpec) -> str | None:
        """The block that may have left, if one may, and then its cost is counted."""
        charge = charges_on_disk(self.home(name)).get(release)
        if charge is None:
            return None
        if charge.attempt:
            assert charge.state in SETTLED - {"released"}
            assert charge.rho_units >= plan_block(spec, spec.party(name)).loss.units
        return charge.body_sha256

    def _check_published(self, release: str, bodies: Mapping[str, str | None]) -> None:
        manifest, matrix, moments = (self._get(f"/v1/releases/{release}/{name}").content for name in _PUBLISHED)
        published = verify_release(manifest, matrix, moments, trusted_coordinator=self.hub.key)
        assert published.release == release
        for name in PARTIES:
            statement = decode(BlockStatement, published.manifest.blocks[name].payload_bytes)
            assert statement.body_sha256 == bodies[name]

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
        """Digests of what was made for other releases."""
        return {
            charge.body_sha256
            for name in PARTIES
            for other, charge in charges_on_disk(self.home(name)).items()
            if other != release
        }

    def _events(self) -> list[Any]:
        """All there were, page by page."""
        found: list[Any] = []
        while page := self._get("/v1/events", params={"after": found[-1]["seq"] if found else 0}).json()["items"]:
            found += page
        return found

    def _blobs(self) -> frozenset[Path]:
        found = (self.hub.home / "blobs").glob("*/*")
        return frozenset(path for path in found if path.is_file() and not path.name.startswith("."))

    def _has_finished(self, name: str, release: str) -> bool:
        return self.charge(name, release) in {None, *SETTLED} and not files_left(self.home(name), release)

    def _get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.hub.url + path, timeout=60, **options).raise_for_status()
