"""What the worst request of every open route costs, and how reads wait while clients ask for the costliest plan.

python -m tests.tools.costs                  # CPU seconds of the server, bytes in, by route
python -m tests.tools.costs --hammer 60      # a real learner: the wait of GETs while 60 connections ask for plans

A release here has all the columns that one may have, and noise enough that every estimator has to work. Bodies are
parsed, computed and answered by the application in this process, so that its CPU seconds are all there are.
"""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import httpx
import numpy as np

from benchmarks.consortium import Commingle
from benchmarks.harness import heading, row
from commingle.services.learner.app import create_app
from commingle.services.learner.source import ReleaseSource
from commingle.services.learner.views import LoadedRelease
from commingle.shared.documents.dsse import SigningKey, parse_envelope, seal
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.model import encode
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import MAX_COLUMNS, ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.forecast.forecast import forecast_of
from commingle.shared.release.checks import Member, build_spec, open_spec
from commingle.shared.release.plan import plan_blocks
from tests.world.documents import study_file
from tests.world.transport import pool_of_threads

COLUMNS = MAX_COLUMNS - 1
_MECHANISMS = ("rmgm", "dgm", "moments")
_SUBJECTS, _ROWS = 1_000_000, 4_000
_ROWS_TO_PREDICT, _BODY_BYTES = 10_000, 8 << 20
_PENALTIES = 200
_RELEASE = "/v1/releases/{release}"
Bodies = Iterator[tuple[str, str, dict[str, Any] | bytes]]
"""Route, what is asked, and the body."""


def release_of(mechanism: str, columns: int) -> PreparedMoments:
    """Second moments of columns that are alike, with as much noise as signal."""
    draw = np.random.default_rng(0)
    of_rows = mechanism != "moments"
    rows = _ROWS if of_rows else _SUBJECTS
    signal = draw.normal(size=(_ROWS, columns)) * 0.5 + draw.normal(size=(_ROWS, 1)) * 0.2
    noise = draw.normal(size=signal.shape) * 0.5 * of_rows
    matrix = np.hstack([np.ones((_ROWS, 1)), signal + noise]) * np.sqrt(_SUBJECTS / _ROWS)
    gram = matrix.T @ matrix
    variance = np.full(gram.shape, 1e9)
    variance[0, 0] = 0
    moments = SecondMoments(
        release="0" * 64,
        mechanism=cast("Any", mechanism),
        columns=("(intercept)", *(f"x{i}" for i in range(columns))),
        gram=tuple(map(tuple, ((gram + gram.T) / 2).tolist())),
        noise_variance=(0.0, *[0.25 * _SUBJECTS / _ROWS * of_rows] * columns),
        rows=rows,
        n=_SUBJECTS,
        entry_variance=None if of_rows else tuple(map(tuple, variance.tolist())),
    )
    return PreparedMoments.of(moments, tuple(attributes(columns)))


def attributes(columns: int) -> list[NumericAttribute]:
    return [NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(columns)]


def study_of(mechanism: str, columns: int, parties: int) -> dict[str, Any]:
    shares = np.array_split(np.array(attributes(columns), dtype=object), parties)
    asked = [
        {"name": f"party-{i}", "dataset": "rows", "attributes": [a.model_dump() for a in share]}
        for i, share in enumerate(shares)
    ]
    return study_file(asked, mechanism=mechanism, delta=1e-6, n=100_000)


def of_a_release(columns: int, estimators: tuple[str, ...]) -> Bodies:
    names = [f"x{i}" for i in range(columns)]
    tiny, usual = (np.geomspace(*ends, _PENALTIES).tolist() for ends in ((1e-300, 1e-200), (1e-4, 1e2)))
    for estimator in estimators:
        yield f"{_RELEASE}/fits", estimator, {"target": "x0", "estimator": estimator}
    rows = [dict.fromkeys(names, 0.5)] * (_BODY_BYTES // (11 * columns))
    most = {"target": "x0", "estimator": "ols"}
    yield f"{_RELEASE}/predictions", f"{len(rows):,} whole rows", {**most, "rows": rows}
    few = {**most, "features": names[1:60], "rows": [dict.fromkeys(names[1:60], 0.5)] * _ROWS_TO_PREDICT}
    yield f"{_RELEASE}/predictions", "10,000 rows", few
    yield f"{_RELEASE}/predictions", "values that do not fit", {**most, "rows": [dict.fromkeys(names, None)] * 2_000}
    yield f"{_RELEASE}/predictions", "fields nobody knows", json.dumps(dict.fromkeys(map(str, range(700_000)))).encode()
    yield f"{_RELEASE}/analyses/ridge-path", "200 tiny penalties", {"target": "x0", "penalties": tiny}
    yield f"{_RELEASE}/analyses/lasso-path", "200 tiny penalties", {"target": "x0", "penalties": tiny}
    yield f"{_RELEASE}/analyses/lasso-path", "200 penalties", {"target": "x0", "penalties": usual}
    yield f"{_RELEASE}/analyses/lasso-path", "its own penalties", {"target": "x0"}
    yield f"{_RELEASE}/analyses/pca", "all", {}
    yield f"{_RELEASE}/analyses/partial-correlations", "all", {}
    yield f"{_RELEASE}/analyses/compare", "all but one", {"target": "x0", "larger": names[1:], "smaller": names[1:2]}
    half = columns // 2
    instruments = {"target": "x0", "endogenous": names[1:half], "instruments": names[half:]}
    yield f"{_RELEASE}/analyses/two-stage", f"{half - 1} endogenous", instruments
    yield f"{_RELEASE}/analyses/describe", "all", {}
    # refused, as all attributes here are numbers; what tables of levels cost is bounded by their own limits
    yield f"{_RELEASE}/analyses/table", "numbers", {"row": "x0", "column": "x1"}
    yield f"{_RELEASE}/analyses/glm", "numbers", {"formula": "x0 ~ ."}
    yield f"{_RELEASE}/analyses/survival", "numbers", {"outcome": "x0"}
    yield f"{_RELEASE}/analyses/hazard-ratios", "numbers", {"outcome": "x0", "features": ["x1"]}


def plans(columns: int) -> Bodies:
    for mechanism in _MECHANISMS:
        for parties in (1, 5, min(64, columns)):
            study = study_of(mechanism, columns, parties)
            yield "/v1/plans", f"{mechanism} of {parties}", {"study": study}
    table = (np.eye(columns + 1) * 0.3333333333333333).tolist()
    table[0][0] = 1.0
    public = {"second_moments": table, "public_rows": 1000}
    yield "/v1/plans", "a public table", {"study": study_of("moments", columns, 1), **public}
    wide = {"matrix": np.eye(columns).tolist(), "centre": [0.0] * columns}
    whitened = study_of("rmgm", columns, 1)
    whitened["parties"][0] |= {"whitening": wide, "row_norm": 1.0}
    yield "/v1/plans", "whitened", {"study": whitened}


class _Source:
    coordinator = "http://127.0.0.1:1"

    def __init__(self, mechanism: str, columns: int) -> None:
        self.memory: tuple[()] = ()
        self.prepared = release_of(mechanism, columns)
        self._published = SimpleNamespace(
            release="0" * 64,
            pinned=frozenset[str](),
            spec=SimpleNamespace(terms=SimpleNamespace(attributes=attributes(columns))),
        )

    def fetch(self, _: str) -> LoadedRelease:
        return LoadedRelease(cast("Any", self._published), self.prepared, pinned=True)


async def learner_costs(mechanism: str, columns: int) -> Iterator[dict[str, Any]]:
    """Of every body about one release; of plans, with the first mechanism."""
    source = _Source(mechanism, columns)
    app = create_app(cast("ReleaseSource", source), pool=pool_of_threads())
    found = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://learner") as http:
        estimators = ("shrunken", "ols", "adaptive_ridge")
        asked = [("GET", f"{_RELEASE}/moments", "all", b"")]
        bodies = [*of_a_release(columns, estimators), *(plans(columns) if mechanism == _MECHANISMS[0] else ())]
        asked += [
            ("POST", path, what, b if isinstance(b, bytes) else json.dumps(b).encode()) for path, what, b in bodies
        ]
        for method, path, what, body in asked:
            wall, cpu = time.perf_counter(), time.process_time()
            answer = await http.request(method, path.format(release="0" * 64), content=body)
            cost = {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - wall, "bytes": len(body)}
            of = what if path == "/v1/plans" else f"{mechanism}, {what}"
            found.append({"route": f"{method} {path}", "asked": of, "status": answer.status_code, **cost})
    return iter(found)


def coordinator_costs(columns: int) -> Iterator[dict[str, Any]]:
    """Of a forecast, and of what a proposal takes before it is stored."""
    key = SigningKey(bytes(32))
    for mechanism in _MECHANISMS:
        study = Study.model_validate_json(json.dumps(study_of(mechanism, columns, min(64, columns))))
        keys = [SigningKey(bytes([1 + i] * 32)).verifying_key.raw.hex() for i in range(len(study.parties))]
        members = {p.name: Member(k, k) for p, k in zip(study.parties, keys, strict=True)}
        sketch = study.model_copy(update={"k": 1000 if mechanism == "rmgm" else None})
        spec = build_spec(
            sketch,
            members=members,
            proposer=key.fingerprint,
            seed=bytes(32),
            now=datetime.now(UTC).replace(microsecond=0),
        )
        body = encode(seal(spec, key=key))

        def propose(body: bytes = body) -> None:
            plan_blocks(open_spec(parse_envelope(body), [key.verifying_key]).document)

        def forecast(spec: ReleaseSpec = spec) -> None:
            forecast_of(spec)

        for route, work, size in (
            ("POST /v1/releases (a member)", propose, len(body)),
            (f"GET {_RELEASE}/forecast (coordinator)", forecast, 0),
        ):
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            cost = {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - wall, "bytes": size}
            yield {"route": route, "asked": mechanism, "status": 200, **cost}


def worst(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The costliest request of every route, the costliest route first."""
    by_route: dict[str, dict[str, Any]] = {}
    for cost in found:
        if cost["cpu"] > by_route.get(cost["route"], {"cpu": -1.0})["cpu"]:
            by_route[cost["route"]] = cost
    return sorted(by_route.values(), key=lambda cost: -float(cost["cpu"]))


def hammer(command: Path, connections: int) -> dict[str, Any]:
    """Statuses of plans asked for at once, and how long a read waits meanwhile, in milliseconds."""
    plan = json.dumps({"study": study_of("moments", COLUMNS, 1)}).encode()
    # nobody listens at the discard port: the list is what the learner keeps, which is nothing
    with (
        Commingle("here", command).reached("learner", "serve", "--coordinator", "http://127.0.0.1:9") as url,
        httpx.Client(base_url=url, timeout=600) as http,
        ThreadPoolExecutor(connections) as asking,
    ):
        asked = [asking.submit(httpx.post, f"{url}/v1/plans", content=plan, timeout=600) for _ in range(connections)]
        waits: list[float] = []
        while not all(future.done() for future in asked):
            start = time.perf_counter()
            http.get("/v1/releases").raise_for_status()
            waits.append(1000 * (time.perf_counter() - start))
            time.sleep(0.02)
        statuses = dict(Counter(future.result().status_code for future in asked))
    return {"statuses": statuses, "median_ms": float(np.median(waits)), "worst_ms": max(waits), "reads": len(waits)}


def _write(report: dict[str, Any], target: Path | None) -> None:
    if target is not None:
        target.write_text(json.dumps(report) + "\n", encoding="utf-8")


@click.command()
@click.option("--quick", is_flag=True, help="Few columns, for CI.")
@click.option("--hammer", "connections", type=int, help="Ask a real learner for that many plans at once instead.")
@click.option("--command", type=click.Path(path_type=Path), default=Path("commingle"), help="The one to be hammered.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, connections: int | None, command: Path, json_file: Path | None) -> None:
    """Print the table and, if asked, write all figures as JSON."""
    if connections is not None:
        report = hammer(command, connections)
        print(json.dumps(report))
        _write(report, json_file)
        return
    columns = 12 if quick else COLUMNS
    import_module("scipy.stats.qmc")  # the pool's processes have it before the first request
    found = [cost for mechanism in _MECHANISMS for cost in asyncio.run(learner_costs(mechanism, columns))]
    found += coordinator_costs(columns)
    print("\n".join(heading("route", "worst of what was tried", "status", "bytes in", "CPU seconds")))
    for cost in worst(found):
        print(row(cost["route"], cost["asked"], str(cost["status"]), f"{cost['bytes']:,}", f"{cost['cpu']:.2f}"))
    _write({"columns": columns, "threads": os.environ.get("OPENBLAS_NUM_THREADS"), "costs": found}, json_file)


if __name__ == "__main__":
    main()
