"""Whatever is asked of a ledger, in whatever order, it never under-counts and never passes its cap."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from commingle.party_agent.ledger.ledger import Cap, Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.snapshot import Debit
from commingle.shared.dp.accounting import ZERO, Cost, Loss, Rho
from commingle.shared.release.charge import Charge, ChargeState
from commingle.shared.release.rounds import Refused
from tests.party_agent.ledger.book import TERMS
from tests.world.tampering import NOW

RELEASES = st.sampled_from(["a" * 64, "b" * 64, "c" * 64, "d" * 64])
TABLE = "d" * 64
COUNTING = frozenset(ChargeState) - {ChargeState.RELEASED}


class LedgerMachine(RuleBasedStateMachine):
    """Keeps a model: what was ever debited stays debited."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.cap = Cap("default", 1.0, 1e-5)
        self.debits: list[Debit] = []
        self.spent, self.replaced = ZERO, ZERO
        self.debited: dict[str, Rho] = {}
        self.open()

    def open(self) -> None:
        self.store = AgentStore(Path(self.folder.name) / "ledger.sqlite")
        self.ledger = Ledger(self.store, cap=self.cap)

    @initialize(quarters=st.integers(0, 3))
    def some_is_gone_already(self, quarters: int) -> None:
        if quarters:
            self.reserve("e" * 64, quarters)

    @rule(release=RELEASES, quarters=st.integers(1, 4))
    def reserve(self, release: str, quarters: int) -> None:
        rho = Rho(self.cap.rho.units * quarters // 4)
        cost = Cost(Loss(rho), Loss(Rho(3 * rho.units)) if quarters % 2 else None)
        known, fits = self.ledger.charge(release), self.spent + rho <= self.cap.rho
        with self.store.transaction() as db:
            terms = replace(TERMS, expires=NOW.replace(hour=23))
            answer = self.ledger.reserve(db, release, cost, terms, snapshot=TABLE)
        assert isinstance(answer, Charge) == (known is None and fits)
        if isinstance(answer, Charge):
            self.spent += rho
            self.replaced += cost.replaced.rho

    @rule(release=RELEASES, late=st.booleans())
    def debit(self, release: str, late: bool) -> None:
        before = self.ledger.charge(release)
        now = NOW.replace(hour=23) if late else NOW
        answer = self.ledger.debit(release, approvals="a" * 64, now=now)
        reserved = before is not None and before.state is ChargeState.RESERVED
        assert isinstance(answer, Debit) == (reserved and not late)
        if isinstance(answer, Debit) and before is not None:
            assert answer.rho_units == before.loss.rho.units
            self.debits.append(answer)
            self.debited[release] = before.loss.rho

    @rule(release=RELEASES)
    def redraw(self, release: str) -> None:
        before = self.ledger.charge(release)
        answer = self.ledger.redraw(release)
        if isinstance(answer, Refused):
            assert before is None or before.state is not ChargeState.DEBITED
        else:
            assert before is not None
            again = (before.attempt + 1, before.loss.rho.units, "a" * 64, TABLE)
            assert (answer.attempt, answer.rho_units, answer.approvals, answer.snapshot) == again
            self.debits.append(answer)

    @rule(data=st.data())
    def record_block(self, data: st.DataObject) -> None:
        if not self.debits:
            return
        debit = data.draw(st.sampled_from(self.debits))
        before = self.ledger.charge(debit.release)
        with self.store.transaction() as db:
            stored = self.ledger.record_block(db, debit, "b" * 64)
        assert before is not None
        assert stored == (before.state is ChargeState.DEBITED and before.attempt == debit.attempt)

    @rule(release=RELEASES)
    def acknowledge(self, release: str) -> None:
        before = self.ledger.charge(release)
        assert self.ledger.acknowledge(release) == (before is not None and before.state is ChargeState.STORED)

    @rule(release=RELEASES)
    def withdraw(self, release: str) -> None:
        before = self.ledger.charge(release)
        with self.store.transaction() as db:
            withdrawn = self.ledger.withdraw(db, release)
        open_ones = {ChargeState.RESERVED, ChargeState.DEBITED, ChargeState.STORED}
        assert withdrawn == (before is not None and before.state in open_ones)
        if before is not None and before.state is ChargeState.RESERVED:
            self.spent -= before.loss.rho  # the only way down
            self.replaced -= before.cost.replaced.rho

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()

    @rule(release=RELEASES)
    def crash_in_a_transaction(self, release: str) -> None:
        try:
            with self.store.transaction() as db:
                self.ledger.withdraw(db, release)
                raise KeyboardInterrupt  # noqa: TRY301 - power is cut here
        except KeyboardInterrupt:
            self.restart()

    @invariant()
    def spent_is_what_the_model_says_and_within_the_cap(self) -> None:
        assert (self.ledger.spent(), self.ledger.lost().replaced.rho) == (self.spent, self.replaced)
        assert self.spent <= self.cap.rho

    @invariant()
    def what_was_debited_is_counted_for_ever(self) -> None:
        states = {release: charge.state for release, charge in self.ledger.charges().items()}
        assert all(states[release] in COUNTING - {ChargeState.RESERVED} for release in self.debited)
        assert sum(rho.units for rho in self.debited.values()) <= self.ledger.spent().units

    @invariant()
    def the_chain_holds(self) -> None:
        self.ledger.verify()

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


LedgerMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLedger = LedgerMachine.TestCase
