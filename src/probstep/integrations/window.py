"""The micro-batches of one optimizer step: computed once for the gradients, and again for a probe.

Trainers split a batch into micro-batches and call a bare `step()` after the last. A window keeps what
it takes to compute their common loss again and hands it to ProbStep just before the step. It knows no
trainer.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ..optimizer import ProbStep
from ..step.ranks import whole

Again = Callable[[], Tensor]


class Window:
    """The micro-batches since the last step of an optimizer.

    Args:
        optimizer: The optimizer that steps after the last micro-batch.
        weight: What the loss of one micro-batch counts in the loss whose gradients accumulate.

    >>> model = torch.nn.Linear(2, 1)
    >>> opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.1))
    >>> window = Window(opt, weight=1 / 2)
    >>> for x in (torch.ones(3, 2), torch.zeros(3, 2)):
    ...     loss = window.run(lambda x: model(x).square().mean(), x)
    ...     (loss / 2).backward()
    >>> _ = opt.step()
    >>> opt.last_probe.loss_after < opt.last_probe.loss
    True
    """

    def __init__(self, optimizer: ProbStep, weight: float = 1.0) -> None:
        self.optimizer = optimizer
        self.weight = weight
        self.grad_scale: float | Tensor | None = None
        self._parts: list[Again] = []
        self._losses: list[Tensor] = []
        optimizer.register_step_pre_hook(lambda *_: self.hand_over())
        optimizer.register_step_post_hook(lambda *_: self.clear())

    def clear(self) -> None:
        """Begin anew: the step is done, or was skipped."""
        self.grad_scale = None
        self._parts.clear()
        self._losses.clear()

    def run(self, compute: Callable[..., Tensor], *args: object, **kwargs: object) -> Tensor:
        """Compute the loss of a micro-batch and remember how.

        Args:
            compute: Returns the loss; it is called again, without gradients, if the step is probed.
            *args: What it is called with, both times. Give it the batch: a function that takes it from
                a variable of the loop would find the last batch of the window in its place.
            **kwargs: Likewise, by name.
        """
        again = functools.partial(compute, *args, **kwargs)
        with self.optimizer.forward_pass():
            loss = again()
        self.keep(loss, again)
        return loss

    def keep(self, loss: Tensor, again: Again) -> None:
        """Remember a micro-batch that was run inside `optimizer.forward_pass()`."""
        self._losses.append(loss.detach())
        self._parts.append(again)

    def hand_over(self) -> None:
        """Tell the optimizer what its next step descends on."""
        loss = self._total(self._losses) if self._losses else None
        # Without any, a trainer has skipped its batch, or its closure is still to come.
        again = self._again if self._parts else None
        self.optimizer.reevaluate_with(again, loss, self.grad_scale)

    def _again(self) -> Tensor:
        losses = []
        for again in self._parts:
            with self.optimizer.forward_pass():
                losses.append(again().detach())
        return self._total(losses)

    def _total(self, losses: list[Tensor]) -> Tensor:
        return self.weight * torch.stack(losses).sum(dim=0)


def clip_factor(norm: Tensor, max_norm: float) -> Tensor:
    """Return the factor that torch's `clip_grad_norm_` applies to gradients of this norm.

    >>> clip_factor(torch.tensor(4.0, dtype=torch.float64), max_norm=2.0).item()
    0.499999875000031...
    """
    return (max_norm / (whole(norm) + 1e-6)).clamp(max=1.0)
