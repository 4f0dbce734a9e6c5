"""`docs/security.md` names every file of attacks, and no attack that it claims to stop succeeds."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = set(re.findall(r"`(tests/[\w/]+\.py)", PAGE))
AT_ROUNDS = ("decisions", "exchange_cheats", "malicious_coordinator", "set_back", "untrusted_coordinator")
ATTACKS = {
    *(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "hostile").glob("test_*.py")),
    *(f"tests/party_agent/rounds/test_{name}.py" for name in AT_ROUNDS),
    "tests/party_agent/home/test_cells_decide_nothing.py",
}


def test_every_file_of_attacks_is_named() -> None:
    assert sorted(ATTACKS - NAMED) == []


def test_no_attack_that_the_page_claims_to_stop_succeeds() -> None:
    assert [name for name in sorted(NAMED) if re.search(r"mark\.xfail", (ROOT / name).read_text())] == []
