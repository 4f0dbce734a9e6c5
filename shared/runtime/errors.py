"""What goes wrong around a process.

RuntimeFaultError
├── SettingsError        a settings file or option that cannot be used
├── KeyFileError         a key file that is missing, unreadable or malformed
├── PortInUseError       the address to listen on is taken
├── RequestSignatureError   a request that is not signed as it must be
│   └── ClockSkewError      signed too long before or after now
├── ScopeError           a token, or a signer, that is not meant for this
├── TooLargeError        a body beyond its limit
├── BusyError            too many requests wait already
├── TooCostlyError       a request that takes longer to compute than any may
├── NoRoomError          a body for which there is no room: on the disk, or in the share of who sends it
├── RequestBodyError     a body that is not what this endpoint takes
└── RemoteError          talking to another process failed
    ├── UnreachableError     nobody answered; trying again later may help
    ├── NonsenseError        something answered, but not a Commingle service
    └── RemoteProblemError   the service answered with a problem document
"""

from commingle.shared.errors import CommingleError


class RuntimeFaultError(CommingleError):
    """Something around the process is not as it must be."""

    code = "runtime"


class SettingsError(RuntimeFaultError):
    """A settings file or option that cannot be used."""

    code = "settings"


class KeyFileError(RuntimeFaultError):
    """A key file that is missing, unreadable or malformed."""

    code = "key-file"


class PortInUseError(RuntimeFaultError):
    """The address to listen on is taken."""

    code = "port-in-use"


class RequestSignatureError(RuntimeFaultError):
    """A request that is not signed as it must be."""

    code = "request-signature"


class ClockSkewError(RequestSignatureError):
    """A request that was signed too long before or after now."""

    code = "clock-skew"


class ScopeError(RuntimeFaultError):
    """A token, or a signer, that is not meant for this."""

    code = "scope"


class TooLargeError(RuntimeFaultError):
    """A body beyond its limit."""

    code = "too-large"


class BusyError(RuntimeFaultError):
    """Too many requests wait already, of all or of this client.

    Attributes:
        retry_seconds: when another try may go better.
    """

    code = "busy"
    retry_seconds = 3


class TooCostlyError(RuntimeFaultError):
    """A request that takes longer to compute than any may."""

    code = "too-costly"


class NoRoomError(RuntimeFaultError):
    """A body for which there is no room: on the disk, or in the share of who sends it."""

    code = "no-room"


class RequestBodyError(RuntimeFaultError):
    """A body that is not what this endpoint takes."""

    code = "request"


class RemoteError(RuntimeFaultError):
    """Talking to another process failed."""

    code = "remote"


class UnreachableError(RemoteError):
    """Nobody answered in time."""

    code = "unreachable"


class NonsenseError(RemoteError):
    """Something answered, but not a Commingle service."""

    code = "nonsense"


class RemoteProblemError(RemoteError):
    """The service answered with a problem document.

    Attributes:
        status: HTTP status.
        problem: the last part of the problem's `type`.
    """

    code = "remote-problem"

    def __init__(self, message: str, *, remedy: str, status: int, problem: str) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status
        self.problem = problem
