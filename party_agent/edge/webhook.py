"""Telling one of the party's own systems that a proposal waits for a person: a signed call, tried until it is taken.

The message says which release waits and nothing else: no row, no title, no count, no address and nothing that lets
anybody in. The receiver asks the agent for more, with a token. It checks the signature (`client.is_signed`).
"""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Literal

import httpx
import structlog
from pydantic import Field

from commingle.party_agent.edge.client import HEADER, signature
from commingle.party_agent.errors import NotFoundError, WebhookError
from commingle.party_agent.home.home import Home
from commingle.party_agent.rounds.party import Jobs
from commingle.party_agent.rounds.proposals import Proposals
from commingle.party_agent.wire.answers import Stage
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.errors import RemoteError, SettingsError
from commingle.shared.runtime.files import remove_durably, write_durably
from commingle.shared.runtime.remote import call, connect, reaching
from commingle.shared.runtime.settings import Clock, HomeFile, load_settings

_LOOK_SECONDS, _LONGEST_PAUSE_SECONDS, _TIMEOUT_SECONDS = 2.0, 3600.0, 10.0
_LARGEST_ANSWER_BYTES = 64 << 10
_log = structlog.get_logger()


class Webhook(HomeFile):
    """`webhook.json`: whom to tell, with the secret that signs messages, and how it may be reached."""

    url: str
    secret: Annotated[str, Field(repr=False, min_length=16)]
    ca_file: Path | None = None
    allow_http: bool = False


class _Told(HomeFile):
    releases: tuple[str, ...]


def webhook_of(home: Home) -> Webhook | None:
    """Read at every use, so that an edit counts at once. Raises SettingsError."""
    return load_settings(Webhook, _file(home)) if _file(home).exists() else None


def set_webhook(home: Home, url: str, *, ca_file: Path | None, allow_http: bool) -> Webhook:
    """Notify an address of new proposals, signed with a fresh secret. Raises SettingsError, NonsenseError."""
    if not url.startswith(("https://", "http://")):
        raise SettingsError("not a valid URL", remedy="Give a URL such as https://desk.example/hook.")
    made = Webhook(url=url, secret=secrets.token_urlsafe(32), ca_file=ca_file, allow_http=allow_http)
    with _connected(made):
        pass  # refuses what cannot be an address, and plain http to elsewhere
    write_durably(_file(home), made.model_dump_json(indent=2).encode())
    return made


def remove_webhook(home: Home) -> None:
    if not _file(home).exists():
        raise NotFoundError("no webhook is configured", remedy="commingle party webhook set URL")
    remove_durably(_file(home))


def send(webhook: Webhook, event: Literal["proposal", "test"], *, release: str | None, at: int, **options: Any) -> None:  # noqa: ANN401 - of `connect`
    body = json.dumps({"event": event, "release": release}, sort_keys=True).encode()
    headers = {"Content-Type": "application/json", HEADER: signature(webhook.secret, body, at)}
    with _connected(webhook, **options) as http:
        call(http, "POST", webhook.url, content=body, headers=headers, largest_bytes=_LARGEST_ANSWER_BYTES)


@dataclass(slots=True)
class Notices:
    """What has been told, kept in `HOME/told.json`, and what is due. `failures` counts those in a row."""

    home: Home
    proposals: Proposals
    jobs: Jobs
    clock: Clock
    transport: httpx.BaseTransport | None = None
    stop: Event = field(default_factory=Event)
    failures: int = 0

    def run(self) -> None:
        """Look until told to stop; a failure is logged by its code and tried again, more and more seldom."""
        while not self.stop.wait(min(_LOOK_SECONDS * 2.0**self.failures, _LONGEST_PAUSE_SECONDS)):
            self.attempt()

    def attempt(self) -> None:
        try:
            self.tell()
            self.failures = 0
        except Exception as error:  # noqa: BLE001 - a thread that died unnoticed would be worse; the message stays out
            self.failures = min(self.failures + 1, 16)
            code = error.code if isinstance(error, CommingleError) else type(error).__name__
            _log.warning("a new proposal could not be told", error=code)

    def tell(self) -> None:
        """Tell of each proposal that waits for a person and is not told yet. Raises RemoteError, SettingsError."""
        webhook = webhook_of(self.home)
        if webhook is None:
            return
        kept, waiting = self.home.root / "told.json", set(self.proposals.waiting())
        told = set(load_settings(_Told, kept).releases) if kept.exists() else set()
        for release in sorted(waiting - told):
            if (job := self.jobs.get(release)) is not None and job.stage == Stage.WAITING:
                send(webhook, "proposal", release=release, at=int(self.clock().timestamp()), transport=self.transport)
                told.add(release)
                write_durably(kept, _Told(releases=tuple(sorted(told & waiting))).model_dump_json().encode())


def send_test(home: Home) -> str:
    """Send a test message; returns its address. Raises NotFoundError, WebhookError."""
    webhook = webhook_of(home)
    if webhook is None:
        raise NotFoundError("no webhook is configured", remedy="commingle party webhook set URL")
    try:
        send(webhook, "test", release=None, at=int(time.time()))
    except (RemoteError, SettingsError) as error:
        raise WebhookError(
            f"the receiver did not accept it: {error}", remedy="Fix the receiver, then try again."
        ) from None
    return webhook.url


@contextmanager
def _connected(webhook: Webhook, **options: Any) -> Iterator[httpx.Client]:  # noqa: ANN401 - of `connect`
    options |= {"ca_file": webhook.ca_file, "allow_http": webhook.allow_http, "timeout_seconds": _TIMEOUT_SECONDS}
    with reaching(webhook.url), connect(webhook.url, **options) as http:
        yield http


def _file(home: Home) -> Path:
    return home.root / "webhook.json"
