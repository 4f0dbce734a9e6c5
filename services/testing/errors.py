"""What goes wrong in a consortium that a program starts."""

from commingle.shared.errors import CommingleError


class ConsortiumError(CommingleError):
    """A test consortium that was not started with what is asked for."""

    code = "consortium"


class ProcessError(ConsortiumError):
    """A process that did not start, died or refused a command."""

    code = "consortium-process"


class RoundError(ConsortiumError):
    """A release that ended badly or did not end in time."""

    code = "consortium-round"
