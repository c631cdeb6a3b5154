"""Jobs on Ray, on this machine or on a cluster.

Ray ends the processes that are connected to it when one of its servers dies. So a child process
(`ray_driver`) is connected, and this one is told by an error.
"""

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from wri.errors import InputError, LostBackendError, shorten
from wri.jobs import ray_driver
from wri.jobs.runner import WORKER, Ended, Jobs, Runner

ADDRESS = "RAY_ADDRESS"
OBJECT_STORE = 100 * 2**20  # bytes of the object store at least; Ray allows no less than 75 MB
DRIVER = 1.5e8  # bytes of the process that is connected to Ray
ANSWER = 10.0  # seconds that a cluster may take to answer
RECONNECT = 5  # seconds that a Ray started here may be without its GCS, which nobody starts again
SHUTDOWN = 30.0  # seconds that Ray may take to end


class RayRunner(Runner):
    """Jobs run in Ray's workers, one CPU each; Ray starts with the first.

    If `RAY_ADDRESS` names a cluster, it is joined and left running. Otherwise Ray is started here
    and ended by `close`.

    Parameters
    ----------
    workers
        Jobs at the same time where Ray is started here; by default as many as PyTorch has threads.

    Attributes
    ----------
    address : str
        Address of Ray, for others to join.
    nodes : list of dict
        Resources of its machines.
    """

    name = "Ray"
    threads_per_job = 1

    def __init__(self, workers: int | None = None) -> None:
        super().__init__()
        if find_spec("ray") is None:
            raise InputError("--backend ray needs Ray: pip install 'weighted-risk-invariance[ray]'")
        if os.environ.get(ADDRESS, "").startswith("ray://"):
            raise InputError(
                f"{ADDRESS}={shorten(os.environ[ADDRESS])} is an address for Ray's client; give "
                "the command on a machine of the cluster, with the address of its head (host:6379)"
            )
        if workers is None:
            import torch  # worker processes of other runners import this module and need no PyTorch

            workers = torch.get_num_threads()
        self._workers = workers
        self._child: Any = None  # a Popen, whose pipes may be None to mypy

    def run(self, jobs: Jobs) -> Generator[Ended, None, None]:
        waiting = {*range(len(jobs.jobs))}
        if not waiting:
            return
        sent = jobs.send()
        self.start(len(sent.work) + sum(array.nbytes for array in sent.arrays))
        arrays = [pickle.PickleBuffer(array.data) for array in sent.arrays]
        try:
            self._send(((sent.shared, arrays, sent.work), self._submitted(jobs)))
            while waiting:
                number, *content = self._receive()
                if number is None:
                    for each in waiting & content[0].keys():
                        jobs.on_steps(each, content[0][each])
                    continue
                waiting.remove(number)
                succeeded, found = content
                if succeeded:
                    result, given = _read_result(found)
                    self.warn(given)
                    yield Ended(number, result)
                else:
                    yield Ended(number, None, found)
        finally:
            if waiting:  # an error, or an interruption: the others end with the child
                self.close()

    def _submitted(self, jobs: Jobs) -> list[tuple[dict[str, Any], bytes]]:
        """Return Ray's options of each job, and the pickled job."""
        work = getattr(jobs.work, "func", jobs.work)  # of a partial
        options = {"name": work.__name__, "max_retries": self.retries}
        if jobs.memory is None:
            return [(options, jobs.pack(job)) for job in jobs.jobs]
        # more than a machine has would never start
        most = max((node.get("memory", 0.0) for node in self.nodes), default=0.0)
        return [
            (options | {"memory": int(min(memory, most))}, jobs.pack(job))
            for job, memory in zip(jobs.jobs, jobs.memory, strict=True)
        ]

    def overhead(self, shared: float) -> float:
        # shared arrays lie in the object store, and pass through the child
        starts_here = os.environ.get(ADDRESS, "local") in ("local", "")
        here = self._workers * WORKER + shared if starts_here else 0.0
        return here + DRIVER + shared

    def start(self, shared: float = 0.0) -> None:
        """Start or join Ray, if that was not done or it was lost."""
        if self._child is not None:
            return
        address = os.environ.get(ADDRESS) or "local"
        options: dict[str, Any] = {"address": address}
        if address == "local":
            options |= {
                "num_cpus": self._workers,
                "num_gpus": 0,
                "object_store_memory": int(OBJECT_STORE + 2 * shared),
                "include_dashboard": False,
                "_memory": int(self.memory + self._workers * WORKER),
                "_system_config": {"gcs_rpc_server_reconnect_timeout_s": RECONNECT},
            }
        try:
            if address != "local":
                _check_reachable(address)
            self._child = _start_child()
            self._send(options)
            succeeded, *answer = self._receive()
            if not succeeded:
                raise LostBackendError(answer[0])
            self.address, self.nodes = answer
        except BaseException as error:
            self.close()
            if isinstance(error, LostBackendError | OSError):
                raise InputError(_describe_failure(address, error)) from error
            raise

    def _send(self, message: Any) -> None:
        with suppress(OSError):  # a child that has ended: the next answer tells
            pickle.dump(message, self._child.stdin, protocol=5)
            self._child.stdin.flush()

    def _receive(self) -> Any:
        """Return the next answer of the child; if it has ended, so has Ray."""
        try:
            return pickle.load(self._child.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise LostBackendError("one of Ray's servers was killed or ended") from error

    def close(self) -> None:
        """End the child, and with it a Ray that was started here."""
        child, self._child = self._child, None
        if child is None:
            return
        try:
            child.communicate(timeout=SHUTDOWN)  # closes its input
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


def _describe_failure(address: str, error: Exception) -> str:
    if address == "local":
        return f"Ray could not be started: {shorten(error)}; --backend local needs no Ray"
    return (
        f"the Ray cluster {ADDRESS}={shorten(address)} cannot be joined ({shorten(error)}); start "
        f"it by `ray start`, or unset {ADDRESS} to start Ray here"
    )


def _start_child() -> subprocess.Popen[bytes]:
    """Start the child, with this process's modules and without usage statistics."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-P", ray_driver.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"},
        start_new_session=True,  # Ctrl-C is for this process
    )


def _read_result(content: bytes) -> Any:
    """Read what a job returned; what a user can mend becomes an `InputError`."""
    result, error, trace = pickle.loads(content)
    if isinstance(error, ImportError):
        raise InputError(
            f"a Ray worker cannot train: {error}; install the same wri on all machines of the "
            "cluster, and start Ray there again"
        )
    if error is not None:
        error.add_note(f"in a Ray worker:\n{trace}")
        raise error
    return result


def _check_reachable(address: str) -> None:
    """Fail at once if nobody answers; Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
