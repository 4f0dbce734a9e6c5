"""What a recording proxy saw leave the parties of a consortium, held against their ledgers and what was published."""

import json
import sqlite3
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from commingle.party_agent.home.home import Home
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import ApprovalRequest
from commingle.shared.errors import CommingleError
from commingle.shared.release.rounds import State
from tests.faults.witness import Witness, check_history, check_ledger, check_published, check_settled

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
