"""What the protocol core refuses.

ProtocolError
├── DocumentError       bytes that are not the document they claim to be
├── SignatureError      a signature that does not verify, or by a key nobody expects
├── SpecError           a release spec that is well formed but makes no sense
├── BlockError          a block whose bytes do not match what was signed or specified
├── SubjectError        a list of subjects that cannot be aligned (local to a party)
├── ExchangeError       a step of a moments exchange that does not fit the others
│   └── DeviationError  what a member signed in one and no honest member would have
└── VerificationError   a published release that does not hold together
"""

from typing import TYPE_CHECKING

from commingle.shared.errors import CommingleError

if TYPE_CHECKING:  # envelopes raise these errors
    from commingle.shared.documents.dsse import Envelope


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


class SubjectError(ProtocolError):
    """A list of subjects that cannot be aligned. Counts only: it never names a subject."""

    code = "subjects"


class ExchangeError(ProtocolError):
    """A step of a moments exchange that does not fit the others; nothing more may be sent in it."""

    code = "exchange"


class DeviationError(ExchangeError):
    """What a member signed in an exchange and no honest member would have; the release ends.

    Attributes:
        party: which.
        evidence: two statements that it signed, of which it may sign one.
    """

    code = "deviation"

    def __init__(self, party: str, fault: str, evidence: "tuple[Envelope, Envelope] | None" = None) -> None:
        super().__init__(
            f"what {party} sent does not follow the exchange: {fault}",
            remedy="Ask that member. Propose a new release once it is explained.",
        )
        self.party, self.evidence = party, evidence


class VerificationError(ProtocolError):
    """A published release that does not hold together."""

    code = "verification"


def require(holds: bool, otherwise: str, *, remedy: str) -> None:
    """Refuse what does not hold. Raises VerificationError."""
    if not holds:
        raise VerificationError(otherwise, remedy=remedy)
