"""What was received and is no ciphertext, and what cannot be computed here.

Sizes and entries outside their domain are faults of a caller inside Commingle, and plain ValueErrors (`DomainError`).
"""

from commingle.shared.errors import CommingleError


class CiphertextError(CommingleError):  # bytes of another size, residues not reduced, an opening beyond its bound
    code = "ciphertext"


class KernelsError(CommingleError):  # compiled kernels are missing: the package was built without a C compiler
    code = "kernels"


class DomainError(ValueError):
    """An argument lies outside the domain for which the arithmetic is proved."""
