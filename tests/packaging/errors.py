"""Codes of errors, their statuses and meanings, as they are kept in docs/errors.json.

python -m tests.packaging.errors    writes them anew
"""

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from commingle import coordinator, party_agent, services, shared
from commingle.coordinator.http.app import STATUSES as COORDINATOR
from commingle.party_agent.edge.api import UnauthorisedError
from commingle.party_agent.edge.app import STATUSES as PARTY
from commingle.services.learner.app import STATUSES as LEARNER
from commingle.shared.errors import CommingleError

FILE = Path(__file__).parents[2] / "docs" / "errors.json"
SERVICES = {
    "coordinator": (coordinator, COORDINATOR),
    "party agent": (party_agent, {**PARTY, UnauthorisedError: 401}),
    "learner": (services, LEARNER),
}
FAMILIES = {"agent", "analysis", "coordinator", "estimation", "privacy", "protocol", "remote", "runtime", "services"}
"""Codes that never occur by themselves."""
WITHOUT_CLASS = {
    "fault": ("A defect; the log has its class and path, never its message.", dict.fromkeys(SERVICES, 500)),
    "http": ("No such path or method; a body too slow, too large or unreadable.", dict.fromkeys(SERVICES, 404)),
    "request": ("A body, parameter or header does not fit; names it.", dict.fromkeys(SERVICES, 422)),
    "not-ready": ("No release is kept and the coordinator cannot be used.", {"learner": 503}),
}


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


def table() -> dict[str, dict[str, str | int]]:
    """By code: what it means, and the status that each service answers with."""
    found: dict[str, dict[str, str | int]] = {
        code: {"meaning": meaning, **statuses} for code, (meaning, statuses) in WITHOUT_CLASS.items()
    }
    for kind in sorted(known(), key=lambda each: (len(each.__mro__), each.__module__, each.__name__)):
        if kind.code in FAMILIES or "code" not in vars(kind):
            continue
        row = found.setdefault(kind.code, {"meaning": ""})
        if kind.code not in WITHOUT_CLASS and (told := _meaning(kind)) not in str(row["meaning"]):  # each service's
            row["meaning"] = f"{row['meaning']} {told}".lstrip()
        for service, (package, statuses) in SERVICES.items():
            elsewhere = {other.__name__ for other, _ in SERVICES.values()} - {package.__name__}
            status = next((statuses[base] for base in kind.__mro__ if base in statuses), None)
            if status is not None and not any(kind.__module__.startswith(f"{name}.") for name in elsewhere):
                row.setdefault(service, status)
    return dict(sorted(found.items()))


def _meaning(kind: type[CommingleError]) -> str:
    """The first line of the docstring, or the comment behind the class's name."""
    if told := vars(kind).get("__doc__"):
        return str(told).partition("\n")[0]
    comment = re.search(r":  # (.*)", inspect.getsourcelines(kind)[0][0])
    return f"{comment[1][:1].upper()}{comment[1][1:]}." if comment else ""


if __name__ == "__main__":
    FILE.write_text(json.dumps(table(), indent=1, ensure_ascii=False) + "\n")
