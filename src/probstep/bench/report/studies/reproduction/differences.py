"""In what the runs differ from the paper's, and the commands that make them again."""

from collections.abc import Iterator

from probstep.bench.records import Run
from probstep.bench.report.page.markdown import write_table

from .evidence import NETS, RECORDS, Evidence, paper_problem
from .forecast import (
    GPU,
    LEAST_SECONDS,
    PEAK,
    SHARE_OF_PEAK,
    forecast,
)
from .since import PLAN as BESIDE

PLAN, FULL = "paper-small", "paper"


def write_differences(evidence: Evidence) -> Iterator[str]:
    """What was cut, and what that may hide."""
    yield f"""## What differs from the paper

- Subsets and fewer epochs, and smaller batches for the larger nets, so that few samples make enough
  steps (the table below). What needs many epochs, as the noisier regime of C11, cannot show.
- Two nets are narrower, and named so. The wide residual net and ResNet18 themselves are too dear
  for two cores: [at full size](#at-full-size).
- torch {_versions(evidence)} on a processor; the paper had PyTorch 1.4.
- {_seeds(evidence)} The paper takes the best of three in its heat map and names no number elsewhere.
- An accuracy is measured on few samples (the table): with 128 of them five points are within chance,
  so that a single run proves little, and the share of many runs more.
- A short training hides what comes late: rates that become too large or too noisy, overfitting, and that
  a small initial rate only needs more time.
- The heat maps are of digits_conv, scikit-learn's digits, instead of cifar10_3c3d.
- Which code of hypergradient descent and L4 the paper used is not said; ours follow their papers.
- SVHN and CIFAR-100 here are random subsets of the files, in the standard format.
"""
    runs = {e.problem: e.cell.run for e in evidence.ends}
    rows = [
        (
            f"`{p}`",
            f"`{NETS[p]}`",
            f"{runs[p].epochs} ({paper_problem(p).paper_epochs})",
            runs[p].subset or "all",
            f"{runs[p].batch_size} ({paper_problem(p).batch_size})",
            _evaluated(evidence, runs[p]),
        )
        for p in NETS
        if p in runs
    ]
    head = (
        "net",
        "stands for",
        "epochs (the paper's)",
        "samples",
        "batch (the paper's)",
        "accuracy on",
    )
    yield from write_table(head, rows)


def _versions(evidence: Evidence) -> str:
    return ", ".join(evidence.origin.torch) or "of no record"


def _seeds(evidence: Evidence) -> str:
    """How many seeds the nets have, and how many the heat maps."""
    nets, maps = (
        max((len(cell.histories) for cell in cells), default=0)
        for cells in ([e.cell for e in evidence.ends], evidence.on("digits_conv"))
    )
    seeds = f"{nets} seed{'s' * (nets != 1)}"
    return (
        f"{seeds} for every net."
        if nets == maps
        else f"{seeds} for every net, {maps} for the heat maps."
    )


def _evaluated(evidence: Evidence, run: Run) -> str:
    """How many samples a training accuracy comes from: as many whole batches as for validation."""
    held = evidence.origin.sizes.get(run.problem, {}).get("valid", 0)
    size = run.batch_size or held or 1
    return str(held // size * size or held or "")


def write_commands() -> Iterator[str]:
    """The commands, with the forecast for a GPU."""
    full = forecast(FULL)
    yield f"""## Make it again

```bash
python -m probstep.bench.data fashion_mnist cifar10 cifar100 svhn --data-dir DATA
probstep run {PLAN} --data-dir DATA --dry-run        # a forecast for this machine
probstep run {PLAN} --data-dir DATA                  # resumes where it was stopped
probstep export runs/{PLAN} --curves --to benchmarks/records/{RECORDS[0]}
probstep run {BESIDE} --data-dir DATA                # what came after the paper
probstep export runs/{BESIDE} --curves --to benchmarks/records/{RECORDS[2]}
python benchmarks/paper_cost.py                           # on a machine that does nothing else
make results                                              # this page and its figures
```

To make only what is not on record yet, and add it:

```bash
probstep run {PLAN} --data-dir DATA --recorded benchmarks/records/{RECORDS[0]}
probstep export runs/{PLAN} --curves --add --to benchmarks/records/{RECORDS[0]}
```

## At full size

```bash
probstep run {FULL} --data-dir DATA --device cuda                        # on one GPU
probstep run {FULL} --data-dir DATA --device cuda --backend ray --address auto   # on a Ray cluster
```

{full.runs:,} runs: all nets at their own width, all data, the paper's epochs. Each machine of the
cluster needs probstep and the data, by the first command above. With `--device cuda` a run is a task
that has one GPU, without it one on a processor. No GPU was at hand to try it on.

**An estimate by arithmetic, not a measurement**, of what they would take there: {full.hours:,.0f} hours
on one {GPU} ({PEAK / 1e12:g} TFLOP/s in single precision by its data sheet, of which
{SHARE_OF_PEAK:.0%} are assumed to be reached, and at least {1000 * LEAST_SECONDS:g} ms per step), so
{full.hours / 8:,.0f} hours on eight of them.
"""
