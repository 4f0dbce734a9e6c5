"""What the agent is doing right now, for people who wait, and who of them sees counts. In memory: the ledger lasts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Job:
    """Work on one release.

    Attributes:
        done, total: rows read while checking and privatising, bytes while uploading.
        error: what stopped it last, with its remedy, in words for the party's own people.
    """

    release: str
    stage: Stage
    done: int = 0
    total: int = 0
    error: str | None = None


@dataclass(slots=True)
class Jobs:
    """The jobs by release. Values are replaced whole, so readers need no lock."""

    _jobs: dict[str, Job] = field(default_factory=dict)

    def begin(self, release: str, stage: Stage, *, total: int) -> None:
        """A stage has begun."""
        self._jobs[release] = Job(release, stage, total=total)

    def progress(self, release: str) -> Callable[[int], None]:
        """To be told how far it is."""

        def advance(done: int) -> None:
            self._jobs[release] = replace(self._jobs[release], done=done)

        return advance

    def end(self, release: str, stage: Stage) -> None:
        """A stage has ended well."""
        known = self._jobs.get(release)
        total = known.total if known else 0
        self._jobs[release] = Job(release, stage, done=total, total=total)

    def fail(self, release: str, error: str) -> None:
        """Something stopped it; it will be tried again."""
        known = self._jobs.get(release, Job(release, Stage.CHECKING))
        self._jobs[release] = replace(known, error=error)

    def get(self, release: str) -> Job | None:
        """One job."""
        return self._jobs.get(release)

    def all(self) -> list[Job]:
        """All jobs since the agent started."""
        return list(self._jobs.values())


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
