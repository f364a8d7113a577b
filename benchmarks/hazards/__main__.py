"""The command line: run, summary, trace, pack.

python -m benchmarks.hazards run --ways ours,plain,grid --half tuning --seeds 1 --jobs 2
python -m benchmarks.hazards run --ways ours --rule mymodule:make_rule --label mine
python -m benchmarks.hazards summary --label mine
python -m benchmarks.hazards trace batch-1-adam ours
python -m benchmarks.hazards pack
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from .records import PACKED, merge, pack, packed, read
from .runner import list_runs, run_missing
from .suites import SUITES, rows_of
from .summary import align, compare, show
from .table import choose
from .training import run as train
from .ways import WAYS, find_way

OUT = Path("runs")  # a file for each suite


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("benchmarks.hazards", description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--suite", choices=SUITES, default="hazards")
    shared.add_argument("--half", choices=("tuning", "kept", "all"), default="all")
    shared.add_argument("--only", type=names, default=[], help="names of hazards, with commas")
    shared.add_argument(
        "--data", type=Path, help="MNIST, Fashion-MNIST, CIFAR-10, text/, for ordinary"
    )
    shared.add_argument("--rule", help="module:factory of a rule for ours")
    shared.add_argument("--label", default="", help="what to call that rule")

    run = commands.add_parser("run", parents=[shared], help="do the runs that a file lacks")
    run.add_argument("--ways", type=names, default=["ours", "plain"], help=", ".join(WAYS))
    run.add_argument("--seeds", type=int, default=1, help="how many, from 0 on")
    run.add_argument("--jobs", type=int, default=1)
    run.add_argument("--out", type=Path, help="the file; by default runs/SUITE.jsonl")

    summary = commands.add_parser("summary", parents=[shared], help="a table, and the bar")
    summary.add_argument("--way", default="ours")
    summary.add_argument("--against", default=None, help="plain, grid, or another way")
    summary.add_argument("--records", type=Path, nargs="+", help="by default all of the suite")
    summary.add_argument("--brief", action="store_true", help="only the last lines")

    trace = commands.add_parser(
        "trace", parents=[shared], help="train once and print the time line"
    )
    trace.add_argument("hazard")
    trace.add_argument("way")
    trace.add_argument("--seed", type=int, default=0)
    trace.add_argument("--points", type=int, default=60)

    packing = commands.add_parser("pack", help="put the records into the repository")
    packing.add_argument("--records", type=Path, nargs="+", help="besides what is packed")
    packing.add_argument("--to", type=Path, default=PACKED, help="the folder of packed records")
    return top


def out_of(suite: str) -> Path:
    """Return where runs of a suite go."""
    return OUT / f"{suite}.jsonl"


def do_run(args: argparse.Namespace) -> None:
    rows = choose(rows_of(args.suite, args.data), args.half, args.only)
    for way in args.ways:
        find_way(way)
    runs = list_runs(rows, args.suite, args.ways, args.label, range(args.seeds))
    run_missing(
        runs,
        args.out or out_of(args.suite),
        args.rule,
        args.data,
        args.jobs,
        lambda line: print(line, flush=True),
    )


def do_summary(args: argparse.Namespace) -> None:
    files = args.records or [packed(args.suite), out_of(args.suite)]
    records = [r for r in read(*files) if r["suite"] == args.suite]
    if args.only:
        records = [r for r in records if r["hazard"] in args.only]
    labels = {r["label"] for r in records if r["way"] == "ours"}
    if args.way == "ours" and args.label not in labels:
        sys.exit(f"Nothing of ours is labelled {args.label!r}. Give --label, of: {sorted(labels)}.")
    against = args.against or ("grid" if args.suite == "ordinary" else "plain")
    results = compare(records, args.way, args.label, against, args.half)
    lines = list(show(results, f"{args.way} {args.label} against {against}, {args.half}"))
    print("\n".join(lines[-2:] if args.brief else lines))


def do_trace(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    (row,) = choose(rows_of(args.suite, args.data), only=[args.hazard])
    record = train(row, find_way(args.way, args.rule), args.seed, row.rate, points=args.points)
    if record["status"] != "raised":
        found = record.pop("trace")
        shown = zip(
            *(found[key] for key in ("step", "loss", "rate", "scale", "decision")), strict=True
        )
        print(
            "\n".join(
                align(
                    [
                        ("step", "loss", "rate", "scale", "decision"),
                        *(tuple(map(word, r)) for r in shown),
                    ]
                )
            )
        )
    print("\n".join(f"{key}: {value}" for key, value in record.items()))


def word(value: float | str | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def do_pack(args: argparse.Namespace) -> None:
    fresh = read(*(args.records or map(out_of, SUITES)))
    for suite in SUITES:
        path = packed(suite, args.to)
        found = [r for r in fresh if r["suite"] == suite]
        if found:
            records = merge(read(path), found)
            pack(records, path)
            print(f"{path}: {len(records)} runs")


COMMANDS = {"run": do_run, "summary": do_summary, "trace": do_trace, "pack": do_pack}


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    COMMANDS[args.command](args)


if __name__ == "__main__":
    main()
