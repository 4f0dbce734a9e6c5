"""The oracle of the edited cell: what an agent sends, and whether it does, is the same whatever a cell has become.

It worked once: a cell edited after registration turned approval into silence for exactly those proposals that named its
attribute, for no charge, as often as one liked (docs/security.md#claims-and-what-holds-each).
"""

import json
import shutil
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commingle.party_agent.home.policy import Policy, RegressionPolicy
from commingle.party_agent.private.regression.regress import WITH_PUBLIC_ROWS
from commingle.party_agent.regression.service import Regressions
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.terms import MechanismName
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime.errors import UnreachableError
from tests.party_agent.regression.asking import EVERYTHING, clinic, only_charge, request, table
from tests.party_agent.releasing import look
from tests.world.consortium import EVERY_KIND, SCHEMAS, Consortium, rows_of
from tests.world.transport import no_fault

MECHANISMS = sorted(EVERY_KIND)
ODD_CELLS = [b"", b"NA", b"forty", b"nan", b"-inf", b"1e999", b"\xff", b"\0", b"\x80" * 5_000_000, b'a,"\rb']
CELLS = st.sampled_from(ODD_CELLS[:-2]) | st.binary(max_size=30) | st.text(max_size=20).map(lambda t: t.encode("utf-8"))


def csv_bytes(rows: list[dict[str, str]], edits: dict[tuple[int, str], bytes]) -> bytes:
    """A well-formed CSV, every cell quoted, some of them other bytes, without line ends."""

    def cell(place: int, name: str) -> bytes:
        value = edits.get((place, name), rows[place][name].encode())
        return b'"' + value.replace(b'"', b'""').replace(b"\n", b" ") + b'"'

    lines = [b",".join(name.encode() for name in rows[0])]
    lines += [b",".join(cell(place, name) for name in row) for place, row in enumerate(rows)]
    return b"\n".join(lines) + b"\n"


@dataclass
class Overheard:
    """A consortium whose clinic can be put back, so that it meets the same request with another table."""

    consortium: Consortium
    release: str

    def keep(self) -> None:
        """The clinic's home as it is now is where it starts from."""
        self.kept = self.consortium.root / "kept"
        shutil.copytree(self.consortium.homes["clinic"].root, self.kept)

    @cached_property
    def unedited(self) -> list[tuple[str, str, bytes]]:
        """What is sent of the table as it was registered: every edit of it is held against that."""
        return self.sent()

    def put_back(self) -> None:
        home = self.consortium.homes["clinic"].root
        shutil.rmtree(home)
        shutil.copytree(self.kept, home)

    def sent(self, edits: dict[tuple[int, str], bytes] | None = None) -> list[tuple[str, str, bytes]]:
        """All that the clinic asks of the coordinator in one look, whom no change reaches."""
        self.put_back()
        self.consortium.table("clinic").write_bytes(csv_bytes(rows_of("clinic"), edits or {}))
        requests: list[tuple[str, str, bytes]] = []

        def overhear(asked: httpx.Request) -> httpx.Response | None:
            head = asked.url.path.endswith("/ledger-heads")  # of random entries: only that one is sent is the same
            path = asked.url.path if head else asked.url.raw_path.decode()
            requests.append((asked.method, path, b"" if head else asked.content))
            if asked.method != "GET" and not head:
                raise httpx.ConnectError("overheard", request=asked)
            return None if asked.method == "GET" else httpx.Response(200, json={})

        self.consortium.coordinator.before = overhear
        try:
            with suppress(UnreachableError):
                self.consortium.step("clinic")
        finally:
            self.consortium.coordinator.before = no_fault
        return requests


def outline(requests: list[tuple[str, str, bytes]]) -> list[tuple[str, str, int]]:
    return [(method, path, len(body)) for method, path, body in requests]


def statements(requests: list[tuple[str, str, bytes]]) -> list[dict[str, Any]]:
    """What an approval says."""
    *_, (method, path, body) = requests
    assert (method, path.split("/")[-2]) == ("PUT", "approvals")
    signed = json.loads(body).values()
    return [json.loads(b64decode(envelope["payload"])) for envelope in signed]


@pytest.fixture(params=MECHANISMS)
def proposed(pair: Consortium, request: pytest.FixtureRequest) -> Overheard:
    """A proposal the clinic has not seen yet."""
    world = Overheard(pair, pair.propose(mechanism=request.param))
    world.keep()
    return world


@pytest.fixture(params=MECHANISMS)
def approved(pair: Consortium, request: pytest.FixtureRequest) -> Overheard:
    """A release that all have approved, and that the clinic owes a block or columns."""
    world = Overheard(pair, pair.propose(mechanism=request.param))
    look(pair, "clinic", "insurer")
    world.keep()
    return world


EDIT = st.tuples(st.integers(0, 39), st.sampled_from([a.name for a in SCHEMAS["clinic"]]))
HEAVY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@HEAVY
@given(edits=st.dictionaries(EDIT, CELLS, min_size=1, max_size=3))
def test_edited_cell_does_not_turn_approval_into_silence(
    proposed: Overheard, edits: dict[tuple[int, str], bytes]
) -> None:
    unedited, edited = proposed.unedited, proposed.sent(edits)
    assert outline(edited) == outline(unedited)
    assert statements(edited) == statements(unedited)
    assert edited == unedited, "to the last bit of the signature"


@pytest.mark.slow
@HEAVY
@given(edits=st.dictionaries(EDIT, CELLS, min_size=1, max_size=3))
def test_edited_cell_changes_neither_what_follows_the_approval_nor_its_size(
    approved: Overheard, edits: dict[tuple[int, str], bytes]
) -> None:
    unedited, edited = outline(approved.unedited), outline(approved.sent(edits))
    assert edited == unedited
    method, path, size = edited[-1]
    assert (method, path.split("/")[-2]) in {("PUT", "blocks"), ("PUT", "columns")}
    assert size > 0


def read_again(agent: Agent) -> None:
    """As a token has it read: a release knows nothing of a file that nobody reads again."""
    before = agent.datasets.get("main").snapshot
    agent.datasets.try_again("main")
    assert agent.datasets.get("main").snapshot != before


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_table_of_nothing_but_odd_cells_is_released(pair: Consortium, mechanism: MechanismName) -> None:
    rows = rows_of("clinic")
    edits = {(i, name): ODD_CELLS[(i + j) % len(ODD_CELLS)] for i in range(20) for j, name in enumerate(("age", "bmi"))}
    pair.table("clinic").write_bytes(csv_bytes(rows, edits))
    with pair.agent("clinic") as agent:
        read_again(agent)
    release = pair.propose(mechanism=mechanism)
    look(pair, *5 * ("clinic", "insurer"))
    assert pair.state(release) == "published"


SMALL = 200
ANYTHING = Policy(
    max_epsilon=3.0, regressions=RegressionPolicy(methods=EVERYTHING, max_epsilon=3.0, floating_point_noise=True)
)
PUBLIC = {"rows": 100, "features": ((1.0, 0.0, 0.0), (0.0, 0.4, 0.0), (0.0, 0.0, 1.0)), "label": 0.3}


@pytest.fixture
def hospital(tmp_path: Path) -> Consortium:
    return clinic(tmp_path, policy=ANYTHING, rows=SMALL, epsilon_cap=1000.0)


@pytest.mark.parametrize("method", sorted(EVERYTHING))
@pytest.mark.parametrize("everywhere", [False, True], ids=["one cell", "every cell"])
def test_regression_is_answered_whatever_the_cells_are(hospital: Consortium, method: str, everywhere: bool) -> None:
    names = ("charges", "age", "smoker")
    places = [(i, name) for i in range(SMALL if everywhere else 1) for name in names]
    edits = {place: ODD_CELLS[k % (len(ODD_CELLS) - 2)] for k, place in enumerate(places)}
    hospital.table("clinic").write_bytes(csv_bytes(table(SMALL), edits))
    asked = request(method=method, public=PUBLIC if method in WITH_PUBLIC_ROWS else None)
    with hospital.agent("clinic") as agent:
        read_again(agent)
        assert Regressions(agent).ask(asked).document is not None
        assert only_charge(agent).state is ChargeState.STORED


@pytest.mark.parametrize("mapping", ["per_row", "per_row_with_label"])
@pytest.mark.parametrize("intercept", [True, False])
def test_regression_of_divided_rows_is_answered_whatever_the_cells_are(
    tmp_path: Path, mapping: str, *, intercept: bool
) -> None:
    hospital = clinic(tmp_path, policy=ANYTHING, rows=SMALL, epsilon_cap=1000.0)
    edits = {(i, name): b"" for i in range(SMALL) for name in ("age", "smoker")}  # rows of zeros have no norm
    hospital.table("clinic").write_bytes(csv_bytes(table(SMALL), edits))
    asked = request(mapping=mapping, intercept=intercept, bounds={"age": (30.0, 40.0)})
    with hospital.agent("clinic") as agent:
        read_again(agent)
        assert Regressions(agent).ask(asked).document is not None
        assert only_charge(agent).state is ChargeState.STORED


@pytest.mark.parametrize("method", sorted(EVERYTHING - {"ops"}))
@pytest.mark.parametrize("people", [0, 1])
def test_regression_is_answered_whether_the_last_person_is_there_or_not(
    tmp_path: Path, method: str, people: int
) -> None:
    hospital = clinic(tmp_path, policy=ANYTHING, rows=SMALL, epsilon_cap=1000.0, keyed=True)
    header, *lines = csv_bytes(table(SMALL), {}).splitlines(keepends=True)
    hospital.table("clinic").write_bytes(b"".join([header, *lines[:people]]))
    asked = request(method=method, keyed=True, public=PUBLIC if method in WITH_PUBLIC_ROWS else None)
    with hospital.agent("clinic") as agent:
        read_again(agent)
        assert agent.datasets.get("main").n == people
        assert Regressions(agent).ask(asked).document is not None
        assert only_charge(agent).state is ChargeState.STORED


@HEAVY
@given(
    edits=st.dictionaries(st.tuples(st.integers(0, SMALL - 1), st.sampled_from(["charges", "age"])), CELLS, min_size=1),
    nonce=st.integers(2, 2**60),
)
def test_edited_cell_is_no_oracle_of_a_regression(
    hospital: Consortium, edits: dict[tuple[int, str], bytes], nonce: int
) -> None:
    with hospital.agent("clinic") as agent:
        found = []
        for number, table_edits in ((2 * nonce, {}), (2 * nonce + 1, edits)):
            hospital.table("clinic").write_bytes(csv_bytes(table(SMALL), table_edits))
            read_again(agent)
            answer = Regressions(agent).ask(request(number))
            assert answer.document is not None
            found.append((answer.charge and (answer.charge.loss.rho, answer.charge.state), answer.request.method))
        assert found[0] == found[1]
