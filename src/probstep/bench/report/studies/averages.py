"""What averages and a horizon are worth: docs/averages.md, by the records of benchmarks/averages.py."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from probstep.bench.means import geometric_mean
from probstep.bench.plans import list_runs, read_plan
from probstep.bench.report.numbers.cells import Cell, group_by, make_cells
from probstep.bench.report.numbers.histories import History
from probstep.bench.report.numbers.summaries import read_summaries
from probstep.bench.report.page.markdown import write_table

RECORDS = ("averages.jsonl",)
METRIC = "train_loss"
OURS, FIXED = "default rule", "fixed"
WAYS = {
    "constant": "last weights",
    "average": "their average",
    "linear_end": "decay in the last 20 %",
    "linear": "decay over all steps",
}
TUNED = (FIXED, "linear")  # what everything is compared with

Place = tuple[str, str]  # problem, optimizer
Way = tuple[str, str]  # ours or fixed, and which weights


@dataclass(frozen=True)
class Study:
    """The records of the plan."""

    histories: Sequence[History]

    @cached_property
    def losses(self) -> Mapping[Way, Mapping[Place, float]]:
        """The final loss of each way on each problem and optimizer; of fixed rates that of the best."""
        cells = make_cells(self.histories)
        groups: dict[tuple[Way, Place], list[Cell]] = {}
        for (problem, base), found in group_by(cells, "problem", "base").items():
            for cell in found:
                groups.setdefault((way_of(cell), (problem, base)), []).append(cell)
        losses: dict[Way, dict[Place, float]] = {}
        for (way, place), found in groups.items():
            ends = [end for cell in found if (end := cell.judged(METRIC)) is not None]
            if ends:
                losses.setdefault(way, {})[place] = min(ends)
        return losses


def way_of(cell: Cell) -> Way:
    """Whose rate it is, and what becomes of it."""
    kind, _, averaged = cell.column.partition(", ")
    return kind, "average" if averaged else cell.schedule


def read_study(records: Path) -> Study:
    """The study in a folder of records."""
    return Study(read_summaries(records / RECORDS[0]))


def write_study(study: Study) -> str:
    """The page."""
    return "\n".join(_page(study)).rstrip() + "\n"


def _page(study: Study) -> Iterator[str]:
    yield HOW_TO
    planned = len(list_runs(read_plan("averages")))
    minutes = round(planned * fmean(history.seconds for history in study.histories) / 60)
    seeds = len({history.run.seed for history in study.histories})
    yield f"""## What they are worth

{len(study.histories)} of the {planned} runs of the plan `averages` are on record, with {seeds} of
its 3 seeds; what is missing is blank. Each has at least a thousand steps, and no schedule but
those named. *Ours* is the default rule, as it was in version 0.2.0, from an initial rate of 1e-3,
*fixed* the best of a grid of rates, chosen for each way on its own. To make it again:
`python benchmarks/averages.py`, at most {minutes} minutes of one core, then `probstep page averages`.

Geometric means of the final training loss, over that of the last weights without a schedule, and over
that of the best fixed rate under a linear decay: what somebody reaches who knows the horizon and
tunes the rate for it. A loss below 1 % of the untrained model's counts as 1 %.
"""
    yield from _means(study)
    yield "The final training losses themselves:\n"
    yield from _losses(study)


def _means(study: Study) -> Iterator[str]:
    rows = []
    for kind, name in ((OURS, "ours"), (FIXED, "fixed")):
        for way, said in WAYS.items():
            pair = (
                _ratio(study, (kind, way), (kind, "constant")),
                _ratio(study, (kind, way), TUNED),
            )
            rows.append([name, said, *pair])
    head = ["rate", "weights", "over the last weights", "over a tuned linear decay"]
    yield from write_table(head, rows)


def _ratio(study: Study, way: Way, other: Way) -> str:
    """The geometric mean over the places that have both."""
    ours, theirs = study.losses.get(way, {}), study.losses.get(other, {})
    ratios = [ours[place] / theirs[place] for place in ours if place in theirs]
    return f"{geometric_mean(ratios):.3f}" if ratios else ""


def _losses(study: Study) -> Iterator[str]:
    ways = [(kind, way) for kind in (OURS, FIXED) for way in WAYS]
    places = sorted({place for losses in study.losses.values() for place in losses})
    names = {OURS: "ours", FIXED: "fixed"}
    head = ["problem", "optimizer", *(f"{names[kind]}, {WAYS[way]}" for kind, way in ways)]
    rows = [
        [*place, *(_spell(study.losses.get(way, {}).get(place)) for way in ways)]
        for place in places
    ]
    yield from write_table(head, rows)


def _spell(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4g}"


HOW_TO = """# Averages, and a horizon

<!-- Made by `probstep page averages` from benchmarks/records; change it there. -->

Whoever trains at a constant rate ends in its noise. There are two ways out, and neither asks for a
rate.

## An average of the weights

It needs no horizon. Torch has the machinery; `probstep.polynomial_average(8)` is the one piece that
it lacks:

```python
from torch.optim.swa_utils import AveragedModel

average = AveragedModel(model, multi_avg_fn=probstep.polynomial_average(8))
opt = probstep.AdamW(model.parameters())
for x, y in batches:
    opt.step(lambda x=x, y=y: loss_fn(model(x), y))
    average.update_parameters(model)
```

In step $t$ the newest weights count $(\\eta + 1)/(\\eta + t)$, here with $\\eta = 8$: the average
is over about the last ninth of the training, whenever one looks (O. Shamir, T. Zhang. Stochastic
gradient descent for non-smooth optimization. ICML 2013,
[arXiv:1212.1824](https://arxiv.org/abs/1212.1824)). For an exponential average give torch's own
`get_ema_multi_avg_fn(0.999)`; its length is in steps and has to be chosen for the training.

- A checkpoint of `average.state_dict()` goes on bit for bit.
- BatchNorm's statistics are not averaged: refresh them with
  `torch.optim.swa_utils.update_bn(loader, average)`, or give `use_buffers=True`.
- On several ranks every rank averages its own weights; they are the same, and so are the averages.
- Average weights of 32 bits: the steps of an average become smaller than the rounding of 16.

Lightning has a callback for it:

```python
from lightning.pytorch.callbacks import WeightAveraging

from probstep.integrations.lightning import LearningRateAdaptation

average = WeightAveraging(multi_avg_fn=probstep.polynomial_average(8))
trainer = Trainer(callbacks=[LearningRateAdaptation(), average])
```

Transformers has not; three lines of a callback do it:

```python
from transformers import TrainerCallback
from torch.optim.swa_utils import AveragedModel

from probstep.integrations.transformers import adapt

average = AveragedModel(trainer.model, multi_avg_fn=probstep.polynomial_average(8))


class Averaging(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        average.update_parameters(trainer.model)


trainer.add_callback(Averaging())
adapt(trainer).train()
```

## A horizon

If you know how many steps training has, say so: the rate comes down to zero by itself, in a
straight line over the last 20 % of the steps. It multiplies whatever a schedule of yours makes of
the rate, so that a warm-up goes with it.

```python
opt = probstep.ProbStep(optimizer, horizon=10_000)
```

Steps are counted from the first of the training, and a checkpoint carries the count. Beyond the
horizon the small rate of the last step stays, and a warning says so; `opt.horizon = steps` moves
it. `LearningRateAdaptation(horizon=True)` and `adapt(trainer, horizon=True)` take the number from
the trainer (Transformers with `lr_scheduler_type="constant"` or `"constant_with_warmup"`: the
others decay by themselves).
"""
