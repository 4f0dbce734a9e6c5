"""What the coordinator refuses or cannot do. HTTP statuses are given to these in `http/app.py`.

CoordinatorError
├── UnauthenticatedError   neither a signature nor a valid token where one is needed
├── ReplayedRequestError   a signed request that was received before
├── RevokedError           the caller is not a member any more
├── InviteError            an invite that is unknown, used, expired, for another party or for another coordinator
├── NameTakenError         the name or the key is enrolled already, with something else
├── UnknownError           no such party or release
├── OtherBytesError        something else was recorded in this place before; what is recorded stays
├── TooManyProposalsError  a member has as many open proposals as it can have
├── QuotaError             the releases of a member take as many bytes as they may
├── LedgerHeadError        a ledger head that does not follow the newest one that is known of its party
├── StateError             the release's state does not allow it
├── NotPublishedError      a file of a release that is not published
├── NotSentError           what a party sends in an exchange, and is not there yet or not any more
├── CursorError            a paging cursor this coordinator did not give out
├── TruncatedError         a body that ended early
└── StorageError           the database or the blob directory does not work
    ├── LostBlobError            a stored file is gone, although its directory is there, or has other bytes
    └── UnreachableDatabaseError the database does not answer, or not to this coordinator
"""

from commingle.shared.errors import CommingleError


class CoordinatorError(CommingleError):
    """Something the coordinator refuses or cannot do."""

    code = "coordinator"


class UnauthenticatedError(CoordinatorError):
    code = "unauthenticated"


class ReplayedRequestError(CoordinatorError):
    code = "replayed-request"


class RevokedError(CoordinatorError):
    code = "revoked"


class InviteError(CoordinatorError):
    code = "invite"


class NameTakenError(CoordinatorError):
    code = "name-taken"


class UnknownError(CoordinatorError):
    code = "unknown"


class OtherBytesError(CoordinatorError):
    code = "other-bytes"


class TooManyProposalsError(CoordinatorError):
    code = "too-many-proposals"


class QuotaError(CoordinatorError):
    code = "quota"


class LedgerHeadError(CoordinatorError):
    code = "ledger-head"


class StateError(CoordinatorError):
    code = "state"


class NotPublishedError(CoordinatorError):
    code = "not-published"


class NotSentError(CoordinatorError):
    code = "not-sent"


class CursorError(CoordinatorError):
    code = "cursor"


class TruncatedError(CoordinatorError):
    code = "truncated"


class StorageError(CoordinatorError):
    code = "storage"


class LostBlobError(StorageError):
    """A file that was stored is not in the blob directory any more, although the directory is, or has other bytes."""


class UnreachableDatabaseError(StorageError):
    """The database does not answer, or not to this coordinator."""
