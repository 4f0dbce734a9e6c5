"""A consortium in memory: honest parties, a published release, and a coordinator that serves it."""

import atexit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx
import numpy as np
import pyarrow as pa
from fastapi import FastAPI
from numpy.typing import NDArray

from benchmarks.release_law import exchanged
from commingle.coordinator.store.members import Invite
from commingle.coordinator.store.releases import Files
from commingle.coordinator.store.store import Transaction
from commingle.services.client.files import ReleaseFiles
from commingle.services.client.remote import ReleaseClient
from commingle.services.learner.app import create_app
from commingle.services.learner.source import ReleaseSource
from commingle.shared.documents.dsse import Envelope, SigningKey, Verified, seal
from commingle.shared.documents.linkage import pseudonyms
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import encode
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    Whitening,
)
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.documents.study import Crossed, CutNumber, Study
from commingle.shared.dp.fixed_point import presence, quantise
from commingle.shared.encoding import bounded_rows, cells_for, encode_attribute
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import closed, open_spec, read_spec
from commingle.shared.release.matrix import release_sizes
from commingle.shared.release.plan import plan_block, plan_blocks
from commingle.shared.release.rounds import Round, State
from commingle.shared.wire import PartyRecord
from tests.world.applications import in_turn
from tests.world.coordinator import Hub
from tests.world.documents import HEAD, approvals_of, publication, spec_of, study_of
from tests.world.noise import seeded_noise
from tests.world.transport import InProcess, pool_of_threads

Integers = NDArray[np.int64]
SLOPES = {"age": 2.0, "bmi": -1.0, "smoker": 12.0}
NOW = datetime(2026, 1, 2, tzinfo=UTC)
COORDINATOR = SigningKey(b"\xc0" * 32)
STRANGER = SigningKey(b"\xee" * 32)
PARTIES = {"clinic": SigningKey(b"\x01" * 32), "insurer": SigningKey(b"\x02" * 32)}


WHITENING = Whitening(centre=(0.1, -0.2), matrix=((0.34, -0.17), (-0.17, 0.51)))  # clips nobody


DATASETS = {"clinic": {"dataset": "patients"}, "insurer": {"dataset": "claims"}}


def study(
    *,
    mechanism: Literal["rmgm", "dgm"] = "rmgm",
    title: str = "charges [bold]",
    whitening: Whitening | None = None,
    keyed: bool = False,
    **terms: Any,
) -> Study:
    """Of charges, age and smoking; the clinic's columns may be whitened."""
    mapped = {"whitening": whitening, "row_norm": None if whitening is None else 1.0}
    return study_of(
        {
            "clinic": (
                NumericAttribute(name="age", lower=20, upper=80, unit="years"),
                NumericAttribute(name="bmi", lower=15, upper=45),
            ),
            "insurer": (
                BinaryAttribute(name="smoker", levels=("no", "yes")),
                NumericAttribute(name="charges, yearly", lower=0, upper=200),
            ),
        },
        {**DATASETS, "clinic": {**DATASETS["clinic"], **mapped}},
        study=title,
        subjects="keyed" if keyed else "listed",
        mechanism=mechanism,
        k=400 if mechanism == "rmgm" else None,
        **{"n": 2000, "epsilon": 1e4, **terms},
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


@cache
def published(**facts: Any) -> tuple[str, ReleaseFiles]:
    asked = study(**facts)
    rows = encoded(asked.n)
    return _signed(asked, lambda spec: [_block(spec, party, rows[party.name]) for party in spec.document.parties])


def _signed(asked: Study, blocks_of: Callable[[Verified[ReleaseSpec]], list[Integers]]) -> tuple[str, ReleaseFiles]:
    spec = spec_of(asked, PARTIES, proposer=COORDINATOR, seed=bytes(range(32)), now=NOW)
    opened = open_spec(seal(spec, key=COORDINATOR), [COORDINATOR.verifying_key])
    approvals = approvals_of(opened.digest, PARTIES, created=NOW)
    seen = dict.fromkeys(PARTIES, HEAD) if mechanism_of(spec).interactive else {}
    blocks = dict(zip((party.name for party in spec.parties), blocks_of(opened), strict=True))
    return opened.digest, ReleaseFiles(
        *publication(
            opened, blocks, PARTIES, proposer=COORDINATOR, approvals=approvals, published=NOW, transcripts=seen
        )
    )


def _block(spec: Verified[ReleaseSpec], party: PartySpec, rows: NDArray[np.float64]) -> Integers:
    plan = plan_block(spec.document, party)
    accumulator = mechanism_of(spec.document).accumulator(spec.document.terms, len(party.block_columns))
    bounded = bounded_rows(
        party, row_map(closed(spec.document), party, None), fraction_bits=spec.document.fraction_bits
    )
    if spec.document.keyed:  # everybody is at both
        names = pseudonyms(HEAD.encode(), [b"%d" % i for i in range(len(rows))], spec_digest=spec.digest)
        there = np.full(len(rows), presence(spec.document.fraction_bits))
        accumulator.add(names, np.column_stack([there, bounded(quantise(rows))]))
    else:
        accumulator.add(np.arange(len(rows)), bounded(quantise(rows)))
    block = accumulator.total()
    draw = seeded_noise(list(f"{spec.document.study} {party.name}".encode()))
    return np.asarray(block + draw(plan.sigma, block.size).reshape(block.shape))


@cache
def published_tables(n: int = 3000) -> tuple[str, ReleaseFiles]:
    """The id and the three files of moments of three attributes with levels and one number, one with missing cells."""
    draw = np.random.default_rng(11)
    stage = draw.choice(3, n, p=(0.5, 0.3, 0.2))
    cells = {
        "age": draw.uniform(20, 80, n).tolist(),
        "stage": np.array(["i", "ii", "iii"])[stage].tolist(),
        "smoker": [None if x < 0.1 else "yes" if x < 0.4 else "no" for x in draw.random(n).tolist()],
        "readmitted": np.where(draw.random(n) < (0.1, 0.2, 0.4)[0] + 0.15 * stage, "yes", "no").tolist(),
    }
    attributes: tuple[Attribute, ...] = (
        NumericAttribute(name="age", lower=20, upper=80, unit="years"),
        CategoricalAttribute(name="stage", levels=("i", "ii", "iii")),
        BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator"),
        BinaryAttribute(name="readmitted", levels=("no", "yes")),
    )
    return _of_cells("readmissions", attributes, cells)


@cache
def published_counts(n: int = 3000) -> tuple[str, ReleaseFiles]:
    """The id and the three files of moments of a count, years in which it was counted, and two attributes."""
    draw = np.random.default_rng(13)
    stage, years = draw.choice(2, n), draw.uniform(0, 4, n)
    cells = {
        "falls": np.minimum(draw.poisson(years * (0.5 + 0.5 * stage)), 9).astype(float).tolist(),
        "years": years.tolist(),
        "stage": np.array(["i", "ii"])[stage].tolist(),
        "site": np.array(["a", "b"])[draw.choice(2, n)].tolist(),
    }
    numbers = (NumericAttribute(name="falls", lower=0, upper=9), NumericAttribute(name="years", lower=0, upper=4))
    stages, site = (
        BinaryAttribute(name=name, levels=levels) for name, levels in (("stage", ("i", "ii")), ("site", ("a", "b")))
    )
    return _of_cells("falls", (*numbers, stages, site), cells)


@cache
def published_numbers(n: int = 500) -> tuple[str, ReleaseFiles]:
    """The id and the three files of moments of four numbers."""
    draw = np.random.default_rng(14)
    numbers = tuple(NumericAttribute(name=name, lower=0, upper=9) for name in "abcd")
    return _of_cells("numbers", numbers, {a.name: draw.uniform(0, 9, n).tolist() for a in numbers})


@cache
def published_regions(n: int = 3000) -> tuple[str, ReleaseFiles]:
    """The id and the three files of moments of three regions with long names, and of three other attributes."""
    draw = np.random.default_rng(15)
    regions = tuple(f"Kreis {name} an der großen Öresjö im Tal" for name in "ABC")
    region = CategoricalAttribute(name="Höchster Wohnsitz", levels=regions)
    others = tuple(BinaryAttribute(name=name, levels=("no", "yes")) for name in ("died", "smoker", "readmitted"))
    attributes: tuple[BinaryAttribute | CategoricalAttribute, ...] = (region, *others)
    cells = {a.name: np.array(a.levels)[draw.choice(len(a.levels), n)].tolist() for a in attributes}
    return _of_cells("regions", attributes, cells)


@cache
def published_survival(n: int = 3000) -> tuple[str, ReleaseFiles]:
    """The id and the three files of moments of months until the end by whether it was death, and of a stage."""
    draw = np.random.default_rng(12)
    stage = draw.choice(2, n)
    death, left = draw.exponential(40 / (1 + stage)), draw.uniform(0, 60, n)
    cells = {
        "followup": np.minimum(death, left).tolist(),
        "died": np.where(death <= left, "yes", "no").tolist(),
        "stage": np.array(["i", "ii"])[stage].tolist(),
        "site": np.array(["a", "b"])[draw.choice(2, n)].tolist(),
    }
    followup = CutNumber(name="followup", lower=0, upper=60, unit="months", cuts="every 12").as_levels
    died, stages, site = (
        BinaryAttribute(name=name, levels=levels)
        for name, levels in (("died", ("no", "yes")), ("stage", ("i", "ii")), ("site", ("a", "b")))
    )
    outcome = Crossed(name="outcome", cross=(followup, died)).as_levels
    return _of_cells("survival", (outcome, died, stages, site), cells)


def _of_cells(
    title: str, attributes: tuple[Attribute, ...], cells: Mapping[str, list[Any]]
) -> tuple[str, ReleaseFiles]:
    columns = {name: pa.array(values) for name, values in cells.items()}
    parties = {"clinic": attributes[:2], "insurer": attributes[2:]}
    n = len(next(iter(columns.values())))
    asked = study_of(parties, DATASETS, study=title, mechanism="moments", epsilon=3.0, n=n)

    def blocks(spec: Verified[ReleaseSpec]) -> list[Integers]:
        plans = plan_blocks(spec.document)
        rows = [
            bounded_rows(party, fraction_bits=spec.document.fraction_bits)(
                quantise(np.hstack([encode_attribute(a, *cells_for(a, columns)).exact for a in party.attributes]))
            )
            for party in spec.document.parties
        ]
        return exchanged(spec.document, rows, [plan.sigma for plan in plans], seeded_noise(5))

    return _signed(asked, blocks)


def resigned(files: ReleaseFiles, key: SigningKey) -> ReleaseFiles:
    said = SignedDocument.model_validate_json(files.manifest).open(Manifest).document
    return ReleaseFiles(encode(SignedDocument.of(said, key)), files.matrix, files.moments)


def problem(status: int, code: str, detail: str = "refused") -> httpx.Response:
    body = {"type": f"urn:commingle:problem:{code}", "title": "x", "status": status, "detail": detail, "remedy": "wait"}
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json"})


Handler = Callable[[httpx.Request], httpx.Response]


@dataclass
class ServingCoordinator:
    """The real coordinator application over files that were published, or made up.

    Attributes:
        files: by the id under which they are served, whatever they hold; unpublished: ids of releases in their round.
        instead: answers in its place where it is set.
    """

    files: dict[str, ReleaseFiles] = field(default_factory=dict)
    unpublished: list[str] = field(default_factory=list)
    page_size: int = 100
    key: SigningKey = COORDINATOR
    instead: Handler | None = None
    requests: list[str] = field(default_factory=list)

    @classmethod
    def serving(cls, *releases: tuple[str, ReleaseFiles]) -> "ServingCoordinator":
        return cls(files=dict(releases))

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request.url.path)
        if self.instead is not None:
            return self.instead(request)
        listed = request.url.path == "/v1/releases"
        if listed:
            limit = min(self.page_size, int(request.url.params.get("limit", "100")))
            request = httpx.Request(request.method, request.url.copy_set_param("limit", limit))
        hub = _serving(tuple(self.files.items()), tuple(self.unpublished), self.key)
        answer = hub.transport.handle_request(request)
        if not listed or not answer.is_success:
            return answer
        page = answer.json()
        return httpx.Response(200, json=page | {"items": [{**i, "added_by_a_newer_version": 1} for i in page["items"]]})

    def identity(self) -> dict[str, str]:
        identity: dict[str, str] = self.answer(httpx.Request("GET", "http://hub/v1/coordinator")).json()
        return identity


def learner(
    fake: ServingCoordinator,
    *,
    cache: Path | None = None,
    trusted: str | None = COORDINATOR.fingerprint,
    apart: bool = False,
) -> httpx.Client:
    """A learner before that coordinator; `apart` from what other tests ask, where it counts from zero."""
    client = ReleaseClient("http://hub", transport=fake.transport, cache=cache, trusted_coordinator=trusted)
    source = ReleaseSource(client)
    way = InProcess(_learner_app(source)) if apart else in_turn(_learner_app, source, coordinator="http://hub")
    return httpx.Client(transport=way, base_url="http://learner", timeout=60)


def _learner_app(source: ReleaseSource) -> FastAPI:
    return create_app(source, pool=pool_of_threads())


@cache
def _serving(files: tuple[tuple[str, ReleaseFiles], ...], unpublished: tuple[str, ...], key: SigningKey) -> Hub:
    """One for all tests that serve the same: nobody changes anything there."""
    folder = TemporaryDirectory()
    hub = Hub(f"sqlite:///{folder.name}/coordinator.sqlite", Path(folder.name), key=key)
    atexit.register(folder.cleanup)
    atexit.register(hub.close)
    blobs = hub.coordinator.blobs
    with hub.store.write() as tx:
        for name, party in PARTIES.items():
            raw, own = party.verifying_key.raw.hex(), party.fingerprint
            tx.members.add_invite(Invite(own, name, NOW, NOW))
            member = PartyRecord(name=name, signing_key=raw, sealing_key="11" * 32, fingerprint=own, enrolled=NOW)
            tx.members.add(member, invite=own)
            tx.events.add_membership(at=NOW, kind="enrolment", party=name, key=own)
        for release in reversed(unpublished):  # listed are the newest first
            _add(tx, release, published()[1], State.COLLECTING)
        for release, found in reversed(files):
            _add(tx, release, found, State.PUBLISHED)
            stored = Files(blobs.put(found.manifest), blobs.put(found.matrix), blobs.put(found.moments))
            tx.releases.save(release, Round(frozenset(PARTIES), NOW, State.PUBLISHED), stored)
    return hub


def _add(tx: Transaction, release: str, files: ReleaseFiles, state: State) -> None:
    published_as = SignedDocument.model_validate_json(files.manifest).open(Manifest).document
    spec = read_spec(published_as.spec.payload_bytes)
    served = _under(release, published_as.spec)
    tx.releases.add(served, spec, proposer_key=published_as.proposer_key, sizes=release_sizes(spec))
    tx.releases.save(release, Round(frozenset(PARTIES), spec.expires, state))


def _under(release: str, spec: Envelope) -> Envelope:
    class Misnamed(Envelope):
        @property
        def digest(self) -> str:
            return release

    return Misnamed.model_validate(spec.model_dump())


def html(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, html="<h1>Welcome to the hotel network</h1>")


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens", request=request)


def too_slow(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("no answer in time", request=request)
