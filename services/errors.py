"""Errors about published releases, and about files that are written from them; how these are written.

`shared.errors.VerificationError` says that a release's signatures or digests do not hold, and
`shared.runtime.errors.RemoteError` that a coordinator does not answer.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from commingle.shared.errors import CommingleError, EstimationError, RequestError
from commingle.shared.runtime.files import write_durably


class ServicesError(CommingleError):  # something about a published release that a person can act on
    code = "services"


class ReleaseDirectoryError(ServicesError):  # a directory that does not hold a release, or cannot be written
    code = "release-directory"


class UnknownReleaseError(ServicesError):  # the coordinator has no release of that id
    code = "unknown-release"


class UnpublishedError(ServicesError):  # a file of a release that is not published
    code = "not-published"


class UnknownCursorError(ServicesError):  # a paging cursor that the coordinator did not give out
    code = "cursor"


class TableError(ServicesError):  # a table that nothing can be planned or simulated on
    code = "simulation-table"


class OutputError(ServicesError):  # a file or a directory that cannot be written to
    code = "simulation-output"


@contextmanager
def writing(place: object, *, remedy: str, error: type[ServicesError] = OutputError) -> Iterator[None]:
    """Raise `error` where `place` cannot be written."""
    try:
        yield
    except OSError as failed:
        raise error(f"cannot write to {place} ({failed.strerror})", remedy=remedy) from None


def write_for_everyone(
    place: Path | str,
    files: Mapping[Path, bytes | Iterable[bytes]],
    *,
    remedy: str,
    error: type[ServicesError] = OutputError,
) -> tuple[Path, ...]:
    """Write files that anybody may read, over those of the same names. Raises `error`, naming `place`."""
    with writing(place, remedy=remedy, error=error):
        for path, data in files.items():
            write_durably(path, data, mode=0o644)
    return tuple(files)


class AnalysisError(EstimationError):  # an analysis that cannot be computed as asked
    code = "analysis"


class PenaltyError(AnalysisError):  # a penalty that is not positive, or an `l1_ratio` outside (0, 1]
    code = "penalty"


class NestedError(AnalysisError):  # two models, and the smaller one is not a part of the larger one
    code = "not-nested"


class InstrumentsError(AnalysisError):  # fewer instruments than endogenous features
    code = "instruments"


class LevelError(AnalysisError):  # a level that an attribute does not have, or one attribute where two are needed
    code = "level"


class NoSignalError(AnalysisError):  # nothing of a column, or of a combination of columns, is left beside the noise
    code = "no-signal"


class FormulaError(RequestError):  # a text that cannot be read as a formula
    code = "formula"


class InteractionError(RequestError):  # a formula has a product of features; a release has sums of two attributes
    code = "interaction"


class FamilyError(RequestError):  # there is no such family of models, or it cannot have this outcome or offset
    code = "family"


class RowCountError(RequestError):  # a request for no synthetic rows, or for too many
    code = "row-count"


class SeedError(RequestError):  # an entropy that is no whole number, or a negative one
    code = "seed"


class ConsortiumError(CommingleError):
    """A test consortium that was not started with what is asked for."""

    code = "consortium"


class ProcessError(ConsortiumError):
    """A process that did not start, died or refused a command."""

    code = "consortium-process"


class RoundError(ConsortiumError):
    """A release that ended badly or did not end in time."""

    code = "consortium-round"
