"""Adapt the learning rate inside a loop written with Accelerate.

    optimizer = ProbStep(torch.optim.AdamW(model.parameters()))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    window = track(accelerator, optimizer)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = window.run(loss_of, x, y)  # calls loss_of(x, y), now and for a probe
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

Needs the extra: pip install 'probstep[accelerate]'.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor, optim

from ..optimizer import ProbStep
from .window import Window, clip_factor

try:
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer
except ImportError as error:
    raise ImportError(
        "probstep.integrations.accelerate needs Accelerate: pip install 'probstep[accelerate]'."
    ) from error


class AdaptedOptimizer(AcceleratedOptimizer):  # type: ignore[misc]  # accelerate is not followed
    """A prepared ProbStep that shows what ProbStep shows; `track` makes one of what was prepared."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "optimizer":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.optimizer, name)


class AcceleratedWindow:
    """The micro-batches of an `accelerator.accumulate` window; `track` makes one."""

    def __init__(self, accelerator: Accelerator, optimizer: ProbStep) -> None:
        self._accelerator = accelerator
        self._is_complete = False
        steps = accelerator.gradient_accumulation_steps  # accelerator.backward divides by it
        self.window = Window(optimizer, weight=1 / steps)

    def run(self, compute: Callable[..., Tensor], *args: object, **kwargs: object) -> Tensor:
        """Compute the loss of a micro-batch and remember how, for a probe: as `Window.run`."""
        self.begin()
        return self.window.run(compute, *args, **kwargs)

    def begin(self) -> None:
        """Note that a micro-batch begins; after the last of a window it is the first of the next."""
        if self._is_complete:
            self.window.clear()  # a no-op unless the scaler has skipped the step
        self._is_complete = self._accelerator.sync_gradients


def track(accelerator: Accelerator, optimizer: optim.Optimizer) -> AcceleratedWindow:
    """Follow the micro-batches and the clipping of an accelerator, for an optimizer that it prepared.

    Args:
        accelerator: Its `clip_grad_norm_` reports by how much it clipped, from now on.
        optimizer: A ProbStep, before or after `accelerator.prepare`. What `prepare` returned shows
            `effective_lr`, `scale`, `metrics()` and all else that a ProbStep has, from now on.
    """
    if type(optimizer) is AcceleratedOptimizer:
        optimizer.__class__ = (
            AdaptedOptimizer  # it is the loop's already: it cannot be another object
        )
    window = AcceleratedWindow(accelerator, adapted(optimizer))
    report_clipping(accelerator, window.window)
    return window


def adapted(optimizer: optim.Optimizer) -> ProbStep:
    """Return the ProbStep inside what `accelerator.prepare` returned."""
    inner = optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
    if not isinstance(inner, ProbStep):
        raise TypeError(
            f"{type(inner).__name__} is not adapted. Prepare a ProbStep: "
            "accelerator.prepare(ProbStep(optimizer))."
        )
    return inner


def report_clipping(accelerator: Accelerator, window: Window) -> None:
    """Make `accelerator.clip_grad_norm_` tell the window the factor that it applied."""
    clip = accelerator.clip_grad_norm_

    @functools.wraps(clip)
    def clip_and_tell(parameters: Any, max_norm: float, norm_type: float = 2) -> Any:
        norm = clip(parameters, max_norm, norm_type)
        if norm is not None and accelerator.sync_gradients:
            window.grad_scale = clip_factor(norm, max_norm)
        return norm

    accelerator.clip_grad_norm_ = clip_and_tell
