"""What the learner refuses by itself.

services.errors.ServicesError
├── BusyError      too many requests wait for the coordinator
└── CursorError    not a cursor of the coordinator's list
"""

from commingle.services.errors import ServicesError


class BusyError(ServicesError):
    """Too many requests wait for the coordinator; those for releases already here are served."""

    code = "busy"


class CursorError(ServicesError):
    """Not a cursor of the coordinator's list."""

    code = "cursor"
