"""Three parties with homes on disk, their tables, and agents over them with collaborators of the test's choice."""

import atexit
import csv
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from commingle.coordinator.rounds import reject
from commingle.party_agent.home.datasets import DatasetRequest
from commingle.party_agent.home.home import Home, PartySettings, PinnedCoordinator
from commingle.party_agent.home.policy import AutoApproval, Policy
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.sources import FileSource
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents, assemble
from commingle.shared.documents.dsse import SigningKey, seal
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    Whitening,
)
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Rejection
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.subsets import Subset
from commingle.shared.documents.terms import MechanismName
from commingle.shared.dp.noise import Sampler
from commingle.shared.release.charge import Charge
from commingle.shared.release.checks import Member, build_spec
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.release.rounds import State
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.request_signing import RequestSigner
from tests.world.documents import HEAD, enrolment
from tests.world.tampering import URL, TamperedCoordinator

N = 40
LINKAGE = b"\x11" * 32
NAMES = ("clinic", "insurer", "lab")
EVERY_KIND: frozenset[MechanismName] = frozenset({"rmgm", "dgm", "moments"})
AUTOMATIC = Policy(
    mechanisms=EVERY_KIND,
    auto_approve=(AutoApproval(proposer="*", mechanisms=EVERY_KIND, max_rho=100),),
    trusted_bounds=True,
)
BY_A_PERSON = Ruling(by="a person", person="a person")
BY_HAND = Policy(mechanisms=EVERY_KIND, trusted_bounds=True)
SCHEMAS: dict[str, tuple[Attribute, ...]] = {
    "clinic": (
        NumericAttribute(name="age", lower=20, upper=80, unit="years"),
        NumericAttribute(name="bmi", lower=15, upper=45),
    ),
    "insurer": (NumericAttribute(name="charges", lower=0, upper=200),),
    "lab": (
        BinaryAttribute(name="smoker", levels=("no", "yes")),
        CategoricalAttribute(name="blood", levels=("0", "A", "B", "AB")),
    ),
}


BLOOD_CONTRASTS = {
    "0": (2**-0.5, 6**-0.5, 12**-0.5),
    "A": (-(2**-0.5), 6**-0.5, 12**-0.5),
    "B": (0, -2 * 6**-0.5, 12**-0.5),
    "AB": (0, 0, -3 * 12**-0.5),
}
"""What a release holds of the lab's levels."""


class CrashError(Exception):
    """Power is cut here."""


@dataclass
class Noise:
    """A sampler that remembers what it drew and may fail."""

    calls: list[tuple[int, int]] = field(default_factory=list)
    drawn: list[NDArray[np.int64]] = field(default_factory=list)
    crash: bool = False
    meanwhile: Callable[[], object] = lambda: None

    def __call__(self, sigma: int, count: int) -> NDArray[np.int64]:
        self.calls.append((sigma, count))
        self.meanwhile()
        if self.crash:
            raise CrashError
        noise = np.random.default_rng(len(self.calls)).integers(-sigma, sigma + 1, count, dtype=np.int64)
        self.drawn.append(noise)
        return noise.copy()


def rows_of(party: str, n: int = N) -> list[dict[str, str]]:
    draw = np.random.default_rng(NAMES.index(party))
    values: dict[str, Callable[[], str]] = {
        "age": lambda: f"{draw.uniform(18, 82):.2f}",
        "bmi": lambda: f"{draw.uniform(15, 45):.2f}",
        "charges": lambda: f"{draw.uniform(0, 210):.2f}",
        "smoker": lambda: str(draw.choice(["no", "yes"])),
        "blood": lambda: str(draw.choice(["0", "A", "B", "AB"])),
    }
    columns = [a.name for a in SCHEMAS[party]]
    rows = [{"subject": f"s{i}", **{c: values[c]() for c in columns}} for i in range(n)]
    return [rows[i] for i in draw.permutation(n)]


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


@dataclass
class Consortium:
    """Homes of all parties under one directory and the coordinator they are enrolled with."""

    root: Path
    coordinator: TamperedCoordinator = field(init=False)
    key: bytes = b"\xc0" * 32
    homes: dict[str, Home] = field(default_factory=dict)
    name: str = "trial"
    others: list["Consortium"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.coordinator = TamperedCoordinator(self.root / "coordinator", key=SigningKey(self.key))

    @property
    def clock_shows(self) -> datetime:
        """Everybody's time."""
        return self.coordinator.clock.now

    @clock_shows.setter
    def clock_shows(self, now: datetime) -> None:
        self.coordinator.clock.now = now

    def add(self, name: str, *, policy: Policy = AUTOMATIC, epsilon_cap: float = 10.0) -> Home:
        home = Home(self.root / name)
        home.create(PartySettings(name=name, epsilon_cap=epsilon_cap), policy=policy, linkage_key=LINKAGE)
        return self.join(name, home)

    def join(self, name: str, home: Home, *, url: str = URL) -> Home:
        """A party that may be in other consortia belongs to this one."""
        self.homes[name] = home
        where = PinnedCoordinator(url=url, signing_key=self.coordinator.key.verifying_key.raw.hex())
        home.join(where, name=self.name).adopt_linkage_key(LINKAGE, replace=False)
        return home

    def equip(self, name: str) -> None:
        write_csv(self.table(name), rows_of(name))
        with self.agent(name) as agent:
            self.register(agent)

    def become(self, folder: Path) -> None:
        """Everything again as in a copy of its root, or as another consortium that was made alike."""
        self.coordinator.close()
        shutil.rmtree(self.root)
        self.copied_from(folder)

    def copied_from(self, folder: Path) -> None:
        """Its data sets name its own tables."""
        shutil.copytree(folder, self.root, dirs_exist_ok=True)
        for home in self.homes.values():
            with closing(AgentStore(home.database)) as store, store.transaction() as db:
                files = db.execute("SELECT json_extract(body, '$.source.path') FROM datasets").fetchall()
                for (path,) in files:
                    here = str(self.root / Path(path).name)
                    db.execute("UPDATE datasets SET body = replace(body, ?, ?)", (path, here))

    def pin_everybody(self) -> None:
        for home in self.homes.values():
            for name, other in self.homes.items():
                home.consortium(self.name).pin({name: other.identity().signing_key.fingerprint}, replace=True)

    def table(self, name: str) -> Path:
        return self.root / f"{name}.csv"

    def register(
        self,
        agent: Agent,
        *,
        replace: bool = False,
        attributes: tuple[Attribute, ...] | None = None,
        subjects: Literal["keyed", "listed"] = "listed",
    ) -> None:
        name = agent.identity.name
        request = DatasetRequest(
            name="main",
            source=FileSource(path=str(self.table(name))),
            subject_id="subject",
            subjects=subjects,
            attributes=attributes or SCHEMAS[name],
        )
        agent.datasets.register(request, replace=replace)

    def spec(
        self,
        *,
        mechanism: MechanismName = "rmgm",
        title: str = "study",
        proposer: SigningKey | None = None,
        row_norm: float | None = None,
        whitenings: dict[str, Whitening] | None = None,
        first_stage_share: float | None = None,
        schemas: dict[str, tuple[Attribute, ...]] | None = None,
        names: tuple[str, ...] | None = None,
        now: datetime | None = None,
        keyed: bool = False,
        where: dict[str, tuple[Subset, ...]] | None = None,
        **terms: Any,
    ) -> ReleaseSpec:
        """A study of these terms, at epsilon 1 and of everybody where they say no other."""
        names = names or tuple(self.homes)
        members = {
            name: Member(
                self.homes[name].identity().signing_key.verifying_key.raw.hex(), self.homes[name].sealing_key().hex()
            )
            for name in names
        }
        study = Study(
            study=title,
            mechanism=mechanism,
            k=16 if mechanism == "rmgm" else None,
            subjects="keyed" if keyed else "listed",
            **{"epsilon": 1.0, "delta": 1e-5, "n": N, **terms},
            parties=tuple(
                StudyParty(
                    name=name,
                    dataset="main",
                    attributes=(schemas or SCHEMAS)[name],
                    row_norm=row_norm,
                    whitening=(whitenings or {}).get(name),
                    first_stage_share=first_stage_share,
                    where=(where or {}).get(name),
                )
                for name in names
            ),
        )
        return build_spec(
            study,
            members=members,
            proposer=(proposer or self.coordinator.key).fingerprint,
            seed=sha256(title.encode()).digest(),
            now=now or self.clock_shows,
        )

    def enrol_everybody(self) -> None:
        """Every party is a member of the coordinator's directory, of whom it is not one yet."""
        hub = self.coordinator.hub
        with hub.store.read() as tx:
            missing = {name: home for name, home in self.homes.items() if tx.members.get(name) is None}
        for name, home in missing.items():
            key = home.identity().signing_key
            assert hub.enrol(enrolment(hub.invited(name), name, key, sealing_key=home.sealing_key().hex())).is_success

    def propose(self, *, key: SigningKey | None = None, **choices: Any) -> str:
        self.enrol_everybody()
        return self.coordinator.propose(self.spec(proposer=key, **choices), key=key)

    def plant(self, spec: ReleaseSpec, *, key: SigningKey | None = None) -> str:
        """Let the coordinator show a proposal that it would have refused."""
        envelope = seal(spec, key=key or self.coordinator.key)
        return self.coordinator.disguise(self.propose(title="what is there instead"), envelope)

    def withdraw(self, release: str, party: str) -> None:
        no = Rejection(spec=release, party=party, reason="operator", created=self.clock_shows, ledger_head=HEAD)
        signed = seal(no, key=self.homes[party].identity().signing_key)
        reject(self.coordinator.hub.coordinator, release, party, signed)

    @contextmanager
    def client(self, name: str) -> Iterator[CoordinatorClient]:
        key, audience = self.homes[name].identity().signing_key, self.coordinator.key.fingerprint
        with self.coordinator.client(RequestSigner(key, audience=audience, clock=self.coordinator.clock)) as http:
            yield CoordinatorClient(http)

    @contextmanager
    def agent(self, name: str, **choices: Any) -> Iterator[Agent]:
        """As `party_agent.operate.compose` puts one together."""
        with self.agents(name, **choices) as agents:
            yield agents.consortia[0]

    @contextmanager
    def agents(
        self, name: str, *, draw: Sampler | None = None, home: Home | None = None, store: AgentStore | None = None
    ) -> Iterator[Agents]:
        """All agents of a party: of the consortium here, and of others whose home it is too."""
        home = home or self.homes[name]
        for one in (self, *self.others):
            one.enrol_everybody()
        store = store or AgentStore(home.database)
        known = {
            self.coordinator.key.verifying_key: self,
            **{one.coordinator.key.verifying_key: one for one in self.others},
        }
        try:
            with ExitStack() as calls:
                clients = {
                    which: calls.enter_context(known[membership.coordinator().key].client(name))
                    for which, membership in home.consortia().items()
                }
                yield assemble(home, store, clients, clock=self.coordinator.clock, draw=draw or Noise())
        finally:
            store.close()

    def step(self, name: str, **choices: Any) -> None:
        """One look at everything by a fresh agent process; failures come out."""
        with self.agent(name, **choices) as agent:
            agent.step(strictly)

    def charge(self, name: str, release: str) -> Charge | None:
        with self.agent(name) as agent:
            return agent.ledger.charge(release)

    def state(self, release: str) -> State:
        return self.coordinator.found(release).state


def strictly(_: str, work: Callable[[], None]) -> None:
    work()


def consortium_of(root: Path, *names: str, policy: Policy = AUTOMATIC) -> Consortium:
    """Homes, tables, registered data sets and pins of these parties: made once in this process, then copied."""
    consortium = Consortium(root)
    consortium.homes.update({name: Home(root / name) for name in names})
    consortium.copied_from(_made_once(names, policy.model_dump_json()))
    return consortium


@cache
def _made_once(names: tuple[str, ...], policy: str) -> Path:
    consortium = Consortium(kept_folder())
    for name in names:
        consortium.add(name, policy=Policy.model_validate_json(policy))
        consortium.equip(name)
    consortium.pin_everybody()
    consortium.coordinator.close()
    return consortium.root


def kept_folder() -> Path:
    """A folder for as long as this process runs."""
    return Path(_folders.enter_context(TemporaryDirectory()))


_folders = ExitStack()
atexit.register(_folders.close)


def soon(consortium: Consortium, *, hours: float) -> None:
    consortium.clock_shows += timedelta(hours=hours)


def second_beside(first: Consortium, *, url: str = "http://second.test") -> Consortium:
    """Another consortium, in which the clinic is too, with a fellow member of its own."""
    second = Consortium(first.root / "second", key=b"\xc1" * 32, name="second")
    second.join("clinic", first.homes["clinic"], url=url)
    second.add("insurer")
    second.equip("insurer")
    second.pin_everybody()
    first.others.append(second)
    return second
