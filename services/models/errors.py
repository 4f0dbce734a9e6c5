"""What a generalised linear model refuses beyond what a fit refuses.

shared.estimation.errors.RequestError
├── FormulaError       a text that is no formula
├── InteractionError   a product of features, which sums of pairs cannot tell
├── FamilyError        a family that there is not, or an outcome that it cannot have
└── RowCountError      no synthetic rows, or too many
"""

from commingle.shared.estimation.errors import RequestError


class FormulaError(RequestError):
    """A text that is no formula."""

    code = "formula"


class InteractionError(RequestError):
    """A product of features: with the outcome it is one of three attributes, and a release has sums of two."""

    code = "interaction"


class FamilyError(RequestError):
    """A family that there is not, or an outcome that it cannot have."""

    code = "family"


class RowCountError(RequestError):
    """No synthetic rows, or too many."""

    code = "row-count"
