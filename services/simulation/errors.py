"""What goes wrong in a simulation.

SimulationError
└── PartiesError    a division of its columns that makes no sense

A process or a release that fails is a `ProcessError` or `RoundError` of `services.testing`, which runs the consortium.

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
