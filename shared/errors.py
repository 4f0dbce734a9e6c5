"""The root of every error Commingle raises on purpose, and what arithmetic, proofs and planning refuse.

Arguments outside their domain, and statements that are false where they are to be proved, are faults of a caller inside
Commingle: plain ValueErrors (`MixingError`, `DomainError`). Expected refusals (a budget that does not suffice, a
proposal that a policy declines) are values, not errors.
"""

import copyreg
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
