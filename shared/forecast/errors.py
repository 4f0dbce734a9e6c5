"""What the planner refuses.

PlanningError    a question that has no forecast: no label, or assumptions that contradict each other
"""

from commingle.shared.errors import CommingleError


class PlanningError(CommingleError):
    code = "planning"
