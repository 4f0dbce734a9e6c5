"""The errors that Commingle raises on purpose: their root, and those of arithmetic, documents, proofs and fits.

Arguments outside their domain, and statements that are false where they are to be proved, are faults of a caller inside
Commingle: plain ValueErrors (`MixingError`, `DomainError`). Expected refusals (a budget that does not suffice, a
proposal that a policy declines) are values, not errors.
"""

import copyreg
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, ClassVar

from commingle.shared.text import printable


class CommingleError(Exception):
    """A fault that a person can act on. What it says is printable, no matter who wrote the names in it.

    Attributes:
        code: stable identifier, the last part of a problem document's `type`.
        remedy: one sentence that says what to do about it.
    """

    code: ClassVar[str] = "fault"

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(printable(message, keep_lines=True))
        self.remedy = printable(remedy, keep_lines=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by what it holds: a subclass may take other arguments than the message."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined] # pickle's own

    def diagnostics(self) -> str:
        """The message and its remedy, as a command line prints them."""
        return f"{self}\n  {self.remedy}"


class DataError(CommingleError):  # rows that do not fit their schema; told by column and counts, never by a value
    code = "data"


class MissingExtraError(CommingleError):
    """An optional library is not installed.

    Attributes:
        extra: the extra of `commingle` that brings it.
    """

    code = "missing-extra"

    def __init__(self, package: str, *, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{package} is not installed", remedy=f'Install it with: pip install "commingle[{extra}]"')


class MixingError(ValueError):
    """An argument lies outside the domain for which the projection is defined and exact."""


class PrivacyError(CommingleError):  # something that would void a guarantee
    code = "privacy"


class ParameterError(PrivacyError):  # epsilon, delta, rho, row_norm or a size outside its domain
    code = "privacy-parameter"


class EncodingRangeError(PrivacyError):  # an encoded value outside [-1, 1]: it should have been clipped
    code = "encoding-range"


class PlanningError(CommingleError):  # no label, or assumptions that contradict each other
    code = "planning"


class CiphertextError(CommingleError):  # bytes of another size, residues not reduced, an opening beyond its bound
    code = "ciphertext"


class KernelsError(CommingleError):  # compiled kernels are missing: the package was built without a C compiler
    code = "kernels"


class DomainError(ValueError):
    """An argument lies outside the domain for which the arithmetic is proved."""


class ProofError(CommingleError):
    """A proof that fails. Anybody who has the statement and the bytes finds the same.

    `failed` is the check that did: `size`, `residues`, `sums`, `total`, `commitment`, `code`, `linear` or `quadratic`.
    """

    code = "proof"

    def __init__(self, failed: str) -> None:
        super().__init__(
            f"a proof about encrypted columns fails: {failed}",
            remedy="Its sender made it wrongly or breaks the rules. End the release, and keep the proof: it shows who.",
        )
        self.failed = failed


class ProtocolError(CommingleError):  # something received does not follow the protocol
    code = "protocol"


class DocumentError(ProtocolError):  # bytes that are not the document they claim to be
    code = "document"


class SignatureError(ProtocolError):  # a signature that does not verify, or by a key nobody expects
    code = "signature"


class SpecError(ProtocolError):  # a release spec that is well formed but makes no sense
    code = "spec"


class BlockError(ProtocolError):  # a block whose bytes do not match what was signed or specified
    code = "block"


class ExchangeError(ProtocolError):  # a step that does not fit the others of its exchange, which is over
    code = "exchange"


class VerificationError(ProtocolError):  # a published release that does not hold together
    code = "verification"


def require(holds: bool, otherwise: str, *, remedy: str) -> None:
    """Refuse what does not hold. Raises VerificationError."""
    if not holds:
        raise VerificationError(otherwise, remedy=remedy)


class EstimationError(CommingleError):  # a fit or a prediction that cannot be computed
    code = "estimation"


class MomentsMismatchError(EstimationError):  # the moments and the schema are not of one release
    code = "moments-mismatch"


class RequestError(EstimationError):  # a fit nobody can compute as asked
    code = "fit-request"


class _UnknownNameError(RequestError):
    what = "name"

    def __init__(self, name: str, available: Iterable[str], *, said: str | None = None) -> None:
        self.name = name
        self.available = tuple(available)
        close = get_close_matches(str(name), self.available)
        guess = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
        available_names = ", ".join(self.available) or "none"
        super().__init__(said or f"there is no {self.what} {name!r}", remedy=f"{guess}Available: {available_names}.")


class UnknownAttributeError(_UnknownNameError):  # a name that the release does not have
    code = "unknown-attribute"
    what = "attribute"


class UnknownEstimatorError(_UnknownNameError):  # a name that is not an estimator
    code = "unknown-estimator"
    what = "estimator"


class EstimatorKindError(RequestError):  # an estimator for another kind of release
    code = "estimator-kind"


class CategoricalTargetError(RequestError):  # the target has three levels or more
    code = "categorical-target"


class ImputedTargetError(RequestError):  # the target's missing cells count as a value, or cannot be told apart
    code = "imputed-target"


class TargetAmongFeaturesError(RequestError):  # the target would predict itself
    code = "target-among-features"


class FeaturesError(RequestError):  # no features, or one of them twice
    code = "features"


class InterceptError(RequestError):  # the estimator `constant` without an intercept
    code = "intercept"


class ConfidenceError(RequestError):  # a confidence level not between 0 and 1, or an interval for something unknown
    code = "confidence"


class TooFewRowsError(EstimationError):  # fewer published rows than a fit of that size needs
    code = "too-few-rows"


class NoOverlapError(EstimationError):  # two parties may share hardly anybody, or one hold hardly anybody
    code = "no-overlap"


class SingularError(EstimationError):  # one term is a linear combination of the others
    code = "singular"


class RowsError(EstimationError):  # rows that cannot be predicted
    code = "rows"


class NoTablesError(EstimationError):  # the release does not hold the sums that this needs
    code = "no-tables"
