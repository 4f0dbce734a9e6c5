"""Reading an exported history from its file, for the `audit verify` commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from commingle.shared.documents.errors import VerificationError
from commingle.shared.runtime.errors import SettingsError

NOT_COMPARED = "The key was not compared with one you know: give --key."


class _History(Protocol):
    @property
    def signer(self) -> str: ...


History = TypeVar("History", bound=_History)


def read_history(file: Path, verify: Callable[[bytes], History], *, key: str | None) -> History:
    """The history in a file, verified, and signed with the key of that fingerprint where one is given.

    Raises:
        SettingsError: the file cannot be read.
        VerificationError, SignatureError, DocumentError: the history does not hold, or is somebody else's.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {file} ({error.strerror})", remedy="Check the path.") from None
    history = verify(data)
    if key is not None and history.signer != key.strip().lower():
        raise VerificationError(
            f"the history is signed with key {history.signer[:16]}, not with the one expected",
            remedy="Compare fingerprints with whose history it is over another channel.",
        )
    return history
