"""One state machine: the ledger writes by it, the auditor reads by it, and they agree on whatever is asked of them."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commingle.party_agent.errors import LedgerError
from commingle.party_agent.ledger.ledger import Cap, Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.snapshot import Debit
from commingle.shared.documents.dsse import SigningKey, seal
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import Rejection, SignedDocument
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.errors import VerificationError
from commingle.shared.release.audit import PartyAudit, PartyHistory, verify_party_audit
from commingle.shared.release.charge import (
    GENESIS,
    SIGNED_BY_PARTIES,
    Acknowledge,
    Adopt,
    Charge,
    ChargeState,
    ChargeTerms,
    Event,
    RecordBlock,
    Redraw,
    Reserve,
    Spend,
    Withdraw,
    advance,
    first_altered,
    link_digest,
    link_text,
    refuse_signature,
)
from commingle.shared.release.ledger_fold import REJOINED, LedgerFold, entry_facts, fold
from commingle.shared.release.rounds import Refused
from tests.world.tampering import NOW

KEY = SigningKey(b"\x07" * 32)
RELEASES = ("a" * 64, "b" * 64)
APPROVALS, BODY = "c" * 64, "d" * 64
COST = Cost(Loss(Rho(1000), 1e-7), Loss(Rho(1500), 2e-7))
LATER = NOW + timedelta(hours=1)
TERMS = ChargeTerms(dataset="main", study="s", kind="regression", expires=LATER, coordinator="")
NEW = Charge(population="default", cost=COST, terms=TERMS)
SAID = {"dataset": "main", "study": "s", "kind": "release", "expires": f"{LATER:%Y-%m-%dT%H:%M:%SZ}", "coordinator": ""}
TABLE = "e" * 64
Ask = tuple[str, str]
# those that are part of a caller's transaction
WRITING = {"reserve", "record", "record late", "withdraw", "columns", "reply"}

ASKS = st.tuples(
    st.sampled_from(
        ["reserve", "debit", "redraw", "record", "record late", "acknowledge", "withdraw", "columns", "reply", "adopt"]
    ),
    st.sampled_from(RELEASES),
)


def loss(units: str, delta: float = 0.0) -> dict[str, Any]:
    return {"rho_units": units, "loss_delta": delta}


STATED = {"population": "default", "loss": loss("1000"), "gaussian": True, "terms": SAID}


def stated(**changes: object) -> dict[str, Any]:
    """A new charge as an entry has it; what is None is left out."""
    return {name: value for name, value in {**STATED, **changes}.items() if value is not None}


def event_of(what: str, charge: Charge | None) -> Event:
    attempt = charge.attempt if charge else 0
    events: dict[str, Event] = {
        "reserve": Reserve(NEW),
        "debit": Spend(APPROVALS),
        "redraw": Redraw(),
        "record": RecordBlock(attempt, BODY),
        "record late": RecordBlock(attempt - 1, BODY),
        "acknowledge": Acknowledge(),
        "withdraw": Withdraw(),
        "adopt": Adopt(NEW),
    }
    return events[what]


def ask_ledger(store: AgentStore, ledger: Ledger, what: str, release: str) -> bool:
    """Ask the real ledger; whether it agreed."""
    attempt = charge.attempt if (charge := ledger.charge(release)) else 0
    debit = Debit(release, COST.loss.rho.units, attempt - (what == "record late"), APPROVALS, TABLE, COST.loss.delta)
    with store.transaction() if what in WRITING else store.reading() as db:
        reserve = partial(ledger.reserve, db, release, COST, TERMS, snapshot=TABLE)
        answers: dict[str, Callable[[], object]] = {
            "reserve": reserve,
            "debit": lambda: ledger.debit(release, approvals=APPROVALS, now=NOW),
            "redraw": lambda: ledger.redraw(release),
            "record": lambda: ledger.record_block(db, debit, BODY),
            "record late": lambda: ledger.record_block(db, debit, BODY),
            "acknowledge": lambda: ledger.acknowledge(release),
            "withdraw": lambda: ledger.withdraw(db, release),
            "columns": lambda: sign(ledger, db, release, what),
            "reply": lambda: sign(ledger, db, release, what),
            "adopt": lambda: adopt(ledger, release),
        }
        answer = answers[what]()
    return not isinstance(answer, Refused) and answer is not False


def adopt(ledger: Ledger, release: str) -> bool:
    """Charge what a lost branch spent, and rejoin it, whatever it was called."""
    try:
        ledger.adopt([(release, COST, TERMS)], [], ["9" * 64], height=3)
    except LedgerError:
        return False
    return True


def sign(ledger: Ledger, db: Connection, release: str, kind: str) -> bool:
    """A message of an exchange may be signed once while the charge is debited; any signed text will do here."""
    document = Rejection(spec=release, party="p", reason="operator", created=NOW, ledger_head=GENESIS)
    if ledger.signature(release, kind) is not None:
        return False
    try:
        ledger.sign_off(db, release, kind, seal(document, key=KEY))
    except LedgerError:
        return False
    return True


def audit_of(texts: Sequence[str]) -> PartyHistory:
    head = link_digest(texts[-1]) if texts else GENESIS
    audit = PartyAudit(
        party="p", coordinator="0" * 64, exported=NOW, head=head, entries=tuple(texts), documents=(), rotations=()
    )
    return verify_party_audit(encode(SignedDocument.of(audit, KEY)))


def chain(entries: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """A chain as a forger would write it: every link fits."""
    texts, previous = [], GENESIS
    for entry in entries:
        texts.append(link_text(previous, entry))
        previous = link_digest(texts[-1])
    return tuple(texts)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(asks=st.lists(ASKS, max_size=25))
def test_ledger_machine_and_auditor_agree_on_every_sequence_of_calls(asks: list[Ask]) -> None:
    model: dict[str, Charge] = {}
    signed: set[Ask] = set()
    with TemporaryDirectory() as folder:
        store = AgentStore(Path(folder) / "ledger.sqlite")
        ledger = Ledger(store, cap=Cap("default", 1.0, 1e-5))
        for what, release in asks:
            agreed = ask_ledger(store, ledger, what, release)
            if what in {"columns", "reply"}:
                allowed = refuse_signature(model.get(release), what) is None
                assert agreed == (allowed and (what, release) not in signed)
                signed |= {(what, release)} if agreed else set()
                continue
            after = advance(model.get(release), event_of(what, model.get(release)))
            assert agreed == (not isinstance(after, Refused))
            if not isinstance(after, Refused):
                model[release] = after
        texts = ledger.history()[0]
        ledger.verify()
        assert audit_of(texts).told.charges == model
        assert audit_of(texts).told.lost == ledger.lost()
        store.close()


@given(
    spent=st.lists(st.sampled_from(["reserve", "debit", "record", "withdraw", "adopt"]), max_size=8),
    heights=st.lists(st.integers(0, 40), max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_heights_grow_and_what_is_spent_never_shrinks(spent: list[str], heights: list[int]) -> None:
    charge: Charge | None = None
    lost = 0
    for what in spent:
        after = advance(charge, event_of(what, charge))
        charge = charge if isinstance(after, Refused) else after
        now = charge.loss.rho.units if charge is not None and charge.spent else 0
        assert now >= lost
        lost = now
    document = {"document": "adopted block", "digest": "1" * 64}
    facts: list[dict[str, Any]] = [{"kind": "received", "release": RELEASES[0], **document}]
    height = 1
    for branch in heights:
        facts.append({"kind": REJOINED, "release": "9" * 64, "heads": ["8" * 64, "9" * 64], "height": branch})
        told = fold(chain(facts))
        assert isinstance(told, Refused) == (branch <= height)
        if isinstance(told, Refused):
            facts.pop()
        else:
            assert told.height == branch
            height = branch
    assert height >= len(facts)


def test_population_is_fixed_by_the_first_charge() -> None:
    first = {"kind": "reserved", "release": RELEASES[0], "charge": {**STATED, "population": "patients"}}
    other = {"kind": "reserved", "release": RELEASES[1], "charge": {**STATED, "population": "staff"}}
    told = fold(chain([first, other]))
    assert told == Refused("entry 2: the ledger belongs to population patients, not to staff")


LOSSES = st.fixed_dictionaries(
    {
        "rho_units": st.sampled_from(["1000", "0", "-1", "01000", "x", "9" * 120]),
        "loss_delta": st.sampled_from([0.0, 1e-7, -1e-7, 1.0]),
    }
)
CHARGES = st.fixed_dictionaries(
    {"population": st.just("default"), "loss": LOSSES, "gaussian": st.booleans(), "terms": st.just(SAID)},
    optional={"replacement": LOSSES},
)
ENTRIES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([*ChargeState, "signed", "received", "rejoined", "invented"]),
        "release": st.sampled_from(RELEASES),
    },
    optional={
        "charge": st.just(STATED) | CHARGES,
        "attempt": st.integers(0, 3),
        "approvals": st.just(APPROVALS),
        "body_sha256": st.just(BODY),
        "document": st.sampled_from(["alignment", "columns", "reply"]),
        "digest": st.just("1" * 64),
    },
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(entries=st.lists(ENTRIES, min_size=1, max_size=6))
def test_auditor_refuses_exactly_the_chains_that_the_machine_refuses(entries: list[dict[str, Any]]) -> None:
    texts = chain(entries)
    charges = fold(texts)
    if isinstance(charges, Refused):
        with pytest.raises(VerificationError, match=r"^entry "):
            audit_of(texts)
    else:
        assert audit_of(texts).told.charges == charges.charges


def test_entries_of_a_whole_life_replay_to_the_same_charge() -> None:
    charge, entries = None, []
    events = (Reserve(NEW), Spend(APPROVALS), Redraw(), RecordBlock(2, BODY), Acknowledge())
    for event in events:
        after = advance(charge, event)
        assert isinstance(after, Charge)
        entries.append({"kind": after.state.value, "release": RELEASES[0], **entry_facts(charge, after)})
        charge = after
    texts = chain(entries)
    assert [json.loads(text)["kind"] for text in texts] == ["reserved", "debited", "debited", "stored", "acked"]
    told = fold(texts)
    assert isinstance(told, LedgerFold)
    assert told.charges == {RELEASES[0]: charge}


LIFE: tuple[dict[str, Any], ...] = (
    {"kind": "reserved", "charge": STATED},
    {"kind": "debited", "attempt": 1, "approvals": APPROVALS},
    {"kind": "debited", "attempt": 2},
    {"kind": "stored", "body_sha256": BODY},
    {"kind": "acked"},
)
FORGED: dict[str, tuple[int, dict[str, Any]]] = {
    "no charge": (0, {"charge": None}),
    "no loss": (0, {"charge": stated(loss=loss("0"))}),
    "a loss in other words": (0, {"charge": stated(loss=loss("01000"))}),
    "a loss below nothing": (0, {"charge": stated(loss=loss("-1000"))}),
    "a delta below nothing": (0, {"charge": stated(loss=loss("1000", -1e-7))}),
    "no population": (0, {"charge": stated(population=None)}),
    "no terms": (0, {"charge": stated(terms=None)}),
    "no study": (0, {"charge": stated(terms={name: SAID[name] for name in SAID if name != "study"})}),
    "an end without its place on earth": (0, {"charge": stated(terms={**SAID, "expires": "2036-01-02T00:00:00"})}),
    "a debit without approvals": (1, {"approvals": None}),
    "an attempt left out": (2, {"attempt": 3}),
    "a loss afterwards": (3, {"charge": STATED}),
    "a second figure in other words": (0, {"charge": stated(replacement=loss("01500"))}),
    "a second figure afterwards": (1, {"charge": stated(replacement=loss("1500"))}),
    "stored without a body": (3, {"body_sha256": None}),
    "acknowledged before it is stored": (3, {"kind": "acked", "body_sha256": None}),
    "given back after the debit": (4, {"kind": "released"}),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_entry_that_no_move_writes_is_refused_by_the_auditor(forgery: str) -> None:
    lived = [{**entry, "release": RELEASES[0]} for entry in LIFE]
    assert audit_of(chain(lived)).told.charges[RELEASES[0]].state is ChargeState.ACKED
    place, change = FORGED[forgery]
    lived[place] = {name: value for name, value in {**lived[place], **change}.items() if value is not None}
    with pytest.raises(VerificationError, match=f"entry {place + 1}"):
        audit_of(chain(lived))


OTHERWISE: dict[str, tuple[str, str]] = {
    "a second figure of null": ('"population"', '"replacement": null, "population"'),
    "no approvals, which are null": ('"kind": "reserved"', '"approvals": null, "kind": "reserved"'),
    "a fact that no entry has": ('"kind": "reserved"', '"invented": 1, "kind": "reserved"'),
    "a name twice": ('"gaussian": true', '"gaussian": false, "gaussian": true'),
    "another order": (f'"kind": "reserved", "previous": "{GENESIS}"', f'"previous": "{GENESIS}", "kind": "reserved"'),
    "without spaces": (": ", ":"),
    "with a line end": ("}}", "}}\n"),
    "a number in other words": ("0.0", "0e0"),
    "a time in other words": ('Z"', '+00:00"'),
    "letters in other words": ("default", "d\\u0065fault"),
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_entry_that_says_what_it_should_in_other_bytes_is_refused(how: str) -> None:
    (text,) = chain([{"kind": "reserved", "release": RELEASES[0], "charge": STATED}])
    assert isinstance(fold([text]), LedgerFold)
    here, there = OTHERWISE[how]
    assert (other := text.replace(here, there)) != text
    assert fold([other]) == Refused("entry 1 is not written as a ledger writes it")


@pytest.mark.parametrize("document", sorted(SIGNED_BY_PARTIES))
def test_document_is_signed_in_one_state_only_and_a_rejection_in_any(document: str) -> None:
    reserved = advance(None, Reserve(NEW))
    assert isinstance(reserved, Charge)
    states = [None, *(Charge(population="default", cost=COST, terms=TERMS, state=state) for state in ChargeState)]
    allowed = {state.state.value if state else None for state in states if refuse_signature(state, document) is None}
    expected = {
        "approval": {"reserved"}, "alignment": {"reserved"},
        "columns": {"debited"}, "reply": {"debited"},
        "block": {"stored"}, "regression": {"stored"}, "rejection": {None, *(state.value for state in ChargeState)},
    }[document]  # fmt: skip
    assert allowed == expected


def test_first_altered_entry_is_found() -> None:
    texts = chain([{"kind": "reserved"}, {"kind": "debited"}, {"kind": "stored"}])
    assert first_altered(texts) is None
    assert first_altered(()) is None
    assert [first_altered(texts[1:]), first_altered([texts[0], texts[2]]), first_altered(["garbage"])] == [0, 1, 0]
