"""The coordinator's history for auditors, under its own signature."""

from commingle.coordinator.coordinator import Coordinator
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.release.audit import CoordinatorAudit


def export_audit(coordinator: Coordinator) -> SignedDocument:
    """All events up to now. Raises StorageError where they are not the ones that were recorded."""
    with coordinator.store.read() as tx:
        entries, head = tx.events.chain()
    audit = CoordinatorAudit(coordinator=coordinator.name, exported=coordinator.clock(), head=head, entries=entries)
    key = coordinator.key
    envelope = seal(audit, kind="coordinator-audit", key=key)
    return SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=envelope)
