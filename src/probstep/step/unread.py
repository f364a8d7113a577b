"""What a step leaves on its device to be read a step later: its loss, and whether it was skipped.

Reading it at once would wait for the device. A step later the device has long computed it.
"""

import math
from typing import NamedTuple

from torch import Tensor

from .closures import mean_of
from .ranks import Ranks
from .scalars import pack


class Left(NamedTuple):
    """What a step has left, read.

    Args:
        loss: The loss, negated if it is maximised, without weight decay.
        was_skipped: The optimizer has skipped the step on its device.
        was_guarded: A loss that is not finite has not touched parameters and moments.
    """

    loss: float
    was_skipped: bool = False
    was_guarded: bool = True


class Unread:
    """Keeps what a step leaves until it is read; `kept` is None if there is nothing to read.

    >>> import torch
    >>> unread = Unread()
    >>> unread.keep(torch.tensor(1.5), sign=-1.0, ranks=Ranks())
    >>> unread.read(), unread.read()
    (Left(loss=-1.5, was_skipped=False, was_guarded=True), None)
    """

    def __init__(self) -> None:
        self.kept: tuple[Tensor, float, bool] | None = None

    def keep(
        self,
        loss: Tensor,
        sign: float,
        ranks: Ranks,
        skipped: Tensor | None = None,
        *,
        is_guarded: bool = True,
    ) -> None:
        """Keep the loss of this step, and the device's flag that it was skipped, if there is one."""
        value = mean_of(loss).detach().clone()  # the user has the loss, and may change it
        if ranks.size > 1:
            value = ranks.total(value.double() / ranks.size)
        self.kept = (value if skipped is None else pack(value, skipped)), sign, is_guarded

    def read(self) -> Left | None:
        """Return what was kept, if anything, and forget it."""
        if self.kept is None:
            return None
        (value, sign, is_guarded), self.kept = self.kept, None
        if not value.dim():
            return Left(sign * value.item(), was_guarded=is_guarded)
        loss, skipped = value.tolist()
        return Left(math.nan if skipped else sign * loss, bool(skipped))
