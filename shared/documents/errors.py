"""What the protocol core refuses.

ProtocolError           something received does not follow the protocol
├── DocumentError       bytes that are not the document they claim to be
├── SignatureError      a signature that does not verify, or by a key nobody expects
├── SpecError           a release spec that is well formed but makes no sense
├── BlockError          a block whose bytes do not match what was signed or specified
├── ExchangeError       a step of a moments exchange that does not fit the others; nothing more may be sent in it
│   └── DeviationError  what a member signed in one and no honest member would have (in `statements`)
└── VerificationError   a published release that does not hold together
"""

from commingle.shared.errors import CommingleError


class ProtocolError(CommingleError):
    code = "protocol"


class DocumentError(ProtocolError):
    code = "document"


class SignatureError(ProtocolError):
    code = "signature"


class SpecError(ProtocolError):
    code = "spec"


class BlockError(ProtocolError):
    code = "block"


class ExchangeError(ProtocolError):
    code = "exchange"


class VerificationError(ProtocolError):
    code = "verification"


def require(holds: bool, otherwise: str, *, remedy: str) -> None:
    """Refuse what does not hold. Raises VerificationError."""
    if not holds:
        raise VerificationError(otherwise, remedy=remedy)
