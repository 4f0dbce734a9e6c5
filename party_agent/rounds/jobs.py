"""What the agent is doing right now, for people who wait, and who of them sees counts. In memory: the ledger lasts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from commingle.party_agent.wire.answers import JobView


class Stage(StrEnum):
    """The last thing that was begun or done for a release."""

    WAITING = "waiting for a person"
    CHECKING = "checking"
    APPROVED = "approved"
    PRIVATISING = "privatising"
    EXCHANGING = "waiting for the other members"
    UPLOADING = "uploading"
    UPLOADED = "uploaded"
    PUBLISHED = "published"
    ENDED = "ended"


@dataclass(slots=True)
class Jobs:
    """The jobs by release. Values are replaced whole, so readers need no lock."""

    _jobs: dict[str, JobView] = field(default_factory=dict)

    def begin(self, release: str, stage: Stage, *, total: int) -> None:
        self._jobs[release] = _job(release, stage, total=total)

    def progress(self, release: str) -> Callable[[int], None]:
        def advance(done: int) -> None:
            self._jobs[release] = self._jobs[release].model_copy(update={"done": done})

        return advance

    def end(self, release: str, stage: Stage) -> None:
        known = self._jobs.get(release)
        total = (known and known.total) or 0
        self._jobs[release] = _job(release, stage, done=total, total=total)

    def fail(self, release: str, error: str) -> None:
        """Something stopped it; it will be tried again."""
        known = self._jobs.get(release, _job(release, Stage.CHECKING))
        self._jobs[release] = known.model_copy(update={"error": error})

    def get(self, release: str) -> JobView | None:
        return self._jobs.get(release)

    def all(self) -> list[JobView]:
        return list(self._jobs.values())


def _job(release: str, stage: Stage, *, done: int = 0, total: int = 0) -> JobView:
    return JobView(release=release, stage=stage, done=done, total=total, error=None)


class Viewer(StrEnum):
    """Who looks: at the local API, or at the console."""

    OPERATOR = "operator"
    TOKEN = "token"  # noqa: S105 - no secret
    PERSON = "person"
    SENDER = "sender"


_SEE_COUNTS = frozenset({Viewer.OPERATOR, Viewer.SENDER})
"""A sender has pushed the very rows that are counted."""


def sees_counts(viewer: Viewer) -> bool:
    """Whether a viewer is shown exact counts, of subjects or of cells that are missing, clipped or changed.

    They follow from rows, and no charge pays for them: where it is private who is there, a number of rows that is one
    more tells it. So the operator, who has the rows, sees them and nobody else does, whatever a token or a link may do.
    Whatever shows a count asks here, and knows no way of its own. A job counts the rows it has read.
    """
    return viewer in _SEE_COUNTS
