"""What a block of Python needs around it: the names that it takes as given, and what it must have done.

A row of `SURROUNDINGS` belongs to the block of a page that begins with a certain line.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import probstep

from .commands import make_results, run
from .pages import blocks_of

Names = dict[str, Any]
BATCHES = 8  # a whole number of windows of 1, 2 and 4
SIZE = 6


@dataclass(frozen=True)
class Surroundings:
    """What one block needs.

    Args:
        names: Makes what the block takes as given; told how many micro-batches a step has.
        check: Looks at the names after the block has run.
        accumulates: The block belongs to a loop that may accumulate gradients.
        needs: A package without which it is skipped.
        ranks: On how many ranks it runs, each a process of its own; 0 is this process alone.
    """

    names: Callable[[int], Names]
    check: Callable[[Names], None]
    accumulates: bool = False
    needs: str | None = None
    ranks: int = 0


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 3))


def samples() -> TensorDataset:
    x = torch.randn(BATCHES * SIZE, 5, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, (x[:, 0] > 0).long())


def loop(count: int = 1) -> Names:
    """What the first block of the README needs."""
    batches = DataLoader(samples(), batch_size=SIZE)
    return {
        "torch": torch,
        "probstep": probstep,
        "model": network(),
        "batches": batches,
        "loss_fn": nn.functional.cross_entropy,
    }


def loop_with_optimizer(count: int = 1) -> Names:
    names = loop()
    model, (x, y) = names["model"], next(iter(names["batches"]))
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-6))
    return names | {"opt": opt, "x": x, "y": y}


def bare_optimizer(count: int = 1) -> Names:
    names = loop_with_optimizer()
    return names | {"optimizer": names["opt"].base}


def micro_batches(count: int) -> Names:
    names = loop_with_optimizer()
    parts = [batch for _, batch in zip(range(count), names["batches"], strict=False)]
    model, loss_fn = names["model"], names["loss_fn"]
    return names | {"steps": [parts], "count": count, "loss_of": lambda x, y: loss_fn(model(x), y)}


def lightning_loop(count: int) -> Names:
    from lightning.pytorch import LightningModule, Trainer

    class Classifier(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch, batch_idx):
            x, y = batch
            return nn.functional.cross_entropy(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    quiet = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "accumulate_grad_batches": count,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    batches = DataLoader(samples(), batch_size=SIZE)
    return {
        "Trainer": functools.partial(Trainer, **quiet),
        "module": Classifier(),
        "batches": batches,
    }


def transformers_trainer(count: int) -> Names:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    config = LlamaConfig(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
    )
    args = TrainingArguments(
        output_dir="out",
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        num_train_epochs=1,
        per_device_train_batch_size=SIZE,
        gradient_accumulation_steps=count,
        use_cpu=True,
        dataloader_pin_memory=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    rows = (torch.arange(BATCHES * SIZE)[:, None] + torch.arange(6)) % 8
    data = [{"input_ids": row, "labels": row} for row in rows]
    return {"trainer": Trainer(LlamaForCausalLM(config), args, train_dataset=data)}


def transformers_parts(count: int) -> Names:
    """What a Trainer is made of."""
    from transformers import Trainer

    from probstep.integrations.transformers import adapt

    trainer = transformers_trainer(count)["trainer"]
    made_of = {"model": trainer.model, "args": trainer.args, "data": trainer.train_dataset}
    return made_of | {"Trainer": Trainer, "adapt": adapt, "probstep": probstep}


def accelerate_loop(count: int) -> Names:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()  # of another test
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=count)
    names = loop()
    return names | {"accelerator": accelerator, "loader": names["batches"]}


def tensorboard_writer(count: int) -> Names:
    from torch.utils.tensorboard import SummaryWriter

    writers: list[SummaryWriter] = []

    def opened(folder: str) -> SummaryWriter:
        writers.append(SummaryWriter(folder))
        return writers[-1]

    return loop_with_optimizer() | {"SummaryWriter": opened, "writers": writers}


def other_loggers(count: int) -> Names:
    """Stand-ins for packages that send what they are told to a server."""
    logged: list[dict[str, float]] = []

    def take(numbers: dict[str, float], step: int | None = None) -> None:
        logged.append(numbers)

    names = {
        name: SimpleNamespace(log=take, log_metrics=take) for name in ("wandb", "mlflow", "trackio")
    }
    return loop_with_optimizer() | names | {"logged": logged}


def records(count: int) -> Names:
    """An output directory, as commands of the page leave it, and what reads it."""
    from glob import glob

    import duckdb
    import pandas as pd

    make_results(Path("results"))
    return {"duckdb": duckdb, "pandas": pd, "glob": glob}


def export(count: int) -> Names:
    """The file that a command of the page writes, beside its output directory."""
    names = records(count)
    run("probstep export results --parquet --to results.parquet")
    return names


def nothing(count: int) -> Names:
    return {}


def loop_of_a_rank(count: int) -> Names:
    return loop() | {"network": network}


def after_blocks(page: str, count: int) -> Callable[[int], Names]:
    """What the first blocks of a page leave for the next one."""

    def run_them(_: int) -> Names:
        names: Names = {}
        blocks = [block for block in blocks_of(page) if block.language == "python"]
        for block in blocks[:count]:
            block.run(names)
        return names

    return run_them


def only_torch(count: int) -> Names:
    return {"torch": torch}


def is_adapting(optimizer: probstep.ProbStep, steps: int | None = None) -> None:
    """Assert that the first step was searched, that every probe was of the same function."""
    numbers = optimizer.metrics()
    assert numbers["probes/search"] == 1
    assert numbers["probes/unpaired"] == 0
    assert steps is None or numbers["steps"] == steps
    assert numbers["loss_after"] < numbers["loss"]
    assert optimizer.effective_lr[0] > 1e-4  # from 1e-6, and from torch's defaults


def opt_adapts(names: Names) -> None:
    is_adapting(names["opt"])


def prepared_optimizer_adapts(names: Names) -> None:
    count = names["accelerator"].gradient_accumulation_steps
    is_adapting(names["optimizer"].optimizer, steps=BATCHES // count)


def trainer_fits(names: Names) -> None:
    trainer = names["trainer"]
    trainer.fit(names["module"], names["batches"])
    is_adapting(trainer.optimizers[0], steps=BATCHES // trainer.accumulate_grad_batches)


def watched_loop(count: int = 1) -> Names:
    names = loop()
    opt = probstep.watch(torch.optim.SGD(names["model"].parameters(), lr=1e-3))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=100)
    return names | {"opt": opt, "scheduler": scheduler}


def loop_with_bare_optimizer(count: int = 1) -> Names:
    names = loop()
    return names | {"optimizer": torch.optim.SGD(names["model"].parameters(), lr=1e-3)}


def rate_is_the_suggested(names: Names) -> None:
    found = names["found"]
    (group,) = names["optimizer"].param_groups
    assert abs(group["lr"] / found.rate - 1) < 1e-6
    assert found.low < found.rate < found.high


def watched_lightning_loop(count: int) -> Names:
    return lightning_loop(count) | {"probstep": probstep}


def is_gauged(optimizer: probstep.ProbStep) -> None:
    """Assert that the rate was seen to be far too low, and left alone."""
    assert optimizer.gauge.high < 1
    assert optimizer.scale == 1.0
    assert optimizer.metrics()["probes/unpaired"] == 0


def opt_is_gauged(names: Names) -> None:
    is_gauged(names["opt"])


def trainer_is_gauged(names: Names) -> None:
    is_gauged(names["trainer"].optimizers[0])


def trainer_has_adapted(names: Names) -> None:
    trainer = names["trainer"]
    steps = BATCHES // trainer.args.gradient_accumulation_steps
    is_adapting(trainer.optimizer.optimizer, steps=steps)


def text_logger(count: int = 1) -> Names:
    """A loop with a logger that keeps what it is told."""
    logged: list[tuple[int, str]] = []
    names = loop_with_optimizer()
    return names | {"logged": logged, "log": lambda step, text: logged.append((step, text))}


def trained_loop(count: int = 1) -> Names:
    names = loop_with_optimizer()
    for _ in range(3):
        take_a_step(names)
    return names


def history_was_shown(names: Names) -> None:
    assert names["history"].steps == (1, 2, 3)
    assert Path("run.html").read_text("utf-8").startswith("<!doctype html>")


def events_were_logged_once(names: Names) -> None:
    for _ in range(3):
        take_a_step(names)
    ((step, text),) = names["logged"]
    assert step == 1
    assert text.startswith("search at step 1")


def take_a_step(names: Names) -> None:
    names["opt"].step(lambda: names["loss_fn"](names["model"](names["x"]), names["y"]))


def a_step_adapts(names: Names) -> None:
    take_a_step(names)
    opt_adapts(names)


def events_are_written(names: Names) -> None:
    take_a_step(names)
    names["writers"][0].close()
    assert list(Path("runs/1").glob("events.*"))


def all_loggers_are_told(names: Names) -> None:
    take_a_step(names)
    first, second, third = names["logged"]
    assert first == {f"probstep/{name}": number for name, number in second.items()}
    assert second.keys() == third.keys() == names["opt"].metrics().keys()


def recurrence_was_proved(names: Names) -> None:
    numbers = names["opt"].metrics()
    assert numbers["probes/search"] == 1
    assert numbers["probes/unpaired"] == 0


def frame_has_a_row_per_epoch(names: Names) -> None:
    assert set(names["frame"]["epoch"]) == {0, 1}


def schedule_is_early_then_seldom(names: Names) -> None:
    schedule = names["EarlyThenSeldom"]()
    due = [step for step in range(400) if schedule.is_due(step)]
    assert due == [*range(200), 200, 250, 300, 350]
    probstep.ProbStep(torch.optim.SGD([nn.Parameter(torch.zeros(1))]), probe=schedule)


def method_builds_an_optimizer(names: Names) -> None:
    optimizer = names["METHODS"]["mine"].build([nn.Parameter(torch.zeros(1))], 0.1, friction=0.2)
    assert optimizer.param_groups[0]["momentum"] == 0.8


def problem_was_trained(names: Names) -> None:
    assert names["task"].evaluate("test").accuracy > 0.2


def method_was_trained(names: Names) -> None:
    assert names["scores"].accuracy > 0.2
    assert Path("method.pt").exists()


def nothing_is_wrapped(names: Names) -> None:
    assert isinstance(names["opt"], torch.optim.Adam)


def training_found_a_rate(names: Names) -> None:
    assert names["losses"][-1] < 0.7 * names["losses"][0]
    assert names["rates"][0] > 1e-4  # from 1e-7, within the first step
    opt_adapts(names)


def rate_is_capped(names: Names) -> None:
    assert not names["opt"].is_frozen
    assert names["capped"].max_lr == 0.01


def tagger_was_trained(names: Names) -> None:
    tokens = torch.arange(16)[None]
    names["model"].eval()
    assert names["loss_of"](names["model"], tokens, tokens % 4) < 0.5


def tagger_was_tuned(names: Names) -> None:
    assert names["losses"][-1] < 0.5 * names["losses"][0]
    head, body = names["opt"].effective_lr
    assert head == pytest.approx(10 * body)
    assert head <= 0.02


def small_batches_trained(names: Names) -> None:
    assert names["after"] < 0.7 * names["before"]


def checkpoint_was_resumed(names: Names) -> None:
    assert names["its"].scale == names["opt"].scale


def plain_has_the_rate(names: Names) -> None:
    assert names["plain"].param_groups[0]["lr"] > 1e-3
    assert isinstance(names["plain"], torch.optim.Adam)


def rate_rises_and_falls(names: Names) -> None:
    rates = names["rates"]
    assert rates[1] < max(rates[5:40])
    assert rates[-1] < 0.1 * max(rates)


def classes_make_probsteps(names: Names) -> None:
    a_step_adapts(names)
    made = names["Careful"](names["model"].parameters(), weight_decay=0.1)
    assert made.max_lr == 0.01


def weights_are_averaged(names: Names) -> None:
    opt_adapts(names)
    assert names["average"].n_averaged == BATCHES


def trainer_fits_and_averages(names: Names) -> None:
    trainer_fits(names)
    assert names["average"]._average_model.n_averaged == BATCHES


def trainer_has_adapted_and_averaged(names: Names) -> None:
    trainer_has_adapted(names)
    assert names["average"].n_averaged == BATCHES


def horizon_is_set(names: Names) -> None:
    assert names["opt"].horizon == 10_000
    a_step_adapts(names)


def with_probstep(make: Callable[[int], Names]) -> Callable[[int], Names]:
    """The same names, and the package."""
    return lambda count: make(count) | {"probstep": probstep}


FIRST = Surroundings(loop, opt_adapts)


def both_are_found(names: Names) -> None:
    rates = names["opt"].effective_lr
    assert set(rates.names) == {"Muon", "AdamW"}
    assert all(rate not in (0.0, 1e-3) for rate in rates)


def opt_has_a_scale_per_group(names: Names) -> None:
    assert names["opt"].effective_lr.names == ["Adam/0", "Adam/1"]


def two_checkpoints(count: int = 1) -> Names:
    model = nn.Linear(2, 1)
    bases = [torch.optim.Muon([model.weight]), torch.optim.AdamW([model.bias])]
    saved = [base.state_dict() for base in bases]
    for state in saved:
        state["param_groups"][0]["lr"] = 0.125
    return {
        "opt": probstep.ProbStep(bases),
        "muon_state": saved[0],
        "adamw_state": saved[1],
    }


def both_were_loaded(names: Names) -> None:
    assert [group["lr"] for group in names["opt"].param_groups] == [0.125, 0.125]


SURROUNDINGS: dict[tuple[str, str], Surroundings] = {
    ("README.md", "opt = torch.optim.Adam("): Surroundings(loop, nothing_is_wrapped),
    ("README.md", "import probstep"): FIRST,
    ("README.md", "opt.zero_grad()"): Surroundings(loop_with_optimizer, opt_adapts),
    ("docs/index.md", "import probstep"): FIRST,
    ("docs/first-training.md", "import torch"): Surroundings(nothing, training_found_a_rate),
    ("docs/first-training.md", "numbers = opt.metrics()"): Surroundings(
        after_blocks("docs/first-training.md", 1), opt_adapts
    ),
    ("docs/first-training.md", "opt.freeze()"): Surroundings(
        after_blocks("docs/first-training.md", 1), rate_is_capped
    ),
    ("docs/fine-tuning.md", "import torch"): Surroundings(nothing, tagger_was_trained),
    ("docs/fine-tuning.md", "import probstep"): Surroundings(
        after_blocks("docs/fine-tuning.md", 1), tagger_was_tuned
    ),
    ("docs/fine-tuning.md", "from probstep.integrations.transformers"): Surroundings(
        transformers_trainer, trainer_has_adapted, needs="transformers"
    ),
    ("docs/small-batches.md", "import torch"): Surroundings(nothing, small_batches_trained),
    ("docs/small-batches.md", "from probstep.integrations.window import Window"): Surroundings(
        micro_batches, opt_adapts, accumulates=True
    ),
    ("docs/many-ranks.md", "from torch.nn.parallel"): Surroundings(
        loop_of_a_rank, opt_adapts, ranks=2
    ),
    ("docs/checkpoints.md", "import torch"): Surroundings(nothing, checkpoint_was_resumed),
    ("docs/checkpoints.md", "plain = opt.base"): Surroundings(
        after_blocks("docs/checkpoints.md", 1), plain_has_the_rate
    ),
    ("docs/schedules.md", "import torch"): Surroundings(nothing, rate_rises_and_falls),
    ("docs/robust.md", "opt = probstep.ProbStep("): Surroundings(
        loop_with_optimizer, a_step_adapts
    ),
    ("docs/several.md", "matrices = "): Surroundings(loop, both_are_found),
    ("docs/several.md", "groups = "): Surroundings(loop, opt_has_a_scale_per_group),
    ("docs/several.md", "opt.base.bases[0]"): Surroundings(two_checkpoints, both_were_loaded),
    ("docs/scale.md", "@dataclass(frozen=True)"): Surroundings(
        lambda count: {"dataclass": dataclass}, schedule_is_early_then_seldom
    ),
    ("docs/problems.md", "import torch"): Surroundings(nothing, problem_was_trained),
    ("docs/methods.md", "import torch"): Surroundings(nothing, method_was_trained),
    ("docs/methods.md", "from probstep.bench.methods import Method"): Surroundings(
        only_torch, method_builds_an_optimizer
    ),
    ("docs/bench.md", 'duckdb.sql("select method'): Surroundings(
        records, frame_has_a_row_per_epoch
    ),
    ("docs/bench.md", 'duckdb.sql("select settings'): Surroundings(
        export, frame_has_a_row_per_epoch, needs="pyarrow"
    ),
    ("docs/checks.md", "opt = probstep.ProbStep("): Surroundings(bare_optimizer, a_step_adapts),
    ("docs/history.md", "history = opt.history()"): Surroundings(trained_loop, history_was_shown),
    ("docs/history.md", "told = 0"): Surroundings(text_logger, events_were_logged_once),
    ("docs/state.md", "import torch"): Surroundings(nothing, recurrence_was_proved),
    ("docs/averages.md", "from torch.optim.swa_utils import AveragedModel"): Surroundings(
        loop, weights_are_averaged
    ),
    ("docs/averages.md", "from lightning.pytorch.callbacks import WeightAveraging"): Surroundings(
        with_probstep(lightning_loop), trainer_fits_and_averages, needs="lightning"
    ),
    ("docs/averages.md", "from transformers import TrainerCallback"): Surroundings(
        with_probstep(transformers_trainer), trainer_has_adapted_and_averaged, needs="transformers"
    ),
    ("docs/averages.md", "opt = probstep.ProbStep("): Surroundings(bare_optimizer, horizon_is_set),
    ("docs/trainers.md", "built = (probstep.AdamW"): Surroundings(
        transformers_parts, trainer_has_adapted, accumulates=True, needs="transformers"
    ),
    ("docs/trainers.md", "opt = probstep.AdamW("): Surroundings(
        loop_with_optimizer, classes_make_probsteps
    ),
    ("docs/trainers.md", "from probstep.integrations.lightning"): Surroundings(
        lightning_loop, trainer_fits, accumulates=True, needs="lightning"
    ),
    ("docs/trainers.md", "from probstep.integrations.transformers"): Surroundings(
        transformers_trainer, trainer_has_adapted, accumulates=True, needs="transformers"
    ),
    ("docs/trainers.md", "from probstep.integrations.accelerate"): Surroundings(
        accelerate_loop, prepared_optimizer_adapts, accumulates=True, needs="accelerate"
    ),
    ("docs/trainers.md", "from probstep.integrations.tensorboard"): Surroundings(
        tensorboard_writer, events_are_written, needs="tensorboard"
    ),
    ("docs/suggest.md", "found = probstep.suggest("): Surroundings(
        loop_with_bare_optimizer, rate_is_the_suggested
    ),
    ("docs/watch.md", "opt = probstep.watch("): Surroundings(loop, opt_is_gauged),
    ("docs/watch.md", "for x, y in batches"): Surroundings(watched_loop, opt_is_gauged),
    ("docs/watch.md", "from probstep.integrations.lightning"): Surroundings(
        watched_lightning_loop, trainer_is_gauged, accumulates=True, needs="lightning"
    ),
    ("docs/trainers.md", "# Weights & Biases"): Surroundings(other_loggers, all_loggers_are_told),
}


def surroundings_of(page: str, opening: str) -> Surroundings | None:
    """Return the row of a block; None without one."""
    rows = [
        row for (of, start), row in SURROUNDINGS.items() if of == page and opening.startswith(start)
    ]
    assert len(rows) <= 1, f"{page}: more than one row begins as {opening!r}"
    return rows[0] if rows else None
