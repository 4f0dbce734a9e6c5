"""Bytes that a release takes at a coordinator: bounds that follow from its spec alone."""

from dataclasses import dataclass

from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.mechanisms.moments.exchange.sizes import Sizes
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.block import largest_body
from commingle.shared.release.plan import plan_blocks


@dataclass(frozen=True, slots=True)
class ReleaseSizes:
    """What parties of one release can send, and what stays of it.

    Attributes:
        largest: of one body.
        exchanged: of all that parties send each other, which goes when the release is over.
        kept: of all blocks and of what is published of them.
    """

    largest: int
    exchanged: int
    kept: int


def release_sizes(spec: ReleaseSpec) -> ReleaseSizes:
    """The sizes of a release. Raises SpecError, ParameterError as `plan_blocks`."""
    plans = plan_blocks(spec)
    blocks = [largest_body(plan.rows, len(plan.columns)) for plan in plans]
    messages = _messages(spec) if mechanism_of(spec).interactive else []
    width = len(spec.columns)
    published = largest_body(plans[0].rows, width) + largest_body(width, width)  # the matrix, and second moments
    return ReleaseSizes(max(*blocks, *messages, 0), sum(messages), sum(blocks) + published)


def _messages(spec: ReleaseSpec) -> list[int]:
    columns = [len(party.columns) for party in spec.parties]
    sizes = Sizes.of(spec.table_rows, columns, proved=spec.bounds == "proved")
    return [size for party in range(len(columns)) for size in (sizes.columns(party), sizes.reply(party))]
