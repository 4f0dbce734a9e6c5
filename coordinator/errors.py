"""What the coordinator refuses or cannot do. HTTP statuses are given to these in `http/app.py`."""

from commingle.shared.errors import CommingleError


class CoordinatorError(CommingleError):
    code = "coordinator"


class UnauthenticatedError(CoordinatorError):  # neither a signature nor a valid token where one is needed
    code = "unauthenticated"


class ReplayedRequestError(CoordinatorError):  # a signed request that was received before
    code = "replayed-request"


class RevokedError(CoordinatorError):  # the caller is not a member any more
    code = "revoked"


class InviteError(CoordinatorError):  # an invite that is unknown, used, expired, or for another party or coordinator
    code = "invite"


class NameTakenError(CoordinatorError):  # the name or the key is enrolled already, with something else
    code = "name-taken"


class UnknownError(CoordinatorError):  # no such party or release
    code = "unknown"


class OtherBytesError(CoordinatorError):  # something else was recorded in this place before; what is recorded stays
    code = "other-bytes"


class TooManyProposalsError(CoordinatorError):  # a member has as many open proposals as it can have
    code = "too-many-proposals"


class QuotaError(CoordinatorError):  # the releases of a member take as many bytes as they may
    code = "quota"


class LedgerHeadError(CoordinatorError):  # a ledger head that does not follow the newest one that is known of its party
    code = "ledger-head"


class StateError(CoordinatorError):  # the release's state does not allow it
    code = "state"


class NotPublishedError(CoordinatorError):  # a file of a release that is not published
    code = "not-published"


class NotSentError(CoordinatorError):  # a message of an exchange that is not there yet, or not any more
    code = "not-sent"


class CursorError(CoordinatorError):  # a paging cursor that the coordinator did not give out
    code = "cursor"


class StorageError(CoordinatorError):  # the database or the blob directory does not work
    code = "storage"


class LostBlobError(StorageError):
    """A file that was stored is not in the blob directory any more, although the directory is, or has other bytes."""


class DamagedDatabaseError(StorageError):
    """The database's file is cut, altered or no database."""


class UnreachableDatabaseError(StorageError):
    """The database does not answer, or not to this coordinator."""
