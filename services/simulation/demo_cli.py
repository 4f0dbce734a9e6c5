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

    shares, odds = release.describe(by="smoker", attributes=["readmitted"]), release.table("smoker", "readmitted")
    curves, groups = release.survival("outcome", by="smoker"), shares.groups
    line, last = shares.lines.index("readmitted = yes"), len(curves.ends) - 2
    survival, survival_intervals = curves.survival[:, last], curves.survival_intervals[:, last]
    rows = [people["smoker"] == group for group in groups]
    readmitted = [(people["readmitted"][own] == "yes").mean() for own in rows]
    first, *others = [share / (1 - share) for share in readmitted]
    deaths = (kaplan_meier(people["followup"][own], people["died"][own] == "yes") for own in rows)
    alive = [left[times < curves.ends[last]][-1] for times, left in deaths]
    ratios = [other / first for other in others]
    return "\n".join(
        [
            "Published. As the release says with its 95 % interval, and as all rows in one place would:",
            *_said("readmitted", "6.1%", groups, shares.values[line], shares.intervals[line], readmitted),
            *_said(f"alive at {curves.ends[last]:g} months", "6.1%", groups, survival, survival_intervals, alive),
            *_said(
                "odds ratio of readmission", "6.2f", groups[1:], odds.odds_ratios[1:], odds.odds_intervals[1:], ratios
            ),
        ]
    )


def _said(what: str, form: str, groups: Sequence[str], *figures: Any) -> list[str]:  # noqa: ANN401 - arrays or lists
    return [
        f"  {f'{group}, {what}':36} {value:{form}} ({low:{form}} to {high:{form}})   {truth:{form}}"
        for group, value, (low, high), truth in zip(groups, *figures, strict=True)
    ]
