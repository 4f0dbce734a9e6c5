"""What the coordinator refuses or cannot do. HTTP statuses are given to these in `http/app.py`.

CoordinatorError
├── InviteError          an invite that does not let this party in
├── NameTakenError       the name or key is enrolled already, with something else
├── UnknownError         no such party or release
├── OtherBytesError      something else was recorded in this place before
├── StateError           the release's state does not allow it
├── NotPublishedError    asked for a file of a release that is not published
├── CursorError          a paging cursor this coordinator did not give out
├── TooLargeError        a body beyond its limit
├── TruncatedError       a body that ended early
└── StorageError         the database or the blob directory does not work
"""

from shared.errors import CommingleError


class CoordinatorError(CommingleError):
    """Something the coordinator refuses or cannot do."""

    code = "coordinator"


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


class StateError(CoordinatorError):
    """The release's state does not allow it."""

    code = "state"


class NotPublishedError(CoordinatorError):
    """A file of a release that is not published."""

    code = "not-published"


class CursorError(CoordinatorError):
    """A paging cursor this coordinator did not give out."""

    code = "cursor"


class TooLargeError(CoordinatorError):
    """A body beyond its limit."""

    code = "too-large"


class TruncatedError(CoordinatorError):
    """A body that ended early."""

    code = "truncated"


class StorageError(CoordinatorError):
    """The database or the blob directory does not work."""

    code = "storage"
