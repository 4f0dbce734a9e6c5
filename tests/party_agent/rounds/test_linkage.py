"""The linkage key on its way from member to member, and a coordinator or member that tampers with it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home
from commingle.party_agent.rounds.linkage import Received, Sent, publish_identity, receive_linkage_key, send_linkage_key
from commingle.shared.documents.dsse import Envelope, SigningKey, parse_envelope, seal
from commingle.shared.documents.linkage import IdentityStatement, LinkageKeyMessage, check_value
from commingle.shared.documents.model import decode
from commingle.shared.errors import DocumentError, SignatureError
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.releasing import look
from tests.world.command import Command
from tests.world.consortium import LINKAGE, Consortium, consortium_of
from tests.world.tampering import NOW, URL
from tests.world.transport import on_a_socket

STRANGER = SigningKey(b"\xee" * 32)


@dataclass(frozen=True)
class Trio:
    """A clinic that has the linkage key, and an insurer and a lab that do not."""

    consortium: Consortium

    @property
    def fingerprint(self) -> str:
        return self.consortium.coordinator.key.fingerprint

    def home(self, name: str) -> Home:
        return self.consortium.homes[name]

    def key(self, name: str) -> SigningKey:
        return self.home(name).identity().signing_key

    def send(self, name: str = "clinic", *, coordinator: str | None = None) -> Sent:
        with self.consortium.client(name) as client:
            return send_linkage_key(
                self.home(name),
                self.home(name).consortium(),
                client,
                coordinator=coordinator or self.fingerprint,
                now=NOW,
            )

    def receive(self, name: str, *, sender: str | None = None, replace: bool = False) -> Received | None:
        with self.consortium.client(name) as client:
            return receive_linkage_key(
                self.home(name),
                self.home(name).consortium(),
                client,
                coordinator=self.fingerprint,
                sender=sender,
                replace=replace,
            )

    def relayed(self, recipient: str, sender: str = "clinic") -> Envelope:
        return self.consortium.coordinator.relayed(recipient)[sender]

    def relay_unchecked(self, request: httpx.Request) -> httpx.Response | None:
        """The coordinator takes whatever is sent to a member."""
        if request.method != "PUT" or "/linkage-keys/" not in request.url.path:
            return None
        *_, recipient, _, sender = request.url.path.split("/")
        self.consortium.coordinator.relay(recipient, sender, parse_envelope(request.content))
        return httpx.Response(201, json={})

    def directory(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """The coordinator shows every member as changed, or not at all."""

        def rewrite(path: str, said: Any) -> Any:
            if path != "/v1/parties":
                return said
            return {**said, "items": [item for item in map(change, said["items"]) if item is not None]}

        self.consortium.coordinator.rewrite = rewrite

    def message(self, recipient: str) -> LinkageKeyMessage:
        return decode(LinkageKeyMessage, self.relayed(recipient).payload_bytes)

    def put(self, recipient: str, message: LinkageKeyMessage, *, sender: str, key: SigningKey) -> None:
        envelope = seal(message, key=key)
        self.consortium.coordinator.relay(recipient, sender, envelope)


@pytest.fixture
def trio(tmp_path: Path) -> Trio:
    consortium = consortium_of(tmp_path, "clinic", "insurer", "lab")
    consortium.enrol_everybody()
    for name, home in consortium.homes.items():
        with consortium.client(name) as client:
            publish_identity(home, client)
        if name != "clinic":
            home.consortium().linkage_file.unlink()
    return Trio(consortium)


def test_members_take_over_the_key_and_the_coordinator_has_nothing_to_read(trio: Trio) -> None:
    sent = trio.send()
    assert (sent.recipients, sent.left_out) == (("insurer", "lab"), ())
    for name in sent.recipients:
        assert trio.receive(name) == Received(sent.check, "clinic")
        assert trio.home(name).consortium().linkage_key() == LINKAGE
        assert trio.home(name).consortium().linkage_file.stat().st_mode & 0o077 == 0
    assert sent.check == check_value(LINKAGE)
    for envelope in (trio.relayed(name) for name in sent.recipients):
        assert LINKAGE not in envelope.payload_bytes
        assert LINKAGE.hex().encode() not in envelope.payload_bytes
    assert trio.message("insurer").sealed != trio.message("lab").sealed


def test_member_without_the_key_makes_one_to_send(trio: Trio) -> None:
    trio.home("clinic").consortium().linkage_file.unlink()
    trio.send()
    trio.receive("lab")
    assert trio.home("lab").consortium().linkage_key() == trio.home("clinic").consortium().linkage_key() != LINKAGE


def test_agents_wait_for_the_key_take_it_over_by_themselves_and_publish(trio: Trio) -> None:
    pair = trio.consortium
    release = pair.propose()
    look(pair, "clinic", "insurer", "lab")
    with pair.agent("lab") as agent:
        assert agent.proposals.get(release).findings == (
            "linkage_key: no linkage key yet; a fellow member sends it: commingle party linkage send",
        )
    trio.send()
    look(pair, *3 * ("clinic", "insurer", "lab"))
    assert pair.state(release) == "published"


def test_member_that_is_not_enrolled_yet_is_named(trio: Trio) -> None:
    trio.directory(lambda member: member if member["name"] != "lab" else None)
    assert trio.send().left_out == ("lab",)
    trio.directory(lambda member: member if member["name"] == "clinic" else None)
    with pytest.raises(ConflictError, match="no pinned member"):
        trio.send()


def test_member_that_is_not_pinned_is_sent_nothing(trio: Trio) -> None:
    (trio.home("clinic").consortium().pins_file).write_text(
        json.dumps({"members": {"lab": trio.key("lab").fingerprint}})
    )
    assert trio.send().recipients == ("lab",)
    assert not trio.consortium.coordinator.relayed("insurer")


def identity(name: str, key: SigningKey, sealing_key: bytes, *, signer: SigningKey | None = None) -> Envelope:
    statement = IdentityStatement(name=name, signing_key=key.verifying_key.raw.hex(), sealing_key=sealing_key.hex())
    return seal(statement, key=signer or key)


@pytest.mark.parametrize("how", ["own signature", "another member's identity", "own keys throughout", "name only"])
def test_coordinator_that_swaps_a_sealing_key_is_sent_nothing(trio: Trio, how: str) -> None:
    coordinator, insurer = trio.consortium.coordinator, trio.key("insurer")
    mine = trio.home("lab").sealing_key()  # stands for a key the coordinator can open
    swapped = {
        "own signature": identity("insurer", insurer, mine, signer=coordinator.key),
        "another member's identity": identity("lab", trio.key("lab"), mine),
        "own keys throughout": identity("insurer", coordinator.key, mine),
        "name only": identity("insurer", trio.key("lab"), mine),
    }[how]
    changes: dict[str, Any] = {"identity": swapped.model_dump(mode="json")}
    if how == "own keys throughout":
        changes["signing_key"] = coordinator.key.verifying_key.raw.hex()
    trio.directory(lambda member: member | changes if member["name"] == "insurer" else member)
    with pytest.raises((SignatureError, DocumentError)):
        trio.send()
    assert not any(coordinator.relayed(name) for name in trio.consortium.homes)


def test_sealing_key_shown_beside_the_identity_counts_for_nothing(trio: Trio) -> None:
    trio.directory(lambda member: member | {"sealing_key": "00" * 32})
    trio.send()
    assert trio.receive("insurer") is not None


def for_another(trio: Trio) -> None:
    trio.consortium.coordinator.relay("insurer", "clinic", trio.relayed("lab"))


def wrapped_anew(trio: Trio) -> None:
    """The lab passes on the clinic's box for the insurer as its own: the box names who sealed it."""
    wrapped = trio.message("insurer").model_copy(update={"sender": "lab"})
    trio.put("insurer", wrapped, sender="lab", key=trio.key("lab"))


def addressed_anew(trio: Trio) -> None:
    readdressed = trio.message("lab").model_copy(update={"recipient": "insurer"})
    trio.put("insurer", readdressed, sender="clinic", key=trio.key("clinic"))


def signed_by_a_stranger(trio: Trio) -> None:
    trio.put("insurer", trio.message("insurer"), sender="clinic", key=STRANGER)


@pytest.mark.parametrize(
    ("tamper", "error", "said"),
    [
        (for_another, DocumentError, "for somebody else"),
        (wrapped_anew, DocumentError, "not sealed to this member"),
        (addressed_anew, DocumentError, "not sealed to this member"),
        (signed_by_a_stranger, SignatureError, "not expected here"),
    ],
)
def test_box_that_was_tampered_with_is_refused(
    trio: Trio, tamper: Callable[[Trio], None], error: type[Exception], said: str
) -> None:
    trio.send()
    tamper(trio)
    with pytest.raises(error, match=said):
        trio.receive("insurer")
    assert not trio.home("insurer").consortium().linkage_file.exists()


def test_message_of_another_consortium_is_refused(trio: Trio) -> None:
    trio.consortium.coordinator.before = trio.relay_unchecked
    trio.send(coordinator="ab" * 32)
    with pytest.raises(DocumentError, match="another consortium"):
        trio.receive("lab")
    moved = trio.message("lab").model_copy(update={"coordinator": trio.fingerprint})
    trio.put("lab", moved, sender="clinic", key=trio.key("clinic"))
    with pytest.raises(DocumentError, match="not sealed to this member"):
        trio.receive("lab")


def test_message_of_a_member_that_is_not_pinned_is_left_alone(trio: Trio) -> None:
    trio.send()
    (trio.home("lab").consortium().pins_file).write_text('{"members": {}}')
    assert trio.receive("lab") is None
    assert not trio.home("lab").consortium().linkage_file.exists()


def test_old_message_replayed_after_the_key_was_changed_overwrites_nothing(trio: Trio) -> None:
    trio.send()
    old = trio.relayed("lab")
    trio.home("clinic").consortium().adopt_linkage_key(b"\x22" * 32, replace=True)
    trio.send()
    trio.receive("lab")
    trio.consortium.coordinator.relay("lab", "clinic", old)
    with pytest.raises(ConflictError, match="another linkage key already"):
        trio.receive("lab")
    assert trio.home("lab").consortium().linkage_key() == b"\x22" * 32


def test_other_key_is_taken_over_only_when_asked_to(trio: Trio) -> None:
    trio.send()
    trio.receive("lab")
    trio.home("clinic").consortium().adopt_linkage_key(b"\x22" * 32, replace=True)
    trio.send()
    with pytest.raises(ConflictError, match="another linkage key already"):
        trio.receive("lab")
    assert trio.home("lab").consortium().linkage_key() == LINKAGE
    trio.receive("lab", replace=True)
    assert trio.home("lab").consortium().linkage_key() == b"\x22" * 32


def test_different_keys_of_two_members_need_a_choice(trio: Trio) -> None:
    trio.send()
    trio.send("insurer")  # makes one of its own
    with pytest.raises(ConflictError, match="clinic, insurer sent different"):
        trio.receive("lab")
    assert trio.receive("lab", sender="insurer") == Received(
        check_value(trio.home("insurer").consortium().linkage_key()), "insurer"
    )


def test_forged_message_does_not_keep_an_agent_from_its_work(trio: Trio) -> None:
    release = trio.consortium.propose()
    trio.send()
    trio.put("lab", trio.message("lab"), sender="clinic", key=STRANGER)
    trio.consortium.step("lab")
    with trio.consortium.agent("lab") as agent:
        assert agent.proposals.get(release).release == release


def test_members_send_and_receive_by_commands(trio: Trio, run: Command) -> None:
    def linkage(verb: str, name: str, *options: str) -> tuple[object, ...]:
        return "party", "linkage", verb, "--home", trio.home(name).root, *options

    trio.consortium.clock_shows = system_clock()  # commands live in the present
    with on_a_socket(trio.consortium.coordinator.handle) as url:
        for home in trio.consortium.homes.values():
            file = home.consortium().coordinator_file
            file.write_text(file.read_text().replace(URL, url))
        run.refused(*linkage("receive", "lab"))
        sent = run.json(*linkage("send", "clinic"))
        assert sent["recipients"] == ["insurer", "lab"]
        assert run.json(*linkage("receive", "lab"))["check"] == sent["check"]
        run.refused(*linkage("receive", "insurer", "--from", "lab"))
    assert trio.home("lab").consortium().linkage_key() == LINKAGE
