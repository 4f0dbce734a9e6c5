"""What the protocol core refuses.

ProtocolError
├── DocumentError       bytes that are not the document they claim to be
├── SignatureError      a signature that does not verify, or by a key nobody expects
├── SpecError           a release spec that is well formed but makes no sense
├── BlockError          a block whose bytes do not match what was signed or specified
├── ExchangeError       a step of a moments exchange that does not fit the others
│   └── DeviationError  what a member signed in one and no honest member would have (in `statements`)
└── VerificationError   a published release that does not hold together
"""

from commingle.shared.errors import CommingleError


class ProtocolError(CommingleError):
    """Something received does not follow the protocol."""

    code = "protocol"


class DocumentError(ProtocolError):
    """Bytes that are not the document they claim to be."""

    code = "document"


class SignatureError(ProtocolError):
    """A signature that does not verify, or by a key nobody expects."""

    code = "signature"


class SpecError(ProtocolError):
    """A release spec that is well formed but makes no sense."""

    code = "spec"


class BlockError(ProtocolError):
    """A block whose bytes do not match what was signed or specified."""

    code = "block"


class ExchangeError(ProtocolError):
    """A step of a moments exchange that does not fit the others; nothing more may be sent in it."""

    code = "exchange"


class VerificationError(ProtocolError):
    """A published release that does not hold together."""

    code = "verification"


def require(holds: bool, otherwise: str, *, remedy: str) -> None:
    """Refuse what does not hold. Raises VerificationError."""
    if not holds:
        raise VerificationError(otherwise, remedy=remedy)
