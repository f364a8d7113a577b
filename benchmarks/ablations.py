"""What each part of the robust rule is for: the rule without it, on hazards and on ordinary trainings.

    python -m benchmarks.ablations --data DATA [--seeds 3] [--parts NAME,...] [--only ROW,...]

It trains the tuning half of the hazards and some ordinary trainings of the tuning half, with the whole
rule and without each part in turn, and all of that for one seed after the other: a minute of one core
for each part and seed. What runs/ablations.jsonl has is not done again; begin with a new file when the
rule has changed. In the end all is packed for the repository. DATA is the directory of the ordinary
trainings; without it they are left out.
"""

import argparse
import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from probstep import RobustRule
from probstep.bench.report.numbers.parts import without
from probstep.rules.robust.rule import PARTS

from .hazards.hazard import Hazard
from .hazards.records import Record, pack, packed, read
from .hazards.runner import list_runs, run_missing
from .hazards.suites import rows_of
from .hazards.table import choose

OUT = Path("runs/ablations.jsonl")
ORDINARY = (
    *(
        f"{problem}-{base}-constant"
        for problem in ("fmnist_mlp", "fmnist_logreg", "noisy_attention", "two_decades")
        for base in ("momentum", "adam")
    ),
    "fmnist_mlp-adam-linear",
    "fmnist_logreg-momentum-linear",
    "noisy_attention-adam-linear",
    "two_decades-momentum-linear",
    "two_decades-momentum-warm-up-cosine",
    "mnist_autoencoder-momentum-linear",
    "mnist_autoencoder-adam-linear",
    "cifar_autoencoder-adam-constant",
    "cifar_autoencoder-adam-linear",
    "cifar_autoencoder-momentum-constant",
    "cifar_autoencoder-momentum-linear",
)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("benchmarks.ablations", description=__doc__.splitlines()[0])
    top.add_argument("--data", type=Path, help="MNIST and Fashion-MNIST, in the usual layout")
    top.add_argument("--parts", help="names of parts, with commas; by default all")
    top.add_argument("--only", help="names of rows, with commas; by default all")
    top.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    top.add_argument("--jobs", type=int, default=1)
    top.add_argument("--out", type=Path, default=OUT)
    top.add_argument("--to", type=Path, default=packed("ablations"), help="the packed file")
    return top


def rows_to_run(suite: str, data: Path | None, only: Sequence[str]) -> list[Hazard]:
    """Return the rows of a suite, all or those that are named."""
    if suite == "ordinary" and data is None:
        return []
    rows = rows_of(suite, data)
    chosen = choose(rows, "tuning") if suite == "hazards" else choose(rows, only=ORDINARY)
    return [row for row in chosen if row.name in only or not only]


def light(record: Record) -> Record:
    """Return a record without its trace, which no page shows."""
    return {key: value for key, value in record.items() if key != "trace"}


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    parts = args.parts.split(",") if args.parts else list(PARTS)
    only = args.only.split(",") if args.only else []
    suites = {suite: rows_to_run(suite, args.data, only) for suite in ("hazards", "ordinary")}
    for seed, part in itertools.product(range(args.seeds), ("", *parts)):
        rule = partial(RobustRule, without=frozenset(filter(None, [part])))
        for suite, rows in suites.items():
            runs = list_runs(rows, suite, ["ours"], without(part)[1], [seed])
            run_missing(runs, args.out, rule, args.data, args.jobs, partial(print, flush=True))
    records = read(args.out)
    pack(map(light, records), args.to)
    print(f"{args.to}: {len(records)} runs")


if __name__ == "__main__":
    main()
