"""A proxy between agents and their coordinator: forwards byte for byte, records uploads, and fails as it is told.

Usage: compose_proxy.py COORDINATOR-HOST PORT. Agents reach it at port 8000. At port 8001 it takes orders, a JSON line
each: {"fate": NAME, "of": "uploads" or "requests"} lays up a fault for the next of them, {"calm": true} forgets what is
laid up. To each order it answers with all uploads and faults so far. It runs in a container, on the standard library.
"""

import asyncio
import json
import re
import sys
import time
from contextlib import suppress
from hashlib import sha256
from typing import Any

FATES = (
    "request lost",
    "request cut short",
    "request halted half-way",
    "request repeated",
    "old copy of a request delivered later",
    "answer lost",
    "answer cut short",
    "proxy answered 502",
    "proxy answered 200 with garbage",
)
_UPLOAD = re.compile(rb"PUT /v1/releases/([0-9a-f]+)/(approvals|rejections|columns|replies|blocks)/([^ /?]+) ")
_HALT_SECONDS, _LATE_SECONDS = 3.0, 20.0
_LONGEST_HEAD_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16
_OWN_ANSWERS = {
    "proxy answered 502": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 16\r\n\r\nupstream is away",
    "proxy answered 200 with garbage": b"HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n<h1>Please sign in</h1>",
}


class Proxy:
    """All connections of all agents to one coordinator.

    Attributes:
        uploads: what was on its way to the coordinator, recorded before anything is forwarded.
        struck: faults that hit a request.
    """

    def __init__(self, host: str, port: int) -> None:
        self.uploads: list[dict[str, Any]] = []
        self.struck: list[dict[str, str]] = []
        self._host, self._port = host, port
        self._laid_up: list[tuple[str, str]] = []
        self._late: set[asyncio.Task[None]] = set()

    async def attend(self, agent: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """One connection of an agent, and one to the coordinator for it."""
        spoilt: list[str] = []
        try:
            coordinator, requests = await asyncio.open_connection(self._host, self._port)
            passing = asyncio.create_task(_pass_answers(coordinator, answers, spoilt))
            try:
                while await self._request(agent, answers, requests, spoilt):
                    pass
            finally:
                requests.close()
                passing.cancel()
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of them is away: so is the connection of the other
        finally:
            answers.close()

    async def order(self, orders: asyncio.StreamReader, reports: asyncio.StreamWriter) -> None:
        """Whoever runs the faults."""
        while line := await orders.readline():
            said = json.loads(line)
            if "fate" in said:
                self._laid_up.append((said["fate"], said["of"]))
            if said.get("calm"):
                self._laid_up.clear()
            reports.write(json.dumps({"uploads": self.uploads, "struck": self.struck}).encode() + b"\n")
            await reports.drain()
        reports.close()

    async def _request(
        self,
        agent: asyncio.StreamReader,
        answers: asyncio.StreamWriter,
        requests: asyncio.StreamWriter,
        spoilt: list[str],
    ) -> bool:
        head = await agent.readuntil(b"\r\n\r\n")
        body, whole = await _body(agent, head)
        upload = self._record(head, body, whole=whole)
        fate = self._fate(head, upload=upload)
        if fate in _OWN_ANSWERS:
            answers.write(_OWN_ANSWERS[fate])
            await answers.drain()
            return True
        if fate.startswith("answer"):
            spoilt.append(fate)
        request = head + body
        match fate:
            case "request lost":
                return False
            case "request cut short":
                request, whole = request[: len(request) // 2], False
            case "request halted half-way":
                requests.write(request[: len(request) // 2])
                request = request[len(request) // 2 :]
                await asyncio.sleep(_HALT_SECONDS)
            case "request repeated":
                await self._copy(request, after_seconds=0)
            case "old copy of a request delivered later":
                late = asyncio.create_task(self._copy(request, after_seconds=_LATE_SECONDS))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
        requests.write(request)
        await requests.drain()
        return whole

    async def _copy(self, request: bytes, *, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        with suppress(OSError):
            coordinator, requests = await asyncio.open_connection(self._host, self._port)
            requests.write(request)
            await requests.drain()
            await coordinator.read(1)
            requests.close()

    def _record(self, head: bytes, body: bytes, *, whole: bool) -> bool:
        if (found := _UPLOAD.match(head)) is None:
            return False
        release, kind, party = (part.decode() for part in found.groups())
        header = re.search(rb"\r\ncommingle-(?:block|statement): *([^\r]+)", head, re.IGNORECASE)
        statement = (header[1] if header else body).decode(errors="replace")
        fields = {"party": party, "release": release, "kind": kind, "statement": statement}
        self.uploads.append({**fields, "body_sha256": sha256(body).hexdigest(), "whole": whole, "at": time.time()})
        return True

    def _fate(self, head: bytes, *, upload: bool) -> str:
        for laid_up in self._laid_up:
            fate, of = laid_up
            if upload or of == "requests":
                self._laid_up.remove(laid_up)
                self.struck.append({"fate": fate, "of": of, "request": head.split(b" HTTP/", 1)[0].decode()})
                return fate
        return ""


async def _body(agent: asyncio.StreamReader, head: bytes) -> tuple[bytes, bool]:
    """Of a request, as far as it came, and whether that is all. Agents say how long theirs are."""
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    try:
        return await agent.readexactly(int(length[1]) if length else 0), True
    except asyncio.IncompleteReadError as cut:
        return cut.partial, False


async def _pass_answers(coordinator: asyncio.StreamReader, answers: asyncio.StreamWriter, spoilt: list[str]) -> None:
    with suppress(OSError):
        while piece := await coordinator.read(_PIECE_BYTES):
            if spoilt:
                answers.write(piece[: len(piece) // 2] if spoilt == ["answer cut short"] else b"")
                break
            answers.write(piece)
            await answers.drain()
    answers.close()


async def serve(host: str, port: int) -> None:
    proxy = Proxy(host, port)
    agents = await asyncio.start_server(proxy.attend, None, 8000, limit=_LONGEST_HEAD_BYTES)
    orders = await asyncio.start_server(proxy.order, None, 8001)
    async with agents, orders:
        await asyncio.gather(agents.serve_forever(), orders.serve_forever())


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
