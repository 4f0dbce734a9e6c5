"""docs/errors.md against the code: every code is there, with the status it is answered with."""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from commingle import coordinator, party_agent, services, shared
from commingle.coordinator.http.app import STATUSES as COORDINATOR
from commingle.party_agent.edge.api import UnauthorisedError
from commingle.party_agent.edge.app import STATUSES as PARTY
from commingle.services.learner.app import STATUSES as LEARNER
from commingle.shared.errors import CommingleError

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
WITHOUT_CLASS = {"request": 422, "not-ready": 503}
AGENT = {**PARTY, UnauthorisedError: 401}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def known() -> set[type[CommingleError]]:
    for package in (coordinator, party_agent, services, shared):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "migrations" not in module.name:
                importlib.import_module(module.name)

    def below(kind: type[CommingleError]) -> Iterator[type[CommingleError]]:
        for derived in kind.__subclasses__():
            yield derived
            yield from below(derived)

    return set(below(CommingleError))


def test_every_code_is_documented_and_no_other() -> None:
    codes = {kind.code for kind in known()}
    named = set(re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+)", PAGE, re.MULTILINE))
    documented = {code for group in named for code in re.findall(r"`([a-z-]+)`", group)}
    families = set(re.findall(r"`([a-z-]+)`", PAGE.split("Families that never occur by themselves:")[1]))
    assert documented | families == codes | {"request", "http", "fault", "not-ready"}


@pytest.mark.parametrize(
    ("title", "statuses", "package"),
    [
        ("Coordinator", COORDINATOR, "coordinator"),
        ("Party agent", AGENT, "party_agent"),
        ("Learner", LEARNER, "services"),
    ],
)
def test_documented_status_is_the_one_answered(
    title: str, statuses: Mapping[type[CommingleError], int], package: str
) -> None:
    elsewhere = {"coordinator", "party_agent", "services"} - {package}
    here = [kind for kind in known() if kind.__module__.split(".")[0] not in elsewhere]
    answered: dict[str, set[int]] = {code: {status} for code, status in WITHOUT_CLASS.items()}
    for kind in here:
        status = next((statuses[base] for base in kind.__mro__ if base in statuses), 500)
        answered.setdefault(kind.code, set()).add(status)
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", section(title), re.MULTILINE)
    assert len(rows) > 20
    assert [(code, status) for code, status in rows if int(status) not in answered[code]] == []
