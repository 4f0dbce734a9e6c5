"""No product file but the registry and a mechanism's own folder knows its name."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from commingle.shared.documents.terms import MECHANISM_NAMES
from commingle.shared.mechanisms import KEYED, MECHANISMS, mechanism_named, sketched_names
from commingle.shared.mechanisms.interface import Mechanism

ROOT = Path(__file__).parents[3]
OWN = ("shared/mechanisms/",)
ALLOWED = {
    "shared/documents/terms.py": Counter(rmgm=1, dgm=1, moments=1),  # what a document may name, and no more of them
    "shared/documents/study.py": Counter(moments=1),  # data: the mechanism of a study that names none
    "shared/documents/presets.py": Counter(rmgm=1, dgm=1),  # data: what papers release
    "services/testing/consortium.py": Counter(moments=1),  # what a test releases unless it says otherwise
    "services/simulation/cli.py": Counter(rmgm=4),  # examples of the command line, help of --k and --projection
    "services/simulation/preparing.py": Counter(rmgm=1),  # what the demo has beside
    # the published file of second moments, which every release has
    "coordinator/store/tables.py": Counter(moments=1),
    "services/client/remote.py": Counter(moments=1),
    "party_agent/edge/client.py": Counter(moments=1),
    "party_agent/edge/app.py": Counter(moments=2),
    # descriptions of an interface
    "party_agent/wire/answers.py": Counter(rmgm=3, dgm=1),
    # what a regression of two stages publishes of its mapped rows
    "party_agent/private/regression/sums.py": Counter(moments=1),
    "shared/documents/regression.py": Counter(moments=1),
}


def strings(source: str) -> Iterator[str]:
    """The strings of a module that are not documentation."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def names_in(text: str) -> list[str]:
    """Mechanisms that a string names; `moments` is a word of the field, and a name only where it stands alone."""
    return [name for name in re.findall(r"\w+", text) if name in MECHANISMS and (name != "moments" or name == text)]


def product_files() -> list[str]:
    folders = ("shared", "party_agent", "coordinator", "services")
    found = sorted(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [path for path in found if not path.startswith(OWN)]


def test_no_other_file_names_a_mechanism() -> None:
    sources = {path: (ROOT / path).read_text() for path in product_files()}
    told = {path: source for path, source in sources.items() if any(name in source for name in MECHANISMS)}
    found = {path: Counter(n for s in strings(source) for n in names_in(s)) for path, source in told.items()}
    assert {path: names for path, names in found.items() if names} == ALLOWED


def test_search_finds_a_name_that_is_asked_for() -> None:
    asked = 'if spec.mechanism == "moments" or spec.mechanism in {"rmgm"}:\n    """dgm"""\n    fail(f"{k} is for dgm")'
    assert [name for text in strings(asked) for name in names_in(text)] == ["moments", "rmgm", "dgm"]


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_line_of_the_registry_leads_to_a_whole_mechanism(name: str) -> None:
    mechanism = mechanism_named(name)
    assert isinstance(mechanism, Mechanism)
    assert mechanism_named(name) is mechanism
    assert mechanism.fit.inference in mechanism.fit.estimators
    assert mechanism.planner
    assert all(mechanism.trust(proved=proved).endswith(".") for proved in (True, False))


def test_documents_may_name_what_is_registered_and_nothing_else() -> None:
    assert tuple(MECHANISMS) == MECHANISM_NAMES
    assert {*KEYED} < {*MECHANISMS}


def test_registry_says_which_mechanisms_exchange_and_which_have_a_sketch() -> None:
    interactive = [name for name in MECHANISMS if mechanism_named(name).interactive]
    assert (interactive, sketched_names()) == (["moments"], ("rmgm",))
