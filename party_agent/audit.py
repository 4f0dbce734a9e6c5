"""A party's history for auditors: its ledger's chain and what it signed, under its own signature."""

from commingle.party_agent.agent import Agent
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.release.audit import GENESIS, PartyAudit, link_digest


def export_audit(agent: Agent) -> SignedDocument:
    """The whole history up to now. It holds no value of any row; rejected and withdrawn releases are in it too.

    Raises:
        RemoteError: the party has replaced its key, and the coordinator cannot be asked for the signed rotations.
    """
    entries, documents = agent.ledger.history()
    audit = PartyAudit(
        party=agent.identity.name,
        coordinator=agent.coordinator.key.fingerprint,
        exported=agent.clock(),
        head=link_digest(entries[-1]) if entries else GENESIS,
        entries=entries,
        documents=documents,
        rotations=agent.client.rotations(agent.identity.name) if agent.identity.former_keys else (),
    )
    key = agent.identity.signing_key
    envelope = seal(audit, kind="party-audit", key=key)
    return SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=envelope)
