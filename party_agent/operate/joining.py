"""Joining a new consortium with one line: home, enrolment, everybody's words, pins and the linkage key.

Nothing is trusted that was not before: a fellow member's key is pinned only after somebody has typed the words that a
fellow member read out, which say all names and keys (docs/proofs/words.md). Every step that is done is skipped when the
command is repeated.
"""

from collections.abc import Callable, Mapping

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.consortium import Membership
from commingle.party_agent.home.home import Home, PartySettings
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.rounds.linkage import receive_linkage_key, send_linkage_key
from commingle.party_agent.wire.coordinator_client import CoordinatorClient
from commingle.shared.documents.errors import SignatureError
from commingle.shared.documents.invitation import Invitation, same_words, words_of, wrong_words
from commingle.shared.documents.keys import Fingerprint, VerifyingKey
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import Clock
from commingle.shared.wire import PartyRecord

_TRIES = 3
Roster = Mapping[str, Fingerprint]


def make_home(home: Home, settings: PartySettings, invitation: Invitation) -> None:
    """A home for the invited party, where there is none yet. Raises SettingsError where it is another party's."""
    if not (home.root / "settings.json").exists():
        home.create(settings, policy=Policy(), linkage_key=None, receives_linkage_key=True)
    elif (name := home.settings().name) != invitation.party:
        raise SettingsError(
            f"{home.root} is the home of {name}, and {invitation.party} is invited",
            remedy="Give another --home, or ask for an invitation in that name.",
        )


def joined(home: Home, coordinator: Fingerprint) -> Membership | None:
    """The consortium of that coordinator, where this party belongs to it already."""
    found = (one for one in home.consortia().values() if one.coordinator().key.fingerprint == coordinator)
    return next(found, None)


def roster(home: Home, client: CoordinatorClient, invitation: Invitation) -> tuple[Roster, tuple[str, ...]]:
    """Keys of those invited who are there, by name, as the coordinator shows them; and who is still missing.

    This party's own key is the one it has.

    Raises:
        SignatureError: the coordinator shows another key for this party.
        RemoteError: it does not answer.
    """
    own = home.identity().signing_key.fingerprint
    there = {one.name: _key(one) for one in client.members() if one.name in invitation.members and _ready(one)}
    if there.get(invitation.party, own) != own:
        raise SignatureError(
            f"the coordinator shows another key for {invitation.party} than this home has",
            remedy="Somebody else has enrolled in this name. Ask the coordinator's operator; join under another name.",
        )
    return there, tuple(name for name in sorted(invitation.members) if name not in there)


def confirm(membership: Membership, keys: Roster, own: str, ask: Callable[[tuple[str, ...], str], str]) -> bool:
    """Pin the fellow members, once the words of all keys have been typed; whether it was necessary to ask.

    Args:
        membership: where the pins are kept.
        keys: of all members, this party's own among them.
        own: its name.
        ask: shows the words, and what was wrong with what was typed before, and gives what somebody types then.

    Raises:
        ConflictError: other words were typed, or another key is pinned already; nothing is pinned.
    """
    fellows = {name: key for name, key in keys.items() if name != own}
    if fellows.items() <= membership.pins().items():
        return False
    words = words_of(membership.coordinator().key.fingerprint, keys)
    wrong = ""
    for _ in range(_TRIES):
        if same_words(typed := ask(words, wrong), words):
            break
        wrong = wrong_words(typed, words)
    else:
        raise ConflictError(
            f"the words do not match ({wrong}); no keys were pinned",
            remedy="Repeat the command. If a fellow member's words differ again, somebody shows you different keys: "
            "compare the 64 digits of `commingle party status` with each other.",
        )
    membership.pin_all(fellows, replace=False)
    return True


def share_linkage_key(
    home: Home, membership: Membership, client: CoordinatorClient, invitation: Invitation, *, clock: Clock
) -> str | None:
    """Send the linkage key, or take it over from the member that makes it; its check value, None where it is not there.

    Raises what `send_linkage_key` and `receive_linkage_key` raise.
    """
    coordinator = invitation.coordinator
    if invitation.party == invitation.key_maker:
        return send_linkage_key(home, membership, client, coordinator=coordinator, now=clock()).check
    maker = invitation.key_maker
    received = receive_linkage_key(home, membership, client, coordinator=coordinator, sender=maker)
    return None if received is None else received.check


def _key(member: PartyRecord) -> Fingerprint:
    return VerifyingKey.from_hex(member.signing_key).fingerprint


def _ready(member: PartyRecord) -> bool:
    """Whether it is a member and has shown its sealing key under its own signature."""
    return member.revoked is None and member.identity is not None
