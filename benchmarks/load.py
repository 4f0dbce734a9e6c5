"""Two coordinator replicas on one database under load: requests per second, p99, errors, lost writes.

Real processes and sockets. Every worker is a member that takes releases of its own from proposal to publication. It
sends each request to either replica at random, and lists releases meanwhile. Its first release and every fourth after
it is one of moments with the next member, with every step of the exchange over the network. At the end every release
that a worker saw accepted must be published at both replicas, and a sample is verified in full. The database is SQLite
unless you give a PostgreSQL URL; blobs are in a directory unless you give a bucket.
"""

import contextlib
import itertools
import os
import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import httpx
import numpy as np

from benchmarks.consortium import Commingle
from benchmarks.harness import Asked, Experiment, Report
from commingle import ReleaseClient
from commingle.shared.documents.dsse import Envelope, SigningKey, Verified, open_envelope, seal
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    Enrolment,
    SignedDocument,
    approval_set_digest,
)
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.mechanisms.moments.exchange.messages import Exchange
from commingle.shared.mechanisms.moments.exchange.messages import transcript as transcript_of
from commingle.shared.release.checks import open_spec
from commingle.shared.release.matrix import ARROW_STREAM
from commingle.shared.release.plan import plan_block
from commingle.shared.ring.encryption import SEED_BYTES
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import system_clock
from tests.world.documents import HEAD, block_statement
from tests.world.side import Exchanging, Integers

_ROWS, _COLUMNS, _MOMENTS_COLUMNS = 2_000, 10, 5
_VERIFIED = 20
_MOMENTS_EVERY = 4
_PATIENCE_SECONDS = 60.0
_OCTETS = "application/octet-stream"


class _RefusedError(Exception):
    """A request failed; the tally counts it."""


@dataclass
class Tally:
    """Seconds of requests by kind, and all failures."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    of_moments: int = 0


class Worker:
    def __init__(self, name: str, urls: list[str], invite: str, tally: Tally) -> None:
        self.name, self._urls, self.tally = name, urls, tally
        self.key = SigningKey(sha256(name.encode()).digest())
        self.draw = random.Random(name)
        coordinator = invite.split(".")[2]
        self._http = httpx.Client(timeout=60, auth=RequestSigner(self.key, audience=coordinator, clock=system_clock))
        document = Enrolment(invite=invite, name=name, signing_key=self.public, sealing_key="1" * 64)
        signed = SignedDocument.of(document, self.key)
        self.call("enrol", "POST", "/v1/parties", signed.model_dump_json().encode())

    def close(self) -> None:
        self._http.close()

    @property
    def public(self) -> str:
        return self.key.verifying_key.raw.hex()

    def release(self) -> None:
        """A release of this member alone, from proposal to upload."""
        spec = self._propose("rmgm", self.share(_COLUMNS))
        approval = open_envelope(self._approve(spec), Approval, keys=[self.key.verifying_key])
        plan = plan_block(spec.document, spec.document.parties[0])
        block = np.random.default_rng().integers(-(2**20), 2**20, (plan.rows, _COLUMNS))
        self._upload(spec, block, approvals=approval_set_digest({self.name: approval}))
        self.call("read", "GET", f"/v1/releases/{spec.digest}", None)
        self.call("list", "GET", "/v1/releases?limit=20", None)

    def release_moments(self, other: "Worker") -> None:
        """A release of moments of two members, every step of both; each fetches what the other sent."""
        members = {member.name: member for member in (self, other)}
        spec = self._propose("moments", *(member.share(_MOMENTS_COLUMNS) for member in members.values()))
        exchange = Exchange.of(spec, {name: member._approve(spec) for name, member in members.items()})  # noqa: SLF001 - its own kind
        keys = {name: member.key for name, member in members.items()}
        world = Exchanging(exchange, keys, {name: os.urandom(SEED_BYTES) for name in members})
        where, limit = f"/v1/releases/{spec.digest}", 1 << 14
        for name, member in members.items():
            rows = np.random.default_rng().integers(-limit, limit + 1, (_ROWS, _MOMENTS_COLUMNS))
            world.encrypt(name, rows)
            member.send("columns", f"{where}/columns/{name}", world.bodies[name], world.columns[name])
        for name, member in members.items():
            for owner in exchange.owners(name):
                member.fetch("columns", f"{where}/columns/{owner}", world.bodies[owner])
            world.reply(name, rounded_gaussian)
            member.send("reply", f"{where}/replies/{name}", world.answers[name], world.replies[name])
        seen = transcript_of(exchange, columns=world.columns, replies=world.replies)
        for name, member in members.items():
            for evaluator in exchange.evaluators(name):
                member.fetch("reply", f"{where}/replies/{evaluator}", world.answers[evaluator])
            block = world.submit(name, rounded_gaussian)
            member._upload(spec, block, approvals=exchange.approved, transcript=seen)  # noqa: SLF001 - as above
        self.tally.of_moments += 1

    def send(self, kind: str, path: str, body: bytes, statement: Envelope) -> None:
        headers = {"Content-Type": _OCTETS, "Commingle-Statement": statement.to_json().decode()}
        self.call(f"{kind} up", "PUT", path, body, headers)

    def fetch(self, kind: str, path: str, sent: bytes) -> None:
        """Fetch a message of an exchange, which must be what its sender sent."""
        if self.call(f"{kind} down", "GET", path, None).content != sent:
            raise AssertionError("the coordinator gave other bytes than were sent")

    def share(self, columns: int) -> PartySpec:
        return PartySpec(
            name=self.name,
            signing_key=self.public,
            sealing_key="1" * 64,
            dataset="load",
            attributes=tuple(NumericAttribute(name=f"{self.name}-x{i}", lower=0, upper=1) for i in range(columns)),
        )

    def _propose(self, mechanism: str, *parties: PartySpec) -> Verified[ReleaseSpec]:
        of_moments = {"bounds": "trusted", "fraction_bits": 14}
        now = system_clock()
        spec = ReleaseSpec(
            study="load",
            created=now,
            expires=now + timedelta(hours=1),
            mechanism=mechanism,
            seed=self.draw.randbytes(32).hex(),
            epsilon=1.0,
            delta=1e-5,
            n=_ROWS,
            parties=parties,
            proposer=self.key.fingerprint,
            **({"k": _ROWS} if mechanism == "rmgm" else of_moments),
        )
        envelope = seal(spec, key=self.key)
        self.call("propose", "POST", "/v1/releases", envelope.to_json())
        self.tally.accepted.append(envelope.digest)
        return open_spec(envelope, [self.key.verifying_key])

    def _approve(self, spec: Verified[ReleaseSpec]) -> Envelope:
        about: dict[str, Any] = {"spec": spec.digest, "party": self.name}
        approval = seal(Approval(**about, created=system_clock(), ledger_head=HEAD), key=self.key)
        alignment = seal(AlignmentStatement(**about, subjects=spec.document.n, digest=HEAD), key=self.key)
        request = ApprovalRequest(approval=approval, alignment=alignment).model_dump_json().encode()
        self.call("approve", "PUT", f"/v1/releases/{spec.digest}/approvals/{self.name}", request)
        return approval

    def _upload(
        self, spec: Verified[ReleaseSpec], block: Integers, approvals: str, transcript: str | None = None
    ) -> None:
        share = spec.document.party(self.name)
        body, statement = block_statement(
            spec.document, share, block, release=spec.digest, approvals=approvals, transcript=transcript
        )
        headers = {"Content-Type": ARROW_STREAM, "Commingle-Block": seal(statement, key=self.key).to_json().decode()}
        self.call("upload", "PUT", f"/v1/releases/{spec.digest}/blocks/{self.name}", body, headers)

    def call(
        self, kind: str, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Count and return the answer. Raises _RefusedError: there is none, or it is no success."""
        given = {"Content-Type": "application/json"} if headers is None and body is not None else headers
        start = time.perf_counter()
        try:
            answer = self._http.request(method, self.draw.choice(self._urls) + path, content=body, headers=given)
        except httpx.HTTPError as error:
            self.tally.errors.append(f"{kind}: {type(error).__name__}")
            raise _RefusedError from error
        self.tally.seconds[kind].append(time.perf_counter() - start)
        if not answer.is_success:
            self.tally.errors.append(f"{kind}: {answer.status_code} {answer.text[:200]}")
            raise _RefusedError
        return answer


@contextlib.contextmanager
def replicas(home: Path, database_url: str | None, bucket: str | None) -> Iterator[list[str]]:
    """Two coordinators over one home and one database."""
    options = ["--database-url", database_url] if database_url else []
    options += ["--blob-bucket", bucket] if bucket else []
    command = Commingle()
    command.run("coordinator", "init", "--home", home, *options)
    with (home / "log").open("w") as log, contextlib.ExitStack() as stack:
        serving = (command.serving("coordinator", "serve", "--home", home, log=log) for _ in range(2))
        yield [stack.enter_context(each)[1]["url"] for each in serving]


def invite(home: Path, name: str) -> str:
    found: str = Commingle().json("coordinator", "invite", "--home", home, "--party", name)["invite"]
    return found


def run(home: Path, database_url: str | None, bucket: str | None, *, seconds: float, workers: int) -> dict[str, Any]:
    tally = Tally()
    with replicas(home, database_url, bucket) as urls:
        names = [f"member-{number}" for number in range(workers)]
        members = [Worker(name, urls, invite(home, name), tally) for name in names]
        start = time.perf_counter()

        def work(place: int) -> None:
            own, other = members[place], members[(place + 1) % len(members)]
            for number in itertools.count():
                if time.perf_counter() - start >= seconds:
                    return
                with contextlib.suppress(_RefusedError):
                    if number % _MOMENTS_EVERY:
                        own.release()
                    else:
                        own.release_moments(other)

        threads = [threading.Thread(target=work, args=(place,)) for place in range(len(members))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        passed = time.perf_counter() - start
        for member in members:
            member.close()
        lost = _lost(urls, tally.accepted)
        verified = 0
        for url in urls:
            with ReleaseClient(url) as client:
                for release in [release for release in tally.accepted if release not in lost][-_VERIFIED:]:
                    client.fetch(release)
                    verified += 1
    kinds = {kind: _summary(found) for kind, found in tally.seconds.items()}
    requests = sum(len(found) for found in tally.seconds.values())
    return {
        "database": "postgresql" if database_url else "sqlite",
        "workers": workers,
        "seconds": passed,
        "requests_per_second": requests / passed,
        "blobs": "bucket" if bucket else "directory",
        "releases": len(tally.accepted),
        "releases_per_minute": 60 * len(tally.accepted) / passed,
        "of_moments": tally.of_moments,
        "errors": tally.errors,
        "lost": lost,
        "verified": verified,
        "kinds": kinds,
    }


def _lost(urls: list[str], accepted: list[str]) -> list[str]:
    until = time.monotonic() + _PATIENCE_SECONDS
    with httpx.Client(timeout=60) as client:
        left = [(url, release) for url in urls for release in accepted]
        while left and time.monotonic() < until:
            left = [pair for pair in left if client.get("/v1/releases/".join(pair)).json()["state"] != "published"]
    return sorted({release for _, release in left})


def _summary(seconds: list[float]) -> dict[str, float]:
    p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1000
    return {"count": len(seconds), "p50_ms": float(p50), "p99_ms": float(p99)}


def measure(asked: Asked) -> Report:
    given, seconds = asked.given, 3.0 if asked.quick else asked.given["seconds"]
    with tempfile.TemporaryDirectory() as folder:
        where = (Path(folder) / "hub", given["database_url"], given["blob_bucket"])
        return run(*where, seconds=seconds, workers=2 if asked.quick else given["workers"])


OPTIONS = (
    click.Option(["--database-url"], help="postgresql://…; SQLite without it."),
    click.Option(["--blob-bucket"], help="s3://BUCKET/PREFIX; a directory without it."),
    click.Option(["--seconds"], type=float, default=30.0, show_default=True),
    click.Option(["--workers"], type=int, default=16, show_default=True),
)
EXPERIMENT = Experiment(
    "load", __doc__, measure, options=OPTIONS, failed=lambda report: bool(report["errors"] or report["lost"])
)

if __name__ == "__main__":
    EXPERIMENT.command()
