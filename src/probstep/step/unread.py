"""The loss of the last step, left on its device: a rule is told of it one step later.

Reading it at once would wait for the device. A step later the device has long computed it.
"""

from torch import Tensor

from .closures import mean_of
from .ranks import Ranks


class Unread:
    """Keeps one loss until it is read.

    >>> import torch
    >>> unread = Unread()
    >>> unread.keep(torch.tensor(1.5), sign=1.0, ranks=Ranks())
    >>> unread.read(), unread.read()
    (1.5, None)
    """

    def __init__(self) -> None:
        self._loss: Tensor | None = None

    def keep(self, loss: Tensor, sign: float, ranks: Ranks) -> None:
        """Keep the objective's value of this step, without weight decay."""
        self._loss = ranks.total(sign * mean_of(loss).detach().double() / ranks.size)

    def read(self) -> float | None:
        """Return the loss that was kept, if any, and forget it."""
        loss, self._loss = self._loss, None
        return None if loss is None else loss.item()
