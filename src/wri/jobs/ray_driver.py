"""Process that speaks to Ray for a command, which it answers over its standard input and output.

    command ── options of Ray ─────────────────► this process ─► Ray
            ◄─ address and machines, or an error ──
            ── work and jobs, again and again ─► this process ─► Ray: object store, tasks
            ◄─ steps of jobs, and what each ended with ──

Ray ends every process that is connected to it when one of its servers dies, and prints to standard
output at any time. Both concern only this process. It imports neither wri nor PyTorch: jobs, rows
and results pass through as bytes. It ends, and its jobs with it, when its standard input does.
"""

import logging
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from select import select
from typing import Any

POLL = 0.2  # seconds between two looks at the workers
Answer = Callable[..., None]


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
        return pickle.dumps((SentWork(*sent).open()(job, report), None, ""))
    except Exception as error:
        trace = traceback.format_exc()
        try:
            return pickle.dumps((None, error, trace))
        except Exception:  # an error that cannot be sent
            return pickle.dumps((None, RuntimeError(str(error)), trace))


def run_jobs(ray: Any, sent: Any, jobs: list[tuple[dict[str, Any], bytes]], answer: Answer) -> None:
    """Run jobs, each with its options, until all have ended or the command closes its side.

    Answers are (None, steps by number), (number, True, pickled result), or (number, False, name of
    the error for which Ray gave the job up).
    """
    import numpy as np

    shared, arrays, work = sent  # workers read arrays where they lie, without a copy
    stored = ray.put((shared, [np.frombuffer(each, np.uint8) for each in arrays], work))
    board = ray.remote(num_cpus=0)(_StepBoard).remote()
    waiting = {}
    for number, (options, job) in enumerate(jobs):
        task = ray.remote(_run_job).options(num_cpus=1, **options)
        waiting[task.remote(stored, job, number, board)] = number
    steps = board.read.remote()
    while waiting and not select([sys.stdin], [], [], POLL)[0]:
        if ray.wait([steps], timeout=0)[0]:
            with suppress(ray.exceptions.RayError):
                answer(None, ray.get(steps))
            steps = board.read.remote()
        ready, _ = ray.wait([*waiting], num_returns=len(waiting), timeout=0)
        for ref in ready:
            number = waiting.pop(ref)
            try:
                answer(number, True, ray.get(ref))
            except ray.exceptions.LocalRayletDiedError:
                os._exit(1)  # what Ray does itself, a little later
            except ray.exceptions.RayError as error:
                answer(number, False, type(error).__name__)
    for ref in waiting:
        ray.cancel(ref, force=True)
    ray.kill(board)


def main() -> None:
    """Start or join Ray, and run jobs until the command closes its side."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # Ray's prints
    ray = import_module("ray")

    def answer(*message: Any) -> None:
        pickle.dump(message, answers)
        answers.flush()

    with suppress(EOFError, BrokenPipeError):
        try:
            options = pickle.load(requests)
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            answer(True, ray.get_runtime_context().gcs_address, nodes)
        except Exception as error:
            answer(False, " ".join(str(error).split()) or type(error).__name__)
        while True:
            sent, jobs = pickle.load(requests)
            run_jobs(ray, sent, jobs, answer)
    ray.shutdown()


if __name__ == "__main__":
    main()
