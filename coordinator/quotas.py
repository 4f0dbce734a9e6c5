"""How much members may have a coordinator keep.

What a release can take follows from its spec, and all of it counts from its proposal on, against the member that
proposed it: so the sum is one of the database, the same at every replica, and what was accepted can be sent. What is
published counts for ever, and what came to nothing for as long as its blocks are there.
"""

from dataclasses import dataclass
from datetime import timedelta

from commingle.coordinator.blobs import LEAST_AGE
from commingle.coordinator.errors import QuotaError
from commingle.shared.documents.errors import SpecError
from commingle.shared.release.sizes import ReleaseSizes

STAYS = LEAST_AGE + timedelta(hours=2)
"""How long at most blocks are there of a release that came to nothing."""
_GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class Quotas:
    """The operator's limits, in bytes.

    Attributes:
        message: the largest body that a party sends.
        release: all that one release takes.
        member: all that the releases of one proposer take. The coordinator's own have no such limit.
    """

    message: int = 16 * _GIBIBYTE
    release: int = 64 * _GIBIBYTE
    member: int = 256 * _GIBIBYTE

    def require_accepted(self, sizes: ReleaseSizes) -> None:
        """Refuse a release if one of its messages or blocks could not be accepted later. Raises SpecError."""
        remedy = "Ask fewer columns, rows or buckets; or the operator raises {} in the coordinator's settings."
        if sizes.largest > self.message:
            raise SpecError(
                f"a party would send {_shown(sizes.largest)} at once, and {_shown(self.message)} are taken",
                remedy=remedy.format("largest_message_bytes"),
            )
        if (whole := sizes.exchanged + sizes.kept) > self.release:
            raise SpecError(
                f"it would take {_shown(whole)}, and a release may take {_shown(self.release)}",
                remedy=remedy.format("release_bytes"),
            )

    def require_share(self, party: str, taken: int, sizes: ReleaseSizes) -> None:
        """Refuse a release of a member whose releases take so much already. Raises QuotaError."""
        if taken + sizes.exchanged + sizes.kept > self.member:
            raise QuotaError(
                f"with it the releases of {party} would take {_shown(taken + sizes.exchanged + sizes.kept)}, and a "
                f"member may have {_shown(self.member)}",
                remedy="Wait until open ones are over; or the operator raises member_bytes in the settings.",
            )


def _shown(count: int) -> str:
    return f"{count / _GIBIBYTE:.1f} GiB" if count >= _GIBIBYTE else f"{count:,} bytes"
