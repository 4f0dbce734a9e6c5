"""Progress of a simulation for a person or for a log, and the seconds of each stage."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from commingle.shared.runtime.cli import say
from commingle.shared.runtime.console import PlainConsole
from commingle.shared.runtime.telemetry import configure_logging


class Stages:
    """Stages, one at a time; a subclass shows them.

    Attributes:
        expected: how many there will be, if known.
        seconds: by name, how long each stage took so far.
        notices: sentences for the report.
    """

    def __init__(self) -> None:
        self._begun = 0
        self.expected = 0
        self.seconds: dict[str, float] = {}
        self.notices: list[str] = []

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """Time what happens inside; seconds of the same name add up."""
        started = time.monotonic()
        self._begun += 1
        self._begin(name, f"{self._begun} of {self.expected}: {text}" if self.expected else text)
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self._end(name, seconds)

    def step(self, text: str, done: int, total: int) -> None:
        """Show progress within the stage."""

    def notice(self, text: str) -> None:
        """Add a sentence to the report."""
        self.notices.append(text)

    def show(self, name: str, text: Callable[[Console], None]) -> None:
        """Show the first result, of the release of that name."""

    def _begin(self, name: str, text: str) -> None: ...

    def _end(self, name: str, seconds: float) -> None: ...


class Bars(Stages):
    """Progress bars on a terminal."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._task: TaskID | None = None
        self._text = ""

    def _begin(self, name: str, text: str) -> None:  # noqa: ARG002 - a log wants the name, a person the text
        self._task, self._text = self._progress.add_task(text, total=None), text

    def step(self, text: str, done: int, total: int) -> None:
        if self._task is not None:
            said = f"{self._text}: {text} ({done} of {total})"
            self._progress.update(self._task, completed=done, total=total, description=said)

    def _end(self, name: str, seconds: float) -> None:  # noqa: ARG002 - the bar shows its time
        if self._task is not None:
            self._progress.update(self._task, completed=1, total=1, description=self._text)

    def notice(self, text: str) -> None:
        super().notice(text)
        self._progress.console.print(f"Note: {text}", style="yellow", markup=False, highlight=False)

    def show(self, name: str, text: Callable[[Console], None]) -> None:  # noqa: ARG002 - the text says it
        text(self._progress.console)


class Sentences(Stages):
    """A line for each stage and step, with the seconds since the start, for a file or a pipe that people read."""

    def __init__(self) -> None:
        super().__init__()
        self._started = time.monotonic()

    def _begin(self, name: str, text: str) -> None:  # noqa: ARG002 - a log wants the name, a person the text
        self._say(f"{text} …")

    def step(self, text: str, done: int, total: int) -> None:
        self._say(f"  {text} ({done} of {total})")

    def notice(self, text: str) -> None:
        super().notice(text)
        say(f"Note: {text}")

    def show(self, name: str, text: Callable[[Console], None]) -> None:  # noqa: ARG002 - the text says it
        text(PlainConsole(stderr=True))

    def _say(self, text: str) -> None:
        say(f"{time.monotonic() - self._started:5.1f} s  {text}")


class Lines(Stages):
    """Structured events, one JSON object per line on standard error."""

    def __init__(self) -> None:
        super().__init__()
        configure_logging(service="simulation")
        self._log = structlog.get_logger()

    def _begin(self, name: str, text: str) -> None:
        self._log.info("stage begins", stage=name, doing=text)

    def step(self, text: str, done: int, total: int) -> None:
        self._log.info("progress", what=text, done=done, total=total)

    def _end(self, name: str, seconds: float) -> None:
        self._log.info("stage ends", stage=name, seconds=round(seconds, 3))

    def notice(self, text: str) -> None:
        super().notice(text)
        self._log.warning("notice", text=text)

    def show(self, name: str, text: Callable[[Console], None]) -> None:  # noqa: ARG002 - the report has it
        self._log.info("first result", release=name)


@contextmanager
def open_stages(*, as_json: bool) -> Iterator[Stages]:
    """Bars on a terminal; otherwise events if a program asked for JSON, and else sentences."""
    console = PlainConsole(stderr=True)
    if not console.is_terminal:
        yield Lines() if as_json else Sentences()
        return
    columns = (SpinnerColumn(finished_text="[green]✓[/]"), TextColumn("{task.description}", markup=False))
    with Progress(*columns, BarColumn(20), TimeElapsedColumn(), console=console) as progress:
        yield Bars(progress)
