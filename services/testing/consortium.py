"""A coordinator and an agent for each party on this machine, enrolled, pinned, with their data registered.

The commands that people type set everything up, and the code of `serve` commands serves it.
"""

import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from commingle.services.client.release import Release
from commingle.services.client.remote import ReleaseClient
from commingle.services.errors import ConsortiumError, RoundError
from commingle.services.testing.links import Link
from commingle.services.testing.nodes import DATASET, Agent, Coordinator, dataset_of, rows_of, self_signed
from commingle.services.testing.processes import Command, Processes, Running, reserved_port
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.study import Study
from commingle.shared.mechanisms import MECHANISMS
from commingle.shared.release.rounds import State
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.files import close_to_others, create_secret
from commingle.shared.runtime.remote import connect
from commingle.shared.runtime.server import serving
from commingle.shared.runtime.tls import ServerTls

if TYPE_CHECKING:  # loads agents and coordinator
    from commingle.services.testing.in_process import InProcess

_MECHANISMS = tuple(MECHANISMS)
_POLICY: Mapping[str, Any] = {
    "mechanisms": _MECHANISMS,
    "auto_approve": [{"proposer": "*", "mechanisms": _MECHANISMS, "max_rho": 1e6}],
    "max_epsilon": 100,
}
"""Approves every proposal that a consortium for tests may make; other limits are the default policy's."""
_SCOPES = ("read", "decide", "register", "propose")
_POLL_SECONDS = 0.1
_RELEASE_SECONDS = 300.0
Stage = Callable[[str, str], AbstractContextManager[object]]


class Consortium:
    """A coordinator and agents on this machine. Use it in a `with` statement, which removes all of it at the end.

    Args:
        tables: by party: a CSV or Parquet file, a data frame, columns by name, or a `Dataset`.
        keyed: whether each party holds people of its own and who they are is protected; else all hold the same.
        processes: whether each agent and the coordinator is a process; else they are threads of this one.
        subject_id: the column that identifies subjects.
        schemas: by party, attributes or their JSON. Without them they are drafted from the tables, for tests only.
        epsilon_cap: the most epsilon that each party may lose.
        delta_cap: the most delta that each party may lose.
        policy: of every agent, as `policy.json`; without it they approve proved bounds up to epsilon 100.
        settings: options of `commingle coordinator init`.
        folder: where homes and logs go, and stay; a temporary folder without it.
        links: whether agents reach the coordinator by links, which can inject faults.
        network: whether agents also serve their API on the network, and not only on the sockets of their homes.
        stage: a context around each stage of the start; it gets the name and a description.

    Attributes:
        coordinator: the coordinator.
        agents: the agents, by party.
        folder: where homes and logs are.
        keyed: whether each party holds people of its own.
        registered: by party, the answer of its agent when the data were registered.
        backend: runs commands and servers.

    Raises ProcessError: something does not start, or refuses a command.
    """

    coordinator: Coordinator
    agents: dict[str, Agent]

    def __init__(
        self,
        tables: Mapping[str, Any],
        *,
        keyed: bool = True,
        processes: bool = False,
        subject_id: str = "subject",
        schemas: Mapping[str, Sequence[Attribute | Mapping[str, Any]]] | None = None,
        epsilon_cap: float = 1000.0,
        delta_cap: float = 0.01,
        policy: Mapping[str, Any] | None = None,
        settings: Sequence[str] = (),
        folder: Path | None = None,
        links: bool = True,
        network: bool = True,
        stage: Stage = lambda _, __: nullcontext(),
    ) -> None:
        self.keyed = keyed
        self._tables = tables
        self._processes = processes
        self._subject_id = subject_id
        self._schemas = schemas or {}
        self._caps = ("--epsilon-cap", repr(epsilon_cap), "--delta-cap", repr(delta_cap))
        self._policy = _POLICY if policy is None else policy
        self._settings = settings
        self._folder = folder
        self._links = links
        self._network = network
        self._stage = stage
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.folder = self._folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="commingle-")))
            if not self.folder.exists():
                close_to_others(self.folder)
            self.backend = self._backend()
            stack.enter_context(self.backend)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def study(self, *, target: str | None = None, epsilon: float = 5.0, **terms: Any) -> Study:  # noqa: ANN401 - a study's
        """A study of all columns of all parties.

        Args:
            target: the attribute to predict; only forecasts use it.
            epsilon: of each party.
            terms: other fields of a study.
        """
        parties = [
            {"name": name, "dataset": DATASET, "attributes": agent.dataset.attributes}
            for name, agent in self.agents.items()
        ]
        usual = {
            "study": "A test",
            "mechanism": "moments",
            "subjects": "keyed" if self.keyed else "listed",
            "delta": 1e-5,
            "n": max(rows_of(agent.dataset) for agent in self.agents.values()),
            "parties": parties,
        }
        return Study.model_validate({**usual, "target": target, "epsilon": epsilon, **terms}, strict=False)

    def propose(self, study: Study | Path) -> str:
        """Propose a release as the coordinator's operator; return its id. Raises ProcessError: it is refused."""
        if isinstance(study, Study):
            path = self.folder / f"study-{time.monotonic_ns()}.json"
            path.write_text(study.model_dump_json())
        else:
            path = study
        return str(self.command(*self.coordinator.proposing(path))["id"])

    def state(self, release: str) -> State:
        """The state of a release. Raises RemoteError: the coordinator does not answer, or knows no such release."""
        with connect(self.coordinator.url) as http:
            return CoordinatorClient(http).release(release).state

    def wait(self, release: str, *, seconds: float = _RELEASE_SECONDS) -> State:
        """Wait for the final state of a release. Raises RoundError: it takes longer; ProcessError: a process ends."""
        until = time.monotonic() + seconds
        while not (state := self.state(release)).final:
            self.backend.check()
            if time.monotonic() > until:
                raise RoundError(
                    f"the release is {state} after {seconds:g} s{self.backend.last_words(list(self.agents))}",
                    remedy="The logs say more; wait longer with `seconds`.",
                )
            time.sleep(_POLL_SECONDS)
        return state

    def release(self, study: Study | Path, *, seconds: float = _RELEASE_SECONDS) -> Release:
        """Propose a release, wait until it is published, fetch and verify it.

        Raises:
            ProcessError: the coordinator refuses it, or a process ends meanwhile.
            RoundError: the release is not published, or takes longer.
            VerificationError: the release does not hold.
        """
        proposed = self.propose(study)
        if (state := self.wait(proposed, seconds=seconds)) is not State.PUBLISHED:
            raise RoundError(f"the release was {state}", remedy="The agents' proposals say why.")
        with self.client() as client:
            return client.fetch(proposed)

    def client(self) -> ReleaseClient:
        """A client of the coordinator that trusts its key."""
        return ReleaseClient(self.coordinator.url, trusted_coordinator=self.coordinator.key)

    def learner(self) -> Callable[[], str]:
        """Start a learner of this coordinator. Call the result to wait until it listens, and to get its address.

        Raises ConsortiumError without processes.
        """
        trusted = ("--coordinator", self.coordinator.url, "--coordinator-key", self.coordinator.key)
        started = self.serving("learner", ("learner", "serve", *trusted, "--port", "0"))
        return partial(self._processes_of("learner").address, started)

    def serving(self, name: str, command: Command) -> Running:
        """Start a command that runs until the end of the consortium. Raises ConsortiumError without processes."""
        return self._processes_of(name).start(name, command)

    def command(self, *words: str | Path) -> Any:  # noqa: ANN401 - JSON
        """Run a `commingle` command and return the JSON that it prints. Raises ProcessError: it fails."""
        [[answer]] = self.backend.run({" ".join(map(str, words[:2])): [words]}).values()
        return answer

    def _processes_of(self, name: str) -> Processes:
        if not isinstance(self.backend, Processes):
            raise ConsortiumError(f"a {name} is a process", remedy="Start the consortium with processes=True.")
        return self.backend

    def _backend(self) -> "Processes | InProcess":
        logs = self.folder / "logs"
        if self._processes:
            return Processes(logs)
        from commingle.services.testing.in_process import InProcess  # noqa: PLC0415 - loads agents and coordinator

        return InProcess(logs)

    def _port(self) -> int:
        port: int = self._stack.enter_context(reserved_port()).getsockname()[1]
        return port

    def _start(self) -> None:
        with self._stage("start", "Starting the coordinator"):
            self.coordinator, invites = self._new_coordinator()
            self.coordinator.server.begin()
            self.agents, prints = self._new_agents()
            self.coordinator.server.await_listening()
        with self._stage("enrol", "Enrolling the members"):
            self._enrol(invites, prints)
        with self._stage("start", "Starting the agents"):
            for agent in self.agents.values():
                agent.server.begin()
            for agent in self.agents.values():
                agent.server.await_listening()
        with self._stage("register", "Registering each member's data"):
            self.registered = self._register()

    def _new_coordinator(self) -> tuple[Coordinator, dict[str, str]]:
        place, port = self.folder / "coordinator", self._port()
        home = ("--home", place)
        made: list[Command] = [("coordinator", "init", *home, *self._settings)]
        made += [("coordinator", "invite", *home, "--party", name) for name in self._tables]
        [[created, *invited]] = self.backend.run({"coordinator": made}).values()
        server = self.backend.coordinator(place, port)
        url, key = f"http://127.0.0.1:{port}", created["fingerprint"]
        return Coordinator(home=place, url=url, server=server, key=key), {
            answer["party"]: answer["invite"] for answer in invited
        }

    def _new_agents(self) -> tuple[dict[str, Agent], dict[str, str]]:
        linkage, policy = self.folder / "linkage.key", self.folder / "policy.json"
        create_secret(linkage)
        policy.write_text(json.dumps(self._policy, indent=2))
        tls = self_signed(self.folder) if self._network else None
        links = {name: Link(self.coordinator.url) for name in self._tables} if self._links else {}
        if links:
            told = logging.getLogger("uvicorn.error")  # of every answer that is lost
            self._stack.callback(told.setLevel, told.level)
            told.setLevel(logging.CRITICAL)
            self._stack.enter_context(serving([link.served for link in links.values()]))
        for link in links.values():
            self._stack.callback(link.cut)  # or the server would wait for what is open
        agents = {name: self._agent(name, table, tls, links.get(name)) for name, table in self._tables.items()}
        shared = ("--linkage-key", linkage, "--policy", policy, *self._caps)
        init = {n: [("party", "init", "--home", agent.home, "--name", n, *shared)] for n, agent in agents.items()}
        return agents, {name: str(created["fingerprint"]) for name, [created] in self.backend.run(init).items()}

    def _agent(self, name: str, table: Any, tls: ServerTls | None, link: Link | None) -> Agent:  # noqa: ANN401 - any table
        folder = self.folder / "parties" / name
        close_to_others(folder)
        dataset = dataset_of(table, folder, subject_id=self._subject_id, schema=self._schemas.get(name))
        port, home = self._port() if tls else None, folder / "home"
        return Agent(
            name=name,
            home=home,
            url="" if port is None else f"https://127.0.0.1:{port}",
            ca_file=self.folder / "api.pem",
            server=self.backend.agent(name, home, port, tls),
            dataset=dataset,
            _link=link,
        )

    def _enrol(self, invites: Mapping[str, str], prints: Mapping[str, str]) -> None:
        # this program is the other channel over which members compare their keys
        jobs: dict[str, list[Command]] = {}
        for name, agent in self.agents.items():
            home = ("--home", agent.home)
            url = agent.link.url if self._links else self.coordinator.url
            pins = [("party", "pin", *home, other, prints[other]) for other in prints if other != name]
            jobs[name] = [("party", "enrol", *home, "--coordinator", url, "--invite", invites[name]), *pins]
            if self._network:
                scopes = [word for scope in _SCOPES for word in ("--scope", scope)]
                jobs[name].append(("party", "token", "create", *home, "--name", "testing", *scopes))
        for name, answers in self.backend.run(jobs).items():
            self.agents[name].token = str(answers[-1].get("token", ""))

    def _register(self) -> dict[str, Any]:
        jobs: dict[str, list[Command]] = {}
        for name, agent in self.agents.items():
            dataset, schema = agent.dataset, agent.home.parent / "schema.json"
            attributes = [attribute.model_dump(mode="json") for attribute in dataset.attributes]
            schema.write_text(json.dumps(attributes, indent=2, ensure_ascii=False))
            ids = [word for column in dataset.subject_id for word in ("--subject-id", column)]
            ids += [word for rule in dataset.id_rules for word in ("--id-rule", rule)]
            ids += [] if self.keyed else ["--listed"]
            source = ("--home", agent.home, "--source", dataset.rows, "--schema", schema)
            jobs[name] = [("party", "datasets", "add", DATASET, *source, *ids)]
        return {name: answer for name, [answer] in self.backend.run(jobs).items()}
