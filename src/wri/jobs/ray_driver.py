"""Process that speaks to Ray for a command, which it answers over its standard input and output.

    command ── pickled (method, arguments) ─► this process ─► Ray: tasks, object store
            ◄─ pickled (succeeded, answer) ──

Ray ends every process that is connected to it when one of its servers dies, and prints to standard
output at any time. Both concern only this process. It imports neither wri nor PyTorch: jobs, rows
and results pass through as bytes. It ends when its standard input does.
"""

import logging
import os
import pickle
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any


class RayDriver:
    """Connection to Ray; its methods are what the command may ask for."""

    def __init__(self) -> None:
        self._ray = import_module("ray")
        self._board: Any = None
        self._asked: Any = None
        self._steps: dict[int, int] = {}
        self._work: Any = None
        self._waiting: dict[Any, int] = {}

    def start(self, options: dict[str, Any]) -> tuple[str, list[dict[str, float]]]:
        """Start or join Ray; return its address, and the resources of its machines."""
        self._ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
        board = self._ray.remote(num_cpus=0, max_restarts=-1)(_StepBoard)
        self._board = board.remote()
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return self._ray.get_runtime_context().gcs_address, nodes

    def put(self, shared: bytes, arrays: list[bytes], work: bytes) -> None:
        """Store a `SentWork`; workers read its arrays where they lie, without a copy."""
        import numpy as np

        self._work = self._ray.put(
            (shared, [np.frombuffer(each, np.uint8) for each in arrays], work)
        )

    def submit(self, number: int, options: dict[str, Any], job: bytes) -> None:
        """Submit a pickled job of the stored work."""
        task = self._ray.remote(_run_job).options(num_cpus=1, **options)
        self._waiting[task.remote(self._work, job, number, self._board)] = number

    def poll(self) -> tuple[dict[int, tuple[bool, Any]], dict[int, int]]:
        """Return what jobs ended with, and the steps that others have done.

        A job ended with its pickled result, or with the name of the error for which Ray gave it up.
        """
        ended: dict[int, tuple[bool, Any]] = {}
        if self._waiting:
            ready, _ = self._ray.wait([*self._waiting], num_returns=len(self._waiting), timeout=0)
            for ref in ready:
                number = self._waiting.pop(ref)
                try:
                    ended[number] = True, self._ray.get(ref)
                except self._ray.exceptions.LocalRayletDiedError:
                    os._exit(1)  # what Ray does itself, a little later
                except self._ray.exceptions.RayError as error:
                    ended[number] = False, type(error).__name__
        return ended, self._read_board()

    def forget(self) -> None:
        """Cancel the jobs that have not ended, and drop what is stored."""
        for ref in self._waiting:
            self._ray.cancel(ref, force=True)
        self._waiting.clear()
        self._work = None

    def close(self) -> None:
        """Cancel the jobs, and leave Ray; it ends if it was started here."""
        if self._ray.is_initialized():
            self.forget()
            self._ray.kill(self._board)
            self._ray.shutdown()

    def _read_board(self) -> dict[int, int]:
        """Return the steps as they were last read, and ask for more without waiting."""
        if self._asked is not None and self._ray.wait([self._asked], timeout=0)[0]:
            try:
                self._steps = self._ray.get(self._asked)
            except self._ray.exceptions.RayError:
                self._steps = {}  # the board is started again
            self._asked = None
        if self._asked is None:
            self._asked = self._board.read.remote()
        return self._steps


class _StepBoard:
    """Actor that counts the workers' steps; without it only the progress is lost."""

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}

    def report(self, number: int, steps: int) -> None:
        self._steps[number] = steps

    def read(self) -> dict[int, int]:
        return self._steps


def _run_job(sent: Any, job: bytes, number: int, board: Any) -> bytes:
    """Run a job in a worker; Ray sends this code, so a worker without wri can say so."""
    import pickle
    import traceback
    from time import monotonic

    last = 0.0

    def report(steps: int) -> None:
        nonlocal last
        if monotonic() >= last + 0.5:  # seconds
            last = monotonic()
            board.report.remote(number, steps)

    try:
        import torch

        from wri.jobs.runner import SentWork

        torch.set_num_threads(1)
        return pickle.dumps((SentWork(*sent).open().call(job, report), None, ""))
    except Exception as error:
        trace = traceback.format_exc()
        try:
            return pickle.dumps((None, error, trace))
        except Exception:  # an error that cannot be sent
            return pickle.dumps((None, RuntimeError(str(error)), trace))


def main() -> None:
    """Answer requests until the command closes its side."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # Ray's prints
    driver = RayDriver()
    with suppress(EOFError, BrokenPipeError):
        while True:
            method, arguments = pickle.load(requests)
            try:
                answer = True, getattr(driver, method)(*arguments)
            except Exception as error:
                answer = False, " ".join(str(error).split()) or type(error).__name__
            pickle.dump(answer, answers)
            answers.flush()
    driver.close()


if __name__ == "__main__":
    main()
