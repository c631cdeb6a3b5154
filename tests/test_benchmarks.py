"""The benchmark runs and prints what it promises; its times are nobody's business here."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "stack_vs_loop.py"


def test_stack_vs_loop_prints_its_ratios():
    tiny = [
        "--json",
        "--steps",
        "3",
        "--stack",
        "3",
        "--lean",
        "2",
        "--usual",
        "1",
        "--objectives",
        "mixup",
        "wri",
    ]
    done = subprocess.run(
        [sys.executable, SCRIPT, *tiny], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for key in ("ratios", "ratios_tensor_loop"):
        assert set(result[key]) == {"mixup", "wri"}
        assert all(value > 0 for value in result[key].values())
    assert set(result["seconds_per_run"]["wri"]) == {"stack", "lean", "usual"}
    assert result["peak_mb"] > 0
