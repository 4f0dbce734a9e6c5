"""Faults around a process."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from commingle.shared.errors import CommingleError

ANOTHER_VERSION = "Run the version of Commingle that wrote it, or a newer one (commingle --version tells which runs)."
"""The remedy for a file of a format that this version does not read (ADR 32)."""


class RuntimeFaultError(CommingleError):  # something around the process is not as it must be
    code = "runtime"


class SettingsError(RuntimeFaultError):  # a settings file or option that cannot be used
    code = "settings"


class KeyFileError(RuntimeFaultError):  # a key file that is missing, unreadable or malformed
    code = "key-file"


class PortInUseError(RuntimeFaultError):  # the address to listen on is taken
    code = "port-in-use"


class RequestSignatureError(RuntimeFaultError):  # a request that is not signed as it must be
    code = "request-signature"


class ClockSkewError(RequestSignatureError):  # a request that was signed too long before or after now
    code = "clock-skew"


class SignInError(RuntimeFaultError):  # a single sign-on that could not be completed
    code = "sign-in"


class ScopeError(RuntimeFaultError):  # a token, or a signer, that is not meant for this
    code = "scope"


class TooLargeError(RuntimeFaultError):  # a body beyond its limit
    code = "too-large"


class TruncatedError(RuntimeFaultError):  # a body that ended early, or did not come in time
    code = "truncated"


class BusyError(RuntimeFaultError):
    """Too many requests wait already, of all or of this client."""

    code = "busy"
    retry_seconds = 3  # until another try may go better


class TooCostlyError(RuntimeFaultError):  # a request that takes longer to compute than any may
    code = "too-costly"


class NoRoomError(RuntimeFaultError):  # no room for a body: on the disk, or in the share of its sender
    code = "no-room"


class RequestBodyError(RuntimeFaultError):  # a body that is not what this endpoint takes
    code = "request"


class RemoteError(RuntimeFaultError):  # talking to another process failed
    code = "remote"


class UnreachableError(RemoteError):  # nobody answered; trying again later may help
    code = "unreachable"


class NonsenseError(RemoteError):  # something answered, but not a Commingle service
    code = "nonsense"


class RemoteProblemError(RemoteError):
    """The service answered with a problem document."""

    code = "remote-problem"

    def __init__(self, message: str, *, remedy: str, status: int, problem: str) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status
        self.problem = problem  # the last part of the document's `type`

    @property
    def says_unknown(self) -> bool:
        """Whether that service does not know what was asked for; the 404 of a proxy or another service is none."""
        return self.status == HTTPStatus.NOT_FOUND and self.problem == "unknown"


_GENERAL = "Look the code up in docs/errors.md; the operator of that service can say more."
_BY_CODE: Mapping[str, str] = MappingProxyType(
    {
        "truncated": "Send it again; check the network and the proxies in between.",
        "unauthenticated": "Ask the operator for a token, or sign with the key the member enrolled with.",
        "request-signature": "Sign with the enrolled key; find the proxy that changes bodies or paths.",
        "clock-skew": "Set the clock by NTP on both sides.",
        "replayed-request": "Repeat the command: every request is signed afresh.",
        "scope": "A member acts for itself only; a token has to be of the right scope.",
        "revoked": "Ask the coordinator's operator for an invite: in the same name if it left, else in another.",
        "invite": "Ask the coordinator's operator for an invite in this member's name.",
        "signature": "Sign with the enrolled key; fetch the document again from its author.",
        "unknown": "Check the id or name; list what there is.",
        "name-taken": "Use another name or a fresh key.",
        "other-bytes": "Send the very bytes that were sent before.",
        "state": "See where the release stands; propose a new one if it ended.",
        "not-published": "Follow its state; every member must approve and upload first.",
        "not-sent": "Wait: the exchange has not come so far, or is over.",
        "too-large": "Send the document or block that this place asks for.",
        "document": "Run the same version on both sides.",
        "spec": "Correct the study and propose it again.",
        "exchange": "Send nothing more in this exchange; propose a new release.",
        "deviation": "Ask the member that is named; propose a new release once it is explained.",
        "block": "Send the stored bytes of the block that was signed.",
        "privacy-parameter": "Correct the study's epsilon, delta or sizes.",
        "cursor": "Use `next` of the previous page, or none.",
        "request": "Run the same version on both sides.",
        "storage": "Nothing was recorded; repeat it later.",
        "fault": "Try again; if it persists, ask the service's operator for its log.",
        "http": "Check the address, that no proxy changes paths, and that the service is not of an older version.",
        "busy": "Try again in a few seconds, one request at a time.",
        "too-costly": "Ask for less, or compute it on a machine of your own.",
        "too-many-proposals": "Wait until a proposal is over, or have a member reject one.",
        "ledger-head": "Compare with the member's own ledger; after a restore: commingle party adopt.",
    }
)


def remedy_for(problem: str) -> str:
    return _BY_CODE.get(problem, _GENERAL)
