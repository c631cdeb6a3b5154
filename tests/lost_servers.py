"""Kill a server of Ray that a job runs on, and print what the process that waits is told.

This takes long, because Ray takes seconds to notice. Tests start it as a process, which imports no
PyTorch, and look at the answers later.
"""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

from wri.errors import LostBackendError
from wri.jobs import Jobs, RayRunner

SERVERS = ("gcs_server", "raylet")


def find_ancestor(pid, generations):
    for _ in range(generations):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def find_server(driver, name):
    """A server of the Ray that a driver has started, or an agent of the server."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
            if command.rstrip().endswith(name) and driver in (
                find_ancestor(folder.name, 1),
                find_ancestor(folder.name, 2),
            ):
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError(f"no {name}")


def wait_in_worker(seconds, report):
    report(1)
    sleep(seconds)


def lose_server(name):
    """Run a job on a Ray of its own whose server is killed; return the error."""
    runner, killed = RayRunner(workers=1), []

    def kill(number, steps):
        if not killed:
            killed.append(find_server(runner._child.pid, name))
            os.kill(killed[0], signal.SIGKILL)

    try:
        list(runner.run(Jobs(work=wait_in_worker, jobs=[600.0], on_steps=kill)))
    except LostBackendError as error:
        assert runner._child is None
        return str(error)
    raise AssertionError(f"the job ended without {name}")


if __name__ == "__main__":
    with ThreadPoolExecutor() as threads:  # both at once
        print(json.dumps([*threads.map(lose_server, SERVERS)]))
