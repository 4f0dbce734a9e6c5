"""Two coordinator replicas on one database under load: requests per second, p99, errors, lost writes.

python -m benchmarks.load [--database-url URL] [--seconds N] [--workers N] [--json FILE]

Real processes and sockets. Every worker is a member that takes releases of its own from proposal to publication, each
request sent to either replica at random; readers list releases meanwhile. Every fourth release is one of moments, with
the next member (`benchmarks.load_exchange`). At the end every release that a worker saw accepted must be published at
both replicas, and a sample is verified in full. SQLite unless a PostgreSQL URL is given; blobs are in a directory, or
in the bucket that is given. How long the stages of a release take is read from the chain of its events, of the first
and of the last third of all releases: a step that looked at all of them would take longer in the end.
"""

import contextlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import httpx
import numpy as np

from benchmarks.load_exchange import release_moments
from commingle import ReleaseClient
from commingle.shared.documents.dsse import Envelope, open_envelope, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.model import WireModel
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    BlockStatement,
    Enrolment,
    SignedDocument,
    approval_set_digest,
)
from commingle.shared.release.block import ARROW_STREAM, content_digest, encode_block
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import system_clock

_HEAD = "0" * 64
_ROWS, _COLUMNS = 2_000, 10
_VERIFIED = 20
_MOMENTS_EVERY = 4


@dataclass
class Tally:
    """Seconds per kind of request, and everything that was not a success."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    of_moments: int = 0


class Worker:
    """A member with a key of its own."""

    def __init__(self, name: str, urls: list[str], invite: str, tally: Tally) -> None:
        self.name, self._urls, self.tally = name, urls, tally
        self.key = SigningKey(sha256(name.encode()).digest())
        self.draw = random.Random(name)
        coordinator = invite.split(".")[2]
        self._http = httpx.Client(timeout=60, auth=RequestSigner(self.key, audience=coordinator, clock=system_clock))
        document = Enrolment(invite=invite, name=name, signing_key=self.public, sealing_key="1" * 64)
        signed = SignedDocument(signing_key=self.public, envelope=seal(document, kind="enrolment", key=self.key))
        self.call("enrol", "POST", "/v1/parties", signed.model_dump_json().encode())

    @property
    def public(self) -> str:
        return self.key.verifying_key.raw.hex()

    def release(self) -> None:
        """One release, from proposal to upload."""
        spec = self._spec()
        envelope = seal(spec, kind="spec", key=self.key)
        if not self.call("propose", "POST", "/v1/releases", envelope.to_json()):
            return
        self.tally.accepted.append(envelope.digest)
        where = f"/v1/releases/{envelope.digest}"
        about: dict[str, Any] = {"spec": envelope.digest, "party": self.name}
        approval = self.seal(Approval(**about, created=system_clock(), ledger_head=_HEAD), "approval")
        alignment = self.seal(AlignmentStatement(**about, subjects=spec.n, digest=_HEAD), "alignment")
        request = ApprovalRequest(approval=approval, alignment=alignment).model_dump_json().encode()
        self.call("approve", "PUT", f"{where}/approvals/{self.name}", request)
        plan = plan_block(spec, spec.parties[0])
        block = np.random.default_rng().integers(-(2**20), 2**20, (plan.rows, _COLUMNS))
        body = encode_block(block, plan.columns)
        opened = open_envelope(approval, Approval, kind="approval", keys=[self.key.verifying_key])
        statement = BlockStatement(
            **about,
            approvals=approval_set_digest({self.name: opened}),
            rows=plan.rows,
            columns=plan.columns,
            sigma=plan.sigma,
            body_sha256=sha256(body).hexdigest(),
            content_sha256=content_digest(block),
            ledger_head=_HEAD,
        )
        headers = {"Content-Type": ARROW_STREAM, "Commingle-Block": self.seal(statement, "block").to_json().decode()}
        self.call("upload", "PUT", f"{where}/blocks/{self.name}", body, headers)
        self.call("read", "GET", where, None)
        self.call("list", "GET", "/v1/releases?limit=20", None)

    def seal(self, document: WireModel, kind: str) -> Envelope:
        return seal(document, kind=kind, key=self.key)

    def _spec(self) -> ReleaseSpec:
        now = system_clock()
        return ReleaseSpec(
            study="load",
            created=now,
            expires=now + timedelta(hours=1),
            mechanism="rmgm",
            k=_ROWS,
            seed=self.draw.randbytes(32).hex(),
            epsilon=1.0,
            delta=1e-5,
            n=_ROWS,
            parties=(self.share(_COLUMNS),),
            proposer=self.key.fingerprint,
        )

    def share(self, columns: int) -> PartySpec:
        """This member as a party of a release."""
        return PartySpec(
            name=self.name,
            signing_key=self.public,
            sealing_key="1" * 64,
            dataset="load",
            attributes=tuple(NumericAttribute(name=f"{self.name}-x{i}", lower=0, upper=1) for i in range(columns)),
        )

    def call(
        self, kind: str, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> httpx.Response | None:
        """The answer, counted; None where it is none or no success."""
        given = {"Content-Type": "application/json"} if headers is None and body is not None else headers
        start = time.perf_counter()
        try:
            answer = self._http.request(method, self.draw.choice(self._urls) + path, content=body, headers=given)
        except httpx.HTTPError as error:
            self.tally.errors.append(f"{kind}: {type(error).__name__}")
            return None
        self.tally.seconds[kind].append(time.perf_counter() - start)
        if not answer.is_success:
            self.tally.errors.append(f"{kind}: {answer.status_code} {answer.text[:200]}")
        return answer if answer.is_success else None


@contextlib.contextmanager
def replicas(home: Path, database_url: str | None, bucket: str | None) -> Iterator[list[str]]:
    """Two coordinators over one home and one database."""
    command = [sys.executable, "-m", "commingle", "coordinator"]
    options = ["--database-url", database_url] if database_url else []
    options += ["--blob-bucket", bucket] if bucket else []
    subprocess.run([*command, "init", "--home", str(home), *options], check=True, stdout=subprocess.DEVNULL)
    serving = [*command, "serve", "--home", str(home), "--port", "0"]
    with (home / "log").open("wb") as log:
        processes = [subprocess.Popen(serving, stdout=subprocess.PIPE, stderr=log) for _ in range(2)]
    try:
        yield [json.loads(process.stdout.readline())["url"] for process in processes if process.stdout]
    finally:
        for process in processes:
            process.terminate()
            process.wait(30)


def invites(home: Path, names: list[str]) -> list[str]:
    """One invite for each name."""
    command = [sys.executable, "-m", "commingle", "coordinator", "invite", "--home", str(home), "--json", "--party"]
    return [json.loads(subprocess.run([*command, n], check=True, capture_output=True).stdout)["invite"] for n in names]


def stages(url: str) -> dict[str, dict[str, float]]:
    """Mean milliseconds of each stage, of the first third and of the last; events are told to the second."""
    seen: dict[str, dict[str, datetime]] = defaultdict(dict)
    after, last = 0, 1
    with httpx.Client(base_url=url, timeout=60) as http:
        while after < last:
            page = http.get("/v1/events", params={"after": after}).raise_for_status().json()
            after, last = (page["items"][-1]["seq"], page["last"]) if page["items"] else (last, last)
            for event in page["items"]:
                seen[event["release"]][event["kind"]] = datetime.fromisoformat(event["at"])
    published = [times for times in seen.values() if "published" in times and "columns" not in times]
    third = max(1, len(published) // 3)
    return {
        f"{first} to {then}": {
            name: 1000 * float(np.mean([(times[then] - times[first]).total_seconds() for times in part]))
            for name, part in (("first", published[:third]), ("last", published[-third:]))
        }
        for first, then in pairwise(("proposal", "approval", "block", "published"))
        if published
    }


def run(home: Path, database_url: str | None, bucket: str | None, *, seconds: float, workers: int) -> dict[str, Any]:
    """Load for that long; then look for what was lost."""
    tally = Tally()
    with replicas(home, database_url, bucket) as urls:
        names = [f"member-{number}" for number in range(workers)]
        members = [Worker(n, urls, i, tally) for n, i in zip(names, invites(home, names), strict=True)]
        start = time.perf_counter()

        def work(place: int) -> None:
            own, other = members[place], members[(place + 1) % len(members)]
            for number in itertools.count(1):
                if time.perf_counter() - start >= seconds:
                    return
                if number % _MOMENTS_EVERY:
                    own.release()
                else:
                    release_moments(own, other)

        threads = [threading.Thread(target=work, args=(place,)) for place in range(len(members))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        passed = time.perf_counter() - start
        lost = _lost(urls, tally.accepted)
        verified = 0
        for url in urls:
            with ReleaseClient(url) as client:
                for release in [release for release in tally.accepted if release not in lost][-_VERIFIED:]:
                    client.fetch(release)
                    verified += 1
        traced = stages(urls[0])
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
        "stages_ms": traced,
    }


def _lost(urls: list[str], accepted: list[str], *, patience: float = 60.0) -> list[str]:
    """What was accepted and is not published at every replica within a minute."""
    until = time.monotonic() + patience
    with httpx.Client(timeout=60) as client:
        left = [(url, release) for url in urls for release in accepted]
        while left and time.monotonic() < until:
            left = [pair for pair in left if client.get("/v1/releases/".join(pair)).json()["state"] != "published"]
    return sorted({release for _, release in left})


def _summary(seconds: list[float]) -> dict[str, float]:
    p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1000
    return {"count": len(seconds), "p50_ms": float(p50), "p99_ms": float(p99)}


@click.command()
@click.option("--database-url", help="postgresql://…; SQLite without it.")
@click.option("--blob-bucket", help="s3://BUCKET/PREFIX; a directory without it.")
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--workers", default=16, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(
    *, database_url: str | None, blob_bucket: str | None, seconds: float, workers: int, json_file: Path | None
) -> None:
    """Print the figures; exit 1 if anything was lost or refused."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder) / "hub", database_url, blob_bucket, seconds=seconds, workers=workers)
    print(
        f"{result['database']}, blobs in a {result['blobs']}: {result['workers']} members, "
        f"{result['requests_per_second']:.0f} requests/s over {result['seconds']:.0f} s, "
        f"{result['releases_per_minute']:.0f} releases a minute ({result['of_moments']} of moments), "
        f"{len(result['errors'])} errors, {len(result['lost'])} lost, {result['verified']} verified"
    )
    for kind, found in result["kinds"].items():
        print(f"  {kind:<14}{found['count']:>8} p50 {found['p50_ms']:>8.1f} ms   p99 {found['p99_ms']:>8.1f} ms")
    for stage, found in result["stages_ms"].items():
        print(f"  {stage:<24} {found['first']:>8.0f} ms of the first third, {found['last']:>8.0f} ms of the last")
    for error in result["errors"][:5]:
        print(f"  {error}")
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2))
    sys.exit(1 if result["errors"] or result["lost"] else 0)


if __name__ == "__main__":
    main()
