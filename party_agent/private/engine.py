"""Where a table's partitions are read: in this process, one after the other, or on workers (`dask_engine`).

What work yields are exact integers that the agent puts together, so neither engine nor order can change a bit of a
block. An engine is given rows' readers, public bounds and ranks; never noise, a key, the ledger or a signature.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

Progress = Callable[[int], None]
"""Is told how many rows have been read so far."""

Partition_contra = TypeVar("Partition_contra", contravariant=True)
Made_co = TypeVar("Made_co", covariant=True)
Partition = TypeVar("Partition")
Made = TypeVar("Made")


class Work(Protocol[Partition_contra, Made_co]):
    """What is done with one partition. To be pickled: a function of a module, or a dataclass."""

    def __call__(self, partition: Partition_contra, progress: Progress) -> Iterator[Made_co]:
        """What is made of it, piece by piece; no piece counts unless the iteration ends without an error."""


class Engine(Protocol):
    """Does work on partitions."""

    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        """What `work` makes of each partition, with the partition's place in the sequence.

        Partitions come in any order, what is made of one in its own and without another's between.

        Raises:
            CommingleError: as `work` raised it, or because the engine does not work. Nothing is to be used then.
        """

    def describe(self) -> str:
        """Where it works, for the operator. Raises SourceError: it does not work."""


class InProcess:
    """One partition after the other, in this process."""

    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        """See `Engine`."""
        seen = [0] * len(partitions)

        def told(place: int, rows: int) -> None:
            seen[place] = rows
            progress(sum(seen))

        for place, partition in enumerate(partitions):
            for made in work(partition, partial(told, place)):
                yield place, made

    def describe(self) -> str:
        """See `Engine`."""
        return "in this process"


IN_PROCESS = InProcess()
