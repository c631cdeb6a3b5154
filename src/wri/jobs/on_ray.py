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
from itertools import count
from time import sleep
from typing import IO, Any, cast

from wri.errors import InputError, LostBackendError, shorten
from wri.jobs import ray_driver
from wri.jobs.runner import WORKER, Ended, Jobs, Runner

ADDRESS = "RAY_ADDRESS"
OBJECT_STORE = 100 * 2**20  # bytes of the object store at least; Ray allows no less than 75 MB
DRIVER = 1.5e8  # bytes of the process that is connected to Ray
POLL = 0.2  # seconds between two looks at the workers
ANSWER = 10.0  # seconds that a cluster may take to answer
RECONNECT = 5  # seconds that a Ray started here may be without its GCS, which nobody starts again
SHUTDOWN = 30.0  # seconds that Ray may take to end


class RayRunner(Runner):
    """Jobs run in Ray's workers, one CPU each; Ray starts with the first.

    If Ray is already running in this process, or `RAY_ADDRESS` names a cluster, it is joined and
    left running. Otherwise Ray is started here and ended by `close`.

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
        self._keys = count()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, jobs: Jobs) -> Generator[Ended, None, None]:
        if not jobs.jobs:
            return
        try:
            waiting = self._submit(jobs)
            while waiting:
                sleep(POLL)
                ended, steps = self.ask("poll")
                for key, (done, content) in ended.items():
                    number = waiting.pop(key)
                    if not done:
                        yield Ended(number, None, content)
                        continue
                    result, given = _read_result(content)
                    self.warn(given)
                    yield Ended(number, result)
                for key in waiting.keys() & steps.keys():
                    jobs.on_steps(waiting[key], steps[key])
        finally:
            if self._child is not None:
                with suppress(LostBackendError):  # what was lost needs no end
                    self.ask("forget")

    def _submit(self, jobs: Jobs) -> dict[int, int]:
        """Return the numbers of the jobs by keys that no other jobs have."""
        sent = jobs.send()
        self.start(len(sent.work) + sum(array.nbytes for array in sent.arrays))
        arrays = [pickle.PickleBuffer(array.data) for array in sent.arrays]
        self.ask("put", sent.shared, arrays, sent.work)
        work = getattr(jobs.work, "func", jobs.work)  # of a partial
        options = {"name": work.__name__, "max_retries": self.retries}
        most, waiting = max((node.get("memory", 0.0) for node in self.nodes), default=0.0), {}
        for number, job in enumerate(jobs.jobs):
            if jobs.memory is not None:  # more than a machine has would never start
                options["memory"] = int(min(jobs.memory[number], most))
            key = next(self._keys)
            self.ask("submit", key, options, jobs.pack(job))
            waiting[key] = number
        return waiting

    def overhead(self, shared: float) -> float:
        # shared arrays lie in the object store, and pass through the child
        starts_here = os.environ.get(ADDRESS, "local") in ("local", "")
        here = self._workers * WORKER + shared if starts_here else 0.0
        return here + DRIVER + shared

    def start(self, shared: float = 0.0) -> None:
        """Start or join Ray, if that was not done or it was lost."""
        if self._child is not None:
            return
        self._child = _start_child()
        address = _find_running() or os.environ.get(ADDRESS) or "local"
        try:
            if address == "local":
                self.address, self.nodes = self.ask("start", self._options(shared))
            else:
                _check_reachable(address)
                self.address, self.nodes = self.ask("start", {"address": address})
        except (LostBackendError, OSError) as error:
            self.close()
            raise InputError(_describe_failure(address, error)) from error
        except BaseException:
            self.close()
            raise

    def _options(self, shared: float) -> dict[str, Any]:
        """Return the options of a Ray that is started here."""
        return {
            "address": "local",
            "num_cpus": self._workers,
            "num_gpus": 0,
            "object_store_memory": int(OBJECT_STORE + 2 * shared),
            "include_dashboard": False,
            "_memory": int(self.memory + self._workers * WORKER),
            "_system_config": {"gcs_rpc_server_reconnect_timeout_s": RECONNECT},
        }

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the child's `RayDriver`; if the child has ended, so has Ray."""
        child = cast(subprocess.Popen[bytes], self._child)
        requests, answers = (cast(IO[bytes], pipe) for pipe in (child.stdin, child.stdout))
        try:
            pickle.dump((method, arguments), requests, protocol=5)
            requests.flush()
            succeeded, answer = pickle.load(answers)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            self.close()
            raise LostBackendError("one of Ray's servers was killed or ended") from error
        except BaseException:  # interrupted, so that the answer would be taken for the next one
            self.close()
            raise
        if not succeeded:
            raise LostBackendError(answer)
        return answer

    def close(self) -> None:
        """End the child, and with it a Ray that was started here."""
        child, self._child = self._child, None
        if child is None:
            return
        requests, answers = (cast(IO[bytes], pipe) for pipe in (child.stdin, child.stdout))
        with suppress(OSError):  # of a child that has ended
            requests.close()
        try:
            child.wait(SHUTDOWN)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        answers.close()


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
