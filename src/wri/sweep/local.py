"""The back end of this machine: train what a store lacks, in threads of this process."""

from wri.progress import Progress
from wri.sweep.store import Store
from wri.sweep.sweep import Sweep
from wri.training import finished_stacks


def run_sweep(sweep: Sweep, store: Store, progress: Progress | None = None) -> int:
    """Train every run that the store does not hold yet; how many were trained.

    Stacks are fixed in the store before they are trained, so that an interrupted sweep goes on as
    if it had not been. Each trains on one thread: sums are then taken in the same order whatever
    trains beside it.

    Parameters
    ----------
    sweep
        What to train.
    store
        Open for writing.
    progress
        Called with (steps done, steps in all) of the stacks that are not finished.
    """
    store.plan(sweep.spec.setting, sweep.infos, sweep.new_stacks(store))
    pending = sweep.old_stacks(store)
    planned = [run for stack in pending for run in stack]
    place = {run.id: n for n, run in enumerate(planned)}
    finished = finished_stacks(
        [sweep.run_to_train(each) for each in planned],
        [[place[run.id] for run in stack] for stack in pending],
        checkpoint_every=sweep.spec.checkpoint_every,
        measures=sweep.spec.measures or "all",
        progress=progress,
        threads=1,
        most=sweep.side_by_side(pending),
    )
    for stack in finished:
        store.finish([planned[n] for n in stack.numbers], stack.records)
    return len(planned)
