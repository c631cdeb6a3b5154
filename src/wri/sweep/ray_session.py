"""Ray session on this machine or on a cluster: started or joined quietly, and ended if started."""

import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from wri.errors import InputError, shorten
from wri.sweep.memory import WORKER

ADDRESS = "RAY_ADDRESS"
OBJECT_STORE = 100 * 2**20  # bytes of the object store at least; Ray allows no less than 75 MB
RETRIES = 3  # of a task whose worker dies
POLL = 0.2  # seconds between two looks at the workers
ANSWER = 10.0  # seconds that a cluster may take to answer


def check_ray() -> None:
    """Refuse if Ray is not installed or cannot be used as asked for."""
    if find_spec("ray") is None:
        raise InputError("--backend ray needs Ray: pip install 'weighted-risk-invariance[ray]'")
    if os.environ.get(ADDRESS, "").startswith("ray://"):
        raise InputError(
            f"{ADDRESS}={shorten(os.environ[ADDRESS])} is an address for Ray's client; give the "
            "command on a machine of the cluster, with the address of its head (host:6379)"
        )


def starts_here() -> bool:
    """Return whether Ray would be started on this machine, not joined."""
    return os.environ.get(ADDRESS, "local") in ("local", "")


class RaySession:
    """Ray session for the time it is needed.

    If Ray is already running in this process it is used and left running. Otherwise `RAY_ADDRESS`
    names a cluster to join; without it Ray is started here and ended by `close`.

    Parameters
    ----------
    workers : int
        Number of stacks at the same time, if Ray is started here.
    memory : float
        Bytes for these stacks together, if Ray is started here.
    shared : float
        Bytes of the rows.
    """

    def __init__(self, workers: int, memory: float, shared: float) -> None:
        self.ray: ModuleType = import_module("ray")
        self._found = self.ray.is_initialized()
        if not self._found and starts_here():
            self._start(workers, memory, shared)
        elif not self._found:
            self._join(os.environ[ADDRESS])

    def _start(self, workers: int, memory: float, shared: float) -> None:
        try:
            with _start_quietly():
                self.ray.init(
                    address="local",
                    num_cpus=workers,
                    num_gpus=0,
                    object_store_memory=int(OBJECT_STORE + 2 * shared),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    _memory=int(memory + workers * WORKER),
                )
        except (RuntimeError, ValueError, OSError) as error:
            raise InputError(
                f"Ray could not be started: {shorten(error)}; --backend local needs no Ray"
            ) from error

    def _join(self, address: str) -> None:
        try:
            _check_reachable(address)
            with _start_quietly():
                self.ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        except (RuntimeError, ValueError, OSError) as error:
            raise InputError(
                f"the Ray cluster {ADDRESS}={shorten(address)} cannot be joined "
                f"({shorten(' '.join(str(error).split()))}); start it by `ray start`, or unset "
                f"{ADDRESS} to start Ray here"
            ) from error

    @property
    def node_memory(self) -> float:
        """Bytes for stacks on the machine that has most."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return max((node.get("memory", 0.0) for node in nodes), default=0.0)

    def close(self) -> None:
        if not self._found:
            self.ray.shutdown()


def fetch_result(ray: Any, ref: Any) -> Any:
    """Get what a task returned; what a user can mend becomes an `InputError`."""
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise InputError(str(error.cause)) from None
        if isinstance(error.cause, ImportError):
            raise InputError(
                f"a Ray worker cannot train: {error.cause}; install the same wri on all "
                "machines of the cluster, and start Ray there again"
            ) from None
        if isinstance(error.cause, Exception):  # the error itself looks like a lost worker
            raise error.cause from error
        raise


def _check_reachable(address: str) -> None:
    """Fail at once if nobody answers; Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=ANSWER).close()


@contextmanager
def _start_quietly() -> Iterator[None]:
    """Start without usage statistics, with this process's modules and its SIGTERM handler."""
    added = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    before = {name: os.environ.get(name) for name in added}
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    os.environ.update(added)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Ray does not close its processes
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if main and handler is not None:
            signal.signal(signal.SIGTERM, handler)
