"""What the planner refuses."""

from commingle.shared.errors import CommingleError


class PlanningError(CommingleError):  # no label, or assumptions that contradict each other
    code = "planning"
