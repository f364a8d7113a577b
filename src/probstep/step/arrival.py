"""How a loss arrives at a step: a closure, a loss with its re-evaluation, a trainer's hand-over.

Whatever the way, what comes out is the same: a loss, a function that computes it again, and the factor
by which somebody has changed the gradients.
"""

import weakref
from typing import NamedTuple

from torch import Tensor, optim

from ..checks import check_loss
from .base import devices_of, params_of
from .closures import Forward, Habit, Recording, first_pass
from .replay import Tape


class Batch(NamedTuple):
    """What a probed step descends on.

    Args:
        loss: Its loss, whose gradients are in place.
        again: Computes that loss again, at whatever the parameters then are.
        grad_scale: The factor by which `.grad` differs from the gradient of the loss.
        is_told: Somebody gave the loss; otherwise `again` computed it, so both always agree.
    """

    loss: Tensor
    again: Forward
    grad_scale: float | Tensor
    is_told: bool = True


class Arrived(NamedTuple):
    """What is known of a batch when its step begins.

    Args:
        loss: Its loss, whose gradients are in place; None if nobody gave it.
        again: Computes that loss again; None if nobody can.
        grad_scale: The factor by which `.grad` differs from the gradient of the loss.
        is_handed_over: A trainer has handed it over, or has said that there is no batch.
        is_told: Somebody gave the loss; otherwise `again` computed it.
    """

    loss: Tensor | None
    again: Forward | None
    grad_scale: float | Tensor
    is_handed_over: bool
    is_told: bool = True

    @property
    def batch(self) -> Batch | None:
        """What a probe needs; None if something is missing."""
        if self.loss is None or self.again is None:
            return None
        return Batch(self.loss, self.again, self.grad_scale, self.is_told)


class Given(NamedTuple):
    """What a caller gives for a step: to `step()`, or before it by `reevaluate_with`."""

    reevaluate: Forward | None = None
    loss: Tensor | None = None
    grad_scale: float | Tensor | None = None


class Clip(NamedTuple):
    """By how much gradients were clipped.

    Args:
        factor: All of them were multiplied by it.
        grad: One of them.
        version: What its version was after that.
    """

    factor: Tensor
    grad: weakref.ref[Tensor]
    version: int


class Arrival:
    """Collects, between two steps, what the next one descends on.

    Args:
        tape: Where forward passes are recorded.
        per_sample: The loss is the vector of per-sample losses.
    """

    def __init__(self, tape: Tape, *, per_sample: bool) -> None:
        self._tape = tape
        self._per_sample = per_sample
        self._handed_over: Given | None = None
        self._clip: Clip | None = None
        self._habit = Habit()

    def keep(self, given: Given) -> None:
        """Take what a trainer gives for the next step."""
        self._handed_over = given

    def clip_so_far(self, optimizer: optim.Optimizer) -> float | Tensor:
        """Return the factor by which the gradients, as they are now, were clipped."""
        clip, grad = self._clip, _first_gradient(optimizer)
        if clip is None or grad is None or clip.grad() is not grad:
            return 1.0
        # Nobody tells us of gradients that are zeroed in place, and filled anew.
        return clip.factor if clip.version == _version(grad) else 1.0

    def clipped(self, factor: Tensor, optimizer: optim.Optimizer) -> None:
        """Take note that the gradients, as they are now, are those of the loss times a factor."""
        grad = _first_gradient(optimizer)
        self._clip = None if grad is None else Clip(factor, weakref.ref(grad), _version(grad))

    @property
    def has_piled_gradients(self) -> bool:
        """Whether a closure has added to the gradients of the step before."""
        return self._habit.has_piled

    def clear(self) -> None:
        """Forget what was collected: the step is done, or the gradients are gone."""
        self._handed_over = self._clip = None

    def check(self, loss: object) -> None:
        """Raise unless this is a loss."""
        check_loss(loss, per_sample=self._per_sample)

    def receive(
        self, closure: Forward | None, given: Given, optimizer: optim.Optimizer, *, record: bool
    ) -> Arrived:
        """Return what the step descends on. Run a closure, and backward unless the closure did that.

        Args:
            closure: The argument of `step()`.
            given: Its other arguments. They count more than what was handed over before.
            optimizer: Whose parameters the gradients belong to.
            record: Record the closure's forward pass, so that a probe can replay it.
        """
        reevaluate, loss, grad_scale = given
        again = None
        if closure is not None:
            loss, again = self._run(closure, optimizer, record=record)
        elif loss is not None:
            check_loss(loss, per_sample=self._per_sample)
        handed = self._handed_over  # read only now: a trainer's closure may hand it over
        if handed is not None:
            if handed.loss is not None and (closure is not None or loss is None):
                loss = handed.loss
                self.check(loss)
            reevaluate = reevaluate or handed.reevaluate
            grad_scale = handed.grad_scale if grad_scale is None else grad_scale
        if grad_scale is None:
            grad_scale = 1.0
            # One that was changed after it was clipped, as by noise in private training, counts.
            if (clip := self._clip) is not None and clip.grad() is _first_gradient(optimizer):
                grad_scale = clip.factor
        return Arrived(loss, reevaluate or again, grad_scale, handed is not None)

    def _run(
        self, closure: Forward, optimizer: optim.Optimizer, *, record: bool
    ) -> tuple[Tensor | None, Forward | None]:
        params = params_of(optimizer)
        if self._handed_over is not None:
            # A trainer: it records its own passes, may skip a batch, and its closure sometimes begins
            # the gradients and sometimes adds to them, so that earlier steps teach nothing.
            return first_pass(closure, params, self._check_unless_none, None, Habit())
        recording: Recording = None
        if record:
            recording = self._tape.recording("closure", devices_of(optimizer))
        return first_pass(closure, params, self.check, recording, self._habit)

    def _check_unless_none(self, loss: object) -> None:
        if loss is not None:  # None says that a trainer skips its batch
            self.check(loss)


def _version(grad: Tensor) -> int:
    return 0 if grad.is_inference() else grad._version


def _first_gradient(optimizer: optim.Optimizer) -> Tensor | None:
    return next((p.grad for p in params_of(optimizer) if p.grad is not None), None)
