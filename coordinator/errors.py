"""What the coordinator refuses or cannot do. HTTP statuses are given to these in `http/app.py`.

CoordinatorError
├── UnauthenticatedError neither a signature nor a token where one is needed
├── ReplayedRequestError a signed request that was received before
├── RevokedError         the caller is not a member any more
├── InviteError          an invite that does not let this party in
├── NameTakenError       the name or key is enrolled already, with something else
├── UnknownError         no such party or release
├── OtherBytesError      something else was recorded in this place before
├── TooManyProposalsError a member has as many open proposals as it can have
├── QuotaError           the releases of a member take as much as they may
├── LedgerHeadError      a ledger head that does not follow the newest one that is known
├── StateError           the release's state does not allow it
├── NotPublishedError    asked for a file of a release that is not published
├── NotSentError        asked for what the release has not come to yet
├── CursorError          a paging cursor this coordinator did not give out
├── TruncatedError       a body that ended early
└── StorageError         the database or the blob directory does not work
    ├── LostBlobError       a file that was stored is gone or damaged
    └── UnreachableDatabaseError   the database does not answer
"""

from commingle.shared.errors import CommingleError


class CoordinatorError(CommingleError):
    """Something the coordinator refuses or cannot do."""

    code = "coordinator"


class UnauthenticatedError(CoordinatorError):
    """Neither a signature nor a valid token where one is needed."""

    code = "unauthenticated"


class ReplayedRequestError(CoordinatorError):
    """A signed request that was received before."""

    code = "replayed-request"


class RevokedError(CoordinatorError):
    """The member was revoked."""

    code = "revoked"


class InviteError(CoordinatorError):
    """An invite that is unknown, used, expired, for another party or for another coordinator."""

    code = "invite"


class NameTakenError(CoordinatorError):
    """The name or the key is enrolled already, with something else."""

    code = "name-taken"


class UnknownError(CoordinatorError):
    """No such party or release."""

    code = "unknown"


class OtherBytesError(CoordinatorError):
    """Something else was recorded in this place before; what is recorded stays."""

    code = "other-bytes"


class TooManyProposalsError(CoordinatorError):
    """A member has as many open proposals as it can have."""

    code = "too-many-proposals"


class QuotaError(CoordinatorError):
    """The releases of a member take as many bytes as they may."""

    code = "quota"


class LedgerHeadError(CoordinatorError):
    """A ledger head that does not follow the newest one that is known of its party."""

    code = "ledger-head"


class StateError(CoordinatorError):
    """The release's state does not allow it."""

    code = "state"


class NotPublishedError(CoordinatorError):
    """A file of a release that is not published."""

    code = "not-published"


class NotSentError(CoordinatorError):
    """What a party sends in an exchange, and is not there yet or not any more."""

    code = "not-sent"


class CursorError(CoordinatorError):
    """A paging cursor this coordinator did not give out."""

    code = "cursor"


class TruncatedError(CoordinatorError):
    """A body that ended early."""

    code = "truncated"


class StorageError(CoordinatorError):
    """The database or the blob directory does not work."""

    code = "storage"


class LostBlobError(StorageError):
    """A file that was stored is not in the blob directory any more, although the directory is, or has other bytes."""


class UnreachableDatabaseError(StorageError):
    """The database does not answer, or not to this coordinator."""
