"""What a target of the fuzzing is, and how damaged bytes are signed."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commingle.shared.documents.dsse import Envelope, Signature, payload_type
from commingle.shared.documents.keys import SigningKey


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. `run` gets damaged bytes and must either return or raise a CommingleError."""

    corpus: Sequence[bytes]
    run: Callable[[bytes], object]


def signed(payload: bytes, kind: str, key: SigningKey) -> Envelope:
    """An envelope around bytes that need not be a document."""
    of = payload_type(kind).encode()
    signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(of), of, len(payload), payload))
    signatures = (Signature(keyid=key.fingerprint, sig=b64encode(signature).decode()),)
    return Envelope(payload=b64encode(payload).decode(), payloadType=payload_type(kind), signatures=signatures)


def unforged(accepted: object, right: object) -> None:
    """Raise AssertionError where something was accepted that nobody signed."""
    if accepted != right:
        raise AssertionError("accepted what was never signed")
