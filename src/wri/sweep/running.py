"""Train what a store lacks, on a back end."""

from contextlib import closing

from wri.errors import check_option
from wri.progress import Progress
from wri.sweep.backend import Backend
from wri.sweep.local import LocalBackend
from wri.sweep.ray_backend import RayBackend
from wri.sweep.store import Store
from wri.sweep.sweep import Sweep

BACKENDS: dict[str, type[Backend]] = {"local": LocalBackend, "ray": RayBackend}


def open_backend(name: str = "local") -> Backend:
    """A back end by its name, to be used in a `with` statement.

    Parameters
    ----------
    name
        "local" trains in threads of this process. "ray" trains in processes that Ray starts on this
        machine, or on the cluster that `RAY_ADDRESS` names.
    """
    check_option("backend", name, tuple(BACKENDS))
    return BACKENDS[name]()


def run_sweep(
    sweep: Sweep,
    store: Store,
    progress: Progress | None = None,
    backend: Backend | None = None,
) -> int:
    """Train every run that the store does not hold yet; how many were trained.

    Stacks are fixed in the store before they are trained, so that an interrupted sweep goes on as
    if it had not been, on any back end. Each trains on one thread: sums are then taken in the same
    order whatever trains beside it.

    Parameters
    ----------
    sweep
        What to train.
    store
        Open for writing. This process alone writes to it.
    progress
        Called with (steps done, steps in all) of the stacks that are not finished.
    backend
        Where to train, from `open_backend`; threads of this process when not given.
    """
    store.plan(sweep.spec.setting, sweep.infos, sweep.new_stacks(store))
    pending = sweep.old_stacks(store)
    with closing((backend or LocalBackend()).train(sweep, pending, progress)) as trained:
        for stack in trained:
            store.finish(stack.runs, stack.results)
    return sum(map(len, pending))
