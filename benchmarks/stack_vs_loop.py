"""Wall time per run: a stack of 50 runs against one run at a time, in one go.

Synthetic features, 3 training environments and a test one of 2000 rows × 64, 7 classes, DomainBed's
preset, accuracy of all eight splits every 10 steps. One more line is WRI with weights that we
recommend, preset `coloured`: a classifier of environments is fitted before the first step, by every
run in (a) and (b), and once for all runs with the same rows in (c).

    (a) usual   a process per run, `DataLoader`s for training and evaluation
    (b) lean    the leanest single run: in process, index tensors, whole-tensor evaluation
    (c) stack   50 runs of random hyper-parameter draws

(a) and (b) take few of the draws, spread over the work they make; (b) uses one thread or all,
whichever is faster, and the others all, whatever OMP_NUM_THREADS says. `ratios` is (a)/(c) with
every process's start counted on both sides, `ratios_cpu` the same of CPU time,
`ratios_tensor_loop` (b)/(c) without any start. `matrix_products` is what the large matrix products
alone take in the stack's shapes (MLDG's inner steps left out): a floor to (c).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
import single_runs
from printed_table import print_table
from single_runs import ENVIRONMENTS, ROWS, WIDTH
from wri.objectives import OBJECTIVES
from wri.registry import OBJECTIVES as ENTRIES
from wri.sweep import draw
from wri.threads import keep_freed_memory
from wri.training import Bank, ModelSpec, Run, plan_stacks, train

LABELS = {name: entry.label for name, entry in ENTRIES.items()} | {
    "wri": "WRI, the paper's form",
    "wri recommended": "WRI, recommended weights",
}
# least (a)/(c), and least (b)/(c)
BARS = dict.fromkeys(single_runs.ALGORITHMS, (28.0, 0.0)) | {
    "wri": (20.0, 5.0),
    "wri recommended": (30.0, 0.0),
}
# objective and preset of the lines that are not an objective in DomainBed's preset
KINDS = {"wri recommended": ("wri", "coloured")}


def draws_of(name: str, n: int) -> list[dict]:
    """The first n random draws of the hyper-parameters that it has a use for."""
    objective, preset = KINDS.get(name, (name, "domainbed"))
    draws = [draw(OBJECTIVES[objective], seed, preset=preset) for seed in range(1, n + 1)]
    if name == "wri recommended":  # no density steps
        draws = [{key: v for key, v in each.items() if "density" not in key} for each in draws]
    return draws


def spread_over_work(draws: list[dict], n: int) -> list[dict]:
    """n of the draws: sorted by work and cut into n equal shares, the one nearest each mean."""

    def work(hyper: dict) -> float:
        rows = min(hyper["batch_size"], 0.8 * ROWS)
        steps = hyper.get("density_steps", 0) / hyper.get("density_every", 1)
        return rows + 5 * steps * hyper.get("density_batch_size", 0)

    means = [share.mean() for share in np.array_split(sorted(map(work, draws)), n)]
    return [min(draws, key=lambda hyper, mean=mean: abs(work(hyper) - mean)) for mean in means]


def stack_runs(name: str, draws: list[dict], data: dict, steps: int) -> list[Run]:
    bank = Bank(data["x"], data["y"])
    objective, preset = KINDS.get(name, (name, "domainbed"))
    return [
        Run(
            ModelSpec.of(objective, preset=preset, hyper=hyper, steps=steps),
            bank,
            data["train"],
            seed=seed,
            evaluate=data["evaluate"],
        )
        for seed, hyper in enumerate(draws)
    ]


def matrix_products(runs: list[Run], steps: int) -> float:
    """Seconds for the products of the predictor's steps and evaluations, nothing else."""
    seconds = 0.0
    for stack in plan_stacks(runs):
        rows = max(runs[n].batch_rows for n in stack) * len(runs[stack[0]].train)
        widths = runs[stack[0]].network.widths
        n = len(stack)
        layers = [
            (torch.randn(n, o, i), torch.randn(n, i, rows), torch.randn(n, o, rows))
            for i, o in pairwise(widths)
        ]
        repeat = 10
        for attempt in range(repeat + 1):
            if attempt == 1:  # the first warms up
                start = time.perf_counter()
            for k, (weight, inputs, outputs) in enumerate(layers):
                torch.bmm(weight, inputs)
                torch.bmm(outputs, inputs.transpose(1, 2))
                if k:
                    torch.bmm(weight.transpose(1, 2), outputs)
        per_step = (time.perf_counter() - start) / repeat
        bank = torch.randn(WIDTH, ENVIRONMENTS * ROWS)
        hidden = [torch.randn(n, i, ENVIRONMENTS * ROWS) for i in widths[1:-1]]
        torch.mm(layers[0][0].flatten(0, 1), bank)  # warm up
        start = time.perf_counter()
        torch.mm(layers[0][0].flatten(0, 1), bank)
        for (weight, _, _), columns in zip(layers[1:], hidden, strict=True):
            torch.bmm(weight, columns)
        per_evaluation = time.perf_counter() - start
        seconds += steps * per_step + (steps // 10 + 1) * per_evaluation
        if runs[stack[0]].objective.side_steps(runs[stack[0]].hyper).steps:
            seconds += steps * density_products([runs[n].hyper for n in stack])
    return seconds / len(runs)


def density_products(draws: list[dict]) -> float:
    """The same for the density steps that fall on one step of the predictor.

    All runs of the stack at once, forwards and backwards; the predictor's losses come on top.
    """
    n, environments = len(draws), ENVIRONMENTS - 1
    rows = environments * int(max(hyper["density_batch_size"] for hyper in draws))
    weight, inputs = torch.randn(n, environments * WIDTH // 2, WIDTH), torch.randn(n, WIDTH, rows)
    hidden = torch.bmm(weight, inputs)  # warms up
    start = time.perf_counter()
    for _ in range(10):
        torch.bmm(weight, inputs)
        torch.bmm(hidden, inputs.transpose(1, 2))
    once = (time.perf_counter() - start) / 10 / n
    return once * sum(hyper["density_steps"] / hyper["density_every"] for hyper in draws)


def child(script: str, *arguments: str) -> tuple[np.ndarray, dict]:
    """Run a file of this folder in a process of its own: wall and CPU seconds, what it printed."""
    command = [sys.executable, str(Path(__file__).parent / script), *arguments]
    free = {key: v for key, v in os.environ.items() if key != "OMP_NUM_THREADS"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=free)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return np.array([wall, cpu]), json.loads(done.stdout or "{}")


def time_lean(name: str, draws: list[dict], steps: int) -> float:
    """Seconds a run, on one thread or on all."""
    data = single_runs.as_tensors(single_runs.make_data())
    keep_freed_memory()

    def seconds(threads: int, chosen: list[dict], steps: int) -> float:
        torch.set_num_threads(threads)
        start = time.perf_counter()
        for hyper in chosen:
            single_runs.lean(name, hyper, data, steps)
        return (time.perf_counter() - start) / len(chosen)

    threads = torch.get_num_threads()
    trial = draws[:: max(1, len(draws) // 4)], min(steps, 20)
    seconds(threads, *trial)  # warm up
    best = min((1, threads), key=lambda n: seconds(n, *trial))
    return seconds(best, draws, steps)


def run_child(kind: str, name: str, draws: list[dict], steps: int) -> None:
    if kind == "lean":
        print(json.dumps({"seconds": time_lean(name, draws, steps)}))
        return
    start = time.perf_counter()
    runs = stack_runs(name, draws, single_runs.make_data(), steps)
    if kind == "products":
        print(json.dumps({"seconds": matrix_products(runs, steps)}))
        return
    records = train(runs, device="cpu")
    report = {
        "seconds": (time.perf_counter() - start) / len(draws),
        "diverged": sum(record.diverged_at is not None for record in records),
        "peak_mb": max(
            resource.getrusage(which).ru_maxrss / 1024  # of the largest process
            for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ),
    }
    print(json.dumps(report))


def print_result(result: dict, options: argparse.Namespace) -> None:
    lines = []
    for name, seconds in result["seconds_per_run"].items():
        ratios = [
            show_ratio(result[key][name], bar)
            for key, bar in zip(("ratios", "ratios_tensor_loop"), BARS[name], strict=True)
        ]
        times = [seconds[kind] for kind in ("usual", "lean", "stack")]
        times.append(result["matrix_products"][name])
        cpu = f"{result['ratios_cpu'][name]:.1f}"
        lines.append([LABELS[name], *ratios, cpu, *(f"{each:.2f}" for each in times)])
    print_table(
        f"Seconds per run of {options.steps} steps: {options.stack} runs in a stack against single "
        f"runs, {options.usual} usual and {options.lean} lean per objective; bold: below the bar",
        [
            "objective",
            *("(a)/(c)", "(b)/(c)", "(a)/(c) of CPU time"),
            *("(a) usual, s", "(b) lean, s", "(c) stack, s", "products, s"),
        ],
        lines,
    )


def show_ratio(ratio: float, bar: float) -> str:
    text = f"**{ratio:.1f}**" if ratio < bar else f"{ratio:.1f}"
    return f"{text} (bar {bar:g})" if bar else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    known = list(single_runs.ALGORITHMS)
    parser.add_argument("--objectives", nargs="+", default=known, choices=known)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--stack", type=int, default=50, help="runs in the stack")
    parser.add_argument("--lean", type=int, default=2, help="single lean runs")
    parser.add_argument("--usual", type=int, default=1, help="single usual runs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, name, steps, draws = json.loads(options.child)
        run_child(kind, name, draws, steps)
        return

    keys = ("ratios", "ratios_cpu", "ratios_tensor_loop", "seconds_per_run", "matrix_products")
    result: dict = {key: {} for key in keys} | {"peak_mb": 0.0}
    for name in options.objectives:
        draws = draws_of(name, options.stack)

        def measure(kind: str, chosen: list[dict], name: str = name) -> tuple[np.ndarray, dict]:
            job = json.dumps([kind, name, options.steps, chosen])
            return child("stack_vs_loop.py", "--child", job)

        whole, stack = measure("stack", draws)
        lean = measure("lean", spread_over_work(draws, options.lean))[1]["seconds"]
        usual = np.mean(
            [
                child("single_runs.py", name, json.dumps(hyper), str(options.steps))[0]
                for hyper in spread_over_work(draws, options.usual)
            ],
            axis=0,
        )
        both = usual / (whole / len(draws))
        result["ratios"][name], result["ratios_cpu"][name] = both.tolist()
        result["ratios_tensor_loop"][name] = lean / stack["seconds"]
        seconds = {"stack": stack["seconds"], "lean": lean, "usual": float(usual[0])}
        result["seconds_per_run"][name] = seconds
        result["matrix_products"][name] = measure("products", draws)[1]["seconds"]
        result["peak_mb"] = max(result["peak_mb"], stack["peak_mb"])
        print(name, seconds, stack, whole, usual, file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(result))
        return
    print_result(result, options)
    print(f"Largest memory of a process of a stack: {result['peak_mb']:.0f} MB.")


if __name__ == "__main__":
    main()
