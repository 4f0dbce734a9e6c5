"""`commingle demo`: a consortium that stays up, to be clicked through in a browser."""

import re
import time
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from commingle.shared.runtime.cli import say

if TYPE_CHECKING:
    from commingle.services.client.release import Release
    from commingle.services.testing.consortium import Consortium
    from commingle.services.testing.processes import Running

_DECIDES = "registry"
_EPSILON = 1.0
_CAPS = {"epsilon_cap": 3.0, "delta_cap": 1e-4}
_LINK = re.compile(r"http://\S+/enter/\S+")
_POLL_SECONDS = 0.2
_START_SECONDS = 120.0


@click.command(epilog="Example: commingle demo")
@click.option("--no-browser", is_flag=True, help="Print the links, and open none.")
def demo(*, no_browser: bool) -> None:
    """Keep a whole consortium open in your browser.

    Three owners of made-up data are asked a question. Two have agreed; you decide for the third, follow the round and
    ask the release. Everything is on this machine, and gone after Ctrl-C.
    """
    # help needs none of these, and they take seconds to load
    from commingle.services.simulation import story  # noqa: PLC0415
    from commingle.services.testing.consortium import Consortium  # noqa: PLC0415
    from commingle.services.testing.processes import stop_on_signals  # noqa: PLC0415

    people = story.everybody(seed=0)
    owners = story.tables(people, seed=1)
    given: dict[str, Any] = {"schemas": story.SCHEMAS, "links": False, "network": False, "policy": {}, **_CAPS}
    given["settings"] = ("--name", "readmission")
    say("Starting a coordinator and the agents of three owners of data …")
    with suppress(KeyboardInterrupt), stop_on_signals(), Consortium(owners, processes=True, **given) as consortium:
        learner = consortium.learner()
        late = consortium.agents[_DECIDES]
        late.kill()  # who comes last sees at once that the others have agreed
        release = consortium.propose(consortium.study(epsilon=_EPSILON, parties=story.parties(), **story.STUDY))
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


def _await_proposal(consortium: "Consortium", name: str, release: str, *, agreed: Sequence[str] = ()) -> None:
    """Return when its agent has the proposal, its forecast, and the approvals of others; or after a while."""
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
            say("\n" + _beside_the_truth(client.fetch(release), people))
    else:
        say(f"\nThe release was {state}. The coordinator's console says why. Start the demo again to decide otherwise.")
    while True:
        time.sleep(60)


def _beside_the_truth(release: "Release", people: Mapping[str, Any]) -> str:
    from commingle.services.simulation.story import kaplan_meier  # noqa: PLC0415 - loads slowly

    shares = release.describe(by="smoker", attributes=["readmitted"])
    odds, curves = release.table("smoker", "readmitted"), release.survival("outcome", by="smoker")
    line, last = shares.lines.index("readmitted = yes"), len(curves.ends) - 2
    until = curves.ends[last]
    said = ["Published. As the release says with its 95 % interval, and as all rows in one place would:"]
    first = 0.0
    for g, name in enumerate(shares.groups):
        own = people["smoker"] == name
        share = (people["readmitted"][own] == "yes").mean()
        times, alive = kaplan_meier(people["followup"][own], people["died"][own] == "yes")
        first = first or share / (1 - share)
        said += [
            _said(f"{name}, readmitted", "6.1%", shares.values[line, g], shares.intervals[line, g], share),
            _said(
                f"{name}, alive at {until:g} months",
                "6.1%",
                curves.survival[g, last],
                curves.survival_intervals[g, last],
                alive[times <= until][-1],
            ),
        ]
        if g:
            said.append(
                _said(
                    f"{name}, odds ratio of readmission",
                    "6.2f",
                    odds.odds_ratios[g],
                    odds.odds_intervals[g],
                    share / (1 - share) / first,
                )
            )
    return "\n".join(said)


def _said(what: str, form: str, value: float, interval: Sequence[float], truth: float) -> str:
    low, high = interval
    return f"  {what:36} {value:{form}} ({low:{form}} to {high:{form}})   {truth:{form}}"
