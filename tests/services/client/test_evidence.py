"""An evidence pack: a release with the histories of its parties, honest and not."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from commingle.party_agent.edge.views import export_audit
from commingle.services.client.files import ReleaseFiles
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.errors import DocumentError, ProtocolError, SignatureError, VerificationError
from commingle.shared.release.audit import PartyAudit, verify_party_audit
from tests.party_agent.releasing import publish
from tests.world.command import run_command
from tests.world.consortium import Consortium, consortium_of
from tests.world.documents import rotation
from tests.world.released import COORDINATOR, STRANGER


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return consortium_of(tmp_path_factory.mktemp("homes"), "clinic", "insurer")


@pytest.fixture(scope="module")
def evidence(pair: Consortium, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two published releases and a rejected one behind it; the pack is about the first."""
    release = publish(pair)
    publish(pair, title="another")
    refused = pair.propose(title="refused", epsilon=50.0)
    pair.step("clinic")
    assert pair.state(refused) == "rejected"
    with pair.coordinator.client() as http:
        served = (http.get(f"/v1/releases/{release}/{name}").content for name in ("manifest", "matrix", "moments"))
        files = ReleaseFiles(*served)
    directory = tmp_path_factory.mktemp("evidence")
    files.write(directory)
    for name in ("clinic", "insurer"):
        with pair.agents(name) as agents:
            (directory / f"audit-{name}.json").write_bytes(encode(export_audit(agents)))
    return directory


@pytest.fixture
def pack(evidence: Path, tmp_path: Path) -> Path:
    """A copy that the test may spoil."""
    return Path(shutil.copytree(evidence, tmp_path / "release"))


def verify(pack: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code, out, _ = run_command(capsys, "verify", pack, "--coordinator-key", COORDINATOR.fingerprint, "--json")
    return code, json.loads(out)


def test_release_with_its_parties_histories_holds(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = verify(pack, capsys)
    assert code == 0
    assert [line.split(":")[0] for line in said["evidence"]] == ["audit-clinic.json", "audit-insurer.json"]
    assert "approval, debit of rho" in said["evidence"][0]


def test_history_tells_all_charges_and_their_sum(pack: Path, pair: Consortium) -> None:
    history = verify_party_audit((pack / "audit-clinic.json").read_bytes())
    with pair.agent("clinic") as agent:
        assert history.told.lost == agent.ledger.lost()
        assert {r: charge.state for r, charge in history.told.charges.items()} == {
            release: charge.state for release, charge in agent.ledger.charges().items()
        }
    assert len(history.told.charges) == 2
    assert [kind for _, kind in history.told.signed].count("rejection") == 1
    assert [key.fingerprint for key in history.keys] == [history.signer]


def test_history_holds_no_alignment_statement_and_no_digest_of_rows(pack: Path, pair: Consortium) -> None:
    text = (pack / "audit-clinic.json").read_text()
    audit = verify_party_audit(text.encode()).audit
    assert all("alignment" not in envelope.payloadType for envelope in audit.documents)
    with pair.agent("clinic") as agent:
        snapshot = agent.datasets.get("main").snapshot
    assert snapshot is not None
    assert snapshot not in "".join(audit.entries)


def signed(audit: PartyAudit, key: SigningKey) -> bytes:
    return encode(SignedDocument.of(audit, key))


def rechained(bodies: list[dict[str, Any]]) -> tuple[tuple[str, ...], str]:
    """A chain as a forger would write it: every link fits."""
    previous, texts = "0" * 64, []
    for body in bodies:
        texts.append(json.dumps({**body, "previous": previous}, sort_keys=True))
        previous = sha256(texts[-1].encode()).hexdigest()
    return tuple(texts), previous


def cut(bodies: list[dict[str, Any]], release: str) -> list[dict[str, Any]]:
    return [body for body in bodies if body["release"] != release]


def cheaper(bodies: list[dict[str, Any]], release: str) -> list[dict[str, Any]]:
    for body in bodies:
        if body["kind"] == "reserved" and body["release"] == release:
            body["charge"]["loss"]["rho_units"] = "1"
    return bodies


def undebited(bodies: list[dict[str, Any]], release: str) -> list[dict[str, Any]]:
    return [b for b in bodies if not (b["kind"] == "debited" and b["release"] == release)]


FORGERIES: dict[str, Callable[[list[dict[str, Any]], str], list[dict[str, Any]]]] = {
    "the release left out": cut, "a cheaper charge": cheaper, "a debit left out": undebited,
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_chain_rewritten_by_the_party_itself_is_noticed(
    pack: Path, pair: Consortium, forgery: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every link and signature of the forged file holds; the published documents name heads it never had."""
    history = verify_party_audit((pack / "audit-clinic.json").read_bytes())
    release = next(iter(history.told.charges))
    bodies = FORGERIES[forgery]([json.loads(body) for body in history.audit.entries], release)
    entries, head = rechained(bodies)
    kept = {body["digest"] for body in bodies if body["kind"] == "signed"}
    documents = tuple(e for e in history.audit.documents if e.digest in kept)
    forged = history.audit.model_copy(update={"entries": entries, "head": head, "documents": documents})
    key = pair.homes["clinic"].identity().signing_key
    (pack / "audit-clinic.json").write_bytes(signed(forged, key))
    code, said = verify(pack, capsys)
    assert code == 1
    assert said["error"]["code"] in {"verification", "document"}


@pytest.mark.parametrize("what", ["entry altered", "entry removed", "head", "document removed", "order"])
def test_history_that_does_not_hold_together_is_refused(pack: Path, pair: Consortium, what: str) -> None:
    audit = verify_party_audit((pack / "audit-clinic.json").read_bytes()).audit
    first, *rest = audit.entries
    changes: dict[str, dict[str, Any]] = {
        "entry altered": {"entries": (first.replace('"reserved"', '"released"'), *rest)},
        "entry removed": {"entries": tuple(rest)},
        "head": {"head": "1" * 64},
        "document removed": {"documents": audit.documents[1:]},
        "order": {"entries": (*rest, first)},
    }
    key = pair.homes["clinic"].identity().signing_key
    with pytest.raises(VerificationError):
        verify_party_audit(signed(audit.model_copy(update=changes[what]), key))


def test_history_altered_after_signing_is_refused(pack: Path) -> None:
    data = (pack / "audit-clinic.json").read_bytes()
    document = json.loads(data)
    payload = document["envelope"]["payload"]
    document["envelope"]["payload"] = payload[:-8] + ("A" if payload[-8] != "A" else "B") + payload[-7:]
    with pytest.raises((SignatureError, DocumentError)):
        verify_party_audit(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("whose", "empty", "code", "says"),
    [
        ("a stranger", False, "signature", ""),
        ("a stranger", True, "verification", "another key than the release names"),
        ("clinic", True, "verification", "published approval of clinic is not in its chain"),
    ],
)
def test_history_of_a_stranger_or_from_before_the_release_is_refused(
    *, pack: Path, pair: Consortium, whose: str, empty: bool, code: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = verify_party_audit((pack / "audit-clinic.json").read_bytes()).audit
    key = STRANGER if whose == "a stranger" else pair.homes["clinic"].identity().signing_key
    nothing = audit.model_copy(update={"entries": (), "head": "0" * 64, "documents": ()})
    (pack / "audit-clinic.json").write_bytes(signed(nothing if empty else audit, key))
    ended, said = verify(pack, capsys)
    assert (ended, said["error"]["code"], says in said["error"]["message"]) == (1, code, True)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"signing_key": "x"}'])
def test_audit_file_that_is_none_is_our_error(pack: Path, body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProtocolError):
        verify_party_audit(body)
    (pack / "audit-x.json").write_bytes(body)
    assert verify(pack, capsys)[0] == 1


def test_party_exports_and_verifies_by_commands(
    pack: Path, pair: Consortium, capsys: pytest.CaptureFixture[str]
) -> None:
    def party(*arguments: object) -> tuple[int, dict[str, Any]]:
        code, out, _ = run_command(capsys, "party", *arguments, "--json")
        return code, json.loads(out)

    home, file = pair.homes["clinic"], pack / "audit-clinic.json"
    code, exported = party("audit", "export", "--home", home.root, "--out", file)
    assert code == 0
    code, said = party("audit", "verify", file, "--key", home.identity().signing_key.fingerprint)
    assert (code, said["head"], said["signer_known"]) == (0, exported["head"], True)
    code, said = party("audit", "verify", file, "--key", STRANGER.fingerprint)
    assert (code, said["error"]["code"]) == (1, "verification")
    assert verify(pack, capsys)[0] == 0


def test_history_of_a_party_that_replaced_its_key_confirms_what_it_signed_before(
    pack: Path, pair: Consortium, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = verify_party_audit((pack / "audit-clinic.json").read_bytes()).audit
    old, keys = pair.homes["clinic"].identity().signing_key, [SigningKey(bytes([n]) * 32) for n in (5, 6)]
    rotations = tuple(rotation(before, after) for before, after in pairwise([old, *keys]))
    file = pack / "audit-clinic.json"
    file.write_bytes(signed(audit.model_copy(update={"rotations": rotations}), keys[-1]))
    assert verify(pack, capsys)[0] == 0
    for broken in ((), rotations[1:], rotations[:1], (rotation(STRANGER, keys[1]),)):
        file.write_bytes(signed(audit.model_copy(update={"rotations": broken}), keys[-1]))
        assert verify(pack, capsys)[0] == 1
