"""From complete blocks to a published release."""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import structlog
from numpy.typing import NDArray

from commingle.coordinator.coordinator import Coordinator, record, require_blobs, require_release, spec_of
from commingle.coordinator.errors import LostBlobError
from commingle.coordinator.exchanges import agreed_transcript
from commingle.coordinator.store.rows import Files, ReleaseRow
from commingle.shared import __version__
from commingle.shared.documents.dsse import Envelope, Verified, seal
from commingle.shared.documents.errors import ProtocolError, VerificationError
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import encode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import SignedDocument, open_block_statement
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.block import check_block
from commingle.shared.release.matrix import assemble, encode_matrix, second_moments
from commingle.shared.release.plan import privacy_statement, published_columns, published_step
from commingle.shared.release.rounds import Abort, LoseBlocks, Publish, Refused, Tick, advance, complete
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime import faults

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Publication:
    """The three published files, as bytes."""

    manifest: bytes
    matrix: bytes
    moments: bytes


def publish(coordinator: Coordinator, release: str) -> None:
    """Publish a complete release, or end it with the reason why it cannot be.

    Safe to repeat and to race: the first to commit has published, the others' work is dropped.

    Raises:
        LostBlobError: a block is gone or damaged; see `ask_again`.
        StorageError: blobs or database do not work; nothing was recorded.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    if not complete(found.round):
        return
    try:
        publication = make_publication(coordinator, found)
    except ProtocolError as error:
        _abort(coordinator, release, f"the coordinator's check before publishing failed: {error}")
        return
    files = Files(
        manifest=coordinator.blobs.put(publication.manifest),
        matrix=coordinator.blobs.put(publication.matrix),
        moments=coordinator.blobs.put(publication.moments),
    )
    faults.reach("coordinator.publication.written")
    with coordinator.store.write() as tx:
        after = advance(require_release(tx, release).round, Publish(), now=coordinator.clock())
        if isinstance(after, Refused):
            return
        require_blobs(coordinator, (files.manifest, files.matrix, files.moments))
        record(tx, coordinator, release, after, kind="published", files=files, document=files.manifest)
    faults.reach("coordinator.publication.committed")
    _log.info("published", release=release, state=after.state)


def make_publication(coordinator: Coordinator, release: ReleaseRow) -> Publication:
    """Assemble, sign and check the three files of a complete release.

    Raises:
        ProtocolError: the stored blocks do not make a release that anyone would accept.
        StorageError: a block cannot be read.
    """
    spec = spec_of(release)
    document = spec.document
    transcript = agreed_transcript(release)
    blocks = [_read_block(coordinator, release, spec, party.name, transcript) for party in document.parties]
    integers = assemble(document, blocks)
    del blocks
    matrix = encode_matrix(document, spec.digest, integers)
    moments = encode(second_moments(document, spec.digest, integers))
    manifest = Manifest(
        release=spec.digest,
        spec=spec.envelope,
        proposer_key=release.proposer_key,
        approvals=_present({name: share.approval for name, share in release.shares.items()}),
        blocks=_present({name: share.statement for name, share in release.shares.items()}),
        rows=mechanism_of(document).rows(document),
        step=published_step(document),
        columns=published_columns(document),
        matrix_sha256=sha256(matrix).hexdigest(),
        moments_sha256=sha256(moments).hexdigest(),
        privacy=privacy_statement(document),
        published=coordinator.clock(),
        software=f"commingle {__version__}",
    )
    key = coordinator.key
    signed = SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=seal(manifest, kind="manifest", key=key))
    publication = Publication(encode(signed), matrix, moments)
    verify_release(publication.manifest, matrix, moments, trusted_coordinator=key.fingerprint)
    return publication


def expire(coordinator: Coordinator, release: str) -> None:
    """End a release whose time has passed."""
    with coordinator.store.write() as tx:
        current = require_release(tx, release).round
        after = advance(current, Tick(), now=coordinator.clock())
        if isinstance(after, Refused) or after.state is current.state:
            return
        record(tx, coordinator, release, after, kind="expired")
    faults.reach("coordinator.expiry.committed")
    _log.info("expired", release=release, state=after.state)


def ask_again(coordinator: Coordinator, release: str) -> None:
    """Have blocks of a complete release that stay lost sent once more: parties keep theirs until it is over.

    Raises:
        StorageError: blobs or database do not work; nothing was recorded.
    """
    with coordinator.store.read() as tx:
        bodies = {name: share.body for name, share in require_release(tx, release).shares.items()}
    lost = frozenset(name for name, body in bodies.items() if body is not None and _is_lost(coordinator, body))
    if not lost:
        return
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        after = advance(found.round, LoseBlocks(lost), now=coordinator.clock())
        if isinstance(after, Refused):
            return
        for party in sorted(lost):
            statement = found.shares[party].statement
            tx.releases.lose_block(release, party)
            document = None if statement is None else statement.digest
            record(tx, coordinator, release, after, kind="block-lost", party=party, document=document)
    _log.error("blocks lost, asked for again", release=release, parties=sorted(lost))


def _is_lost(coordinator: Coordinator, body: str) -> bool:
    try:
        coordinator.blobs.open(body).close()
    except LostBlobError:
        return True
    return False


def _abort(coordinator: Coordinator, release: str, reason: str) -> None:
    with coordinator.store.write() as tx:
        current = require_release(tx, release).round
        if not complete(current):
            return
        after = advance(current, Abort(reason), now=coordinator.clock())
        if isinstance(after, Refused):
            return
        record(tx, coordinator, release, after, kind="aborted")
    _log.error("aborted", release=release, state=after.state)


def _read_block(
    coordinator: Coordinator, release: ReleaseRow, spec: Verified[ReleaseSpec], party: str, transcript: str | None
) -> NDArray[np.int64]:
    share = release.shares[party]
    if share.statement is None or share.body is None:
        raise AssertionError("a complete release has every block")
    statement = open_block_statement(share.statement, spec.document.party(party), spec=spec.digest)
    if statement.document.transcript != transcript:
        raise VerificationError(f"the block of {party} is not from this exchange", remedy="Propose a new release.")
    with coordinator.blobs.open(share.body) as file:
        return check_block(file.read(), statement.document)


def _present(envelopes: dict[str, Envelope | None]) -> dict[str, Envelope]:
    return {name: envelope for name, envelope in envelopes.items() if envelope is not None}
