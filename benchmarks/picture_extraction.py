"""Speed, memory and sameness of feature extraction from a folder of pictures.

    python benchmarks/picture_extraction.py /data/PACS --domains photo

Extracts the features anew with one worker and with two, several times in turn. Prints how many
pictures per second that is, and per second of one core, how much memory all processes took at most
(proportional set size), and whether the features are the same to the last bit. Linux only.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from wri.datasets import ImageFolder
from wri.features import Backbone, extract, load_backbone


def children(process: int) -> list[int]:
    """A process and all below it."""
    found = [process]
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            found += children(int(child))
    return found


def memory(process: int) -> int:
    """Kilobytes of a process, pages that it shares divided among their users."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def seconds_of(process: int) -> float:
    """Seconds that a process has had a core."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Usage(threading.Thread):
    """Memory at most and core seconds of this process and its children while the block runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.gigabytes, self._going = 0.0, True
        self._before = {each: seconds_of(each) for each in children(os.getpid())}
        self._now = dict(self._before)

    @property
    def core_seconds(self) -> float:
        return sum(now - self._before.get(each, 0.0) for each, now in self._now.items())

    def run(self) -> None:
        while self._going:
            try:
                family = children(os.getpid())
            except OSError:  # a child that has just ended
                continue
            self.gigabytes = max(self.gigabytes, sum(map(memory, family)) / 1e6)
            self._now |= {each: seconds_of(each) for each in family}
            time.sleep(0.5)

    def __enter__(self) -> "Usage":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._going = False
        self.join()


def measure(
    folder: ImageFolder, backbone: Backbone, workers: int
) -> tuple[list[float], np.ndarray]:
    """Return pictures per second, and of one core, gigabytes, seconds from the cache; features."""
    with tempfile.TemporaryDirectory() as cache, Usage() as usage:
        start = time.perf_counter()
        features = extract(folder, backbone, workers, Path(cache)).x
        seconds, core = time.perf_counter() - start, usage.core_seconds
        again = time.perf_counter()
        extract(folder, backbone, workers, Path(cache))
        again = time.perf_counter() - again
    return [len(folder) / seconds, len(folder) / core, usage.gigabytes, again], features


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--domains", nargs="*", help="some of the domains")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    folder, backbone = ImageFolder(options.root, options.domains), load_backbone()
    found: dict[int, list] = {1: [], 2: []}
    for _ in range(options.rounds):
        for workers, rounds in found.items():
            rounds.append(measure(folder, backbone, workers))
            print(workers, "workers:", *rounds[-1][0], file=sys.stderr, flush=True)
    print(f"*Extraction of {len(folder)} pictures, least – most of {options.rounds} rounds*\n")
    print("| workers | pictures per second | per second of one core | most memory, GB |", end="")
    print(" seconds from the cache |\n|---|---|---|---|---|")
    for workers, rounds in found.items():
        columns = zip(*(numbers for numbers, _ in rounds), strict=True)
        cells = (
            f"{min(each):.{places}f} – {max(each):.{places}f}"
            for each, places in zip(columns, (0, 0, 2, 2), strict=True)
        )
        print(f"| {workers} | {' | '.join(cells)} |")
    first, *others = (features for rounds in found.values() for _, features in rounds)
    same = all(np.array_equal(first, other) for other in others)
    print(f"\nFeatures the same to the last bit in all rounds: {'yes' if same else 'no'}.")


if __name__ == "__main__":
    main()
