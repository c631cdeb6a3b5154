"""Wall time per run: a stack of 50 runs against one run at a time, in one go.

Synthetic features, 3 training environments and a test one of 2000 rows × 64, 7 classes, DomainBed's
preset, 500 steps, accuracy of all eight splits every 10 steps. One more line is WRI with weights
that we recommend, preset `coloured`: a classifier of environments is fitted before the first step,
by every run in (a) and (b), and once for all runs with the same rows in (c).

    (a) usual   a process a run, `DataLoader`s for training and evaluation
    (b) lean    the leanest single run: in process, index tensors, whole-tensor evaluation
    (c) stack   50 runs of random hyper-parameter draws

(b) takes 20 of the 50 draws and (a) 3, spread over the work they make; (b) uses one thread or all,
whichever is faster. `ratios` is (a)/(c) with every process's start counted on both sides,
`ratios_tensor_loop` (b)/(c) without any start. `matrix_products` is what the large matrix products
alone take in the stack's shapes (MLDG's inner steps left out): a floor to (c).
"""

import argparse
import json
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
from single_runs import ENVIRONMENTS, ROWS, WIDTH
from wri.objectives import OBJECTIVES
from wri.sweep import draw
from wri.threads import keep_freed_memory
from wri.training import Bank, ModelSpec, Run, plan_stacks, train

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


def child(script: str, *arguments: str) -> tuple[float, dict]:
    """Run a file of this folder in a process of its own: its wall time and what it printed."""
    start = time.perf_counter()
    command = [sys.executable, str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, json.loads(done.stdout or "{}")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    known = list(single_runs.ALGORITHMS)
    parser.add_argument("--objectives", nargs="+", default=known, choices=known)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--stack", type=int, default=50, help="runs in the stack")
    parser.add_argument("--lean", type=int, default=20, help="single lean runs")
    parser.add_argument("--usual", type=int, default=3, help="single usual runs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, name, steps, draws = json.loads(options.child)
        run_child(kind, name, draws, steps)
        return

    result: dict = {
        key: {} for key in ("ratios", "ratios_tensor_loop", "seconds_per_run", "matrix_products")
    }
    result["peak_mb"] = 0.0
    for name in options.objectives:
        draws = draws_of(name, options.stack)

        def measure(kind: str, chosen: list[dict], name: str = name) -> tuple[float, dict]:
            job = json.dumps([kind, name, options.steps, chosen])
            return child("stack_vs_loop.py", "--child", job)

        whole, stack = measure("stack", draws)
        seconds = {"stack": stack["seconds"]}
        if options.lean:
            chosen = draws if options.lean == len(draws) else spread_over_work(draws, options.lean)
            seconds["lean"] = measure("lean", chosen)[1]["seconds"]
            result["ratios_tensor_loop"][name] = seconds["lean"] / seconds["stack"]
        if options.usual:
            walls = [
                child("single_runs.py", name, json.dumps(hyper), str(options.steps))[0]
                for hyper in spread_over_work(draws, options.usual)
            ]
            seconds["usual"] = float(np.mean(walls))
            result["ratios"][name] = seconds["usual"] / (whole / len(draws))
        result["seconds_per_run"][name] = seconds
        result["matrix_products"][name] = measure("products", draws)[1]["seconds"]
        result["peak_mb"] = max(result["peak_mb"], stack["peak_mb"])
        if not options.json:
            print(name, {key: round(value, 3) for key, value in seconds.items()}, stack, flush=True)
    if options.json:
        print(json.dumps(result))
    else:
        for key in ("ratios", "ratios_tensor_loop"):
            print(key, {name: round(value, 1) for name, value in result[key].items()})


if __name__ == "__main__":
    main()
