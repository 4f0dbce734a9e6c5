"""Records beside releases: keys, membership, linkage, regressions, the ledger, both histories, signed requests."""

from base64 import b64decode
from dataclasses import asdict
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from commingle.coordinator.store.store import open_store
from commingle.party_agent.ledger.ledger import Cap, Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.snapshot import Debit
from commingle.party_agent.rounds.linkage import signed_identity
from commingle.shared.documents.dsse import SigningKey, seal
from commingle.shared.documents.linkage import LinkageKeyMessage, check_value, sealing_info
from commingle.shared.documents.model import encode
from commingle.shared.documents.regression import (
    PublicSecondMoments,
    RegressionPrivacy,
    RegressionRequest,
    RegressionResult,
    coefficients_of,
    verify_regression,
)
from commingle.shared.documents.statements import Departure, Rejection, SignedDocument
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.dp.calibration import epsilon_of_rho, rho_of_epsilon
from commingle.shared.release.audit import (
    CoordinatorAudit,
    PartyAudit,
    PartyHistory,
    confirm_by_coordinator,
    confirm_by_party,
    event_body,
    verify_coordinator_audit,
    verify_party_audit,
)
from commingle.shared.release.charge import Charge, ChargeKind, ChargeTerms, link_digest
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime.request_signing import RequestHead, RequestSigner, verify_request
from tests.golden import world
from tests.golden.documents import envelope
from tests.golden.world import COORDINATOR, GENESIS, KEYS, NOW, SEALING, SEALING_PUBLIC, SOFTWARE
from tests.world.documents import enrolment, ledger_head, rotation

CLINIC = KEYS["clinic"]
TABLE = "5a" * 32
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def everything(drawn: world.Drawn) -> dict[str, Any]:
    return {
        "keys": keys(),
        "membership": membership(drawn),
        "regressions": regressions(),
        "ledger": ledger(drawn),
        "heads": heads(),
        "events": events(drawn),
        "requests": requests(drawn),
    }


def keys() -> dict[str, Any]:
    return {
        name: {
            "public": key.verifying_key.raw.hex(),
            "fingerprint": key.fingerprint,
            "signature": key.sign(b"commingle").hex(),
        }
        for name, key in {"coordinator": COORDINATOR, **KEYS}.items()
    } | {"sealing": SEALING_PUBLIC}


def membership(drawn: world.Drawn) -> dict[str, Any]:
    """Enrolment, identity, rotation, departure, rejection, and the linkage key in the box that was drawn."""
    new = SigningKey(world.secret("new key"))
    enrolled = enrolment("invite-0123456789", "clinic", CLINIC, sealing_key=SEALING_PUBLIC["clinic"])
    rejection = Rejection(
        spec=world.signed_spec("dgm").digest, party="clinic", reason="budget", created=NOW, ledger_head="ab" * 32
    )
    departure = Departure(party="clinic", coordinator=COORDINATOR.fingerprint, created=NOW)
    deviation = rejection.model_copy(update={"reason": "exchange", "about": "lab"})
    message = LinkageKeyMessage(
        sender="clinic", recipient="lab", coordinator=COORDINATOR.fingerprint, created=NOW, sealed=drawn["linkage"]
    )
    return {
        "enrolment": envelope(enrolled.envelope),
        "identity": envelope(signed_identity("clinic", CLINIC, bytes.fromhex(SEALING_PUBLIC["clinic"]))),
        "rotation_request": encode(rotation(CLINIC, new, created=NOW)).decode(),
        "departure": envelope(seal(departure, key=CLINIC)),
        "rejection": envelope(seal(rejection, key=CLINIC)),
        "rejection_of_an_exchange": envelope(seal(deviation, key=CLINIC)),
        "linkage_info": linkage_info().decode(),
        "linkage_message": envelope(seal(message, key=CLINIC)),
        "linkage_key": SUITE.decrypt(bytes.fromhex(drawn["linkage"]), SEALING["lab"], linkage_info()).hex(),
        "linkage_check": check_value(world.LINKAGE_KEY),
    }


def linkage_info() -> bytes:
    """What the box from clinic to lab is bound to."""
    return sealing_info(
        sender=CLINIC.verifying_key,
        recipient=KEYS["lab"].verifying_key,
        sealing_key=SEALING_PUBLIC["lab"],
        coordinator=COORDINATOR.fingerprint,
    )


def sealed_linkage_key() -> bytes:
    """The box that the clinic sends: sealing draws a key from the operating system."""
    return SUITE.encrypt(world.LINKAGE_KEY, SEALING["lab"].public_key(), linkage_info())


def regression() -> RegressionResult:
    """A result whose figures fit together, with public second moments in its request."""
    features = (world.AGE, world.SMOKER, world.BLOOD)
    asked = RegressionRequest(
        dataset="patients",
        target=world.CHARGES.name,
        features=tuple(a.name for a in features),
        epsilon=1.0,
        delta=1e-6,
        row_norm=1.5,
        public=PublicSecondMoments(rows=9, features=((1.0, 0.5), (0.5, 0.25)), label=0.5),
        nonce="0f" * 32,
    )
    rho = Rho(int(rho_of_epsilon(1.0, 1e-6) * 2**64))
    return RegressionResult(
        party="clinic",
        request=asked,
        method="ssp",
        calibration="zcdp",
        reason="asked for",
        target=world.CHARGES,
        features=features,
        n=world.N,
        coefficients=coefficients_of((0.125, 0.5, -0.25, 0.0625, 0.375, -1.0), world.CHARGES, features),
        published={"eigenvalue": (0.75,)},
        privacy=RegressionPrivacy(
            rho_units=str(rho.units),
            loss_delta=0.0,
            epsilon=epsilon_of_rho(float(rho), 1e-6),
            delta=1e-6,
            guarantee="Gaussian.",
            exact_noise=True,
        ),
        created=NOW,
        ledger_head=GENESIS,
        software=SOFTWARE,
    )


def heads() -> dict[str, Any]:
    """A statement how far a ledger has come, as it is sent."""
    head = ledger_head(7, "ab" * 32, rho_units=1 << 60, delta=1e-7, created=NOW)
    return {"sent": encode(SignedDocument.of(head, CLINIC)).decode()}


def regressions() -> dict[str, Any]:
    """The request's id, the signed result, and what verification says of it."""
    result = regression()
    signed = SignedDocument.of(result, CLINIC)
    found = verify_regression(encode(signed), trusted_party=CLINIC.fingerprint)
    return {
        "request": encode(result.request).decode(),
        "id": result.request.id,
        "result": envelope(signed.envelope),
        "findings": list(found.findings),
    }


def ledger(drawn: world.Drawn) -> dict[str, Any]:
    """Chain, heads and signed export of a party that approved, was debited, drew again, withdrew and regressed."""
    made = world.release("rmgm", drawn)
    with TemporaryDirectory() as folder:
        store = AgentStore(Path(folder) / "ledger.sqlite")
        try:
            book = Ledger(store, cap=Cap("patients", 1e9, 1e-3))
            approve_and_upload(store, book, made)
            withdraw_and_regress(store, book)
            book.verify()
            entries, documents = book.history()
            spent, lost = book.spent().units, book.lost()
        finally:
            store.close()
    audit = PartyAudit(
        party="clinic",
        coordinator=COORDINATOR.fingerprint,
        exported=NOW,
        head=link_digest(entries[-1]),
        entries=entries,
        documents=documents,
    )
    signed = SignedDocument.of(audit, CLINIC)
    history = verify_party_audit(encode(signed))
    found = verify_release(*made.files, trusted_coordinator=None)
    return {
        "entries": list(entries),
        "digests": [link_digest(body) for body in entries],
        "spent": str(spent),
        "lost": [[str(loss.rho.units), loss.delta] for loss in (lost.loss, lost.replaced)],
        "audit": envelope(signed.envelope),
        "history": charges_of(history),
        "finding": confirm_by_party(history, found),
    }


def approve_and_upload(store: AgentStore, book: Ledger, made: world.Made) -> None:
    """The clinic's share of the rmgm release, drawn twice."""
    spec, name = made.spec.digest, "clinic"
    with store.transaction() as db:
        assert isinstance(reserve(book, db, spec, world.request("rmgm", name).plan.cost), Charge)
        book.sign_off(db, spec, "approval", made.approvals[name])
        book.sign_off(db, spec, "alignment", world.alignment("rmgm", name))
    book.debit(spec, approvals="0c" * 32, now=NOW)
    debit = book.redraw(spec)
    assert isinstance(debit, Debit)
    with store.transaction() as db:
        assert book.record_block(db, debit, sha256(made.bodies[name]).hexdigest())
        book.sign_off(db, spec, "block", made.statements[name])
    assert book.acknowledge(spec)


def withdraw_and_regress(store: AgentStore, book: Ledger) -> None:
    """A release given up before its debit, one after its columns and reply, and a regression with a delta."""
    before, after = world.signed_spec("dgm").digest, world.signed_spec("moments").digest
    result = regression()
    with store.transaction() as db:
        for release in (before, after):
            reserve(book, db, release, Cost(Loss(Rho(1 << 60)), Loss(Rho(1 << 61))))
        book.withdraw(db, before)
    book.debit(after, approvals="0d" * 32, now=NOW)
    exchanged = world.exchanged()
    with store.transaction() as db:
        book.sign_off(db, after, "columns", exchanged.columns["clinic"])
        book.sign_off(db, after, "reply", exchanged.replies["clinic"])
        book.withdraw(db, after)
        reserve(book, db, result.request.id, result.privacy.cost, kind="regression")
    debit = book.debit(result.request.id, approvals=result.request.id, now=NOW)
    assert isinstance(debit, Debit)
    signed = seal(result, key=CLINIC)
    with store.transaction() as db:
        book.record_block(db, debit, signed.digest)
        book.sign_off(db, result.request.id, "regression", signed)
        reserve(book, db, "e1" * 32, Cost(Loss.approximate(0.5, 1e-7)), kind="regression")


def reserve(book: Ledger, db: Any, release: str, cost: Cost, *, kind: ChargeKind = "release") -> object:
    later, coordinator = NOW + timedelta(days=1), COORDINATOR.fingerprint
    terms = ChargeTerms(dataset="patients", study="x", kind=kind, expires=later, coordinator=coordinator)
    return book.reserve(db, release, cost, terms, snapshot=TABLE)


def charges_of(history: PartyHistory) -> dict[str, Any]:
    return {
        "charges": {release: [c.state, str(c.loss.rho.units)] for release, c in history.told.charges.items()},
        "deltas": {release: c.loss.delta for release, c in history.told.charges.items() if c.loss.delta},
        "signed": {f"{kind} {release}": entry.digest for (release, kind), entry in history.told.signed.items()},
    }


def events(drawn: world.Drawn) -> dict[str, Any]:
    """The coordinator's chain: memberships, then a release that is published; signed, verified, compared."""
    made, exchanged = world.release("moments", drawn), world.exchanged()
    release = made.spec.digest
    said: list[tuple[str | None, str, str | None, str | None, str | None]] = [
        *((None, "enrolment", name, None, key.fingerprint) for name, key in KEYS.items()),
        (release, "proposal", None, "proposed", release),
        *((release, "approval", name, "approved", signed.digest) for name, signed in made.approvals.items()),
        *((release, "columns", name, "approved", signed.digest) for name, signed in exchanged.columns.items()),
        *((release, "reply", name, "approved", signed.digest) for name, signed in exchanged.replies.items()),
        *((release, "block", name, "collecting", signed.digest) for name, signed in made.statements.items()),
        (release, "published", None, "published", sha256(made.files[0]).hexdigest()),
        (None, "revocation", "lab", None, KEYS["lab"].fingerprint),
    ]
    bodies: list[str] = []
    for number, (about, kind, party, state, document) in enumerate(said):
        previous = link_digest(bodies[-1]) if bodies else GENESIS
        at = NOW + timedelta(seconds=number)
        facts = {"release": about, "kind": kind, "party": party, "state": state, "document": document}
        bodies.append(event_body(previous=previous, at=at, **facts))
    audit = CoordinatorAudit(coordinator="hub", exported=NOW, head=link_digest(bodies[-1]), entries=tuple(bodies))
    signed = SignedDocument.of(audit, COORDINATOR)
    history = verify_coordinator_audit(encode(signed))
    found = verify_release(*made.files, trusted_coordinator=None)
    stored, head = stored_memberships()
    return {
        "entries": bodies,
        "digests": [link_digest(body) for body in bodies],
        "audit": envelope(signed.envelope),
        "members": {name: list(keys) for name, keys in history.members.items()},
        "finding": confirm_by_coordinator(history, found, manifest=made.files[0]),
        "in the database": {"entries": stored, "head": head},
    }


def stored_memberships() -> tuple[list[str], str]:
    """The chain as the coordinator's database keeps it."""
    with TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/hub.sqlite")
        try:
            with store.write() as tx:
                for number, (name, key) in enumerate(KEYS.items()):
                    at = NOW + timedelta(seconds=number)
                    tx.events.add_membership(at=at, kind="enrolment", party=name, key=key.fingerprint)
            with store.read() as tx:
                bodies, head = tx.events.chain()
        finally:
            store.close()
    return list(bodies), head


def sign_request() -> dict[str, Any]:
    """A request signed now: its nonce comes from the operating system."""
    request = httpx.Request(
        "PUT",
        "https://hub.example/v1/releases/1/blocks/clinic?x=1",
        content=b"body",
        headers={"Content-Type": "application/json", "Commingle-Block": "e30"},
    )
    RequestSigner(CLINIC, audience=COORDINATOR.fingerprint, clock=lambda: NOW).sign(request)
    return {"target": request.url.raw_path.decode(), "headers": dict(request.headers)}


def requests(drawn: world.Drawn) -> dict[str, Any]:
    """What verification says of the request that was drawn, and the text its signature is over."""
    head = RequestHead("PUT", drawn["request"]["target"], tuple(drawn["request"]["headers"].items()))
    found = verify_request(
        head, audience=COORDINATOR.fingerprint, key_of={str(CLINIC.fingerprint): CLINIC.verifying_key}.get, now=NOW
    )
    base = signature_base(head)
    signature = str(head.header("signature")).split(":")[1]
    CLINIC.verifying_key.verify(b64decode(signature), base.encode())
    fresh = sign_request()["headers"]
    nonce, mine = (h["signature-input"].split('nonce="')[1].split('"')[0] for h in (drawn["request"]["headers"], fresh))
    assert fresh["signature-input"].replace(mine, nonce) == head.header("signature-input")
    shown = {**asdict(found), "forget": found.forget.isoformat()}
    return {"verified": shown, "signature_base": base.splitlines(), "content_digest": head.header("content-digest")}


def signature_base(head: RequestHead) -> str:
    """RFC 9421, section 2.5, by hand."""
    label, given = str(head.header("signature-input")).split("=", 1)
    assert label == "commingle"
    path, query = head.target.split("?")
    derived = {"@method": head.method, "@path": path, "@query": f"?{query}"}
    names = [name.strip('"') for name in given[1 : given.index(")")].split()]
    lines = [f'"{name}": {derived.get(name) or head.header(name)}' for name in names]
    return "\n".join([*lines, f'"@signature-params": {given}'])
