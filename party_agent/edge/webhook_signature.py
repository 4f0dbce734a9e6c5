"""How messages of the webhook are signed, for who sends and for who receives them."""

import hmac
from hashlib import sha256

HEADER = "Commingle-Signature"
_MOST_DIGITS = 15


def signature(secret: str, body: bytes, at: int) -> str:
    """`t=TIME,v1=HEX`: HMAC-SHA-256 under the secret of the time (seconds since 1970), a full stop and the body."""
    return f"t={at},v1={hmac.new(secret.encode(), f'{at}.'.encode() + body, sha256).hexdigest()}"


def is_signed(secret: str, body: bytes, given: str, *, now: float, oldest_seconds: float = 300.0) -> bool:
    """Whether a message was signed with the secret, and lately: what somebody sends again has an old time in it."""
    at = given.removeprefix("t=").partition(",")[0]
    if not (at.isascii() and at.isdecimal()) or len(at) > _MOST_DIGITS:
        return False
    genuine = hmac.compare_digest(signature(secret, body, int(at)).encode(), given.encode())
    return genuine and abs(now - int(at)) <= oldest_seconds
