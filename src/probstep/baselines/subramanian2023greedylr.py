"""GreedyLR: raise the rate while the loss improves, lower it while it does not.

Reference: S. Subramanian, V. Ganapathiraman. Zeroth order GreedyLR: an adaptive learning rate
scheduler for deep neural network training. 2023; and GreedyLR: a novel adaptive learning rate
scheduler, arXiv:2512.14527. The settings and the order of operations are those of Hugging Face
Transformers 5 (`lr_scheduler_type="greedy"`).

A loss below the best so far, by more than a threshold, is good, any other is bad. After more than
`patience` good ones in a row the rate is divided by `factor`, after as many bad ones multiplied by
it, within bounds. A rate that was to be lowered at its lower bound `reset_after` times starts anew.

Differences: the rule is one function of plain data, applied to the training loss of every step, and
our default lower bound is 1e-7: the published 1e-3 forbids every smaller initial rate. The published
warm-up, cool-down and "max" mode are left out; they are off by default.
"""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GreedyLR:
    """The settings of the rule.

    Args:
        factor: What a rate is multiplied by, or divided.
        patience: Good or bad losses in a row that pass without a change.
        threshold: How much better a loss must be to count as good.
        min_lr: The smallest rate.
        max_lr: The largest rate.
        eps: Changes of the rate smaller than this are not made.
        window: Losses that are averaged before they are compared; 1 for none.
        reset_after: Attempts to go below `min_lr` before the rule starts anew.

    Example:
        >>> rule, memory, rate = GreedyLR(patience=0), {"initial": 0.1}, 0.1
        >>> for loss in (3.0, 2.0, 4.0):
        ...     rate = rule.next_rate(memory, rate, loss)
        ...     print(round(rate, 4))
        0.1053
        0.1108
        0.1053
    """

    factor: float = 0.95
    patience: int = 10
    threshold: float = 1e-6
    min_lr: float = 1e-7
    max_lr: float = 1.0
    eps: float = 1e-8
    window: int = 1
    reset_after: int = 500

    def next_rate(self, memory: dict[str, Any], rate: float, loss: float) -> float:
        """Return the rate after a loss was seen; `memory` holds the rest, and "initial"."""
        memory.setdefault("best", math.inf)
        is_good = self._smoothed(memory, loss) < memory["best"] - self.threshold
        if is_good:
            memory["best"] = memory["losses"]["mean"]
        memory["good"] = memory.get("good", 0) + 1 if is_good else 0
        memory["bad"] = 0 if is_good else memory.get("bad", 0) + 1
        if memory["good"] > self.patience:
            memory.update(good=0, lowered=0)
            return self._changed(rate, min(rate / self.factor, self.max_lr), is_up=True)
        if memory["bad"] > self.patience:
            memory["bad"] = 0
            return self._lower(memory, rate)
        return rate

    def _smoothed(self, memory: dict[str, Any], loss: float) -> float:
        """Return the average of the last losses."""
        seen = [*memory.get("losses", {"last": []})["last"], loss][-self.window :]
        memory["losses"] = {"last": seen, "mean": sum(seen) / len(seen)}
        return float(memory["losses"]["mean"])

    def _lower(self, memory: dict[str, Any], rate: float) -> float:
        """Return a lower rate, or the initial one if the bound was met too often."""
        lower = self._changed(rate, max(rate * self.factor, self.min_lr), is_up=False)
        memory["lowered"] = memory.get("lowered", 0) + 1 if lower <= self.min_lr else 0
        if memory["lowered"] < self.reset_after:
            return lower
        initial = memory["initial"]
        memory.clear()
        memory["initial"] = initial
        return float(initial)

    def _changed(self, rate: float, new: float, is_up: bool) -> float:
        """Return the new rate if it differs, in the right direction, by more than eps."""
        change = new - rate if is_up else rate - new
        return new if change > self.eps else rate
