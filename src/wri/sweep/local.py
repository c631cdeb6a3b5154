"""Back end of this machine: threads of this process, and processes if they pay."""

from collections.abc import Generator, Sequence

from wri.progress import Progress
from wri.sweep.backend import Backend, TrainedStack
from wri.sweep.plan import RunSpec
from wri.sweep.sweep import Sweep
from wri.training import finished_stacks


class LocalBackend(Backend):
    """Back end that trains stacks in threads of this process, on CUDA if it is available.

    Many density steps on the CPU train in worker processes, if there is memory for them.
    """

    def train(
        self, sweep: Sweep, stacks: Sequence[Sequence[RunSpec]], progress: Progress | None = None
    ) -> Generator[TrainedStack, None, None]:
        planned = [run for stack in stacks for run in stack]
        place = {run.id: n for n, run in enumerate(planned)}
        most = sweep.side_by_side(stacks)
        finished = finished_stacks(
            [sweep.run_to_train(each) for each in planned],
            [[place[run.id] for run in stack] for stack in stacks],
            checkpoint_every=sweep.spec.checkpoint_every,
            measures=sweep.spec.measures or "all",
            progress=progress,
            threads=1,
            most=most,
            processes=None if sweep.may_use_processes(stacks) else False,
        )
        self.show_status(0, len(stacks), min(most, len(stacks)))
        for done, stack in enumerate(finished, 1):
            self.show_status(done, len(stacks), min(most, len(stacks) - done))
            yield TrainedStack([planned[n] for n in stack.numbers], stack.records)
