"""Prove that the loss is the same number, evaluated again where the step begins; say why if it is not.

`prove_same` evaluates it once more, and a third time if the first two differ. The messages name the
usual causes, each with its cure, the likeliest first.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from ..checks import AUTOCAST
from .ranks import Ranks
from .scalars import flag, wide

Evaluate = Callable[[], tuple[Tensor, bool]]  # the loss again, and whether random numbers agree

ROUNDINGS = 64.0  # of the loss: what kernels that add in any order may change
SHARE_OF_SHORT = 1 / 64  # of a 16-bit rounding: what they may change in a mean over 16-bit numbers
SLIGHT = torch.finfo(torch.bfloat16).eps  # so little the losses differ that autocast may explain it
SINGLE = torch.finfo(torch.float32).eps


class NotTheSameLoss(RuntimeError):  # noqa: N818
    """What was evaluated again is not the loss whose gradients were taken. Nothing was moved.

    The message says both numbers, and the usual causes with their cures, the likeliest first.
    `ProbStep(..., check=False)` leaves the check out.
    """


def prove_same(
    evaluate: Evaluate, loss: Tensor, ranks: Ranks, *, short: Callable[[], float]
) -> bool:
    """Evaluate the loss where the step begins; raise NotTheSameLoss if it is another function's.

    Args:
        evaluate: Computes the loss again.
        loss: What it must be.
        ranks: Who else decides.
        short: Tells the rounding of the coarsest 16-bit format in which the model computed, 0 without
            any; asked after the evaluation, which may be the first that was watched.

    Returns:
        Whether it was proved; False where it cannot be told: the loss is not finite, or zero as of a
        batch without labels, or the random numbers are known to differ.
    """
    version = loss._version
    value, is_paired = evaluate()
    is_old = _is_same_memory(value, loss) and value._version == version
    first, again = _share(loss, ranks), _share(value, ranks)
    f, g, differs, unpaired, old = ranks.read(
        first, again, (value != loss).any(), flag(not is_paired), flag(is_old)
    )
    if old:
        raise NotTheSameLoss(OLD_TENSOR)
    if unpaired or not math.isfinite(f):
        return False
    if not differs:
        return f != 0
    # The first pass ran with gradients, which may take other kernels. DistributedDataParallel would
    # wait for the backward.
    mode: AbstractContextManager[object] = torch.enable_grad() if ranks.size == 1 else nullcontext()
    with mode:
        second, _ = evaluate()
    second = second.detach()
    coarsest = short()
    noise = _noise(loss, coarsest)
    apart, later = _distance(value, loss), _distance(second, loss)
    is_noise = (apart <= noise) & (later <= noise)
    is_of_mode = (later == 0) & (apart <= max(1e-5, coarsest))
    unsteady = _distance(second, value) > noise
    h, others, unsteady_ones, still_other = ranks.read(
        _share(second, ranks), ~(is_noise | is_of_mode), unsteady, later > 0
    )
    if others:
        raise NotTheSameLoss(
            not_the_same(
                f,
                g,
                h,
                is_steady=not unsteady_ones,
                is_of_mode=ranks.size == 1 and not still_other,
            )
        )
    return True


def _share(loss: Tensor, ranks: Ranks) -> Tensor:
    return wide(loss.detach()).mean() / ranks.size


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Return how far apart two losses are, relative to their size."""
    return (wide(a.detach()) - wide(b.detach())).abs().max() / wide(b.detach()).abs().max()


def _noise(loss: Tensor, short: float) -> float:
    eps = torch.finfo(loss.dtype).eps
    if eps > SINGLE:
        return eps  # 64 of these would be half of the loss
    return max(ROUNDINGS * max(eps, SINGLE), SHARE_OF_SHORT * short)


def _is_same_memory(value: Tensor, loss: Tensor) -> bool:
    if value is loss:
        return True
    is_plain = type(value) is type(loss) is Tensor and value.device.type != "meta"
    return is_plain and value.data_ptr() == loss.data_ptr() and value.shape == loss.shape


OLD_TENSOR = (
    "The loss was to be evaluated again, and what came back is the very tensor from before: it cannot "
    "change when the parameters do. Nothing was moved. Compute the loss anew: "
    "reevaluate=lambda: loss_fn(model(x), y), not reevaluate=lambda: loss."
)

CONSTANT = (
    "The loss was evaluated again after steps of very different lengths, and it never changed: it does "
    "not depend on the parameters that the optimizer moves. Nothing was moved. Usual causes: "
    "1. a number from before is returned (loss.item(), a tensor that was kept): compute the loss anew, "
    "from the batch; 2. the loss is computed with a copy of the model (an averaged one, one made before "
    "the optimizer, another rank's): compute it with the model whose parameters the optimizer has. "
    "ProbStep(..., check=False) leaves this check out."
)

# Each cause with its cure. Which come first depends on what was seen.
NEW_BATCH = (
    "it draws a new batch each time (next(batches) inside the closure): draw the batch first, then "
    "call step()"
)
LATE_LAMBDA = (
    "a lambda in a loop binds late, and sees the last batch: bind what it needs, "
    "lambda x=x, y=y: loss_fn(model(x), y)"
)
OTHER_WEIGHT = (
    "the loss is divided or weighted in one place only (loss / k for k micro-batches): give both "
    "alike, step(loss=loss / k, reevaluate=lambda: ... / k)"
)
OWN_GENERATOR = (
    "random numbers come from a generator of your own (torch.Generator, numpy's default_rng), which "
    "is rewound only if you declare it: draw them before step(), use the global streams, or give "
    "ProbStep(..., stateful=generator)"
)
DROPOUT = (
    "dropout or other noise was drawn outside `with opt.forward_pass():`: compute the whole loss "
    "inside it, or use step(closure)"
)
CARRIED = (
    "the model carries something from one call to the next outside its buffers (a hidden state, a "
    "moving average): put it back before you evaluate again, or declare it with stateful="
)
MODE = (
    "the model differs between training and evaluation, or between two calls (model.eval() inside): "
    "call it alike both times"
)
OTHER_STEPPED = (
    "another optimizer has moved other parameters of the model since the loss was computed: give "
    "step() a closure, which computes the loss anew, or let one optimizer have all the parameters, in "
    "several groups"
)
GRAD_MODE = (
    "the model computes something else where gradients are off (torch.is_grad_enabled(), a compiled "
    "model with dropout): call backward inside the closure, so that gradients are always on"
)


def not_the_same(f: float, g: float, h: float, *, is_steady: bool, is_of_mode: bool) -> str:
    """Return the message: the numbers, and the causes in the order in which they are likely.

    Args:
        f: The first loss.
        g: The loss evaluated again.
        h: The loss evaluated once more.
        is_steady: The last two agree.
        is_of_mode: The last, with gradients enabled, is the first.
    """
    if is_of_mode:
        causes = [GRAD_MODE, NEW_BATCH, CARRIED]
    elif is_steady:
        causes = [LATE_LAMBDA, OTHER_WEIGHT, OTHER_STEPPED, MODE, NEW_BATCH, DROPOUT]
        if (k := _whole_ratio(f, g)) is not None:
            causes = [f"they differ by a factor of {k}: {OTHER_WEIGHT}", LATE_LAMBDA, MODE]
        elif abs(f - g) <= SLIGHT * abs(f):
            causes.insert(0, AUTOCAST)
    else:
        causes = [NEW_BATCH, OWN_GENERATOR, DROPOUT, CARRIED, LATE_LAMBDA]
    listed = "; ".join(f"{number}. {cause}" for number, cause in enumerate(causes, 1))
    return (
        f"The loss was {f:.9g}. Evaluated again, with the parameters unchanged, it was {g:.9g}, and "
        f"once more {h:.9g}: it is not the same loss of the same batch, so a probe would compare two "
        f"different functions. Nothing was moved. Usual causes, the likeliest first: {listed}. "
        "ProbStep(..., check=False) leaves this check out."
    )


def _whole_ratio(f: float, g: float) -> str | None:
    """Return k or 1/k if one number is so many times the other.

    >>> _whole_ratio(1.0, 4.0), _whole_ratio(1.0, 1.1)
    ('4', None)
    """
    if not f * g > 0:
        return None
    large, small = max(abs(f), abs(g)), min(abs(f), abs(g))
    k = round(large / small) if large / small < 1e6 else 0
    return str(k) if k > 1 and abs(large / small - k) < 1e-5 * k else None
