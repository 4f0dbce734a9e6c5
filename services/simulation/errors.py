"""What goes wrong in a simulation.

SimulationError
├── PartiesError    a division of its columns that makes no sense
├── ProcessError    a process that did not start, died or refused a command
└── RoundError      a release that ended badly or did not end in time

A table or an output directory that cannot be used is a `TableError` or `OutputError` of `services.errors`; a parameter
of privacy that makes no sense is a `SpecError` or `ParameterError` of `shared`.
"""

from commingle.shared.errors import CommingleError


class SimulationError(CommingleError):
    """A simulation that cannot go on."""

    code = "simulation"


class PartiesError(SimulationError):
    """A division of its columns that makes no sense."""

    code = "simulation-parties"


class ProcessError(SimulationError):
    """A process that did not start, died or refused a command."""

    code = "simulation-process"


class RoundError(SimulationError):
    """A release that ended badly or did not end in time."""

    code = "simulation-round"
