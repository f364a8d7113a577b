"""How the training loop uses a method: prepare, take steps, evaluate. No method is known by name.

    optimizer = prepare(method, task, rate=1e-3, settings={}, epochs=2)
    for batch in task.batches():
        loss = take_step(method, optimizer, task, batch)
    with evaluating(method, optimizer, task.model):
        scores = task.evaluate("test")

All memory of a method, its schedule and its average included, is in `optimizer.state_dict()`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from probstep.baselines.shamir2013averaging import averaged, update_average
from probstep.bench.methods.method import Method, Needs
from probstep.bench.methods.rate_schedules import CONSTANT, advance_schedule, start_schedule

AVERAGE = "average"  # the key of an averaging method's memory, in the first group


class Task(Protocol):
    """What a method sees of a problem made ready to train."""

    model: nn.Module
    steps_per_epoch: int

    def losses(self, batch: Any) -> Tensor:
        """Return the loss of every sample, without the L2 term."""

    def penalty(self) -> Tensor:
        """Return the L2 term."""

    def loss(self, batch: Any) -> Tensor:
        """Return the mean of the losses plus the L2 term."""


def prepare(
    method: Method,
    task: Task,
    rate: float | None = None,
    settings: Mapping[str, Any] | None = None,
    epochs: int = 1,
) -> Optimizer:
    """Return the optimizer of a task's model, with its schedule started.

    Args:
        method: The method.
        task: The problem, ready to train.
        rate: The initial rate; None for the method's default.
        settings: The method's settings, and `schedule`, which goes with any method.
        epochs: How long the training will be: a decay ends with it.
    """
    chosen = dict(settings or {})
    schedule = chosen.pop("schedule", method.schedule)
    if schedule != CONSTANT and (method.rate is None or "schedule" in method.limits):
        raise ValueError(
            f"The method {method.name!r} chooses its rate alone: it takes no schedule."
        )
    if method.needs.steps_per_epoch:
        chosen.setdefault("steps_per_epoch", task.steps_per_epoch)
    optimizer = method.make(task.model, rate, chosen)
    start_schedule(optimizer, schedule, epochs * task.steps_per_epoch)
    return optimizer


def take_step(method: Method, optimizer: Optimizer, task: Task, batch: Any) -> Tensor:
    """Train on one batch and return its loss, before the step and without a graph."""
    steps = (step for is_needed, step in _STEPS if is_needed(method.needs))
    with torch.enable_grad():  # a peer that fails may leave autograd off for the whole process
        loss = next(steps, _step_on_gradients)(optimizer, task, batch)
    if method.needs.averaging:
        update_average(optimizer.param_groups[0].setdefault(AVERAGE, {}), task.model)
    advance_schedule(optimizer, loss)
    return loss


@contextmanager
def evaluating(method: Method, optimizer: Optimizer, model: nn.Module) -> Iterator[None]:
    """Lend the model the weights that the method would deliver."""
    with ExitStack() as stack:
        for is_needed, weights in _EVALUATIONS:
            if is_needed(method.needs):
                stack.enter_context(weights(optimizer, model))
        yield


def effective_rate(method: Method, optimizer: Optimizer) -> float:
    """Return the step size of the last step, or of the next one; NaN where it is not one number.

    Which of the two depends on when the method chooses: a Polyak step or a line search tells what it
    took, ProbStep and schedules what they will take. Where groups differ, it is the first one's.
    """
    rate = method.read_rate(optimizer)
    return math.nan if rate is None else rate


def _step_on_gradients(optimizer: Optimizer, task: Task, batch: Any) -> Tensor:
    loss = _backward(optimizer, task, batch)
    try:
        optimizer.step()
    except AssertionError as error:  # DoG asserts that its numbers are numbers: it has diverged
        if "nan" not in str(error):
            raise
        return torch.full_like(loss, math.nan)
    return loss


def _step_on_loss(optimizer: Any, task: Task, batch: Any) -> Tensor:
    loss = _backward(optimizer, task, batch)
    optimizer.step(loss=loss)
    return loss


def _step_on_closure(optimizer: Any, task: Task, batch: Any) -> Tensor:
    loss: Tensor = optimizer.step(lambda: task.loss(batch))
    return loss.detach()


def _step_on_samples(optimizer: Any, task: Task, batch: Any) -> Tensor:
    # The L2 term belongs to every sample: it has a gradient, but no variance.
    losses: Tensor = optimizer.step(lambda: task.losses(batch) + task.penalty())
    return losses.detach().mean()


def _backward(optimizer: Optimizer, task: Task, batch: Any) -> Tensor:
    optimizer.zero_grad()
    loss = task.loss(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


_STEPS: tuple[tuple[Callable[[Needs], bool], Callable[[Any, Task, Any], Tensor]], ...] = (
    (lambda needs: needs.per_sample, _step_on_samples),
    (lambda needs: needs.closure, _step_on_closure),
    (lambda needs: needs.loss, _step_on_loss),
)


@contextmanager
def _switched(optimizer: Any, _: nn.Module) -> Iterator[None]:
    optimizer.eval()
    try:
        yield
    finally:
        optimizer.train()


@contextmanager
def _averaged(optimizer: Optimizer, model: nn.Module) -> Iterator[None]:
    with averaged(optimizer.param_groups[0].get(AVERAGE, {}), model):
        yield


Lend = Callable[[Any, nn.Module], AbstractContextManager[None]]

_EVALUATIONS: tuple[tuple[Callable[[Needs], bool], Lend], ...] = (
    (lambda needs: needs.mode_switch, _switched),
    (lambda needs: needs.averaging, _averaged),
)
