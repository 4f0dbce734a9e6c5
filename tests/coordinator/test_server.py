"""The coordinator as it is deployed: a process of its own on a socket of its own."""

import json
import signal
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.consortium import Commingle
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.documents.model import encode
from commingle.shared.mechanisms.moments.block import TRUST_MOMENTS, TRUST_PROVED
from commingle.shared.release.checks import read_spec
from commingle.shared.release.matrix import ARROW_STREAM
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime.request_signing import RequestSigner
from tests.world.command import Command
from tests.world.coordinator import ATTRIBUTES, ROWS, Honest, Proposed, key_of, problem
from tests.world.documents import study_file


@pytest.fixture
def url(home: Path) -> Iterator[str]:
    with Commingle().serving("coordinator", "serve", "--home", home) as (process, said):
        yield said["url"]
    assert process.returncode in {0, -signal.SIGTERM}


def enrol(http: httpx.Client, command: Command, home: Path, name: str) -> Honest:
    party = Honest(name, key_of(name))
    invited = command.json("invite", "--home", home, "--party", name)["invite"]
    assert http.post("/v1/parties", content=encode(party.enrolment(invited))).status_code == 201
    return party


def study_of(parties: list[Honest], folder: Path, **more: object) -> Path:
    """A file that asks for a column or two of each."""
    asked = [{"name": p.name, "dataset": "cohort", "attributes": ATTRIBUTES[p.name]} for p in parties]
    study = folder / "study.json"
    study.write_text(json.dumps(study_file(asked, n=ROWS, **more)))
    return study


@pytest.mark.slow
def test_whole_round_over_a_real_socket(command: Command, home: Path, url: str, tmp_path: Path) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        parties = [enrol(http, command, home, name) for name in ("clinic", "registry")]
        study = study_of(parties, tmp_path, k=16)
        code, out, err = command("propose", study, "--home", home, "--coordinator", url, "--json")
        assert (code, err.splitlines()[0].startswith("Not useful with n = ")) == (0, True)
        assert json.loads(out)["forecast"]["sentences"][0] == err.splitlines()[0]
        proposed = proposed_from(json.loads(out))
        told: list[str] = []
        listening = threading.Thread(target=follow, args=(url, proposed.id, told))
        listening.start()
        take_part(http, parties, proposed)
        listening.join(60)
        kinds = ["proposal", "approval", "approval", "block", "block", "published"]
        assert [line for line in told if line.startswith("event")] == [f"event: {kind}" for kind in kinds]
        files = [http.get(f"/v1/releases/{proposed.id}/{name}") for name in ("manifest", "matrix", "moments")]
        fingerprint = http.get("/v1/coordinator").json()["fingerprint"]
        released = verify_release(*(file.content for file in files), trusted_coordinator=fingerprint)
        assert released.release == proposed.id
    listed = command.json("releases", "--home", home, "--coordinator", url, "--state", "published")
    assert [item["id"] for item in listed["items"]] == [proposed.id]


TRUSTED: list[tuple[dict[str, str], list[str]]] = [
    ({"mechanism": "moments"}, [TRUST_PROVED]),
    ({"mechanism": "moments", "bounds": "proved"}, [TRUST_PROVED]),
    ({"mechanism": "moments", "bounds": "trusted"}, [TRUST_MOMENTS]),
    ({"mechanism": "dgm"}, []),
]


@pytest.mark.slow
def test_who_proposes_a_moments_release_is_told_whom_it_trusts(
    command: Command, home: Path, url: str, tmp_path: Path
) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        parties = [enrol(http, command, home, name) for name in ("clinic", "registry")]
    target = ATTRIBUTES[parties[0].name][0]["name"]
    protocol = tmp_path / "protocol.pdf"
    protocol.write_bytes(b"what was agreed")
    for asked, told in TRUSTED:
        study = study_of(parties, tmp_path, purpose="Who stays longer?", target=target, **asked)
        code, out, err = command("propose", study, "--home", home, "--coordinator", url, "--attach", protocol)
        assert code == 0
        assert [trust for trust in (TRUST_PROVED, TRUST_MOMENTS) if trust in out] == told, asked
        assert f"of {target!r}. " in err  # the forecast is about the target
        shown = command("releases", out[:64], "--home", home, "--coordinator", url)[1]
        for printed in (out, shown):
            assert "Purpose: “Who stays longer?”" in printed
            assert f"To explain {target} by all others" in printed
            assert f"Attachment: “protocol.pdf”, SHA-256 {sha256(b'what was agreed').hexdigest()}" in printed


@pytest.mark.slow
def test_member_is_told_of_steps_by_a_stream_and_a_stranger_refused(
    command: Command, home: Path, url: str, tmp_path: Path
) -> None:
    headers = {"Accept": "text/event-stream"}
    with httpx.Client(base_url=url, timeout=60, headers=headers) as http:
        assert problem(http.get("/v1/parties/nobody/releases")) == (404, "unknown")
        parties = [enrol(http, command, home, name) for name in ("clinic", "registry")]
        with http.stream("GET", "/v1/parties/clinic/releases?wait_seconds=30", auth=auth_of(http, parties[0])) as told:
            assert told.headers["content-type"].startswith("text/event-stream")
            lines = told.iter_lines()
            proposed = command("propose", study_of(parties, tmp_path, k=16), "--home", home, "--coordinator", url)[1]
            assert next(lines) == "event: steps"
            assert [item["id"] for item in json.loads(next(lines)[6:])["items"]] == [proposed[:64]]


def proposed_from(shown: dict[str, Any]) -> Proposed:
    envelope = parse_envelope(json.dumps(shown["spec"]).encode())
    return Proposed(read_spec(envelope.payload_bytes), envelope)


def follow(url: str, release: str, told: list[str]) -> None:
    with httpx.stream("GET", f"{url}/v1/releases/{release}/events", timeout=60) as answer:
        told.extend(answer.iter_lines())


def take_part(http: httpx.Client, parties: list[Honest], proposed: Proposed) -> None:
    base = f"/v1/releases/{proposed.id}"
    for party in parties:
        body = encode(party.approval(proposed))
        path = f"{base}/approvals/{party.name}"
        assert http.put(path, content=body, auth=auth_of(http, party)).status_code == 201
    approvals = http.get(base).json()["approvals"]
    envelopes = {name: parse_envelope(json.dumps(value).encode()) for name, value in approvals.items()}
    for party in parties:
        block = party.block(proposed, envelopes)
        headers = {"Content-Type": ARROW_STREAM, "Commingle-Block": block.envelope.to_json().decode()}
        path = f"{base}/blocks/{party.name}"
        auth = auth_of(http, party)
        assert problem(http.put(path, content=unannounced(40 << 20), headers=headers)) == (401, "request-signature")
        assert problem(http.put(path, content=bytes(40 << 20), headers=headers, auth=auth)) == (413, "too-large")
        oversize = http.build_request("PUT", path, content=bytes(40 << 20), headers=headers)
        auth.sign(oversize)
        signed = {name: value for name, value in oversize.headers.items() if name != "content-length"}
        assert problem(http.put(path, content=unannounced(40 << 20), headers=signed)) == (413, "too-large")
        assert http.put(path, content=block.body, headers=headers, auth=auth).status_code == 201


def unannounced(size: int) -> Iterator[bytes]:
    """A body that is sent without saying how long it is."""
    return (bytes(65536) for _ in range(size // 65536))


def auth_of(http: httpx.Client, party: Honest) -> RequestSigner:
    return RequestSigner(party.key, audience=http.get("/v1/coordinator").json()["fingerprint"])
