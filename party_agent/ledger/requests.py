"""The regressions this party was asked for and paid for: as they were asked, and as the local API shows them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from sqlite3 import Connection

from commingle.party_agent.errors import NotFoundError
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.wire.answers import RegressionCharge, RegressionLine, RegressionView
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.regression import RegressionMethod, RegressionRequest, RegressionResult
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.release.charge import Charge, ChargeState


@dataclass(frozen=True, slots=True)
class Regression:
    """One that was paid for; without a signed result where it was interrupted, given up or is not witnessed yet."""

    request: RegressionRequest
    charge: Charge
    document: SignedDocument | None


@dataclass(frozen=True, slots=True)
class Requests:
    """The record, in the ledger's file."""

    store: AgentStore

    def add(self, db: Connection, request: RegressionRequest, *, method: RegressionMethod, created: datetime) -> None:
        """Note a request and the method it is debited for, in the transaction that debits its charge."""
        at = created.astimezone(UTC).isoformat()
        row = (request.id, at, encode(request), method)
        db.execute("INSERT INTO regressions (id, created, request, method) VALUES (?, ?, ?, ?)", row)

    def get(self, identifier: str) -> RegressionRequest:
        """One of them. Raises NotFoundError."""
        with self.store.reading() as db:
            row = db.execute("SELECT request FROM regressions WHERE id = ?", (identifier,)).fetchone()
        if row is None:
            raise NotFoundError("no such regression", remedy="List them: commingle party regressions")
        return decode(RegressionRequest, row["request"])

    def debited_for(self, identifier: str) -> RegressionMethod:
        """The method that was paid for."""
        with self.store.reading() as db:
            row = db.execute("SELECT method FROM regressions WHERE id = ?", (identifier,)).fetchone()
        method: RegressionMethod = row["method"]
        return method

    def all(self) -> list[str]:
        """Their ids, newest first."""
        with self.store.reading() as db:
            rows = db.execute("SELECT id FROM regressions ORDER BY rowid DESC").fetchall()
        return [row["id"] for row in rows]

    def since(self, moment: datetime) -> int:
        """How many were paid for after an aware moment."""
        with self.store.reading() as db:
            rows = db.execute("SELECT created FROM regressions").fetchall()
        return sum(datetime.fromisoformat(row["created"]) > moment for row in rows)


_STATES = {
    ChargeState.DEBITED: "interrupted: paid for, no result yet; the agent goes on with it while it serves",
    ChargeState.STORED: "published",
}
_UNWITNESSED = "kept: shown as soon as a coordinator has witnessed its charge"


def regression_line(regression: Regression) -> RegressionLine:
    """One line of the list."""
    request, charge = regression.request, regression.charge
    kept = charge.state is ChargeState.STORED and regression.document is None
    return RegressionLine(
        id=request.id,
        state=_UNWITNESSED if kept else _STATES.get(charge.state, charge.state.value),
        dataset=request.dataset,
        target=request.target,
        method=request.method,
        epsilon=request.epsilon,
        delta=request.delta,
        charge=RegressionCharge(unit=charge.cost.unit, rho=float(charge.loss.rho), delta=charge.loss.delta),
    )


def regression_view(regression: Regression) -> RegressionView:
    """One of them: as asked, what came out in plain, and the signed document that others can verify."""
    document = regression.document
    result = None if document is None else decode(RegressionResult, document.envelope.payload_bytes)
    return RegressionView(
        **dict(regression_line(regression)),
        request=regression.request.model_dump(mode="json"),
        result=result and result.model_dump(mode="json", exclude={"request"}),
        document=document,
    )
