"""What is really minimised: the loss, negated if it is maximised, plus coupled weight decay.

Numbers are this rank's share of the whole: `Ranks.total` makes them whole.
"""

from typing import NamedTuple

from torch import Tensor, optim

from ..rules import Rule
from .base import sign_of
from .closures import mean_of
from .displacement import Displacement
from .ranks import Ranks
from .scalars import wide


class Objective(NamedTuple):
    """The objective of one step.

    Args:
        sign: -1 if the loss is maximised.
        ranks: Who shares the loss.
        grad_scale: The factor by which `.grad` differs from the gradient of the loss.
        along_momentum: Take the slope along the optimizer's momentum instead of the gradient.
        with_norms: Measure the norms of gradient and displacement, too.
    """

    sign: float
    ranks: Ranks
    grad_scale: float | Tensor = 1.0
    along_momentum: bool = False
    with_norms: bool = False

    @classmethod
    def of(
        cls, optimizer: optim.Optimizer, grad_scale: float | Tensor, ranks: Ranks, rule: Rule
    ) -> "Objective":
        """Return what a step of the optimizer minimises."""
        return cls(
            sign_of(optimizer), ranks, grad_scale, rule.momentum_as_gradient, rule.chooses_lengths
        )

    def before(self, loss: Tensor, moved: Displacement) -> Tensor:
        """Return the objective where the step began."""
        share = self.share(loss) if self.sign == 1.0 else self.sign * self.share(loss)
        return wide(share) + wide(moved.penalty.to(loss.device)) if moved.has_penalty else share

    def after(self, loss: Tensor, moved: Displacement) -> Tensor:
        """Return the objective where the parameters are now."""
        value = self.before(loss, moved)
        if not moved.has_penalty:
            return value
        return value - wide(moved.penalty_decrease().to(loss.device))

    def share(self, loss: Tensor) -> Tensor:
        """Return this rank's share of the loss itself, in its own format as long as it is the whole."""
        whole = mean_of(loss).detach()
        return whole if self.ranks.size == 1 else wide(whole) / self.ranks.size

    def slope(self, moved: Displacement) -> Tensor:
        """Return phi, the slope of the objective along the displacement."""
        if self.along_momentum:
            return moved.slope_along_momentum(self.grad_scale)
        return moved.slope(self.grad_scale, sign=self.sign)

    def measure(self, moved: Displacement, *, in_double: bool = False) -> tuple[Tensor, ...]:
        """Return that slope, and with norms the squares of the gradient and of the displacement."""
        if not self.with_norms:
            return (self.slope(moved),)
        phi, *squares = moved.sizes(self.grad_scale, sign=self.sign, in_double=in_double)
        return (self.slope(moved) if self.along_momentum else phi), *squares
