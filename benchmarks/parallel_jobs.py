"""How much faster two jobs are than one: 24 short runs, through the command line, as a user would.

    python benchmarks/parallel_jobs.py

The bar is a ratio of at most 0.6, on a machine with two idle cores or more.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLAN = """
problems = ["digits_conv"]
methods = ["adam", "probstep_adam"]
rates = [1e-4, 1e-3, 1e-2]
seeds = [0, 1, 2, 3]
epochs = 40
"""
BAR = 0.6


def measure(plan, jobs):
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "probstep.bench", "run", plan, "--out", out]
        began = time.perf_counter()
        lines = subprocess.check_output([*command, "--jobs", str(jobs)], text=True).splitlines()
        seconds = time.perf_counter() - began
    assert '"done": 24' in lines[-1], lines[-1]
    return seconds


def main():
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "short.toml")
        plan.write_text(PLAN)
        seconds = {jobs: measure(plan, jobs) for jobs in (1, 2)}
    ratio = seconds[2] / seconds[1]
    print(f"24 runs, --jobs 1: {seconds[1]:.1f} s, --jobs 2: {seconds[2]:.1f} s")
    print(f"ratio {ratio:.2f}, bar {BAR}: {'reached' if ratio <= BAR else 'missed'}")


if __name__ == "__main__":
    main()
