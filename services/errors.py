"""What goes wrong with published releases outside of their mathematics.

ServicesError
├── ReleaseDirectoryError    a directory that does not hold a release, or cannot be written
├── UnknownReleaseError      the coordinator has no release of that id
├── UnpublishedError         the release exists, its matrix does not yet or never will
├── UnknownCursorError       not a cursor of the coordinator's list
├── TableError               a table that nothing can be planned or simulated on
└── OutputError              a file or a directory that cannot be written to

A release whose signatures or digests do not hold is `shared.documents.errors.VerificationError`, a coordinator that
does not answer `shared.runtime.errors.RemoteError`, a fit that cannot be computed
`shared.estimation.errors.EstimationError`.
"""

from commingle.shared.errors import CommingleError


class ServicesError(CommingleError):
    """Something about a published release that a person can act on."""

    code = "services"


class ReleaseDirectoryError(ServicesError):
    """A directory that does not hold a release, or cannot be written."""

    code = "release-directory"


class UnknownReleaseError(ServicesError):
    """The coordinator has no release of that id."""

    code = "unknown-release"


class UnpublishedError(ServicesError):
    """The release exists, its matrix does not yet or never will."""

    code = "not-published"


class UnknownCursorError(ServicesError):
    """Not a cursor of the coordinator's list."""

    code = "cursor"


class TableError(ServicesError):
    """A table that nothing can be planned or simulated on."""

    code = "simulation-table"


class OutputError(ServicesError):
    """A file or a directory that cannot be written to."""

    code = "simulation-output"
