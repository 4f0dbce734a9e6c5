"""Who is shown exact counts: how many subjects a data set has, how many of its cells are missing, clipped or changed.

They follow from rows, and no charge pays for them: where it is private who is there, a number of rows that is one more
tells it. So the operator, who has the rows, sees them and nobody else does, whatever a token or a link may do.
Whatever shows a count asks here, and knows no way of its own. A job counts the rows it has read.
"""

from enum import StrEnum
from typing import Any

from commingle.party_agent.rounds.jobs import Job


class Viewer(StrEnum):
    """Who looks: at the local API, or at the console."""

    OPERATOR = "operator"
    TOKEN = "token"  # noqa: S105 - no secret
    PERSON = "person"
    SENDER = "sender"


_SEE_COUNTS = frozenset({Viewer.OPERATOR, Viewer.SENDER})
"""A sender has pushed the very rows that are counted."""


def sees_counts(viewer: Viewer) -> bool:
    """Whether a viewer is shown exact counts."""
    return viewer in _SEE_COUNTS


def progress_of(job: Job, viewer: Viewer) -> dict[str, Any]:
    """How far a job is and what stopped it: a failure of reading names a column and a count."""
    if sees_counts(viewer):
        return {"done": job.done, "total": job.total, "error": job.error}
    return {"error": None if job.error is None else "it is tried again, and the operator sees why"}
