"""`commingle demo`: a consortium that you use in a browser, or one that only publishes."""

import re
import time
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commingle.shared.runtime.cli import A_FOLDER, say

if TYPE_CHECKING:
    from commingle.services.client.release import Release
    from commingle.services.simulation.story import Answers
    from commingle.services.testing.consortium import Consortium
    from commingle.services.testing.processes import Running

_DECIDES = "registry"
_EPSILON = 1.0
_RELEASE, _PICTURE = "release", "answers.png"
_CAPS = {"epsilon_cap": 3.0, "delta_cap": 1e-4}
_LINK = re.compile(r"http://\S+/enter/\S+")
_POLL_SECONDS = 0.2
_START_SECONDS = 120.0


@click.command(
    epilog="""\b
Examples:
  commingle demo
  commingle demo --out demo
"""
)
@click.option("--no-browser", is_flag=True, help="Print the links and do not open them.")
@click.option(
    "--out",
    type=A_FOLDER,
    help="Run without a browser: everybody agrees. Write the release and a picture to this folder.",
)
def demo(*, no_browser: bool, out: Path | None) -> None:
    """Run a whole consortium, in your browser or without one.

    Three owners of made-up data are asked a question. Two have agreed; you decide for the third, follow the round and
    ask the release. With --out all agree at once. At the end stand its answers beside what all rows in one place say.
    Everything is on this machine, and all but what --out takes is gone after Ctrl-C.
    """
    # help needs none of these, and they take seconds to load
    from commingle.services.simulation import story  # noqa: PLC0415
    from commingle.services.testing.consortium import Consortium  # noqa: PLC0415
    from commingle.services.testing.processes import stop_on_signals  # noqa: PLC0415

    people = story.everybody(seed=0)
    owners = story.tables(people, seed=1)
    given: dict[str, Any] = {"schemas": story.SCHEMAS, "links": False, "network": False, "processes": True}
    asked: dict[str, Any] = {"epsilon": _EPSILON, "parties": story.parties(), **story.STUDY}
    say("Starting a coordinator and the agents of three owners of data …")
    if out is not None:
        with stop_on_signals(), Consortium(owners, **given) as consortium:
            say(f"They are asked: {story.QUESTION}")
            made = consortium.release(consortium.study(**asked))
        _keep(made, people, out)
        return
    given |= {"policy": {}, "settings": ("--name", "readmission"), **_CAPS}
    with suppress(KeyboardInterrupt), stop_on_signals(), Consortium(owners, **given) as consortium:
        learner = consortium.learner()
        late = consortium.agents[_DECIDES]
        late.kill()  # so that it sees at once that the others have agreed
        release = consortium.propose(consortium.study(**asked))
        others = [name for name in consortium.agents if name != _DECIDES]
        for name in others:
            _await_proposal(consortium, name, release)
            by = ("--by", f"Privacy office, {name}", "--yes")
            consortium.command("party", "approve", "--home", consortium.agents[name].home, release, *by)
        late.start()
        _await_proposal(consortium, _DECIDES, release, agreed=others)
        deciding = _console(consortium, "party", consortium.agents[_DECIDES].home)
        following = _console(consortium, "coordinator", consortium.coordinator.home)
        say(
            f"\n{story.QUESTION}\n\n"
            f"1. Decide for the {_DECIDES}; the others have agreed:\n   {deciding}\n"
            f"2. Follow the round, which takes about a minute:\n   {following}\n"
            f"3. Ask the release, once it is published:\n   {learner()}\n\n"
            "Links 1 and 2 work once, in the first browser that opens them. Ctrl-C ends everything."
        )
        if not no_browser and _opened(deciding):
            say("Link 1 has been opened in your browser.")
        _follow(consortium, release, people)


def _keep(release: "Release", people: Mapping[str, Any], out: Path) -> None:
    from commingle.shared.errors import MissingExtraError  # noqa: PLC0415 - as above

    release.save(out / _RELEASE)
    answers = _answers(release, people)
    try:
        answers.draw(out / _PICTURE)
        say(f"Picture: {out / _PICTURE}")
    except ImportError:
        missing = MissingExtraError("matplotlib", extra="plot")
        say(f"No picture is drawn: {missing}. {missing.remedy}")
    say(f"Ask the release yourself: commingle describe {out / _RELEASE} --by smoker")


def _answers(release: "Release", people: Mapping[str, Any]) -> "Answers":
    from commingle.services.simulation.story import Answers  # noqa: PLC0415 - loads slowly
    from commingle.shared.runtime.console import PlainConsole  # noqa: PLC0415 - as above

    answers = Answers.of(release, people)
    answers.show(PlainConsole())
    return answers


def _await_proposal(consortium: "Consortium", name: str, release: str, *, agreed: Sequence[str] = ()) -> None:
    """Return when the agent has the proposal, its forecast and the others' approvals, or after a while."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        items = consortium.command("party", "proposals", "--home", consortium.agents[name].home)["items"]
        found = [item for item in items if item["id"] == release and item["forecast_state"] != "not_yet"]
        if any({*agreed} <= {*item["agreed"]} for item in found):
            return
        time.sleep(_POLL_SECONDS)


def _console(consortium: "Consortium", kind: str, home: Any) -> str:  # noqa: ANN401 - a path
    running: Running = consortium.serving(f"{kind}-console", (kind, "console", "--home", home))
    while (found := _LINK.search(running.log.read_text())) is None:
        running.require_alive()
        time.sleep(_POLL_SECONDS)
    return found[0]


def _opened(address: str) -> bool:
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


def _follow(consortium: "Consortium", release: str, people: Mapping[str, Any]) -> None:
    while not (state := consortium.state(release)).final:
        time.sleep(1)
    if state == "published":
        with consortium.client() as client:
            _answers(client.fetch(release), people)
    else:
        say(f"\nThe release was {state}. The coordinator's console says why. Start the demo again to decide otherwise.")
    while True:
        time.sleep(60)
