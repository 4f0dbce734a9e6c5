"""Who attacks: a hostile coordinator, an altered member and a local user, each in the one world of `tests/world`.

An attack is a `Consortium`, an actor or two over it, and what must hold afterwards:

    def test_coordinator_that_was_set_back_too_is_corrected_by_a_fellow_member(pair: Consortium) -> None:
        coordinator, user = HostileCoordinator(pair), LocalUser(pair)
        backup = user.back_up()
        publish(pair)
        waiting = pair.propose(title="waits")
        coordinator.forget_heads()
        user.restore(backup)
        pair.step("insurer")
        refuse_to_start(pair)
        assert "clinic" not in pair.coordinator.found(waiting).approvals

The actors keep the real keys of whom they play and go through the real applications; what is done behind these is done
in their databases and files, where the real attacker would do it too. `docs/security.md` names the claims they test.
"""

import json
import os
import re
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.store import check_rows_to_come
from commingle.party_agent.private.snapshot import Debit
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.blocks import Made
from commingle.services.client.files import ReleaseFiles
from commingle.shared.documents.dsse import Envelope, SigningKey, seal
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import WireModel, decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    BlockStatement,
    Rejection,
    SignedDocument,
    approval_set_digest,
    open_approvals,
)
from commingle.shared.mechanisms.moments.exchange.messages import ColumnsStatement
from commingle.shared.release.checks import open_spec
from commingle.shared.release.matrix import decode_matrix
from commingle.shared.release.rounds import State
from commingle.shared.runtime.request_signing import RequestSigner
from tests.world.consortium import AUTOMATIC, Consortium, N, Noise, second_beside, strictly
from tests.world.documents import HEAD, approvals_of, published_files, sign_bytes
from tests.world.local_api import recording
from tests.world.released import COORDINATOR, NOW
from tests.world.tampering import URL, TamperedCoordinator

NOBODY = 65534
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
Change = Callable[[Any], Any]
"""From an honest answer, as JSON, to the one that is given."""


def view_of(envelopes: Mapping[str, Envelope]) -> dict[str, Any]:
    """Signed statements by party, as the coordinator shows them."""
    return {name: envelope.model_dump(mode="json") for name, envelope in envelopes.items()}


@dataclass
class HostileCoordinator:
    """Does everything that the real one does, and lies about it: to everybody, or to the party that is named.

    Attributes:
        answers: every honest answer that was given, by path, the oldest first.
    """

    consortium: Consortium
    answers: dict[str, list[Any]] = field(default_factory=dict)
    _lies: list[tuple[str, str | None, Change]] = field(default_factory=list)
    _refusals: list[tuple[str, str | None, httpx.Response]] = field(default_factory=list)
    _asking: str | None = None
    _path: str = ""

    def __post_init__(self) -> None:
        self.real.before, self.real.rewrite = self._refuse, self._answer
        self.real.shown = lambda view: self._answer(self._path, view)

    @property
    def real(self) -> TamperedCoordinator:
        return self.consortium.coordinator

    def lie(self, where: str, change: Change, *, to: str | None = None) -> None:
        """Change what is answered at paths that end so."""
        self._lies.append((where, to, change))

    def refuse(
        self, where: str, status: int, *, detail: str = "no", remedy: str = "none", to: str | None = None
    ) -> None:
        """Answer so whatever concerns paths in which this occurs, for ever."""
        body = {"type": "urn:commingle:problem:unknown", "title": "x", "status": status, "detail": detail}
        self._instead(where, httpx.Response(status, json=body | {"remedy": remedy}), to=to)

    def tell_the_truth(self) -> None:
        self._lies.clear()
        self._refusals.clear()

    def show(self, release: str, *, to: str | None = None, **changes: Any) -> None:
        self.lie(f"/{release}", lambda view: {**view, **changes}, to=to)

    def show_spec(self, release: str, spec: ReleaseSpec, *, to: str | None = None) -> None:
        self.show(release, to=to, spec=seal(spec, key=self.real.key).model_dump(mode="json"))

    def hide(self, release: str, *, to: str | None = None) -> None:
        self.refuse(release, 404, to=to)

    def withhold_end(self, release: str, *, to: str | None = None) -> None:
        """Show a release that is over as one that goes on."""
        self.lie(f"/{release}", lambda view: {**view, **_GOING_ON} if State(view["state"]).final else view, to=to)

    def replay(self, path: str, *, to: str | None = None) -> None:
        """Give the oldest answer that a path ever got, once more: old events, old lists, old heads."""
        oldest = self.answers[path][0]
        self.lie(path, lambda _: oldest, to=to)

    def plant(self, payload: bytes, *, key: SigningKey | None = None) -> str:
        """Show a proposal of these bytes, signed by the coordinator or with this key; its id."""
        envelope = sign_bytes(payload, kind="spec", key=key or self.real.key)
        return self.real.disguise(self.consortium.propose(title="what is there instead"), envelope)

    def hide_heads(self, *, to: str | None = None) -> None:
        """Show no ledger head, and drop those that are sent while saying that they are kept."""
        self._instead("ledger-heads", httpx.Response(200, json={"items": []}), to=to)

    def forget_heads(self) -> None:
        """As if restored from before anything was witnessed."""
        with closing(sqlite3.connect(self.real.root / "coordinator.sqlite")) as database:
            database.execute("DELETE FROM ledger_heads")
            database.commit()

    def come_with_another_key(self) -> Consortium:
        """The same address, another key, another consortium."""
        return second_beside(self.consortium, url=URL)

    def _instead(self, where: str, answer: httpx.Response, *, to: str | None) -> None:
        self._refusals.append((where, to, answer))

    def _refuse(self, request: httpx.Request) -> httpx.Response | None:
        found = re.search(r'keyid="([0-9a-f]+)"', request.headers.get("signature-input", ""))
        homes = self.consortium.homes.items()
        names = {str(home.identity().signing_key.fingerprint): name for name, home in homes}
        self._asking, self._path = names.get(found[1]) if found else None, request.url.path
        for where, to, answer in self._refusals:
            if where in request.url.path and to in {None, self._asking}:
                return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        return None

    def _answer(self, path: str, said: Any) -> Any:
        self.answers.setdefault(path, []).append(said)
        for where, to, change in self._lies:
            if path.endswith(where) and to in {None, self._asking}:
                said = change(said)
        return said


_GOING_ON = {"state": "collecting", "reason": None}


class Unclipped(Agent):
    """An agent without its bounds: the first of what its rows come to is far beyond them."""

    __slots__ = ()

    def read(self, spec: ReleaseSpec, debit: Debit, reading: Callable[..., Made]) -> Made:
        made = Agent.read(self, spec, debit, reading)
        made.integers[0] += 1 << 30
        return made


@dataclass
class AlteredMember:
    """A member whose agent does one thing otherwise, and who signs what it likes with its own key."""

    consortium: Consortium
    name: str = "insurer"

    @property
    def key(self) -> SigningKey:
        return self.consortium.homes[self.name].identity().signing_key

    def sign(self, document: WireModel) -> Envelope:
        return seal(document, key=self.key)

    def step(self, altered: type[Agent], *, draw: Noise | None = None) -> None:
        """One look at everything by an agent of this class."""
        with self.consortium.agent(self.name, draw=draw) as agent:
            altered(**{item.name: getattr(agent, item.name) for item in fields(agent)}).step(strictly)

    def approval(self, release: str, **changes: Any) -> Envelope:
        """An approval beside whatever else it has signed."""
        said = Approval(spec=release, party=self.name, created=self.consortium.clock_shows, ledger_head=HEAD)
        return self.sign(said.model_copy(update=changes))

    def approve(self, release: str, *, digest: str = "ab" * 32, subjects: int = N) -> None:
        said = AlignmentStatement(spec=release, party=self.name, subjects=subjects, digest=digest)
        request = ApprovalRequest(approval=self.approval(release), alignment=self.sign(said))
        with self.consortium.client(self.name) as client:
            client.approve(release, self.name, request)

    def upload(self, release: str, statement: Envelope, body: bytes) -> None:
        """A block under a statement that need not be about it."""
        with self.consortium.client(self.name) as client:
            client.upload(release, self.name, statement, body)

    def other_columns(self, release: str) -> tuple[Envelope, bytes]:
        """What a party that helps the coordinator would sign beside its columns."""
        exchange = self.consortium.coordinator.exchange(release)
        body = b"\x01" * exchange.columns_size(self.name)
        digest = sha256(body).hexdigest()
        said = ColumnsStatement(spec=release, party=self.name, approvals=exchange.approved, body_sha256=digest)
        return self.sign(said), body

    def complain(self, release: str, *, about: str, evidence: tuple[Envelope, Envelope]) -> None:
        """Withdraw, and blame another member for it."""
        said = Rejection(
            spec=release,
            party=self.name,
            reason="exchange",
            created=self.consortium.clock_shows,
            ledger_head=HEAD,
            about=about,
            evidence=evidence,
        )
        with self.consortium.client(self.name) as client:
            client.reject(release, self.name, self.sign(said))

    def offer(self, payload: bytes) -> httpx.Response:
        """Propose these bytes, over and over if it likes."""
        coordinator = self.consortium.coordinator
        signer = RequestSigner(self.key, audience=coordinator.key.fingerprint, clock=coordinator.clock)
        with coordinator.client(signer) as http:
            return http.post("/v1/releases", content=sign_bytes(payload, kind="spec", key=self.key).to_json())

    def heads(self) -> dict[str, SignedDocument]:
        with self.consortium.client(self.name) as client:
            items = client.ledger_heads()
        return {json.loads(item.envelope.payload_bytes)["party"]: item for item in items}

    def relay_head(self, party: str, head: SignedDocument, *, after: str = HEAD) -> None:
        """Bring somebody else's ledger head, as a witness does."""
        with self.consortium.client(self.name) as client:
            client.put_ledger_head(party, head, after=after)


@dataclass
class LocalUser:
    """Somebody at a party's machine: with its files, its environment or only its ports."""

    consortium: Consortium
    name: str = "clinic"

    @property
    def home(self) -> Home:
        return self.consortium.homes[self.name]

    def back_up(self, name: str = "backup") -> Path:
        return Path(shutil.copytree(self.home.root, self.consortium.root / f"{self.name} {name}"))

    def restore(self, backup: Path) -> None:
        shutil.rmtree(self.home.root)
        shutil.copytree(backup, self.home.root)

    def copy(self, name: str = "copy") -> Home:
        """A second home of the same party, as it is now."""
        return Home(self.back_up(name))

    def edit(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.home.database)) as db, db:
            db.execute(statement, values)

    def mend_checks(self) -> None:
        """Make the digests of rows those of the rows as they are: they are against damage, and no secret."""
        with closing(sqlite3.connect(self.home.database)) as db, db:
            db.execute("DELETE FROM checks")
            check_rows_to_come(db)
            tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('checks', 'forecasts')"
            for (table,) in db.execute(tables).fetchall():
                first = db.execute(f"PRAGMA table_info({table})").fetchone()[1]
                db.execute(f"UPDATE {table} SET {first} = {first}")  # noqa: S608 - names of ours

    def edit_policy(self, **rules: Any) -> None:
        self.home.save_policy(AUTOMATIC.model_copy(update=rules))

    def edit_settings(self, **changes: Any) -> None:
        self.home.save_settings(self.home.settings().model_copy(update=changes))

    def link(self, target: Path, link: Path) -> Path:
        """A symbolic link where the party's own system may put tables."""
        link.symlink_to(target)
        return link

    @contextmanager
    def proxy(self, environment: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
        """A proxy that the environment names everywhere; what it is sent."""
        listener = socket.create_server(("127.0.0.1", 0))
        for name in PROXIES:
            environment.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        with recording(listener) as seen:
            yield seen

    @contextmanager
    def old_port(self) -> Iterator[list[bytes]]:
        """A process on the port that an agent of an earlier version had; what it is sent."""
        heir = socket.create_server(("127.0.0.1", 0))
        (self.home.root / "running.json").write_text(json.dumps({"url": f"http://127.0.0.1:{heir.getsockname()[1]}"}))
        (self.home.root / "token").write_text("a token of the time when there was one")
        with recording(heir) as seen:
            yield seen


Ready = Callable[[], object]


@contextmanager
def another_user(work: Callable[[Ready], bytes]) -> Iterator[Callable[[], bytes]]:
    """Another user's process that has come to where it says that it is ready. Gives what its work returns."""
    ours, its = socket.socketpair()
    process = os.fork()
    if process == 0:
        with suppress(BaseException):
            os.setgroups([])
            os.setuid(NOBODY)
            its.sendall(work(lambda: its.sendall(b"!")))
        os._exit(0)
    its.close()
    with ours:
        ours.settimeout(60)
        assert ours.recv(1) == b"!"
        yield lambda: b"".join(iter(lambda: ours.recv(1 << 16), b""))
    os.waitpid(process, 0)


def forged_release(files: ReleaseFiles, invented: Mapping[str, SigningKey]) -> tuple[str, ReleaseFiles]:
    """A published release once more, by whoever has the coordinator's key, with invented keys for its members."""
    manifest = SignedDocument.model_validate_json(files.manifest).open(Manifest).document
    honest = open_spec(manifest.spec, [COORDINATOR.verifying_key]).document
    keys = {name: key.verifying_key.raw.hex() for name, key in invented.items()}
    parties = tuple(party.model_copy(update={"signing_key": keys[party.name]}) for party in honest.parties)
    spec = seal(honest.model_copy(update={"parties": parties}), key=COORDINATOR)
    opened = open_spec(spec, [COORDINATOR.verifying_key])
    approvals = approvals_of(opened.digest, invented, created=NOW)
    changes = {"spec": opened.digest, "approvals": approval_set_digest(open_approvals(approvals, opened))}
    blocks = {
        name: seal(decode(BlockStatement, manifest.blocks[name].payload_bytes).model_copy(update=changes), key=key)
        for name, key in invented.items()
    }
    matrix = decode_matrix(honest, files.matrix)
    return opened.digest, ReleaseFiles(
        *published_files(opened, matrix, proposer=COORDINATOR, approvals=approvals, blocks=blocks, published=NOW)
    )
