"""What was received and is no ciphertext, and what cannot be computed here.

CiphertextError         bytes of another size, residues that are not reduced, an opening beyond its bound; sizes
                        only, never a value
KernelsError            the compiled kernels cannot be loaded: the package was built without a C compiler

Sizes and entries outside their domain are faults of a caller inside Commingle, and plain ValueErrors (`DomainError`).
"""

from commingle.shared.errors import CommingleError


class CiphertextError(CommingleError):
    code = "ciphertext"


class KernelsError(CommingleError):
    code = "kernels"


class DomainError(ValueError):
    """An argument lies outside the domain for which the arithmetic is proved."""
