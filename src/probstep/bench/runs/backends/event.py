"""What backends take and give: jobs from a function, events to whoever reads them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Job = TypeVar("Job")
Message = TypeVar("Message")

NextJob = Callable[[], Job | None]  # None: nothing to do at present
Work = Callable[[Job], Iterator[Message]]  # done by a worker, may be far away


@dataclass(frozen=True)
class Event(Generic[Job, Message]):
    """What a worker says about its job.

    Args:
        worker: The number of the worker, from 0.
        message: What the work yielded; None at its end.
        lost: Why the worker is gone before the end of its job; None as long as it is not.
    """

    worker: int
    job: Job
    message: Message | None = None
    lost: str | None = None

    @property
    def is_end(self) -> bool:
        """Whether the worker is free again."""
        return self.message is None


@dataclass(frozen=True)
class Workers:
    """How many workers there are, and where.

    Args:
        count: How many; on a cluster its processors decide.
        address: Of a cluster, if they are elsewhere.
        has_gpu: Whether each needs a GPU for itself: a cluster gives it one.
    """

    count: int = 1
    address: str | None = None
    has_gpu: bool = False


class Backend(Protocol):
    """Do jobs until there are none left; closing the iterator ends all workers at once."""

    def __call__(
        self, next_job: NextJob[Job], work: Work[Job, Message], workers: Workers
    ) -> Iterator[Event[Job, Message]]:
        """Yield what the workers say, in the order in which it arrives."""
        ...
