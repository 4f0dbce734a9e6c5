"""What goes wrong, drawn from a seed and counted; and a network that loses, repeats, delays and falsifies messages."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import httpx


class CrashError(BaseException):
    """A process dies here. Nothing may handle it but whoever restarts processes."""

    def __init__(self, process: str = "") -> None:
        super().__init__(process)
        self.process = process


@dataclass
class Chaos:
    """Draws faults, unless it is calm.

    Attributes:
        counts: faults by kind.
        points: at which fault points processes were killed.
    """

    random: Random
    counts: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    calm: bool = True

    def strikes(self, kind: str, probability: float) -> bool:
        struck = not self.calm and self.random.random() < probability
        if struck:
            self.counts[kind] += 1
        return struck

    def one_of(self, kinds: Sequence[tuple[str, float]], *, scale: float = 1.0) -> str:
        """At most one of these, each with its own probability times `scale`; an empty string for none."""
        if self.calm:
            return ""
        drawn = self.random.random() / scale
        for kind, probability in kinds:
            if drawn < probability:
                self.counts[kind] += 1
                return kind
            drawn -= probability
        return ""

    def seconds(self, least: float, most: float) -> float:
        return self.random.uniform(least, most)


FATES = (
    ("request lost", 0.02),
    ("response lost after the server committed", 0.03),
    ("request duplicated", 0.03),
    ("request delayed and reordered", 0.02),
    ("old copy of a request delivered later", 0.03),
    ("request cut short", 0.01),
    ("response cut short", 0.01),
    ("gateway answered 503", 0.01),
    ("proxy answered 200 with garbage", 0.02),
)

_WRITES_ARE_HIT_MORE = 2.0


@dataclass
class Network:
    """Carries requests.

    Attributes:
        deliver: hands a request to the coordinator; raises httpx.TransportError where it is down.
        later: runs something at some later time.
        meanwhile: lets other things happen while a request is on its way.
        left: told what leaves a party, before anything can go wrong with it.
    """

    chaos: Chaos
    deliver: Callable[[httpx.Request], httpx.Response]
    later: Callable[[Callable[[], None]], None]
    meanwhile: Callable[[], None]
    left: Callable[[str, httpx.Request], None]

    def carry(self, sender: str, request: httpx.Request) -> httpx.Response:
        self.left(sender, request)
        self.meanwhile()
        scale = 1.0 if request.method == "GET" else _WRITES_ARE_HIT_MORE
        return self._carry(request, self.chaos.one_of(FATES, scale=scale))

    def _carry(self, request: httpx.Request, fate: str) -> httpx.Response:
        match fate:
            case "request lost":
                raise httpx.ConnectTimeout(fate)
            case "response lost after the server committed":
                self.deliver(request)
                raise httpx.ReadTimeout(fate)
            case "request duplicated":
                answers = [self.deliver(copy_of(request)), self.deliver(request)]
                return self.chaos.random.choice(answers)
            case "request delayed and reordered":
                self.later(lambda: self._deliver_late(request))
                raise httpx.ReadTimeout(fate)
            case "old copy of a request delivered later":
                self.later(lambda: self._deliver_late(copy_of(request)))
            case "request cut short":
                self.deliver(copy_of(request, request.content[: len(request.content) // 2]))
                raise httpx.WriteError(fate)
            case "gateway answered 503":
                return httpx.Response(503, text="upstream is away")
            case "proxy answered 200 with garbage":
                return httpx.Response(200, html="<h1>Please sign in</h1>")
        answer = self.deliver(request)
        if fate == "response cut short":
            return httpx.Response(answer.status_code, content=answer.content[: len(answer.content) // 2])
        return answer

    def _deliver_late(self, request: httpx.Request) -> None:
        try:
            self.deliver(request)
        except httpx.TransportError:
            return  # the coordinator is down; nobody waits for an answer


class Wire(httpx.BaseTransport):
    """One party's end of the network."""

    def __init__(self, network: Network, sender: str) -> None:
        self._network = network
        self._sender = sender

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._network.carry(self._sender, copy_of(request))


def copy_of(request: httpx.Request, content: bytes | None = None) -> httpx.Request:
    """The same request once more; the headers go with it as they are, so a cut body does not match its length."""
    body = request.content if content is None else content
    return httpx.Request(request.method, request.url, headers=request.headers, content=body)
