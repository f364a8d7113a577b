"""How long a report of 10,000 records takes, and how much memory.

    python benchmarks/report_speed.py

The bar: load, aggregate and write page and figures in at most 20 s and 1 GiB.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from probstep.bench.records import Record, Run, encode_record

PROBLEMS = ("digits_mlp", "digits_conv", "digits_logreg", "regression")
METHODS = (
    *("sgd", "probstep_sgd", "sgd_hd", "momentum", "probstep_momentum", "momentum_hd"),
    *("l4_momentum", "adam", "probstep_adam", "adam_hd", "l4_adam"),
)
RATES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
EPOCHS, SEEDS = 18, (0, 1)
VERSIONS = {"probstep": "0", "torch": "0", "numpy": "0", "python": "3", "platform": "Linux"}
SECONDS, MEGABYTES = 20.0, 1024.0


def write_records(out: Path) -> int:
    (out / "records").mkdir()
    runs = [
        Run(problem, method, rate, seed, EPOCHS)
        for problem in PROBLEMS
        for method in METHODS
        for rate in RATES
        for seed in SEEDS
    ]
    for run in runs:
        lines = (encode_record(make_record(run, epoch)) for epoch in range(EPOCHS + 1))
        (out / "records" / f"{run.key}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return len(runs) * (EPOCHS + 1)


def make_record(run: Run, epoch: int) -> Record:
    quality = math.exp(-epoch * min(1.0, 10 * run.rate))
    probe = {f"ratio_q{q}": 1.0 for q in ("05", "25", "50", "75", "95")}
    scores = {f"{split}_loss": 2 * quality + 0.1 for split in ("train", "valid", "test")}
    scores |= {f"{split}_accuracy": 1 - quality for split in ("train", "valid", "test")}
    return Record(
        run=run,
        epoch=epoch,
        status="done" if epoch == EPOCHS else "running",
        effective_rate=run.rate,
        steps=40 * epoch,
        forward_passes=80 * epoch,
        probe=probe,
        metrics={"scale": 1.0},
        versions=VERSIONS,
        time={"training_seconds": 0.1 * epoch},
        **scores,
    )


def main():
    with tempfile.TemporaryDirectory() as folder:
        count = write_records(Path(folder))
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "probstep.bench", "report", folder], check=True)
        seconds = time.perf_counter() - began
        size = Path(folder, "report", "report.html").stat().st_size
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    megabytes = used.ru_maxrss / 1024
    reached = seconds <= SECONDS and megabytes <= MEGABYTES
    facts = {
        "records": count,
        "seconds": round(seconds, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "megabytes": round(megabytes),
        "page_megabytes": round(size / 1e6, 1),
    }
    print(json.dumps(facts))
    print(f"bar {SECONDS:g} s, {MEGABYTES:g} MiB: {'reached' if reached else 'missed'}")


if __name__ == "__main__":
    main()
