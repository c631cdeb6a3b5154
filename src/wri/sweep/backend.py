"""The contract of a back end: where the stacks of a sweep are trained."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from wri.progress import Progress
from wri.sweep.data import SweepData
from wri.sweep.outcomes import Checkpoints
from wri.sweep.plan import RunSpec
from wri.sweep.sweep import Sweep


class TrainedStack(NamedTuple):
    """A stack that is trained: its runs, and what they left behind in the same order."""

    runs: Sequence[RunSpec]
    results: Sequence[Checkpoints]


class Backend(ABC):
    """Where stacks are trained. As a context it ends what it started.

    Attributes
    ----------
    status
        Called with a line about the stacks that are done and at work; may be set at any time.
    """

    def __init__(self) -> None:
        self.status: Callable[[str], None] | None = None

    @abstractmethod
    def train(
        self, sweep: Sweep, stacks: Sequence[Sequence[RunSpec]], progress: Progress | None = None
    ) -> Generator[TrainedStack, None, None]:
        """Train stacks on one thread each, and yield every one when it is done.

        An error or an interruption, here or where the stacks are consumed, ends the others.
        """

    def overhead(self, datasets: Sequence[SweepData]) -> float:
        """Bytes that it takes on this machine outside of this process, beside the stacks."""
        return 0.0

    def close(self) -> None:
        """End what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def show_status(self, done: int, of: int, at_work: int) -> None:
        if self.status is not None:
            self.status(f"{done} of {of} stacks, {at_work} at work")
