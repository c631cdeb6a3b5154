"""Ray session on this machine or on a cluster, in a process of its own.

Ray ends the processes that are connected to it when one of its servers dies. So a child process
(`ray_driver`) is connected, and this one is told by an error.
"""

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from time import sleep
from typing import IO, Any, NamedTuple, cast

from wri.errors import InputError, LostBackendError, shorten
from wri.sweep import ray_driver
from wri.sweep.memory import WORKER

ADDRESS = "RAY_ADDRESS"
OBJECT_STORE = 100 * 2**20  # bytes of the object store at least; Ray allows no less than 75 MB
DRIVER = 1.5e8  # bytes of the process that is connected to Ray
RETRIES = 3  # of a task whose worker dies
POLL = 0.2  # seconds between two looks at the workers
ANSWER = 10.0  # seconds that a cluster may take to answer
RECONNECT = 5  # seconds that a Ray started here may be without its GCS, which nobody starts again
SHUTDOWN = 30.0  # seconds that Ray may take to end

Job = Callable[[Any, list[Any], Callable[[int], None]], Any]
"""Function for workers: called with its argument, the stored objects and a report of steps."""


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


class EndedJob(NamedTuple):
    """Job that ended: its result, or the name of the error for which Ray gave it up."""

    number: int
    result: Any
    lost: str | None


class RaySession:
    """Ray session for the time it is needed.

    If Ray is already running in this process, or `RAY_ADDRESS` names a cluster, it is joined and
    left running. Otherwise Ray is started here and ended by `close`.

    Parameters
    ----------
    workers : int
        Number of jobs at the same time, if Ray is started here.
    memory : float
        Bytes for these jobs together, if Ray is started here.
    shared : float
        Bytes of the rows.

    Attributes
    ----------
    address : str
        Address of Ray, for others to join.
    nodes : list of dict
        Resources of its machines.
    steps : dict
        Steps that the running jobs have reported, by the jobs' numbers.
    closed : bool
        Whether it was closed or lost.
    """

    def __init__(self, workers: int, memory: float, shared: float) -> None:
        self._process = _start_driver()
        self._requests, self._answers = (
            cast(IO[bytes], pipe) for pipe in (self._process.stdin, self._process.stdout)
        )
        self.closed = False
        self.steps: dict[int, int] = {}
        self._numbers = 0
        address = _find_running() or os.environ.get(ADDRESS, "local")
        try:
            if address in ("local", ""):
                self._start(workers, memory, shared)
            else:
                self._join(address)
        except BaseException:
            self.close()
            raise

    def _start(self, workers: int, memory: float, shared: float) -> None:
        options = {
            "address": "local",
            "num_cpus": workers,
            "num_gpus": 0,
            "object_store_memory": int(OBJECT_STORE + 2 * shared),
            "include_dashboard": False,
            "_memory": int(memory + workers * WORKER),
            "_system_config": {"gcs_rpc_server_reconnect_timeout_s": RECONNECT},
        }
        try:
            self.address, self.nodes = self._ask("start", options)
        except LostBackendError as error:
            raise InputError(
                f"Ray could not be started: {shorten(error)}; --backend local needs no Ray"
            ) from error

    def _join(self, address: str) -> None:
        try:
            _check_reachable(address)
            self.address, self.nodes = self._ask("start", {"address": address})
        except (LostBackendError, OSError) as error:
            raise InputError(
                f"the Ray cluster {ADDRESS}={shorten(address)} cannot be joined "
                f"({shorten(error)}); start it by `ray start`, or unset {ADDRESS} to start Ray here"
            ) from error

    @property
    def node_memory(self) -> float:
        """Bytes for jobs on the machine that has most."""
        return max((node.get("memory", 0.0) for node in self.nodes), default=0.0)

    def put(self, value: Any, shared: bool = True) -> int:
        """Store an object for workers; shared arrays are read-only and lie in memory once."""
        buffers: list[pickle.PickleBuffer] = []
        keep = buffers.append if shared else None
        content = pickle.dumps(value, protocol=5, buffer_callback=keep)
        return self._ask("put", content, [pickle.PickleBuffer(each.raw()) for each in buffers])

    def submit(self, function: Job, argument: Any, stored: Sequence[int], **options: Any) -> int:
        """Submit a job with one CPU and Ray's options; return its number."""
        self._numbers += 1
        job = pickle.dumps((function, argument))
        name = {"name": function.__name__}
        self._ask("submit", self._numbers, name | options, job, list(stored))
        return self._numbers

    def poll(self) -> Iterator[EndedJob]:
        """Wait a little, and yield the jobs that have ended; errors of jobs are raised."""
        sleep(POLL)
        ended, self.steps = self._ask("poll")
        for number, (done, content) in ended.items():
            result = _read_result(content) if done else None
            yield EndedJob(number, result, None if done else content)

    def forget(self) -> None:
        """Cancel the jobs that have not ended, and drop what is stored."""
        if not self.closed:
            with suppress(LostBackendError):
                self._ask("forget")

    def close(self) -> None:
        """End the child, and with it a Ray that was started here."""
        self.closed = True
        with suppress(OSError):  # of a child that has ended
            self._requests.close()
        try:
            self._process.wait(SHUTDOWN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Return the child's answer; if it has ended, so has Ray."""
        try:
            pickle.dump((method, arguments), self._requests, protocol=5)
            self._requests.flush()
            succeeded, answer = pickle.load(self._answers)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            self.close()
            raise LostBackendError("one of Ray's servers was killed or ended") from error
        except BaseException:  # interrupted, so that the answer would be taken for the next one
            self.close()
            raise
        if not succeeded:
            raise LostBackendError(answer)
        return answer


def _start_driver() -> subprocess.Popen[bytes]:
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


def _find_running() -> str | None:
    """Return the address of a Ray that this process itself is connected to."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().gcs_address)


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
