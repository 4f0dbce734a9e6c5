"""What the protocol core refuses."""

from commingle.shared.errors import CommingleError


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
