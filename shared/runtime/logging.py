"""Structured logs: one JSON object per line on standard error."""

import logging
import sys
from contextlib import suppress

import structlog

from commingle.shared import __version__
from commingle.shared.text import printable


class _UnfailingLogger(structlog.PrintLogger):
    """A log that cannot be written, on a full disk or to a reader that is gone, must not end the work it is about."""

    def msg(self, message: str) -> None:
        """Print a line, or lose it."""
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


class _PlainFormatter(logging.Formatter):
    """What a library says may quote what it was sent."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, printable."""
        return printable(super().format(record), keep_lines=True)


def configure_logging(*, service: str, level: str = "info", **facts: str) -> None:
    """Send this process's own logs and those of its libraries to standard error; lines have version and `facts`.

    Values from private rows, keys and seeds are never handed to a logger; see docs/threat-model.md.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            lambda _, __, event: {"service": service, "version": __version__, **facts, **event},
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _UnfailingLogger(sys.stderr),  # standard error as it is when something is said
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PlainFormatter("%(name)s: %(message)s"))
    handler.setLevel(logging.WARNING)  # a library may have set another level for its own loggers, as Dask does
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # its tracebacks quote messages, which could hold anything; faults are logged by problem.py without them
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
