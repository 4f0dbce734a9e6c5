"""Traces of releases, as a collector on a socket of its own receives them from real processes.

The adversary is whoever reads the collector: a cell, an id or the text of a fault in a span would reach them.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.consortium import Commingle, Consortium
from commingle.shared.errors import MissingExtraError
from commingle.shared.runtime.telemetry import trace_id, trace_to
from tests.world.command import Loaded, eventually

MARK = "leaked7c1d"
MEMBERS = {"clinic": ("age",), "ward": ("stay",)}
STEPS = {"approve", "read", "encrypt", "reply", "open", "upload"}
ALONE = """
import sys
from commingle.__main__ import leave_out_unused
leave_out_unused()
from commingle.shared.runtime.telemetry import span, trace_to
trace_to(sys.argv[1], service="agent")
try:
    with span("read", "ab" * 32):
        raise ValueError("patient leaked7c1d has 37")
except ValueError:
    print("worked")
"""


class Collector:
    """What it was sent: bodies, and the spans in them with their services and parties."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    @property
    def spans(self) -> list[dict[str, Any]]:
        found = []
        for body in self.bodies:
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {each.key: each.value.string_value for each in group.resource.attributes}
                spans = [span for scope in group.scope_spans for span in scope.spans]
                found += [{**about, "span": span, "name": span.name, "trace": span.trace_id.hex()} for span in spans]
        return found


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not in the tests' output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield collector, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def released(root: Path, commingle: Commingle) -> Iterator[tuple[str, datetime]]:
    """Services of that installation, tables whose ids and texts are known, and a published release of moments."""
    consortium = Consortium(Loaded(), root, MEMBERS)
    consortium.prepare()
    for name, (column,) in MEMBERS.items():
        table = root / f"{name}.csv"
        rows = [f"{MARK}-{number},{number / 60},{MARK} {number}" for number in range(60)]
        table.write_text("\n".join([f"id,{column},note", *rows]))
        consortium.register(name, table)
    consortium = replace(consortium, commingle=commingle)
    with ExitStack() as stack:
        _, url = stack.enter_context(consortium.coordinator())
        stack.enter_context(consortium.agents())
        http = stack.enter_context(consortium.asked(url))
        release, _ = consortium.release(http, mechanism="moments", n=60, lifetime_hours=1)
        yield release, datetime.fromisoformat(http.get(f"/v1/releases/{release}").json()["created"])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Collector, str]]:
    with collecting() as (collector, url):
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        yield collector, url


@pytest.mark.slow
def test_release_is_one_trace_of_all_members_from_proposal_to_publication(
    told: tuple[Collector, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, url = told
    for role in ("COORDINATOR", "PARTY"):
        monkeypatch.setenv(f"COMMINGLE_{role}_TRACES_TO", url)
    with released(tmp_path, Loaded()) as (release, created):
        pass
    spans = collector.spans
    assert {each["trace"] for each in spans} == {trace_id(release)}
    (root,) = [each["span"] for each in spans if each["name"] == "release"]
    assert (root.parent_span_id, root.start_time_unix_nano) == (b"", int(created.timestamp()) * 10**9)
    assert {each["span"].parent_span_id for each in spans if each["span"] != root} == {root.span_id}
    for name in MEMBERS:
        steps = {each["name"] for each in spans if each.get("commingle.party") == name}
        left_out = {"encrypt"} if name == "ward" else {"reply"}  # the last encrypts nothing, the first replies to none
        assert STEPS - left_out <= steps <= STEPS
    coordinator = {each["name"] for each in spans if each["service.name"] == "commingle-coordinator"}
    assert {"release", "assemble", "PUT /v1/releases/{release}/approvals/{party}"} <= coordinator
    assert not any(MARK.encode() in body for body in collector.bodies)


@pytest.mark.slow
def test_nothing_is_sent_that_the_environment_asks_of_libraries(
    told: tuple[Collector, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, url = told
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    with released(tmp_path, Commingle()):  # which loads its libraries under that environment
        pass
    assert collector.bodies == []


def alone(url: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", ALONE, url], check=True, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_failed_step_is_marked_and_says_nothing_of_why(told: tuple[Collector, str]) -> None:
    collector, url = told
    ran = alone(url)
    assert (ran.stdout, ran.stderr) == ("worked\n", "")
    eventually(lambda: bool(collector.bodies), what="no span arrived")
    (found,) = collector.spans
    assert (found["name"], found["span"].status.code, found["span"].status.message) == ("read", 2, "")
    assert (len(found["span"].events), found["trace"]) == (0, trace_id("ab" * 32))
    assert MARK.encode() not in collector.bodies[0]


@pytest.mark.slow
def test_collector_that_is_away_stops_nothing() -> None:
    assert alone("http://127.0.0.1:1").stdout == "worked\n"


def test_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtraError) as refused:
        trace_to("http://127.0.0.1:4318", service="coordinator")
    assert refused.value.extra == "otel"
