"""What each kind of release is expected to give: one function per mechanism, and nothing else knows which it is."""

from collections.abc import Callable, Mapping

from commingle.shared.mechanisms.moments import forecast as moments
from commingle.shared.mechanisms.rows import forecast as rows
from commingle.shared.planning.design import Design
from commingle.shared.planning.prediction import Prediction
from commingle.shared.planning.task import Task

PREDICTORS: Mapping[str, Callable[[Design, Task], Prediction]] = {
    "rmgm": rows.predict,
    "dgm": rows.predict,
    "moments": moments.predict,
}


def predict(design: Design, task: Task) -> Prediction:
    """The prediction of the design's own mechanism; a sketch must be chosen."""
    return PREDICTORS[design.mechanism](design, task)
