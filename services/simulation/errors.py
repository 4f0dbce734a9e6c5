"""What goes wrong in a simulation.

SimulationError
├── TableError      a table that cannot be simulated on
├── PartiesError    a division of its columns that makes no sense
├── OutputError     a directory that cannot be written to
├── ProcessError    a process that did not start, died or refused a command
└── RoundError      a release that ended badly or did not end in time

A parameter of privacy that makes no sense is a `SpecError` or `ParameterError` of `shared`.
"""

from commingle.shared.errors import CommingleError


class SimulationError(CommingleError):
    """A simulation that cannot go on."""

    code = "simulation"


class TableError(SimulationError):
    """A table that cannot be simulated on."""

    code = "simulation-table"


class PartiesError(SimulationError):
    """A division of its columns that makes no sense."""

    code = "simulation-parties"


class OutputError(SimulationError):
    """A directory that cannot be written to."""

    code = "simulation-output"


class ProcessError(SimulationError):
    """A process that did not start, died or refused a command."""

    code = "simulation-process"


class RoundError(SimulationError):
    """A release that ended badly or did not end in time."""

    code = "simulation-round"
