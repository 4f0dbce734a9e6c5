"""Whoever has the coordinator's database and disk, and all that the other parties have: no row of one is in it."""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from structlog.testing import capture_logs

from commingle.party_agent.private.privatise import KeptRows
from commingle.shared.documents.terms import Bounds
from tests.party_agent.exchanging import finish, kept_by, replied
from tests.party_agent.rounds.test_exchange import rows_by_subject
from tests.world.consortium import NAMES, Consortium, consortium_of, rows_of

OWNERS = ("clinic", "insurer")
"""Whose values are numbers with digits enough to be looked for."""
AT_ONCE = 24


@dataclass
class Known:
    """All that is not a party's own, by where it was found.

    Attributes:
        travelled: requests as they went over the wire, whoever sent them; what is answered, the coordinator has.
        logged: what any of them logged.
    """

    travelled: list[bytes] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    def asked(self, request: httpx.Request) -> None:
        self.travelled.append(repr((request.url, request.headers.raw)).encode() + request.content)

    def everything(self, consortium: Consortium, owner: str) -> Iterator[bytes]:
        """With the coordinator's disk and database, and every other party's home and table."""
        yield from self.travelled
        yield "\n".join(self.logged).encode()
        others = [consortium.homes[name].root for name in NAMES if name != owner]
        for root in (consortium.coordinator.root, *others):
            yield from (path.read_bytes() for path in root.rglob("*") if path.is_file())


ENDS = tuple(bytes([mark]) for mark in b"\"', \t\r\n|;:]})")
"""What may stand behind a cell that is written out. The digits of a published sum may begin with those of one."""


class Runs:
    """Runs of four bytes or more to be looked for: where their first two bytes stand, and then their next two."""

    def __init__(self, runs: set[bytes]) -> None:
        self.runs, self.sizes = runs, {len(run) for run in runs}
        self.begins, self.goes_on = (np.zeros(1 << 16, bool) for _ in range(2))
        words = np.frombuffer(b"".join(run[:4] for run in runs), "<u2").reshape(-1, 2)
        self.begins[words[:, 0]] = True
        self.goes_on[words[:, 1]] = True

    def found_in(self, data: bytes) -> set[bytes]:
        octets = np.frombuffer(data, np.uint8).astype(np.uint16)
        words = octets[:-1] | octets[1:] << 8
        places = np.flatnonzero(self.begins[words[:-2]])
        places = places[self.goes_on[words[places + 2]]]
        return self.runs & {data[at : at + size] for size in self.sizes for at in places.tolist()}

    def found_in_any(self, held: Iterable[bytes]) -> bool:
        return any(self.found_in(data) for data in held)


def test_search_finds_runs_wherever_they_stand() -> None:
    data = bytes(range(256)) * 3
    runs = {data[:24], data[-24:], data[101:110], b"\1\2\3\5", bytes(24)}
    assert Runs(runs).found_in(data) == {data[:24], data[-24:], data[101:110]}


def patterns(rows: NDArray[np.int16]) -> set[bytes]:
    """Every run of so many bytes in the rows, by rows and by columns, in any width in which they are computed with."""
    found = set()
    for width in ("<i2", "<i4", "<i8", "<f8"):
        for order in (rows, rows.T):
            data, size = np.ascontiguousarray(order).astype(width).tobytes(), np.dtype(width).itemsize
            found |= {data[at : at + AT_ONCE] for at in range(0, len(data) - AT_ONCE + 1, size)}
    return found


def secrets_of(kept: KeptRows) -> set[bytes]:
    """What opens the ciphertexts, in any form in which it could be written."""
    keys = (kept.secret, kept.key_for("rows"), kept.key_for("ring"))
    return {form for key in keys for form in (key, key.hex().encode(), b64encode(key), repr(key)[2:-1].encode())}


@pytest.mark.slow
@pytest.mark.parametrize("bounds", get_args(Bounds))
def test_no_row_and_no_secret_of_a_party_is_in_anything_that_others_have(tmp_path: Path, bounds: Bounds) -> None:
    consortium, known = consortium_of(tmp_path, *NAMES), Known()
    consortium.coordinator.before = known.asked
    with capture_logs() as logs:
        release = replied(consortium, bounds)
        looked_for, there = dict[str, Runs](), dict[str, set[bytes]]()
        for owner in OWNERS:
            kept = kept_by(consortium, release, owner)
            rows = kept(0, kept.exchange.spec.document.n)
            plain = rows_by_subject(consortium.table(owner)) * 2**14
            assert np.abs(rows - plain).max() <= 1, "these are the party's rows"
            cells = {row[name].encode() for row in rows_of(owner) for name in row if name != "subject"}
            alone = {cell + end for cell in cells if len(cell) >= 5 for end in ENDS}
            in_rows = patterns(rows)
            looked_for[owner] = Runs(in_rows | secrets_of(kept) | alone)
            there[owner] = set(known.everything(consortium, owner))
            own = {path.read_bytes() for path in consortium.homes[owner].root.rglob("*") if path.is_file()}
            assert not Runs(in_rows).found_in_any(own), "not even on its own disk"
        finish(consortium, release)
    known.logged = [repr(entry) for entry in logs]
    assert len(known.logged) > 20
    for owner in OWNERS:
        held = there[owner].union(known.everything(consortium, owner))
        assert sum(map(len, held)) > 1 << 20
        assert not looked_for[owner].found_in_any(held)
