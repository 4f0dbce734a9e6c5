"""Who has the coordinator's key alone can make up members; whoever knows one key, or has seen the log, notices."""

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import httpx
import pytest

from commingle import Release, ReleaseClient
from commingle.services.client.files import ReleaseFiles
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.errors import ProtocolError, VerificationError
from commingle.shared.release.audit import member_log, verify_member_log
from commingle.shared.runtime.errors import SettingsError
from tests.hostile.actors import forged_release
from tests.world.command import Command
from tests.world.released import COORDINATOR, NOW, PARTIES, STRANGER, ServingCoordinator, published
from tests.world.transport import on_a_socket

TARGET = "charges, yearly"
INVENTED = {"clinic": SigningKey(b"\xf1" * 32), "insurer": SigningKey(b"\xf2" * 32)}
PINS = {name: key.fingerprint for name, key in PARTIES.items()}
LATER = datetime(2026, 2, 1, tzinfo=UTC)
Change = tuple[datetime, str, str, str]
ENROLLED: list[Change] = [(NOW, "enrolment", name, key.fingerprint) for name, key in PARTIES.items()]


@cache
def forged() -> tuple[str, ReleaseFiles]:
    """The published release with invented keys for its members."""
    return forged_release(published()[1], INVENTED)


def written(where: Path, files: ReleaseFiles) -> str:
    files.write(where)
    return str(where)


def log_of(*changes: Change, key: SigningKey = COORDINATOR) -> bytes:
    return encode(SignedDocument.of(member_log(changes, exported=LATER), key))


def client_of(fake: ServingCoordinator, **choices: object) -> ReleaseClient:
    return ReleaseClient("http://hub.example", transport=fake.transport, **choices)  # type: ignore[arg-type] # chosen by each test


def showing(fake: ServingCoordinator, log: bytes) -> ServingCoordinator:
    """The same coordinator with another log of member keys."""
    honest = fake.answer

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/member-log":
            return httpx.Response(200, content=log, headers={"content-type": "application/json"})
        fake.instead = None
        answered = honest(request)
        fake.instead = answer
        return answered

    fake.instead = answer
    return fake


@pytest.mark.parametrize("pinned", [(), ("--coordinator-key", COORDINATOR.fingerprint)], ids=["nothing", "coordinator"])
def test_forged_members_are_never_called_by_their_names(tmp_path: Path, run: Command, pinned: tuple[str, ...]) -> None:
    out = run.out("verify", written(tmp_path, forged()[1]), *pinned)
    for name, key in INVENTED.items():
        assert f"a key that calls itself {name} approved and signed its block, key {key.fingerprint}" in out
        assert f"✓ {name} approved" not in out
    assert "Nothing shows that these keys are theirs: clinic, insurer." in out


@pytest.mark.parametrize("name", sorted(PINS))
@pytest.mark.parametrize("command", [("verify",), ("fit", "--target", TARGET)], ids=["verify", "fit"])
def test_forged_member_is_refused_where_its_key_is_pinned(
    tmp_path: Path, run: Command, command: tuple[str, ...], name: str
) -> None:
    where = written(tmp_path, forged()[1])
    pins = ("--coordinator-key", COORDINATOR.fingerprint, "--member", f"{name}={PINS[name]}")
    code, out, err = run(command[0], where, *command[1:], *pins)
    assert (code, out) == (1, "")
    assert f"{name} is pinned with key {PINS[name]}, and the release names {INVENTED[name].fingerprint}" in err


def test_forged_member_is_refused_from_python_too(tmp_path: Path) -> None:
    written(tmp_path, forged()[1])
    with pytest.raises(VerificationError, match="clinic is pinned with key"):
        Release.load(tmp_path, members={"clinic": PINS["clinic"]})
    with pytest.raises(VerificationError, match="insurer is pinned with key"):
        Release.of(forged()[1], members={"insurer": f" {PINS['insurer'].upper()}\n"})
    with (
        client_of(ServingCoordinator.serving(forged()), members=PINS) as client,
        pytest.raises(VerificationError, match="clinic is pinned with key"),
    ):
        client.fetch(forged()[0])


def test_honest_members_whose_keys_are_pinned_are_called_by_name(tmp_path: Path, run: Command) -> None:
    where = written(tmp_path, published()[1])
    out = run.out("verify", where, "--member", f"clinic= {PINS['clinic'].upper()}")
    assert f"✓ clinic approved and signed its block, key {PINS['clinic']}" in out
    assert "a key that calls itself insurer approved" in out
    assert "Nothing shows that these keys are theirs: insurer." in out
    assert run.json("verify", where, "--member", f"clinic={PINS['clinic']}")["members"] == {
        "clinic": {"fingerprint": PINS["clinic"], "pinned": True},
        "insurer": {"fingerprint": PINS["insurer"], "pinned": False},
    }
    _, out, _ = run("fit", where, "--target", TARGET, "--member", f"clinic={PINS['clinic']}")
    assert "Signed by clinic, a key that calls itself insurer. Give --member" in out
    release = Release.load(where, members={"clinic": PINS["clinic"]})
    assert release.published.pinned == {"clinic"}
    assert "(clinic, a key that calls itself insurer)" in repr(release)


@pytest.mark.parametrize(
    ("members", "code", "expected"),
    [
        (("clinc=" + "0" * 64,), 1, "not a member of this release, and yet pinned: clinc"),
        (("clinic=abc",), 1, "not a key's fingerprint"),
        (("clinic",), 2, "give NAME=FINGERPRINT"),
        (("=" + "0" * 64,), 2, "give NAME=FINGERPRINT"),
        (("clinic=" + "0" * 64, "clinic=" + "1" * 64), 2, "name each member once"),
    ],
)
def test_pin_that_would_pin_nobody_is_refused(
    tmp_path: Path, run: Command, members: tuple[str, ...], code: int, expected: str
) -> None:
    where = written(tmp_path, published()[1])
    options = [part for one in members for part in ("--member", one)]
    ended, _, err = run("verify", where, *options)
    assert (ended, expected in err) == (code, True)


def test_pin_that_is_no_fingerprint_is_refused_from_python() -> None:
    with pytest.raises(SettingsError, match="not a key's fingerprint"):
        Release.of(published()[1], members={"clinic": "abc"})
    with pytest.raises(SettingsError, match="not a key's fingerprint"):
        ReleaseClient("http://hub.example", members={"clinic": "abc"})


def test_release_of_members_that_the_log_never_had_is_not_fetched(tmp_path: Path) -> None:
    fake = ServingCoordinator.serving(published(), forged())
    with client_of(fake, cache=tmp_path, trusted_coordinator=COORDINATOR.fingerprint) as client:
        assert client.fetch(published()[0]).id == published()[0]
        with pytest.raises(VerificationError, match=r"the log of member keys never had the key .* for clinic"):
            client.fetch(forged()[0])
        assert client.cache is not None
        assert client.cache.releases() == (published()[0],)


def test_log_whose_history_was_rewritten_for_the_forgery_is_refused_by_who_saw_it_before(tmp_path: Path) -> None:
    fake = ServingCoordinator.serving(published(), forged())
    rewritten = log_of(*[(NOW, "enrolment", name, key.fingerprint) for name, key in INVENTED.items()])
    with client_of(fake, cache=tmp_path) as client:
        client.fetch(published()[0])
        showing(fake, rewritten)
        with pytest.raises(VerificationError, match="does not continue the one seen before"):
            client.fetch(forged()[0])
    with client_of(fake, cache=tmp_path / "new") as client, pytest.raises(VerificationError, match="never had"):
        client.fetch(published()[0])  # who never saw the other log still sees that it is not that of the honest release


@pytest.mark.parametrize(
    "log",
    [
        log_of(),
        log_of(ENROLLED[0]),
        log_of(*ENROLLED[::-1]),
        log_of(*ENROLLED, key=STRANGER),
        log_of(*ENROLLED, (LATER, "rotation", "nobody", "ab" * 32)),
        log_of(*ENROLLED, (LATER, "enrolment", "clinic", "ab" * 32)),
        log_of(*ENROLLED, (LATER, "rotation", "clinic", PINS["insurer"])),
        b"{}",
    ],
    ids=["empty", "shorter", "order", "another key", "nobody", "twice", "borrowed key", "nothing"],
)
def test_log_that_does_not_go_on_from_the_one_seen_is_refused(tmp_path: Path, log: bytes) -> None:
    fake = ServingCoordinator.serving(published())
    showing(fake, log_of(*ENROLLED))
    with client_of(fake, cache=tmp_path, trusted_coordinator=COORDINATOR.fingerprint) as client:
        seen, _ = client.member_log()
        showing(fake, log)
        with pytest.raises(ProtocolError):
            client.member_log()
        showing(fake, log_of(*ENROLLED, (LATER, "rotation", "clinic", "ab" * 32)))
        later, _ = client.member_log()
    assert later.members["clinic"] == (PINS["clinic"], "ab" * 32)
    assert [entry.previous for entry in later.entries][2] == seen.chain.head


def test_log_without_the_pinned_key_is_refused() -> None:
    fake = ServingCoordinator()
    showing(fake, log_of(*[(NOW, "enrolment", name, key.fingerprint) for name, key in INVENTED.items()]))
    with client_of(fake, members={"clinic": PINS["clinic"]}) as client, pytest.raises(VerificationError, match="never"):
        client.member_log()


def test_every_altered_entry_of_a_log_is_noticed() -> None:
    log = member_log([*ENROLLED, (LATER, "revocation", "clinic", PINS["clinic"])], exported=LATER)
    assert verify_member_log(encode(SignedDocument.of(log, COORDINATOR))).revoked == {"clinic"}
    for number in range(3):
        entries = [*log.entries]
        entries[number] = entries[number].replace("2026", "2025")
        altered = log.model_copy(update={"entries": tuple(entries)})
        with pytest.raises(VerificationError, match=r"altered|ends elsewhere"):
            verify_member_log(encode(SignedDocument.of(altered, COORDINATOR)))


def test_members_shows_the_chain_and_verify_takes_it_as_evidence(tmp_path: Path, run: Command) -> None:
    honest, forgery = written(tmp_path / "honest", published()[1]), written(tmp_path / "forgery", forged()[1])
    with on_a_socket(ServingCoordinator.serving(published()).answer) as url:
        pin = ("--coordinator-key", COORDINATOR.fingerprint, "--member", f"clinic={PINS['clinic']}")
        said = run.json("members", url, *pin, "--out", f"{honest}/audit-members.json")
    assert (said["coordinator"], said["coordinator_pinned"]) == (COORDINATOR.fingerprint, True)
    assert [(e["party"], e["key"], e["kind"], e["pinned"]) for e in said["entries"]] == [
        (name, key, "enrolment", name == "clinic") for name, key in PINS.items()
    ]
    log = (tmp_path / "honest" / "audit-members.json").read_bytes()
    assert verify_member_log(log).chain.head == said["head"]
    assert f"log of member keys, head {said['head']}" in run.out("verify", honest)
    (tmp_path / "forgery" / "audit-members.json").write_bytes(log)
    code, out, err = run("verify", forgery)
    assert (code, out, "log of member keys never had the key" in err) == (1, "", True)


def test_members_in_words_says_what_a_name_is_worth(run: Command) -> None:
    with on_a_socket(ServingCoordinator().answer) as url:
        code, out, _ = run("members", url)
    assert code == 0
    assert "A name here is what a key calls itself." in out


def test_key_entered_for_a_pinned_member_since_is_told(run: Command) -> None:
    fake = showing(ServingCoordinator(), log_of(*ENROLLED, (LATER, "rotation", "clinic", "ab" * 32)))
    with on_a_socket(fake.answer) as url:
        pins = [part for name, key in PINS.items() for part in ("--member", f"{name}={key}")]
        code, out, _ = run("members", url, *pins)
        assert (code, "clinic has another key since the pinned one" in out) == (0, True)
        assert "insurer has another key" not in out
        _, out, _ = run("members", url, *pins, "--json")
    assert json.loads(out)["replaced"] == ["clinic"]
