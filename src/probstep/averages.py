"""Averages of the weights, for `torch.optim.swa_utils.AveragedModel`; torch has all else that they need.

Exponential and equal averages are torch's own: `get_ema_multi_avg_fn` and `get_swa_multi_avg_fn`.
"""

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MultiAverage = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor | int], None]


def polynomial_average(eta: float = 8.0) -> MultiAverage:
    """Return the polynomial-decay average, which needs no horizon and forgets at the pace of training.

    In step t = 1, 2, ... the newest weights count (eta + 1) / (eta + t), so that the average is over
    about the last t / (eta + 1) steps, whatever t is.

    Reference: O. Shamir, T. Zhang. Stochastic gradient descent for non-smooth optimization: convergence
    results and optimal averaging schemes. ICML 2013, arXiv:1212.1824.

    Args:
        eta: 0 is the average of all weights alike; the larger, the sooner old ones are forgotten.

    Returns:
        A `multi_avg_fn`, which can be pickled.

    Example:
        >>> from torch.optim.swa_utils import AveragedModel
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> average = AveragedModel(model, multi_avg_fn=polynomial_average(8))
        >>> for value in (1.0, 11.0):
        ...     _ = torch.nn.init.constant_(model.weight, value)
        ...     average.update_parameters(model)
        >>> average.module.weight.item()  # 0.1 * 1 + 0.9 * 11
        10.0
    """
    if not 0 <= eta < math.inf:
        raise ValueError(f"polynomial_average(eta) needs a finite eta of at least 0, not {eta!r}.")
    return functools.partial(_average, float(eta))


@torch.no_grad()
def _average(
    eta: float, averages: Sequence[Tensor], newest: Sequence[Tensor], count: Tensor | int
) -> None:
    """Move averages of `count` weights towards the newest."""
    share = (eta + 1) / (eta + 1 + int(count))
    if averages[0].is_floating_point() or averages[0].is_complex():
        torch._foreach_lerp_(list(averages), list(newest), share)
    else:  # a counter among the buffers has no average
        for average, value in zip(averages, newest, strict=True):
            average.copy_(value)
