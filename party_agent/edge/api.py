"""What all routes of the local API work with: the agents, who may ask, bodies of requests, and threads of their own.

Strict models are validated over the received bytes.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.errors import AgentError, SourceError, SourceRefusedError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import AgentScope, find_token
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.sources import PushedSource, Source
from commingle.party_agent.private.sql_store import SqlSource, database_file
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.proposals import DecisionNote
from commingle.party_agent.wire.owner_words import Viewer
from commingle.shared.documents.model import WireModel, decode
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.runtime.bodies import read_body
from commingle.shared.runtime.errors import ScopeError
from commingle.shared.runtime.problem import COMPARE_REQUEST
from commingle.shared.text import printable

Model = TypeVar("Model", bound=WireModel)
LARGEST_DOCUMENT_BYTES = 8 << 20  # more than the longest schema takes


async def document(request: Request, model: type[Model], *, instead: bytes = b"") -> Model:
    """The body as a model; `instead` of none. Raises DocumentError, TooLargeError, TruncatedError."""
    body = await read_body(request, LARGEST_DOCUMENT_BYTES)
    return decode(model, body or instead, remedy=COMPARE_REQUEST)


class UnauthorisedError(AgentError):
    """No valid bearer token."""

    code = "unauthorised"


T = TypeVar("T")


class OwnThread:
    """Calls functions one after the other, in the order in which they were given. Safe to use from several threads.

    The process ends without waiting for it, as it may hang in a read of a network drive.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._newest: dict[str, object] = {}
        self._starting = Lock()
        self._started = False

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call it in its turn. If cancelled before, it is not called. Raises what it raises."""
        future: Future[T] = Future()
        self._waiting.put((future, partial(copy_context().run, function, *arguments)))
        self._start()
        return await asyncio.wrap_future(future)

    async def run_newest(self, key: str, function: Callable[..., T], *arguments: object) -> T | None:
        """Call it as `run` does; None if the same key was given again meanwhile: only the newest call is done."""
        mark = self._newest[key] = object()

        def unless_newer() -> T | None:
            if self._newest.get(key) is not mark:
                return None
            return function(*arguments)

        return await self.run(unless_newer)

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._started = True
                Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            future, call = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                future.set_exception(error)


@dataclass(frozen=True, slots=True)
class LocalApi:
    """What the API works on.

    Attributes:
        loops: None if a command runs the API in its own process.
        peer_is_operator: whether only the operator can be at the other end; then a request without a token is the
            operator's. On the network nobody is: there, tokens alone count.
        readings: where tables are read, one at a time.
        ledger: where `/readyz` asks the ledger.
    """

    agents: Agents
    loops: Loops | None
    peer_is_operator: bool
    readings: OwnThread = field(default_factory=lambda: OwnThread("readings"))
    ledger: OwnThread = field(default_factory=lambda: OwnThread("readiness"))


def guard(api: LocalApi, scope_of: Mapping[str, AgentScope]) -> Any:  # noqa: ANN401 - a FastAPI dependency
    bearer = HTTPBearer(auto_error=False)

    def check(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
        request.state.operator = api.peer_is_operator and "authorization" not in request.headers
        request.state.viewer = Viewer.OPERATOR if request.state.operator else Viewer.TOKEN
        if request.state.operator:
            return
        text = "" if given is None else given.credentials
        found = find_token(api.agents.home, text, api.agents.clock())
        if found is None:
            raise UnauthorisedError(
                "no valid bearer token", remedy="Make one: commingle party token create; send Authorization: Bearer …"
            )
        request.state.token, token = found
        request.state.digest = token.digest
        request.state.person, scope = token.person, scope_of[request.method]
        if scope not in token.scopes:
            raise ScopeError(
                f"this token does not have the scope {scope}",
                remedy="Make one: commingle party token create. Who signed on needs another group.",
            )

    return check


async def ruling_of(request: Request) -> Ruling:
    """The person who decides: whom the token was made for, or whom the body names, beside the token."""
    given = await document(request, DecisionNote, instead=b"{}")
    if request.state.operator:
        name = given.by or "the operator"
        return Ruling(by=name, why=given.why, person=name)
    person, token = request.state.person, printable(request.state.token)[:50]
    if person and given.by not in {"", person}:
        raise ScopeError(f"this token is {person}'s, and nobody else decides with it", remedy="Leave `by` out.")
    name = given.by[:120]
    by = f"{name or person} (token {token})" if name or person else f"token {token}"
    return Ruling(by=by, why=given.why, token=request.state.token, person=person)


def resolve_source(home: Home, source: Source) -> Source:
    """The source that may be declared: a file's path without symbolic links, so that nobody can point it elsewhere.

    Tables may lie anywhere but in the agent's own home, whose ledger and keys are nobody's rows.
    """
    if isinstance(source, PushedSource) or (isinstance(source, PartitionedSource) and source.is_remote):
        return source
    if not isinstance(source, SqlSource):
        source = source.model_copy(update={"path": str(_resolved(source.path))})
    name = database_file(source) if isinstance(source, SqlSource) else source.path
    if name is not None and _belongs_to(home, _resolved(name)):
        raise SourceRefusedError(
            "a file in the agent's own home cannot be a source", remedy="Register a table that is kept elsewhere."
        )
    return source


def _resolved(path: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a NUL, or what is no text in the file system's encoding
        raise SourceError("the path of the source cannot be one", remedy="Check the path.") from None


def _belongs_to(home: Home, path: Path) -> bool:
    if path.is_relative_to(home.root.resolve()):
        return True
    wanted = _inode(path)  # a hard link or a second mount is another name of a file
    own = (_inode(Path(folder, name)) for folder, _, names in os.walk(home.root) for name in names)
    return wanted is not None and wanted in own


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
