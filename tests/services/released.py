"""A consortium in memory: honest parties, a published release, and a coordinator that serves it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Literal

import httpx
import numpy as np
from numpy.typing import NDArray

from commingle.services.client.files import ReleaseFiles
from commingle.shared.documents.dsse import Envelope, Verified, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import encode
from commingle.shared.documents.schema import BinaryAttribute, NumericAttribute
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    Approval,
    BlockStatement,
    SignedDocument,
    approval_set_digest,
    open_approvals,
    open_spec,
)
from commingle.shared.documents.study import Member, Study, StudyParty, build_spec
from commingle.shared.documents.whitening import Whitening
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.block import content_digest, encode_block
from commingle.shared.release.matrix import assemble, encode_matrix, second_moments
from commingle.shared.release.plan import plan_block, privacy_statement, published_columns, published_step
from tests.noise import seeded_noise

SLOPES = {"age": 2.0, "bmi": -1.0, "smoker": 12.0}
NOW = datetime(2026, 1, 2, tzinfo=UTC)
COORDINATOR = SigningKey(b"\xc0" * 32)
STRANGER = SigningKey(b"\xee" * 32)
PARTIES = {"clinic": SigningKey(b"\x01" * 32), "insurer": SigningKey(b"\x02" * 32)}
HEAD = "00" * 32


WHITENING = Whitening(centre=(0.1, -0.2), matrix=((0.34, -0.17), (-0.17, 0.51)))  # clips nobody


def study(
    *, mechanism: Literal["rmgm", "dgm"], n: int, epsilon: float, title: str, whitening: Whitening | None = None
) -> Study:
    return Study(
        study=title,
        mechanism=mechanism,
        k=400 if mechanism == "rmgm" else None,
        epsilon=epsilon,
        delta=1e-5,
        n=n,
        parties=(
            StudyParty(
                name="clinic",
                dataset="patients",
                attributes=(
                    NumericAttribute(name="age", lower=20, upper=80, unit="years"),
                    NumericAttribute(name="bmi", lower=15, upper=45),
                ),
                whitening=whitening,
                row_norm=None if whitening is None else 1.0,
            ),
            StudyParty(
                name="insurer",
                dataset="claims",
                attributes=(
                    BinaryAttribute(name="smoker", levels=("no", "yes")),
                    NumericAttribute(name="charges, yearly", lower=0, upper=200),
                ),
            ),
        ),
    )


def encoded(n: int) -> dict[str, NDArray[np.float64]]:
    """Rows (n x 2) of each party, on [-1, 1]: charges = 2 age - bmi + 12 smoker + noise, in original units."""
    draw = np.random.default_rng(7)
    age, bmi = draw.uniform(20, 80, n), draw.uniform(15, 45, n)
    smoker = draw.integers(0, 2, n)
    charges = 2 * age - bmi + 12 * smoker + draw.normal(0, 3, n)
    return {
        "clinic": np.column_stack([(age - 50) / 30, (bmi - 30) / 15]),
        "insurer": np.column_stack([2.0 * smoker - 1, np.clip(charges, 0, 200) / 100 - 1]),
    }


@lru_cache
def published(
    *,
    mechanism: Literal["rmgm", "dgm"] = "rmgm",
    n: int = 2000,
    epsilon: float = 1e4,
    title: str = "charges [bold]",
    whitening: Whitening | None = None,
) -> tuple[str, ReleaseFiles]:
    """The id and the three files of an honest release, of which the clinic's columns may be whitened."""
    spec = build_spec(
        study(mechanism=mechanism, n=n, epsilon=epsilon, title=title, whitening=whitening),
        members={name: Member(key.verifying_key.raw.hex(), key.fingerprint) for name, key in PARTIES.items()},
        proposer=COORDINATOR.fingerprint,
        seed=bytes(range(32)),
        now=NOW,
    )
    envelope = seal(spec, kind="spec", key=COORDINATOR)
    opened = open_spec(envelope, [COORDINATOR.verifying_key])
    approvals = {
        name: seal(Approval(spec=opened.digest, party=name, created=NOW, ledger_head=HEAD), kind="approval", key=key)
        for name, key in PARTIES.items()
    }
    relied_on = approval_set_digest(open_approvals(approvals, opened))
    rows = encoded(n)
    made = {party.name: block_of(opened, party, rows[party.name], relied_on) for party in spec.parties}
    matrix = assemble(spec, [block for block, _ in made.values()])
    return opened.digest, publish(opened, approvals, {name: e for name, (_, e) in made.items()}, matrix)


def block_of(
    spec: Verified[ReleaseSpec], party: PartySpec, rows: NDArray[np.float64], relied_on: str
) -> tuple[NDArray[np.int64], Envelope]:
    plan = plan_block(spec.document, party)
    accumulator = mechanism_of(spec.document).accumulator(spec.document, rows.shape[1])
    accumulator.add(np.arange(len(rows)), bounded_rows(party, spec.document.fraction_bits)(quantise(rows)))
    block = accumulator.total()
    draw = seeded_noise(list(f"{spec.document.study} {party.name}".encode()))
    block = block + draw(plan.sigma, block.size).reshape(block.shape)
    statement = BlockStatement(
        spec=spec.digest,
        approvals=relied_on,
        party=party.name,
        rows=plan.rows,
        columns=plan.columns,
        sigma=plan.sigma,
        body_sha256=sha256(encode_block(block, plan.columns)).hexdigest(),
        content_sha256=content_digest(block),
        ledger_head=HEAD,
    )
    return block, seal(statement, kind="block", key=PARTIES[party.name])


def publish(
    spec: Verified[ReleaseSpec],
    approvals: dict[str, Envelope],
    blocks: dict[str, Envelope],
    matrix: NDArray[np.int64],
) -> ReleaseFiles:
    parquet = encode_matrix(spec.document, spec.digest, matrix)
    moments = encode(second_moments(spec.document, spec.digest, matrix))
    manifest = Manifest(
        release=spec.digest,
        spec=spec.envelope,
        proposer_key=COORDINATOR.verifying_key.raw.hex(),
        approvals=approvals,
        blocks=blocks,
        rows=len(matrix),
        step=published_step(spec.document),
        columns=published_columns(spec.document),
        matrix_sha256=sha256(parquet).hexdigest(),
        moments_sha256=sha256(moments).hexdigest(),
        privacy=privacy_statement(spec.document),
        published=NOW,
        software="tests",
    )
    return ReleaseFiles(signed(manifest, COORDINATOR), parquet, moments)


def signed(manifest: Manifest, key: SigningKey) -> bytes:
    envelope = seal(manifest, kind="manifest", key=key)
    return encode(SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=envelope))


def resigned(files: ReleaseFiles, key: SigningKey) -> ReleaseFiles:
    """The same release, its manifest signed by another key."""
    manifest = SignedDocument.model_validate_json(files.manifest).open(Manifest, kind="manifest").document
    return ReleaseFiles(signed(manifest, key), files.matrix, files.moments)


def flipped(data: bytes, at: int = -20) -> bytes:
    """One bit of difference."""
    position = at % len(data)
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def problem(status: int, code: str, detail: str = "refused") -> httpx.Response:
    body = {"type": f"urn:commingle:problem:{code}", "title": "x", "status": status, "detail": detail, "remedy": "wait"}
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json"})


Handler = Callable[[httpx.Request], httpx.Response]


@dataclass
class FakeCoordinator:
    """The read side of a coordinator's HTTP interface. `instead` answers in its place where it is set."""

    files: dict[str, ReleaseFiles] = field(default_factory=dict)
    unpublished: list[str] = field(default_factory=list)
    page_size: int = 100
    key: SigningKey = COORDINATOR
    instead: Handler | None = None
    requests: list[str] = field(default_factory=list)

    @classmethod
    def serving(cls, *releases: tuple[str, ReleaseFiles]) -> "FakeCoordinator":
        return cls(files=dict(releases))

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request.url.path)
        if self.instead is not None:
            return self.instead(request)
        match request.url.path.strip("/").split("/"):
            case ["v1", "coordinator"]:
                return httpx.Response(200, json=self.identity())
            case ["v1", "releases"]:
                return self.page(request.url.params)
            case ["v1", "releases", release, name] if release in self.files and name in {
                "manifest",
                "matrix",
                "moments",
            }:
                data: bytes = getattr(self.files[release], name)
                return httpx.Response(200, content=data, headers={"etag": f'"{sha256(data).hexdigest()}"'})
            case ["v1", "releases", release, _] if release in self.unpublished:
                return problem(409, "not-published", "the release is collecting")
        return problem(404, "unknown-release")

    def identity(self) -> dict[str, str]:
        key = self.key.verifying_key
        return {"name": "hub", "signing_key": key.raw.hex(), "fingerprint": key.fingerprint, "software": "tests"}

    def page(self, params: httpx.QueryParams) -> httpx.Response:
        listed = sorted(self.files) if params.get("state", "published") == "published" else sorted(self.unpublished)
        start = int(params.get("cursor", "0"))
        end = start + min(self.page_size, int(params.get("limit", "100")))
        following = str(end) if end < len(listed) else None
        return httpx.Response(200, json={"items": [summary(i) for i in listed[start:end]], "next": following})


def summary(release: str) -> dict[str, object]:
    return {
        "id": release,
        "study": "charges [bold]",
        "mechanism": "rmgm",
        "state": "published",
        "reason": None,
        "created": NOW.isoformat(),
        "expires": NOW.isoformat(),
        "n": 2000,
        "k": 400,
        "epsilon": 1e4,
        "delta": 1e-5,
        "parties": [{"name": name, "approved": True, "uploaded": True} for name in PARTIES],
        "added_by_a_newer_version": 1,
    }


@contextmanager
def on_a_socket(coordinator: FakeCoordinator, *, cut_bytes: int = 0) -> Iterator[str]:
    """The fake behind a real HTTP server; `cut_bytes` are left out at the end of every body. Gives its URL."""

    class Answerer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            response = coordinator.answer(httpx.Request("GET", f"http://fake{self.path}"))
            self.send_response(response.status_code)
            self.send_header("content-type", response.headers.get("content-type", "application/octet-stream"))
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content[: len(response.content) - cut_bytes])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answerer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def html(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, html="<h1>Welcome to the hotel network</h1>")


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens", request=request)


def too_slow(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("no answer in time", request=request)
