"""Mistakes that calling code makes, as a table; each is run through every way in which it can occur.

A mistake is a loss function that is not the same when it is called again, something that is done to
the gradients behind ProbStep's back, a rate of 0, or a wrong call. A way is how a training loop hands
its loss to ProbStep.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from probstep import NotTheSameLoss, ProbStep
from probstep.integrations.window import Window

from .cases import Case, batches, loss_of, plain_network

Loss = Callable[[nn.Module, Any], Tensor]
DATA = batches(6)

# Loss functions that are another one when they are called again


def draws_its_batch() -> Loss:
    source = itertools.cycle(DATA[1:])
    return lambda model, _: loss_of(model, next(source))


def binds_late() -> Loss:
    seen = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        seen.append(batch)
        return loss_of(model, batch if len(seen) == 1 else DATA[-1])

    return loss


def first_times(factor: float) -> Callable[[], Loss]:
    def make() -> Loss:
        calls = itertools.count()
        return lambda model, batch: loss_of(model, batch) * (1 if next(calls) else factor)

    return make


def adds_noise_of(
    draw: Callable[[Any], Tensor], generator: Callable[[], Any]
) -> Callable[[], Loss]:
    def make() -> Loss:
        own = generator()
        return lambda model, batch: loss_of(model, (batch[0] + draw(own), batch[1]))

    return make


def carries_a_state() -> Loss:
    carried = [torch.zeros(6)]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        carried[0] = 0.5 * carried[0] + batch[0].mean(0)
        return loss_of(model, (batch[0] + carried[0], batch[1]))

    return loss


def drops_out_after_a_loader() -> Loss:
    seen = set()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        if id(batch) not in seen:  # a data loader draws, too, and only once
            seen.add(id(batch))
            torch.rand(1)
        return loss_of(model, (nn.functional.dropout(batch[0]), batch[1]))

    return loss


def returns_the_first(kept: Callable[[Tensor], Tensor]) -> Callable[[], Loss]:
    def make() -> Loss:
        first: dict[int, Tensor] = {}

        def loss(model: nn.Module, batch: Any) -> Tensor:
            key = id(batch[0])
            if key in first:
                return kept(first[key])
            first[key] = loss_of(model, batch)
            return first[key]

        return loss

    return make


# What is done to gradients


def nothing(params: Iterable[Tensor]) -> None:
    """Leave them alone."""


def times(factor: float) -> Callable[[Iterable[Tensor]], None]:
    def spoil(params: Iterable[Tensor]) -> None:
        for p in params:
            if p.grad is not None:
                p.grad *= factor

    return spoil


def clip(params: Iterable[Tensor]) -> None:
    nn.utils.clip_grad_norm_(params, 0.1)


def drop(params: Iterable[Tensor]) -> None:
    """Leave them as if nobody had called backward."""
    for p in params:
        p.grad = None


# How the optimizer is called


def clear(opt: Any) -> None:
    opt.zero_grad()


def never_clear(opt: Any) -> None:
    """Let the gradients of one step be added to those of the step before."""


def step(opt: Any, _: Tensor | None, given: dict[str, Any]) -> None:
    opt.step(**given)


def step_with_the_loss(opt: Any, loss: Tensor | None, given: dict[str, Any]) -> None:
    opt.step(given["closure"]() if loss is None else loss)


def step_of_base(opt: Any, _: Tensor | None, given: dict[str, Any]) -> None:
    (opt if isinstance(opt, ProbStep) else opt.optimizer).base.step(**given)


@dataclass(frozen=True)
class Mistake:
    """A row.

    Args:
        says: What the message must match.
        ways: The ways in which it can occur.
        loss: Makes the loss function of one run.
        spoil: What happens to the gradients after backward.
        clear: How the gradients are cleared before a closure's backward.
        step: How the optimizer is called: with the loss, if the loop has it, and with what is due.
        rate: The rate of the optimizer inside; None for its usual one.
        error: What is raised; None if it is warned of.
        bare: What the message must match in a bare step(), where loss and re-evaluation come from one
            function, so that only the slope can tell: a warning. None: as in the other ways.
    """

    says: str
    ways: tuple[str, ...]
    loss: Callable[[], Loss] = lambda: loss_of
    spoil: Callable[[Iterable[Tensor]], None] = nothing
    clear: Callable[[Any], None] = clear
    step: Callable[[Any, Tensor | None, dict[str, Any]], None] = step
    rate: float | None = None
    error: type[Exception] | None = NotTheSameLoss
    bare: str | None = None

    def expected(self, way: str) -> tuple[str, type[Exception] | None]:
        """Return what the message must match in a way, and what is raised."""
        return (self.bare, None) if way == "bare" and self.bare else (self.says, self.error)


CLOSURES = ("closure", "closure with backward")
GIVEN = ("loss and reevaluate", "handed over", "bare")
WINDOWS = ("window", "accelerate")
TRAINERS = ("lightning", "transformers")
OWN_LOOP = CLOSURES + GIVEN + WINDOWS
AFTER_BACKWARD = ("closure with backward", *GIVEN, *WINDOWS, *TRAINERS)

MISTAKES = {
    "the closure draws its batch": Mistake(
        "1. it draws a new batch each time.*draw the batch first", OWN_LOOP, draws_its_batch
    ),
    "a lambda binds late": Mistake(
        "1. a lambda in a loop binds late.*lambda x=x, y=y",
        GIVEN + WINDOWS,
        binds_late,
        bare="another function's: a lambda that binds late",
    ),
    "the loss is divided once": Mistake(
        "1. they differ by a factor of 4.*divided or weighted in one place only",
        OWN_LOOP,
        first_times(0.25),
        bare="1. backward saw the loss divided by 4",
    ),
    "an own torch.Generator": Mistake(
        "2. random numbers come from a generator of your own",
        OWN_LOOP + TRAINERS,
        adds_noise_of(
            lambda own: torch.randn(6, generator=own), lambda: torch.Generator().manual_seed(0)
        ),
    ),
    "numpy's default_rng": Mistake(
        "2. random numbers come from a generator of your own",
        OWN_LOOP + TRAINERS,
        adds_noise_of(
            lambda own: torch.tensor(own.normal(size=6), dtype=torch.float32),
            lambda: np.random.default_rng(0),
        ),
    ),
    "dropout outside forward_pass": Mistake(
        "drew other random numbers.*with opt.forward_pass",
        ("loss and reevaluate", "handed over"),
        drops_out_after_a_loader,
        error=None,
    ),
    "a hidden state is carried": Mistake(
        "the model carries something from one call to the next",
        OWN_LOOP + TRAINERS,
        carries_a_state,
    ),
    "the old tensor is returned": Mistake(
        "the very tensor from before|a tensor that was kept",
        ("closure", *GIVEN, *WINDOWS),
        returns_the_first(lambda loss: loss),
    ),
    "a number from before is returned": Mistake(
        "never changed: it does not depend on the parameters",
        OWN_LOOP,
        returns_the_first(lambda loss: torch.tensor(loss.item())),
    ),
    "a GradScaler is not asked to step": Mistake(
        "times those of the loss.*GradScaler that was not asked to step",
        ("closure with backward", *GIVEN, *WINDOWS),
        spoil=times(65536.0),
        error=None,
    ),
    "gradients of four micro-batches are summed": Mistake(
        r"about (4|4\.0\d*|3\.9\d*) times those of the loss.*the sum of 4 micro-batches",
        AFTER_BACKWARD,
        spoil=times(4.0),
        error=None,
    ),
    "gradients are divided by four": Mistake(
        r"about 0\.2[45]\d* times those of the loss.*divided by 4",
        AFTER_BACKWARD,
        spoil=times(0.25),
        error=None,
    ),
    "gradients are clipped elsewhere": Mistake(
        r"clipped by something else: use opt.clip_grad_norm_",
        AFTER_BACKWARD,
        spoil=clip,
        error=None,
    ),
    "gradients are reversed": Mistake(
        r"about -(1|1\.0\d*|0\.99\d*) times those of the loss",
        GIVEN,
        spoil=times(-1.0),
        error=None,
    ),
    "nobody calls backward": Mistake(
        "No parameter of the optimizer has a gradient.*Was backward called on this loss",
        (*GIVEN, *WINDOWS, "transformers"),  # Lightning calls it
        spoil=drop,
        error=None,
    ),
    "nobody clears the gradients": Mistake(
        "they pile up.*opt.zero_grad\\(\\) at the start of the closure",
        ("closure with backward",),
        clear=never_clear,
        error=None,
    ),
    "the rate is 0": Mistake(
        "lr is 0 in every group.*Give any positive lr",
        OWN_LOOP + TRAINERS,
        rate=0.0,
        error=None,
    ),
    "step is given the loss": Mistake(
        "takes a function that computes the loss, not a tensor.*step\\(loss=loss, reevaluate=",
        OWN_LOOP,
        step=step_with_the_loss,
        error=TypeError,
    ),
    "the optimizer inside is called": Mistake(
        r"\.step\(\) was called directly, not through the ProbStep around it",
        (*CLOSURES, "handed over", "bare", *WINDOWS),
        step=step_of_base,
        error=None,
    ),
}


@dataclass(frozen=True)
class Run:
    """One training with one mistake, three steps long.

    Args:
        model: What is trained.
        loss: Its loss.
        mistake: What else is done wrong.
        settings: Those of ProbStep.
    """

    model: nn.Module
    loss: Loss
    mistake: Mistake
    settings: dict[str, Any]

    def base(self, case: Case) -> torch.optim.Optimizer:
        rate = self.mistake.rate
        own = case if rate is None else replace(case, settings={**case.settings, "lr": rate})
        return own.make(self.model.parameters())

    def optimizer(self, case: Case) -> ProbStep:
        return ProbStep(self.base(case), **self.settings)

    def step(self, opt: Any, known: Tensor | None = None, **given: Any) -> None:
        self.mistake.step(opt, known, given)

    def spoil(self) -> None:
        self.mistake.spoil(self.model.parameters())

    def backward(self, loss: Tensor) -> None:
        loss.backward()
        self.spoil()


def with_closure(run: Run, case: Case, _: Path) -> None:
    opt = run.optimizer(case)
    for batch in DATA[:3]:
        run.step(opt, closure=lambda batch=batch: run.loss(run.model, batch))


def with_backward_closure(run: Run, case: Case, _: Path) -> None:
    opt = run.optimizer(case)
    for batch in DATA[:3]:

        def closure(batch: Any = batch) -> Tensor:
            run.mistake.clear(opt)
            loss = run.loss(run.model, batch)
            if loss.requires_grad:
                run.backward(loss)
            return loss

        run.step(opt, closure=closure)


def with_loss(run: Run, case: Case, _: Path) -> None:
    opt = run.optimizer(case)
    for batch in DATA[:3]:
        opt.zero_grad()
        loss = run.loss(run.model, batch)
        run.backward(loss)
        run.step(opt, loss, loss=loss, reevaluate=lambda batch=batch: run.loss(run.model, batch))


def handed_over(run: Run, case: Case, _: Path) -> None:
    opt = run.optimizer(case)
    for batch in DATA[:3]:
        opt.zero_grad()
        loss = run.loss(run.model, batch)
        run.backward(loss)
        opt.reevaluate_with(lambda batch=batch: run.loss(run.model, batch), loss=loss)
        run.step(opt, loss)


def bare(run: Run, case: Case, _: Path) -> None:
    opt = run.optimizer(case)
    for batch in DATA[:3]:
        opt.zero_grad()
        loss = run.loss(run.model, batch)
        run.backward(loss)
        opt.reevaluate_with(lambda batch=batch: run.loss(run.model, batch))
        run.step(opt, loss)


def with_window(run: Run, case: Case, _: Path) -> None:
    opt = run.optimizer(case)
    window = Window(opt)
    for batch in DATA[:3]:
        opt.zero_grad()
        loss = window.run(lambda batch=batch: run.loss(run.model, batch))
        run.backward(loss)
        run.step(opt, loss)


def with_accelerate(run: Run, case: Case, _: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState, GradientState, PartialState

    from probstep.integrations.accelerate import track

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    accelerator = accelerate.Accelerator(cpu=True)
    opt = accelerator.prepare(run.optimizer(case))
    window = track(accelerator, opt)
    for batch in DATA[:3]:
        with accelerator.accumulate(run.model):
            loss = window.run(lambda batch=batch: run.loss(run.model, batch))
            accelerator.backward(loss)
            run.spoil()
            run.step(opt, loss)
            opt.zero_grad()


def with_lightning(run: Run, case: Case, _: Path) -> None:
    pytest.importorskip("lightning")
    from lightning.pytorch import LightningModule, Trainer

    from probstep.integrations.lightning import LearningRateAdaptation

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = run.model

        def training_step(self, batch: Any, _: int) -> Tensor:
            return run.loss(self.net, batch)

        def on_after_backward(self) -> None:
            run.spoil()

        def configure_optimizers(self) -> Any:
            return run.base(case)

    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_steps=3,
        callbacks=[LearningRateAdaptation(**run.settings)],
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(DATA[:3], batch_size=None))


def with_transformers(run: Run, case: Case, folder: Path) -> None:
    transformers = pytest.importorskip("transformers")

    from probstep.integrations.transformers import adapt

    class Trainer(transformers.Trainer):
        def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
            return run.loss(model, (inputs["x"], inputs["labels"]))

        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            loss = super().training_step(*args, **kwargs)
            run.spoil()
            return loss

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=3,
        per_device_train_batch_size=len(DATA[0][0]),
        max_grad_norm=0.0,
        use_cpu=True,
        dataloader_pin_memory=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    rows = [{"x": x, "labels": y} for xs, ys in DATA[:3] for x, y in zip(xs, ys, strict=True)]
    trainer = Trainer(
        model=run.model,
        args=arguments,
        train_dataset=rows,
        optimizers=(run.base(case), None),
    )
    adapt(trainer, **run.settings).train()


WAYS: dict[str, Callable[[Run, Case, Path], None]] = {
    "closure": with_closure,
    "closure with backward": with_backward_closure,
    "loss and reevaluate": with_loss,
    "handed over": handed_over,
    "bare": bare,
    "window": with_window,
    "accelerate": with_accelerate,
    "lightning": with_lightning,
    "transformers": with_transformers,
}


def prepared(mistake: Mistake, settings: dict[str, Any]) -> Run:
    """Return a training that makes the mistake."""
    torch.manual_seed(0)
    return Run(plain_network(), mistake.loss(), mistake, settings)
