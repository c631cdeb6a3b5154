"""The contract of a back end, which trains the stacks of a sweep."""

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
    """Trained stack: its runs and their results in the same order."""

    runs: Sequence[RunSpec]
    results: Sequence[Checkpoints]


class Backend(ABC):
    """Base class of back ends, which train stacks; as a context manager it ends what it started.

    Attributes
    ----------
    status : callable or None
        Called with a line about finished and running stacks; may be set at any time.

    Examples
    --------
    >>> from wri.sweep import Backend, open_backend
    >>> with open_backend("local") as backend:
    ...     isinstance(backend, Backend)
    True
    """

    def __init__(self) -> None:
        self.status: Callable[[str], None] | None = None

    @abstractmethod
    def train(
        self, sweep: Sweep, stacks: Sequence[Sequence[RunSpec]], progress: Progress | None = None
    ) -> Generator[TrainedStack, None, None]:
        """Train stacks on one thread each, and yield each when it is done.

        An error or an interruption, here or where the stacks are consumed, ends the others.

        Parameters
        ----------
        sweep : Sweep
            The sweep.
        stacks : sequence of sequence of RunSpec
            Runs of each stack.
        progress : callable or None, default=None
            Called with (steps done, steps in all).

        Yields
        ------
        stack : TrainedStack
            A trained stack.
        """

    def overhead(self, datasets: Sequence[SweepData]) -> float:
        """Return the bytes needed on this machine outside of this process, besides the stacks.

        Parameters
        ----------
        datasets : sequence of SweepData
            Data sets of the sweep.

        Returns
        -------
        size : float
            Bytes.
        """
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
        """Report finished and running stacks.

        Parameters
        ----------
        done : int
            Finished stacks.
        of : int
            All stacks.
        at_work : int
            Running stacks.
        """
        if self.status is not None:
            self.status(f"{done} of {of} stacks, {at_work} at work")
