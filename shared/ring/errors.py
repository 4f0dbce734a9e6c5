"""What was received and is no ciphertext, and what cannot be computed here.

RingError
├── CiphertextError         bytes of another size, residues that are not reduced, an opening beyond its bound
└── KernelsError            the compiled kernels cannot be loaded

Sizes and entries outside their domain are faults of a caller inside Commingle, and plain ValueErrors (`DomainError`).
"""

from commingle.shared.errors import CommingleError


class RingError(CommingleError):
    """Something about encrypted columns."""

    code = "ring"


class CiphertextError(RingError):
    """Bytes that are not what their place asks for. Sizes only, never a value."""

    code = "ciphertext"


class KernelsError(RingError):
    """The package was built without a C compiler."""

    code = "kernels"


class DomainError(ValueError):
    """An argument lies outside the domain for which the arithmetic is proved."""
