"""One line that a party joins with: its invite, who the members are to be, and where the coordinator answers.

    commingle-invite.v1.FINGERPRINT.SECRET+ward,laboratory,registration+https://hub.example

The first name is the party's own. Whoever writes the line says who the members are; that all were told the same is what
the words are for that members read to each other (`words.py`).
"""

import re
from dataclasses import dataclass

from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.keys import Fingerprint

INVITE_PREFIX = "commingle-invite.v1"
_INVITE = re.compile(rf"{re.escape(INVITE_PREFIX)}\.([0-9a-f]{{64}})\.[A-Za-z0-9_-]{{16,}}")
_NAME = r"[a-z0-9][a-z0-9_.-]{0,62}"
ADDRESS = re.compile(r"https?://\S+")
_LINE = re.compile(rf"([^+]+)\+({_NAME}(?:,{_NAME})+)\+({ADDRESS.pattern})")


def coordinator_of(invite: str) -> Fingerprint:
    """The fingerprint of the coordinator that an invite names. Raises DocumentError."""
    match = _INVITE.fullmatch(invite.strip())
    if match is None:
        raise DocumentError("this is not an invite", remedy="Paste the whole line the coordinator's operator sent.")
    return Fingerprint(match[1])


@dataclass(frozen=True, slots=True)
class Invitation:
    """To one party of a new consortium.

    Attributes:
        members: names, the invited party's first.
    """

    invite: str
    members: tuple[str, ...]
    url: str

    @classmethod
    def parse(cls, text: str) -> "Invitation":
        """What a line says. Raises DocumentError."""
        match = _LINE.fullmatch(text.strip())
        names = () if match is None else tuple(match[2].split(","))
        if match is None or len(set(names)) < len(names):
            raise DocumentError(
                "this is not an invitation",
                remedy="Paste the whole line that `commingle coordinator new-consortium` printed for this party.",
            )
        coordinator_of(match[1])
        return cls(match[1], names, match[3])

    def __str__(self) -> str:
        return f"{self.invite}+{','.join(self.members)}+{self.url}"

    @property
    def party(self) -> str:
        """Who is invited."""
        return self.members[0]

    @property
    def coordinator(self) -> Fingerprint:
        """Whose invite it is."""
        return coordinator_of(self.invite)

    @property
    def key_maker(self) -> str:
        """The member that makes the linkage key, the same one for all."""
        return min(self.members)
