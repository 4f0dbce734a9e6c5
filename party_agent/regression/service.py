"""A regression from request to signed result. It can crash anywhere; asked again, or by the agent's loop, it goes on.

Ordering rules, as for blocks (docs/design/states.md#ordering-rules): we ask the ledger's witnesses before the debit;
request and debit are one transaction; noise is drawn after it; the result is signed, recorded and witnessed before
anybody sees it. A charge that is debited and has no result has let nothing out, so noise is drawn again under it. A
recorded result is never computed again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from sqlite3 import Connection
from threading import RLock
from typing import TypeVar

import structlog

from commingle.party_agent.errors import ConflictError, LostError, NotFoundError, UnwitnessedError
from commingle.party_agent.home.datasets import Dataset
from commingle.party_agent.home.policy import Finding, Usage
from commingle.party_agent.ledger.store import Regression, Requests
from commingle.party_agent.private.regression.problem import Estimate
from commingle.party_agent.private.regression.regress import regress
from commingle.party_agent.private.snapshot import Debit, Snapshot
from commingle.party_agent.regression.plan import RegressionPlan, examine_regression, plan_regression, require_unit
from commingle.party_agent.rounds.party import Party
from commingle.party_agent.rounds.proposals import in_words
from commingle.party_agent.wire.answers import Stage
from commingle.shared import __version__
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.regression import RegressionRequest, RegressionResult, coefficients_of
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.errors import SpecError
from commingle.shared.release.charge import Charge, ChargeState, ChargeTerms
from commingle.shared.release.rounds import Refused
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import RemoteError

Answer = TypeVar("Answer", Charge, Debit)
_log = structlog.get_logger()
_STUDY = "regression"
_one_table_in_memory = RLock()  # and nobody goes on with what somebody else is computing
_DAY = timedelta(days=1)  # a charge has to say when it expires; this one is debited in the same transaction


@dataclass(frozen=True, slots=True)
class Regressions:
    agent: Party

    @property
    def requests(self) -> Requests:
        return Requests(self.agent.store)

    def ask(self, request: RegressionRequest) -> Regression:
        """Compute, or go on with, or find the regression of this very request.

        Raises:
            ConflictError: something speaks against it, in words naming the rule; nothing was spent then. Or it was
                given up before.
            UnwitnessedError: no witness of the ledger answers. Nothing was spent, or the result is kept until one
                does.
            StaleLedgerError: the ledger was set back; nothing was spent.
            NotFoundError, SpecError, ParameterError: it makes no sense; nothing was spent.
            LostError: the snapshot is lost. If that shows after the debit, the charge stays.
        """
        with _one_table_in_memory:
            return self._ask(request)

    def finish(self, identifier: str) -> None:
        """Go on with one that was paid for, unless somebody is at it; never pay. Raises as `ask` does."""
        if not _one_table_in_memory.acquire(blocking=False):
            return
        try:
            known = self.agent.ledger.charge(identifier)
            if known is not None and known.state is ChargeState.DEBITED:
                self._ask(self.requests.get(identifier))
        finally:
            _one_table_in_memory.release()

    def get(self, identifier: str) -> Regression:
        request = self.requests.get(identifier)
        ledger = self.agent.ledger
        envelope, place = ledger.signature(identifier, "regression"), ledger.signed_place("regression", identifier)
        document = None
        if envelope is not None and self.agent.witnesses.covers(place):
            signer = envelope.signatures[0].keyid
            key = next(key for key in self.agent.identity.keys if key.fingerprint == signer)
            document = SignedDocument(signing_key=key.raw.hex(), envelope=envelope)
        return Regression(request, self.agent.ledger.charge_of(identifier), document)

    def all(self) -> list[Regression]:
        """Newest first."""
        return [self.get(identifier) for identifier in self.requests.all()]

    def _ask(self, request: RegressionRequest) -> Regression:
        known = self.agent.ledger.charge(request.id)
        if known is not None and known.state is ChargeState.STORED:
            return self._witnessed(request.id)
        with _witnesses_answering("nothing was paid for, drawn or shown"):
            self.agent.witnesses.ask()
        dataset = self.agent.datasets.get(request.dataset)
        require_unit(request, dataset.name, dataset.subjects)
        snapshot = self._snapshot(request.id, known, dataset)
        if known is None:
            among = self.agent.home.policy().regressions.methods
            plan = plan_regression(request, snapshot.attributes, snapshot.n, among=among)
            debit = self._debit(request, plan, dataset, snapshot)
        else:
            plan = self._plan_again(known, request, snapshot)
            debit = _require_granted(self.agent.ledger.redraw(request.id))
        if known is None:
            _log.info("debited", regression=request.id, rho=float(plan.task.cost.loss.rho))
        faults.reach("party.regression.debited")
        estimate = self._estimate(request.id, plan, snapshot, debit)
        faults.reach("party.regression.drawn")
        self._store(request, plan, estimate, debit)
        faults.reach("party.regression.stored")
        return self._witnessed(request.id)

    def _witnessed(self, identifier: str) -> Regression:
        with _witnesses_answering("the result is kept, and shown as soon as its charge is witnessed"):
            self.agent.witnesses.accept(self.agent.ledger.signed_place("regression", identifier))
        return self.get(identifier)

    def _debit(self, request: RegressionRequest, plan: RegressionPlan, dataset: Dataset, snapshot: Snapshot) -> Debit:
        self._require_nothing_against(self._examine(request, plan))
        now, ledger = self.agent.clock(), self.agent.ledger
        with self.agent.store.transaction() as db:
            self._require_nothing_against(self._examine(request, plan))  # again: others may have spent meanwhile
            if self.agent.datasets.get(dataset.name).snapshot != snapshot.digest:  # or it is forgotten, and paid for
                raise ConflictError("the data set was read again meanwhile", remedy="Ask again.")
            terms = ChargeTerms(
                dataset=dataset.name, study=_STUDY, kind="regression", expires=now + _DAY, coordinator=""
            )
            _require_granted(ledger.reserve(db, request.id, plan.task.cost, terms, snapshot=snapshot.digest))
            self.requests.add(db, request, method=plan.name, created=now)
            return _require_granted(ledger.debit_in(db, request.id, approvals=request.id, now=now))

    def _snapshot(self, identifier: str, charge: Charge | None, dataset: Dataset) -> Snapshot:
        if charge is None:
            return self.agent.datasets.snapshot(dataset.snapshot)
        if charge.state is not ChargeState.DEBITED:
            raise ConflictError(
                f"the regression was {charge.state}; its charge stays", remedy="Ask again: that costs budget again."
            )
        try:
            return self.agent.datasets.snapshot(self.agent.ledger.to_read(identifier))
        except NotFoundError:
            self._give_up(identifier)
            raise LostError(
                "the snapshot that the regression was paid for is lost",
                remedy="The regression was given up and its charge stays; ask again.",
            ) from None

    def _plan_again(self, charge: Charge, request: RegressionRequest, snapshot: Snapshot) -> RegressionPlan:
        try:
            among = (self.requests.debited_for(request.id),)
            plan = plan_regression(request, snapshot.attributes, snapshot.n, among=among)
        except SpecError:
            self._give_up(request.id)
            raise
        if charge.cost != plan.task.cost:
            self._give_up(request.id)
            raise ConflictError(
                "this version needs another charge than the one that was paid",
                remedy="The regression was given up and its charge stays; ask again.",
            )
        return plan

    def _examine(self, request: RegressionRequest, plan: RegressionPlan) -> tuple[Finding, ...]:
        agent = self.agent
        usage = Usage(
            datasets=agent.lost_by(request.dataset), approved_today=agent.spent_on_today(), delta=agent.ledger.cap.delta
        )
        findings = examine_regression(request, plan, agent.home.policy(), usage, now=agent.clock())
        return (*findings, *agent.beyond_cap(plan.task.cost))

    def _require_nothing_against(self, findings: Sequence[Finding]) -> None:
        if findings:
            rules = {one.rule for one in findings}
            of_cap = ["Ask for less than is left: commingle party ledger. Spent budget never returns."]
            of_policy = ["Change the request, or the rule in policy.json."]
            remedies = of_cap * ("epsilon_cap" in rules) + of_policy * bool(rules - {"epsilon_cap"})
            raise ConflictError("; ".join(in_words(findings)), remedy=" ".join(remedies))

    def _estimate(self, identifier: str, plan: RegressionPlan, snapshot: Snapshot, debit: Debit) -> Estimate:
        agent = self.agent
        agent.jobs.begin(identifier, Stage.PRIVATISING, total=plan.task.n)
        progress = agent.jobs.progress(identifier)
        try:
            return regress(
                snapshot, plan.task, charge=debit, draw=agent.draw, generator=agent.generator, progress=progress
            )
        except LostError:
            self._give_up(identifier)
            raise

    def _give_up(self, identifier: str) -> None:
        with self.agent.store.transaction() as db:
            self.agent.ledger.withdraw(db, identifier)

    def _store(self, request: RegressionRequest, plan: RegressionPlan, estimate: Estimate, debit: Debit) -> None:
        agent = self.agent
        with agent.store.transaction() as db:
            result = self._result(db, request, plan, estimate)
            envelope = seal(result, key=agent.identity.signing_key)
            if not agent.ledger.record_block(db, debit, envelope.digest):
                raise ConflictError("another attempt has taken over this regression", remedy="Ask for it again.")
            agent.ledger.sign_off(db, request.id, "regression", envelope)
        agent.jobs.end(request.id, Stage.PUBLISHED)
        _log.info("regression stored", regression=request.id, method=plan.name)

    def _result(
        self, db: Connection, request: RegressionRequest, plan: RegressionPlan, estimate: Estimate
    ) -> RegressionResult:
        task, agent = plan.task, self.agent
        return RegressionResult(
            party=agent.identity.name,
            request=request,
            method=plan.name,
            calibration=task.privacy.calibration.value,
            reason=plan.reason,
            target=task.target,
            features=task.features,
            n=task.n,
            coefficients=coefficients_of(
                tuple(estimate.coefficients.tolist()), task.target, task.features, mapping=task.rows.mapping
            ),
            published={
                name: (float(value),) if isinstance(value, int | float) else tuple(map(float, value))
                for name, value in estimate.published.items()
            },
            privacy=plan.promise,
            created=agent.clock(),
            ledger_head=agent.ledger.head(db),
            software=f"commingle {__version__}",
        )


@contextmanager
def _witnesses_answering(otherwise: str) -> Iterator[None]:
    try:
        yield
    except RemoteError as error:
        raise UnwitnessedError(
            f"the ledger has no witness just now ({error}): {otherwise}",
            remedy="Ask for the same again when the coordinator answers; what was paid for is not paid for twice.",
        ) from None


def _require_granted(answer: Answer | Refused) -> Answer:
    if isinstance(answer, Refused):
        raise ConflictError(answer.reason, remedy="See commingle party ledger.")
    return answer
