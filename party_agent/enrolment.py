"""Joining a consortium: from an invite to a pinned coordinator."""

import hashlib
import re
from pathlib import Path

import httpx

from commingle.party_agent.coordinator_client import CoordinatorClient
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home import Coordinator, Home
from commingle.party_agent.linkage import publish_identity
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.statements import Enrolment, SignedDocument
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.remote import reaching
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.tls import trust

_INVITE = re.compile(r"commingle-invite\.v1\.([0-9a-f]{64})\.[A-Za-z0-9_-]{16,}")


def enrol(home: Home, *, url: str, invite: str, ca_file: Path | None = None) -> Coordinator:
    """Check the coordinator's key against the invite, introduce this party, and pin the coordinator.

    Raises:
        SettingsError: not an invite.
        ConflictError: the coordinator's key is not the one the invite names, or another is pinned.
        RemoteError: the coordinator does not answer or refuses.
    """
    match = _INVITE.fullmatch(invite.strip())
    if match is None:
        raise SettingsError("this is not an invite", remedy="Paste the whole line the coordinator's operator sent.")
    settings, identity = home.settings(), home.identity()
    with reaching(url), httpx.Client(base_url=url, verify=trust(ca_file)) as http:
        client = CoordinatorClient(http)
        shown = client.identity()
        coordinator = Coordinator(url=url, signing_key=shown.signing_key, ca_file=ca_file)
        if hashlib.sha256(bytes.fromhex(shown.signing_key)).hexdigest() != match[1]:
            raise ConflictError(
                f"{url} has another key than the invite names",
                remedy="Check the address; if it is right, somebody may be in between. Ask the operator.",
            )
        if settings.coordinator is not None and settings.coordinator.key != coordinator.key:
            raise ConflictError(
                "this party is enrolled with another coordinator",
                remedy="Use a home directory of its own for this one.",
            )
        statement = Enrolment(
            invite=invite.strip(),
            name=identity.name,
            signing_key=identity.signing_key.verifying_key.raw.hex(),
            sealing_key=home.sealing_key().hex(),
        )
        envelope = seal(statement, kind="enrolment", key=identity.signing_key)
        client.enrol(SignedDocument(signing_key=statement.signing_key, envelope=envelope))
        http.auth = RequestSigner(identity.signing_key, audience=coordinator.key.fingerprint)
        publish_identity(home, client)
    home.save_settings(settings.model_copy(update={"coordinator": coordinator}))
    return coordinator
