"""What must hold whatever goes wrong.

Everything is read from outside: files, ledgers' SQLite, signed documents, what the coordinator tells anybody, and what
leaves the parties.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.store import Regression
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.regression import verify_regression
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import ApprovalRequest, BlockStatement
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.checks import read_spec
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import State
from commingle.shared.release.verification import PublishedRelease, verify_release

MAY_HAVE_LEFT = frozenset({"stored", "acked", "withdrawn"})
SETTLED = frozenset({"acked", "released", "withdrawn"})
_PAID_FOR = ("columns", "replies", "blocks")
_SIGNED_AS = {
    "approvals": "approval",
    "rejections": "rejection",
    "columns": "columns",
    "replies": "reply",
    "blocks": "block",
}


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
            each["kind"], int(each["charge"]["loss"]["rho_units"]), each.get("attempt", 0), each.get("body_sha256")
        )
        for release, each in told.items()
    }


def _signature_on_disk(home: Home, release: str, kind: str) -> str | None:
    """The digest of what the party signed of this kind."""
    with closing(sqlite3.connect(home.database)) as db:
        row = db.execute("SELECT digest FROM signatures WHERE release = ? AND kind = ?", (release, kind)).fetchone()
    return row and str(row[0])


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
        """A request leaves a party: never two different ones for one place, and each as its ledger has it."""
        match request.method, request.url.path.strip("/").split("/"):
            case "PUT", ["v1", "releases", release, kind, party] if kind in _SIGNED_AS:
                assert party == sender
                self._upload(release, party, kind, request)

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

    def _upload(self, release: str, party: str, kind: str, request: httpx.Request) -> None:
        statement = request.headers.get("commingle-block") or request.headers.get("commingle-statement", "")
        seen, body_sha256 = self.left[release, party, kind], sha256(request.content).hexdigest()
        seen.add(sha256(f"{statement} {body_sha256}".encode()).hexdigest())
        assert len(seen) == 1, f"{party} sent two different {kind} for {release}"
        text = statement.encode() or request.content
        envelope = decode(ApprovalRequest, text).approval if kind == "approvals" else parse_envelope(text)
        signed = _signature_on_disk(self.homes[party], release, _SIGNED_AS[kind])
        assert signed == envelope.digest, f"{party} sends {kind} for {release} that its ledger does not have"
        if kind in _PAID_FOR:
            charge = charges_on_disk(self.homes[party]).get(release)
            assert charge is not None, f"{party} sends {kind} without a charge for {release}"
            may = MAY_HAVE_LEFT if kind == "blocks" else MAY_HAVE_LEFT | {"debited"}
            assert charge.state in may, f"{party} sends {kind} while its charge is {charge.state}"
            assert body_sha256 == json.loads(envelope.payload_bytes)["body_sha256"], (
                f"{party} did not sign these {kind}"
            )
            if kind == "blocks":
                assert body_sha256 == charge.body_sha256, f"{party} sends another block than it stored for {release}"
                self.bodies[release, party] = body_sha256


def check_ledger(witness: Witness, party: str, specs: Mapping[str, ReleaseSpec], *, cap_units: int) -> None:
    """Budget is counted for everything that could have left, and never beyond the cap."""
    charges = charges_on_disk(witness.homes[party])
    counted = sum(charge.rho_units for charge in charges.values() if charge.state != "released")
    assert counted <= cap_units
    for release, spec in specs.items():
        drawn = (party, release) in witness.drawings
        sent = any((release, party, kind) in witness.left for kind in _PAID_FOR)
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

    def ended(self, release: str) -> Ended:
        """All that is known of a release that is over."""
        events: list[Any] = []
        while page := self.get("/v1/events", after=events[-1]["seq"] if events else 0).json()["items"]:
            events += page
        view = self.view(release)
        state = State(view["state"])
        spec = read_spec(parse_envelope(json.dumps(view["spec"]).encode()).payload_bytes)
        own = (e for e in events if e["release"] == release)
        history = tuple((e["seq"], e["kind"], e.get("party"), State(e["state"])) for e in own)
        return Ended(spec, state, history, self.files(release) if state is State.PUBLISHED else None)
