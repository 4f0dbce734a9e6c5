"""How many attacks `docs/security.md` says are tried, and how many worked, is what the test files hold."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTY = (
    "test_cells_decide_nothing",
    "test_decided_again",
    "test_exchange_cheats",
    "test_malicious_coordinator",
    "test_set_back",
    "test_untrusted_coordinator",
)
FILES = {path.stem: path for path in (ROOT / "tests" / "hostile").glob("test_*.py")}
FILES |= {name: ROOT / "tests" / "party_agent" / f"{name}.py" for name in PARTY}


def section(heading: str) -> str:
    _, _, rest = (ROOT / "docs" / "security.md").read_text().partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


def attacks_in(name: str) -> list[ast.FunctionDef]:
    nodes = ast.parse(FILES[name].read_text()).body
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def test_every_file_of_attacks_is_counted_once_and_rightly() -> None:
    listed = []
    for row in re.findall(r"^\| [^|]+ \| (`[^|]+`) \| (\d+) \|$", section("Attacks that are tried"), re.MULTILINE):
        names = re.findall(r"`(?:[\w/]+/)?(test_\w+)\.py`", row[0])
        assert (names, sum(len(attacks_in(name)) for name in names)) == (names, int(row[1]))
        listed += names
    assert sorted(listed) == sorted(FILES)


def test_sums_are_those_of_the_tables_and_files() -> None:
    said = " ".join(section("Attacks that are tried").split())
    tried = sum(len(attacks_in(name)) for name in FILES)
    succeed = sum("xfail" in ast.unparse(mark) for name in FILES for t in attacks_in(name) for mark in t.decorator_list)
    rows = re.findall(r"^\| (?!attack )[^|-]", section("Attacks that worked once"), re.MULTILINE)
    assert f"**{tried} named tests attack, {succeed} of them with success today.**" in said
    assert f"{len(rows)} attacks worked once" in said
