"""What the local API shows of regressions."""

from typing import Any

from commingle.party_agent.ledger import ChargeState
from commingle.party_agent.regression.requests import Regression
from commingle.shared.documents.model import decode
from commingle.shared.documents.regression import RegressionResult

_STATES = {
    ChargeState.DEBITED: "interrupted: paid for, no result yet; the agent goes on with it while it serves",
    ChargeState.STORED: "published",
}


def regression_line(regression: Regression) -> dict[str, Any]:
    """One line of the list."""
    request, charge = regression.request, regression.charge
    return {
        "id": request.id,
        "state": _STATES.get(charge.state, charge.state.value),
        "dataset": request.dataset,
        "target": request.target,
        "method": request.method,
        "epsilon": request.epsilon,
        "delta": request.delta,
        "charge": {"rho": float(charge.rho), "delta": charge.delta},
    }


def regression_view(regression: Regression) -> dict[str, Any]:
    """One of them: as asked, what came out in plain, and the signed document that others can verify."""
    document = regression.document
    result = None if document is None else decode(RegressionResult, document.envelope.payload_bytes)
    return {
        **regression_line(regression),
        "request": regression.request.model_dump(mode="json"),
        "result": result and result.model_dump(mode="json", exclude={"request"}),
        "document": document and document.model_dump(mode="json"),
    }
