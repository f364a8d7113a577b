"""How long `show` and `report` take over many runs, and how much memory.

    python benchmarks/report_speed.py            # 20,000 runs of 100 epochs, and a quarter of them
    python benchmarks/report_speed.py 1000 20    # so many runs of so many epochs

The bar at 20,000 runs: `show` in 5 s, `report` in 60 s, a page below 20 MB, memory below 2 GB, and
four times the runs in about four times the time. Seconds are of the clock; processor time is told
beside them, as a loaded machine spends its clock on others.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from probstep.bench.records import Record, Run, encode_record

PROBLEMS = (
    *("digits_mlp", "digits_conv", "digits_logreg", "digits_attention", "digits_batchnorm"),
    *("regression", "fmnist_mlp", "fmnist_logreg", "fmnist_2c2d", "cifar10_3c3d"),
)
METHODS = (
    *("sgd", "robust_sgd", "probstep_sgd", "sgd_hd", "momentum", "robust_momentum"),
    *("probstep_momentum", "momentum_hd", "l4_momentum", "adam", "robust_adam", "probstep_adam"),
    *("adam_hd", "l4_adam", "adamw", "robust_adamw", "prodigy", "momo_adam", "dog", "sls"),
)
RATES = tuple(10 ** (power / 2) for power in range(-12, 8))
SEEDS_PER_CELL = 5
VERSIONS = {"probstep": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6", "python": "3.11.7"}
COUNTS = ("up", "down", "keep", "search", "reject", "uninformative", "unpaired", "skipped")
BARS = {"show": 5.0, "report": 60.0}  # seconds
PAGE_MEGABYTES, MEGABYTES = 20.0, 2048.0


def list_runs(count: int, epochs: int) -> list[Run]:
    runs = [
        Run(problem, method, rate, seed, epochs)
        for rate in RATES
        for problem in PROBLEMS
        for method in METHODS
        for seed in range(SEEDS_PER_CELL)
    ]
    return runs[:count]


def write_records(out: Path, runs: list[Run]) -> None:
    (out / "records").mkdir(parents=True)
    for run in runs:
        template = encode_record(make_record(run)).replace("{", "{{").replace("}", "}}")
        for name in ("epoch", "status", "loss", "accuracy", "steps", "passes", "seconds"):
            template = template.replace(MARKS[name], "{" + name + "}")
        lines = (template.format(**values(run, epoch)) for epoch in range(run.epochs + 1))
        (out / "records" / f"{run.key}.jsonl").write_text("".join(f"{line}\n" for line in lines))


MARKS = {  # numbers that stand for what changes from epoch to epoch
    "epoch": "770001",
    "status": "running",
    "loss": "770002.5",
    "accuracy": "770003.5",
    "steps": "770004",
    "passes": "770005",
    "seconds": "770006.5",
}


def make_record(run: Run) -> Record:
    loss, accuracy = float(MARKS["loss"]), float(MARKS["accuracy"])
    scores = {f"{split}_loss": loss for split in ("train", "valid", "test")}
    scores |= {f"{split}_accuracy": accuracy for split in ("train", "valid", "test")}
    probe = {f"ratio_q{q}": 1.0123456789 for q in ("05", "25", "50", "75", "95")}
    counts = {f"probes/{name}": 12 for name in COUNTS}
    return Record(
        run=run,
        epoch=int(MARKS["epoch"]),
        status="running",
        effective_rate=run.rate,
        steps=int(MARKS["steps"]),
        forward_passes=int(MARKS["passes"]),
        probe=probe | counts,
        metrics={"scale": 1.0, "effective_lr": run.rate, "loss": 0.123456789, **counts},
        sizes={"train": 1500, "valid": 150, "test": 150},
        versions=VERSIONS,
        commit="0" * 40,
        time={"training_seconds": float(MARKS["seconds"]), "finished": "2026-01-01T00:00:00+00:00"},
        **scores,
    )


def values(run: Run, epoch: int) -> dict[str, object]:
    quality = math.exp(-0.1 * epoch * min(1.0, 10 * run.rate)) * (1 + 0.01 * run.seed)
    return {
        "epoch": epoch,
        "status": "done" if epoch == run.epochs else "running",
        "loss": 2.123456789 * quality + 0.1,
        "accuracy": max(0.0, 0.987654321 - 0.9 * quality),
        "steps": 40 * epoch,
        "passes": 44 * epoch,
        "seconds": 0.123456789 * epoch,
    }


def measure(command: str, out: Path) -> dict[str, float]:
    """Seconds, processor seconds and the largest memory of a command."""
    words = [sys.executable, "-m", "probstep.bench", command, str(out)]
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, code, used = os.wait4(process.pid, 0)
    if code:
        sys.exit(f"`probstep {command}` failed.")
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "megabytes": round(used.ru_maxrss / 1024),
    }


def main() -> None:
    count, epochs = map(int, sys.argv[1:]) if sys.argv[1:] else (20_000, 100)
    reached = True
    for runs in (count // 4, count):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out")
            write_records(out, list_runs(runs, epochs))
            for command, bar in BARS.items():
                facts = measure(command, out)
                if command == "report":
                    size = (out / "report" / "report.html").stat().st_size
                    facts["page_megabytes"] = round(size / 1e6, 1)
                    reached &= facts["page_megabytes"] <= PAGE_MEGABYTES
                print(json.dumps({"runs": runs, "epochs": epochs, "command": command, **facts}))
                reached &= facts["seconds"] <= bar and facts["megabytes"] <= MEGABYTES
    print("The bars are reached." if reached else "A bar is missed.")


if __name__ == "__main__":
    main()
