"""Damage plans, records, checkpoints and data files at random, and do with them what a user would.

    python benchmarks/fuzz.py 300              seconds, 60 if not given
    python benchmarks/fuzz.py 300 --seed 7     other damage

The bar: every damaged file is used, or refused by an error that names it. The first that crashes,
hangs, takes a lot of memory, starts a program or writes elsewhere ends this with its seed.
"""

import argparse
import faulthandler
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from probstep.bench.plans import add_source, read_source

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.bench.bench_cases import TINY  # noqa: E402
from tests.bench.fuzzing import TARGETS, fuzz  # noqa: E402

AT_A_TIME = 50
SEEDS = 1_000_000  # apart: no two studies share damage


def run(seconds: float, seed: int) -> dict[str, Counter[str]]:
    """How the files of each kind were answered, until the time is over."""
    answers: dict[str, Counter[str]] = {name: Counter() for name in TARGETS}
    ends = time.monotonic() + seconds
    first = SEEDS * (1 + seed)
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < ends:
            for name in TARGETS:
                answers[name] += fuzz(name, first, AT_A_TIME, Path(folder, name))
            first += AT_A_TIME
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", nargs="?", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("error")
    add_source(read_source(TINY))
    for name, counts in run(options.seconds, options.seed).items():
        print(json.dumps({"kind": name, "files": counts.total(), **counts}))
    print("bar: every file used or refused by name: reached")


if __name__ == "__main__":
    main()
