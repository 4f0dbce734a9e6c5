"""What goes wrong at a party. These messages are for the party's own people and never cross the wire."""

from commingle.shared.documents.statements import RejectionReason
from commingle.shared.errors import CommingleError
from commingle.shared.errors import DataError as DataError  # noqa: PLC0414 - the agent's name for it too
from commingle.shared.runtime.errors import BusyError, RemoteError


class AgentError(CommingleError):  # something a party's operator has to look at
    code = "agent"


class SourceError(AgentError):  # the file or database cannot be read just now
    code = "source"


_RETRIED = "Free space or mend the disk; nothing was sent and it is retried."


class WritingError(AgentError):
    """What was to be recorded cannot be written; nothing was sent. Repeat a request; other work is tried again.

    Attributes:
        errno: the operating system's or SQLite's name for it, where there is one.
    """

    code = "disk"

    def __init__(self, message: str, *, remedy: str = _RETRIED, errno: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.errno = errno


class LedgerBusyError(AgentError):  # another program holds the ledger's file; nothing was recorded. Try again
    code = "ledger-busy"


class NotFoundError(AgentError):  # no such data set, proposal or job at this agent
    code = "unknown"


class ConflictError(AgentError):  # it exists already, or the agent is past the point where this could be done
    code = "conflict"


class LostError(ConflictError):
    """Rows, columns, a reply or a block are gone; making others would be a second draw, so the release is given up."""


class ForbiddenError(ConflictError):
    """Policy or pins forbid by now what was approved.

    Attributes:
        reason: the code that travels in a withdrawal; None where the party can still put it right itself.
    """

    def __init__(self, message: str, *, reason: RejectionReason | None) -> None:
        super().__init__(message, remedy="It is looked at again once that is put right; or reject the release.")
        self.reason = reason


class LedgerError(AgentError):  # the ledger refuses to continue
    code = "ledger"


class StaleLedgerError(LedgerError):  # the ledger was set back: somebody holds a signature of ours that it lacks
    code = "stale-ledger"


class UnwitnessedError(AgentError):  # nobody who could witness the ledger answers; what was made is kept and not shown
    code = "unwitnessed"


class AgentRunningError(AgentError):  # another process works on this home directory
    code = "agent-running"


class PeerError(AgentError):  # another user's process listens in the agent's place
    code = "peer"


class OtherNameError(RemoteError):  # the coordinator knows this member's key under another name
    code = "other-name"


class SourceRefusedError(AgentError):  # a table that the caller may not register, or that nobody may
    code = "source-refused"


class SampleError(AgentError):  # rows and labels that are no regression problem; told by sizes, never by a value
    code = "regression-sample"


class PieceError(AgentError):  # pushed rows in a form that cannot be read; told by sizes, never by a value
    code = "piece"


class TooManyUploadsError(BusyError):  # a token has as many uploads open as it can have, or all tokens together
    code = "too-many-uploads"
    retry_seconds = 60


class WebhookError(AgentError):  # the receiver of the webhook does not take the message
    code = "webhook"
