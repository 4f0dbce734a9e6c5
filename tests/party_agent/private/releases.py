"""Releases of one party's small table, and what they are by a formula computed naively."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.privatise import BlockRequest, exchanged_rows, privatise
from commingle.party_agent.private.snapshot import Debit, Snapshot
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.statements import Sums
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.rows.sketch import SignStream
from commingle.shared.release.plan import plan_block
from tests.party_agent.private.tables import column
from tests.world.consortium import Noise
from tests.world.documents import spec_of, study_of
from tests.world.tampering import NOW

N, K = 60, 12
SEED = bytes(range(32))
Release = Literal["rmgm", "dgm", "moments"]
RELEASES: tuple[Release, ...] = ("rmgm", "dgm", "moments")
Rows = NDArray[np.int64]


def request_of(mechanism: Release, *attributes: Attribute, n: int = N, **share: Any) -> BlockRequest:
    key = SigningKey(b"\x01" * 32)
    asked = study_of({"p": attributes}, {"p": share}, mechanism=mechanism, k=K if mechanism == "rmgm" else None, n=n)
    spec = spec_of(asked, {"p": key}, proposer=key, seed=SEED, now=NOW)
    return BlockRequest(spec, spec.parties[0], plan_block(spec, spec.parties[0]))


def columns_of(n: int = N) -> dict[str, Any]:
    draw = np.random.default_rng(5)
    return {
        "id": column([f"p{i}" for i in draw.permutation(n)]),
        "x": column(draw.uniform(-1, 11, n).tolist()),
        "b": column(draw.choice(["no", "yes"], n).tolist()),
        "c": column(draw.choice(["r", "s", "t"], n).tolist()),
    }


def naive_rows(columns: dict[str, Any], attributes: Sequence[Attribute], *, mapped: bool = False) -> Rows:
    """Q by rank (n x d), from plain Python; of rows that are mapped levels have indicators."""
    one_of: dict[str, Callable[[Any], list[int]]] = {
        "x": lambda v: [int(max(-1.0, min(1.0, v / 5 - 1)) * 32768)],
        "b": lambda v: [32768 if v == "yes" else -32768],
        "c": lambda v: [32768 * (v == level) for level in "st"] if mapped else [int(32768 * c) for c in contrasts[v]],
    }
    contrasts = {"r": (0.5**0.5, 6**-0.5), "s": (-(0.5**0.5), 6**-0.5), "t": (0, -2 * 6**-0.5)}
    values = {name: array.to_pylist() for name, array in columns.items()}
    order = sorted(range(len(values["id"])), key=lambda i: values["id"][i].encode())
    return np.array([[q for a in attributes for q in one_of[a.name](values[a.name][i])] for i in order])


def signs_of(ranks: Rows) -> Rows:
    """K x m."""
    bits = np.unpackbits(SignStream(SEED).packed(ranks, K), axis=1)[:, :K]
    return 1 - 2 * bits.T.astype(np.int64)


def charge_for(request: BlockRequest, snapshot: Snapshot, *, short: int = 0) -> Debit:
    return Debit("r", request.plan.loss.units - short, 1, "", snapshot.digest)


def mixed(mechanism: Release, rows: Rows) -> Rows:
    """The block of these rows by rank, without noise."""
    return signs_of(np.arange(len(rows))) @ rows if mechanism == "rmgm" else rows


def leaving(
    snapshot: Snapshot,
    request: BlockRequest,
    *,
    draw: Sampler,
    charge: Debit | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Rows, Sums | None]:
    """What leaves for a release: a block, or the rows of an exchange; and sums."""
    make = exchanged_rows if mechanism_of(request.spec).interactive else privatise
    made = make(snapshot, request, charge=charge or charge_for(request, snapshot), draw=draw, progress=progress)
    return made.integers, made.sums


def before_noise(snapshot: Snapshot, request: BlockRequest, noise: Noise | None = None) -> tuple[Rows, Sums | None]:
    """The same, the noise of its block taken off again; the sums have noise of one seed."""
    noise = noise or Noise()
    integers, sums = leaving(snapshot, request, draw=noise)
    if not mechanism_of(request.spec).interactive:
        integers = integers - noise.drawn[-1].reshape(integers.shape)
    return integers, sums


def changed(name: str) -> dict[str, Any]:
    """The table with another last cell."""
    cells = columns_of()["x"].to_pylist()[:-1]
    match name:
        case "value":
            new = column([*cells, 5.5])
        case "text":
            new = column([*map(str, cells), "five"])
        case "infinite":
            new = column([*cells, float("inf")])
        case _:
            raise ValueError(name)
    return columns_of() | {"x": new}
