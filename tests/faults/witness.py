"""What must hold whatever goes wrong.

Everything is read from outside: files, ledgers' SQLite, signed documents, what the coordinator tells anybody, and what
a recording proxy saw leave the parties.
"""

import json
import sqlite3
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.store import Regression
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.regression import verify_regression
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import ApprovalRequest, BlockStatement
from commingle.shared.errors import CommingleError
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.checks import read_spec
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import State
from commingle.shared.release.verification import PublishedRelease, verify_release

MAY_HAVE_LEFT = frozenset({"stored", "acked", "withdrawn"})
SETTLED = frozenset({"acked", "released", "withdrawn"})
_EXCHANGED = frozenset({"columns", "replies"})
_KINDS = frozenset({"approvals", "rejections", "blocks"}) | _EXCHANGED


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A charge as it stands committed in a ledger's file."""

    state: str
    rho_units: int
    attempt: int
    body_sha256: str | None


def charges_on_disk(home: Home) -> dict[str, OnDisk]:
    """Every charge of a ledger, read by another connection: only what is committed shows.

    Of its chain, and not by the fold that the agent goes by.
    """
    with closing(sqlite3.connect(home.database)) as db:
        entries = [json.loads(body) for (body,) in db.execute("SELECT body FROM entries ORDER BY seq")]
    told = dict[str, dict[str, Any]]()
    for entry in entries:
        if entry["kind"] in set(ChargeState):
            told[entry["release"]] = told.get(entry["release"], {}) | entry
    return {
        release: OnDisk(
            each["kind"],
            int(each["charge"]["loss"]["rho_units"]),
            each.get("attempt", 0),
            each.get("body_sha256"),
        )
        for release, each in told.items()
    }


def files_left(home: Home, release: str) -> list[Path]:
    """What there is on disk of a release that is over, but for the block of one the ledger has seen published."""
    with closing(sqlite3.connect(home.database)) as db:
        row = db.execute("SELECT state FROM proposals WHERE release = ?", (release,)).fetchone()
    folders = (home.exchanges,) if row == (State.PUBLISHED,) else (home.outbox, home.exchanges)
    return [folder / release for folder in folders if (folder / release).exists()]


@dataclass
class Witness:
    """Sees every request that leaves a party and every drawing of noise.

    Attributes:
        left: by release, party and kind, the digests of everything different that was sent.
        bodies: SHA-256 of the block that left.
        drawings: under which attempts of a charge noise was drawn.
        shown: digests of the results shown for one regression.
    """

    homes: Mapping[str, Home]
    left: dict[tuple[str, str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    bodies: dict[tuple[str, str], str] = field(default_factory=dict)
    drawings: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    shown: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def request(self, sender: str, request: httpx.Request) -> None:
        """A request leaves a party: never two different ones for one place, a block only once it is recorded."""
        match request.method, request.url.path.strip("/").split("/"):
            case "PUT", ["v1", "releases", release, kind, party] if kind in _KINDS:
                assert party == sender
                statement = request.headers.get("commingle-block") or request.headers.get("commingle-statement", "")
                self.upload(party, release, kind, statement=statement, body_sha256=sha256(request.content).hexdigest())

    def upload(self, party: str, release: str, kind: str, *, statement: str, body_sha256: str) -> None:
        """What is left of a request where its body is not kept."""
        seen = self.left[release, party, kind]
        seen.add(sha256(f"{statement} {body_sha256}".encode()).hexdigest())
        assert len(seen) == 1, f"{party} sent two different {kind} for {release}"
        if kind in _EXCHANGED:
            charge = charges_on_disk(self.homes[party]).get(release)
            assert charge is not None, f"{party} sends {kind} without a charge for {release}"
            assert charge.state in {"debited", *MAY_HAVE_LEFT}, (
                f"{party} sends {kind} while its charge is {charge.state}"
            )
        if kind == "blocks":
            self._block(release, party, parse_envelope(statement.encode()), body_sha256)

    def drawing(self, party: str, release: str) -> None:
        """Noise is drawn: the debit must be on disk. It may be settled before an attempt has drawn all its noise."""
        charge, drawn = charges_on_disk(self.homes[party])[release], self.drawings[party, release]
        assert charge.state == "debited" or charge.attempt in drawn, f"{party} draws noise: {charge.state}"
        drawn.add(charge.attempt)

    def regression(self, party: str, regression: Regression) -> None:
        """A regression is shown: recorded, paid for, and never two different ones."""
        charge = charges_on_disk(self.homes[party])[regression.request.id]
        assert charge.state == "stored", f"{party} shows a regression while its charge is {charge.state}"
        assert regression.document is not None
        data = encode(regression.document)
        assert charge.rho_units == verify_regression(data).document.privacy.loss.rho.units
        seen = self.shown[party, regression.request.id]
        seen.add(sha256(data).hexdigest())
        assert len(seen) == 1, f"{party} showed two different results of one regression"

    def _block(self, release: str, party: str, envelope: Envelope, body_sha256: str) -> None:
        charge = charges_on_disk(self.homes[party]).get(release)
        assert charge is not None, f"{party} sends a block without a charge for {release}"
        assert charge.state in MAY_HAVE_LEFT, f"{party} sends a block while its charge is {charge.state}"
        assert body_sha256 == charge.body_sha256, f"{party} sends a block for {release} that its ledger does not know"
        assert decode(BlockStatement, envelope.payload_bytes).body_sha256 == charge.body_sha256
        self.bodies[release, party] = body_sha256


def check_ledger(witness: Witness, party: str, specs: Mapping[str, ReleaseSpec], *, cap_units: int) -> None:
    """Budget is counted for everything that could have left, and never beyond the cap."""
    charges = charges_on_disk(witness.homes[party])
    counted = sum(charge.rho_units for charge in charges.values() if charge.state != "released")
    assert counted <= cap_units
    for release, spec in specs.items():
        drawn = (party, release) in witness.drawings
        sent = any((release, party, kind) in witness.left for kind in ("blocks", *_EXCHANGED))
        if drawn or sent:
            charge = charges.get(release)
            assert charge is not None, f"{party}: no charge for {release}"
            assert charge.state in SETTLED - {"released"}, f"{party}: {charge.state}"
            assert charge.rho_units >= plan_block(spec, spec.party(party)).loss.units


def check_settled(home: Home, releases: Iterable[str]) -> None:
    """Of releases that are over nothing is left to do: no open charge, no block on disk but a published one's."""
    charges = charges_on_disk(home)
    for release in releases:
        if release in charges:
            assert charges[release].state in SETTLED, f"{home.root.name}: {charges[release].state} after the end"
        assert not files_left(home, release)


def check_published(
    witness: Witness, files: tuple[bytes, bytes, bytes], *, release: str, coordinator: str
) -> PublishedRelease:
    """A published release verifies, and every block in it is the one its party sent and paid for."""
    published = verify_release(*files, trusted_coordinator=coordinator)
    assert published.release == release
    for party in published.spec.parties:
        envelope = published.manifest.blocks[party.name]
        statement = decode(BlockStatement, envelope.payload_bytes)
        assert statement.body_sha256 == witness.bodies.get((release, party.name)), f"{party.name} never sent its block"
        assert charges_on_disk(witness.homes[party.name])[release].state in SETTLED - {"released"}
    return published


def check_history(events: Iterable[tuple[int, str, str | None, State]], state: State) -> None:
    """A release's history tells each thing once and ends with its only final state, which is the recorded one."""
    seqs, kinds, parties, states = zip(*events, strict=True)
    assert list(seqs) == sorted(set(seqs))
    assert kinds[0] == "proposal"
    assert max(Counter(zip(kinds, parties, strict=True)).values()) == 1, "recorded twice for one release"
    assert states[-1] == state
    assert state.final
    assert not any(earlier.final for earlier in states[:-1])


_SIGNED_AS = {
    "approvals": "approval",
    "rejections": "rejection",
    "columns": "columns",
    "replies": "reply",
    "blocks": "block",
}
_DOCUMENTS_ALONE = frozenset({"approvals", "rejections"})


@dataclass(frozen=True, slots=True)
class Upload:
    """A request that passed the proxy.

    Attributes:
        kind: approvals, rejections, columns, replies or blocks.
        statement: the signed document in its header; of an approval or a rejection the body.
        body_sha256: of the body as far as it came.
        whole: whether all of it came: a party that is killed while it sends leaves a part.
        at: seconds since the epoch.
    """

    party: str
    release: str
    kind: str
    statement: str
    body_sha256: str
    whole: bool
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """What the coordinator tells of a release that is over.

    Attributes:
        history: its events: number, kind, party and state.
        files: manifest, matrix and moments of one that is published.
    """

    spec: ReleaseSpec
    state: State
    history: tuple[tuple[int, str, str | None, State], ...]
    files: tuple[bytes, bytes, bytes] | None


@dataclass(frozen=True, slots=True)
class Observed:
    """A coordinator as anybody can ask it. Where it does not answer, httpx.HTTPError is raised."""

    url: str

    def get(self, path: str, **params: str | int) -> httpx.Response:
        return httpx.get(self.url + path, params=params, timeout=60).raise_for_status()

    def view(self, release: str) -> Any:
        return self.get(f"/v1/releases/{release}").json()

    def state(self, release: str) -> State:
        return State(self.view(release)["state"])

    def files(self, release: str) -> tuple[bytes, bytes, bytes]:
        manifest, matrix, moments = (
            self.get(f"/v1/releases/{release}/{file}").content for file in ("manifest", "matrix", "moments")
        )
        return manifest, matrix, moments

    def ended(self, *releases: str) -> dict[str, Ended]:
        """All that is known of these releases, or of all there were, which are over."""
        events: list[Any] = []
        while page := self.get("/v1/events", after=events[-1]["seq"] if events else 0).json()["items"]:
            events += page
        named = releases or sorted({event["release"] for event in events} - {None})
        return {release: self._ended(release, [e for e in events if e["release"] == release]) for release in named}

    def _ended(self, release: str, events: list[Any]) -> Ended:
        view = self.view(release)
        state = State(view["state"])
        spec = read_spec(parse_envelope(json.dumps(view["spec"]).encode()).payload_bytes)
        history = tuple((e["seq"], e["kind"], e.get("party"), State(e["state"])) for e in events)
        return Ended(spec, state, history, self.files(release) if state is State.PUBLISHED else None)


def broken_promises(
    uploads: Iterable[Upload], ended: Mapping[str, Ended], homes: Mapping[str, Home], *, coordinator: str
) -> list[str]:
    """Everything that does not hold, in words; nothing where all promises of docs/faults.md are kept.

    Args:
        uploads: whatever passed the proxy, in order.
        ended: every release, by id.
        homes: copies of the parties' homes, made after all releases had ended.
        coordinator: fingerprint of its key.
    """
    witness = Witness(homes)
    checks = [(f"{u.kind} of {u.party} at {u.at:.1f}", partial(_check_upload, witness, u)) for u in uploads]
    for party, home in homes.items():
        own = {release: end.spec for release, end in ended.items() if any(p.name == party for p in end.spec.parties)}
        cap = home.settings().cap.rho.units
        checks.append((f"ledger of {party}", partial(check_ledger, witness, party, own, cap_units=cap)))
        checks.append((f"home of {party}", partial(check_settled, home, own)))
    for release, end in ended.items():
        checks.append((f"history of {release}", partial(check_history, end.history, end.state)))
        checks.append((f"publication of {release}", partial(_check_end, witness, release, end, coordinator)))
    return [f"{what}: {fault}" for what, check in checks if (fault := _fault(check)) is not None]


def _fault(check: Callable[[], object]) -> str | None:
    try:
        check()
    except (AssertionError, CommingleError) as error:
        return str(error) or traceback.extract_tb(error.__traceback__)[-1].line or "does not hold"
    return None


def _check_upload(witness: Witness, upload: Upload) -> None:
    """One digest for each place, charged, and under the very statement that the ledger has."""
    if not upload.whole and upload.kind in _DOCUMENTS_ALONE:
        return  # half a document says nothing yet
    text = upload.statement.encode()
    envelope = decode(ApprovalRequest, text).approval if upload.kind == "approvals" else parse_envelope(text)
    with closing(sqlite3.connect(witness.homes[upload.party].database)) as db:
        place = (upload.release, _SIGNED_AS[upload.kind])
        row = db.execute("SELECT digest FROM signatures WHERE release = ? AND kind = ?", place).fetchone()
    assert row == (envelope.digest,), "its ledger does not have that statement"
    digest = upload.body_sha256
    if upload.kind not in _DOCUMENTS_ALONE:
        digest = json.loads(envelope.payload_bytes)["body_sha256"]
        assert upload.body_sha256 == digest or not upload.whole, "the body is not what was signed"
    witness.upload(upload.party, upload.release, upload.kind, statement=upload.statement, body_sha256=digest)


def _check_end(witness: Witness, release: str, end: Ended, coordinator: str) -> None:
    assert (end.state is State.PUBLISHED) == (end.files is not None)
    if end.files is not None:
        check_published(witness, end.files, release=release, coordinator=coordinator)
