"""Audit files that lie beside a published release: do the histories of its parties tell of it as it does?"""

from pathlib import Path

from commingle.services.client.release import Release
from commingle.services.errors import ReleaseDirectoryError
from commingle.shared.documents.dsse import payload_type
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.release.audit import (
    confirm_by_coordinator,
    confirm_by_party,
    verify_coordinator_audit,
    verify_party_audit,
)

AUDIT_FILES = "audit-*.json"


def confirm_evidence(directory: Path, release: Release) -> tuple[str, ...]:
    """What each `audit-*.json` of a release directory confirms, one sentence each.

    Raises:
        VerificationError, SignatureError, DocumentError: a history does not hold, or tells otherwise.
        ReleaseDirectoryError: a file cannot be read.
    """
    return tuple(_confirm(path, release) for path in sorted(directory.glob(AUDIT_FILES)))


def _confirm(path: Path, release: Release) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReleaseDirectoryError(
            f"cannot read {path} ({error.strerror})", remedy="Mend its permissions or leave it out."
        ) from None
    kind = decode(SignedDocument, data).envelope.payloadType
    if kind == payload_type("coordinator-audit"):
        history = verify_coordinator_audit(data)
        said = confirm_by_coordinator(history, release.published, manifest=release.files.manifest)
    else:
        said = confirm_by_party(verify_party_audit(data), release.published)
    return f"{path.name}: {said}"
