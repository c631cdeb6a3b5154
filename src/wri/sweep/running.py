"""Training of the runs that a store does not hold yet, on a back end."""

from contextlib import closing

from wri.errors import LostBackendError
from wri.jobs import open_runner
from wri.progress import Progress
from wri.sweep.backend import Backend
from wri.sweep.store import Store
from wri.sweep.sweep import Sweep


def open_backend(name: str = "local") -> Backend:
    """Open a back end by its name, for a `with` statement.

    Parameters
    ----------
    name : {"local", "ray"}, default="local"
        "local" trains in threads of this process. "ray" trains in processes that Ray starts on this
        machine, or on the cluster that `RAY_ADDRESS` names.

    Returns
    -------
    backend : Backend
        The back end.

    Raises
    ------
    InputError
        If the name is unknown or Ray is not installed.

    Examples
    --------
    >>> from wri.sweep import open_backend
    >>> with open_backend() as backend:
    ...     backend.overhead([])
    0.0
    """
    runner = open_runner(name, "backend")
    return Backend(None if name == "local" else runner)


def run_sweep(
    sweep: Sweep,
    store: Store,
    progress: Progress | None = None,
    backend: Backend | None = None,
) -> int:
    """Train all runs that the store does not hold yet.

    Stacks are fixed in the store before they are trained, so that an interrupted sweep continues as
    if it had not been interrupted, on any back end. Each stack trains on one thread, so that sums
    have the same order whatever else trains.

    Parameters
    ----------
    sweep : Sweep
        The sweep.
    store : Store
        Store that is open for writing. Only this process writes to it.
    progress : callable or None, default=None
        Called with (steps done, steps in all) of the unfinished stacks.
    backend : Backend or None, default=None
        From `open_backend`. None: threads of this process.

    Returns
    -------
    trained : int
        Number of trained runs.

    Raises
    ------
    LostBackendError
        If Ray ends on the way; finished runs are in the store.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import Store, Sweep, SweepSpec, gather, run_sweep
    >>> sweep = Sweep(SweepSpec(("erm",), steps=2), [gather("hospitals", hospitals(20, seed=0))])
    >>> with TemporaryDirectory() as folder, Store(Path(folder, "s.db"), write=True) as store:
    ...     first, second = run_sweep(sweep, store), run_sweep(sweep, store)
    >>> first, second
    (4, 0)
    """
    store.plan(sweep.spec.setting, sweep.infos, sweep.new_stacks(store))
    pending = sweep.old_stacks(store)
    try:
        with closing((backend or Backend()).train(sweep, pending, progress)) as trained:
            for stack in trained:
                store.finish(stack.runs, stack.results)
    except LostBackendError as error:
        raise LostBackendError(
            f"Ray was lost ({error}); {len(store.finished())} finished runs are in {store.path}: "
            "run the same command to continue"
        ) from error
    return sum(map(len, pending))
