"""Lines 8 to 14 of Algorithm 1: the base's step becomes the posterior mean of Eq. 12.

It needs a lower bound or a noise; without both the posterior mean is the base's own step.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..estimators import LowerBound, Noise, SampleNoise
from ..theory.inference import implied_bound, step_factor
from .attempt import Attempt
from .closures import mean_of
from .ranks import Ranks
from .scalars import pack


@dataclass(frozen=True)
class Stretch:
    """How the length of a step follows from f* and R.

    Args:
        lower_bound: f*; None takes the minimum of the quadratic that the step implies.
        noise: R, the variance of the loss.
        exact_noise: Let R enter four times, as the posterior has it, or once, as printed.
    """

    lower_bound: LowerBound | None
    noise: Noise
    exact_noise: bool

    def apply(
        self,
        attempt: Attempt,
        loss: Tensor,
        f: Tensor,
        phi: Tensor,
        ranks: Ranks,
        memory: dict[str, Any],
    ) -> tuple[Tensor, dict[str, Any]]:
        """Stretch the step; return its factor s, and the bound's memory.

        Args:
            attempt: The base's own step.
            loss: The batch's loss, or its per-sample losses.
            f: This rank's share of the objective before the step.
            phi: This rank's share of its slope.
            ranks: Who else takes the step.
            memory: What the lower bound remembers.
        """
        n = ranks.size
        shares = pack(f, phi, mean_of(loss) / n, self._variance(loss) / n**2)
        f, phi, mean, variance = ranks.total(shares)
        bound, memory = self._bound(f, phi, memory)
        noise = self._noise(mean, variance).clamp(min=0.0)  # a user's function may be below 0
        s = step_factor(f, bound, phi, noise, exact=self.exact_noise)
        # not in the paper: where the denominator vanishes the base's own step is taken
        s = torch.where(torch.isfinite(s), s, torch.ones_like(s))
        attempt.stretch(s)
        return s, memory

    def _bound(
        self, f: Tensor, phi: Tensor, memory: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        if self.lower_bound is None:
            return implied_bound(f, phi), memory
        return self.lower_bound.estimate(memory, f)

    def _variance(self, loss: Tensor) -> Tensor:
        """Return the variance of this rank's mean loss; zero unless per-sample losses tell."""
        if isinstance(self.noise, SampleNoise):
            return self.noise.variance(loss.detach())
        return torch.zeros_like(mean_of(loss))

    def _noise(self, mean: Tensor, variance: Tensor) -> Tensor:
        if isinstance(self.noise, SampleNoise):
            return variance
        if callable(self.noise):
            return torch.as_tensor(self.noise(mean), device=mean.device)
        return torch.full_like(mean, self.noise)
