"""C14: what holds exactly, checked by steps of this code."""

from collections.abc import Callable

import torch

from probstep import PaperRule, ProbStep

from .evidence import Evidence
from .verdict import Verdict

ROUNDING = 1e-12  # in double precision, of numbers around 1


def judge_identities(evidence: Evidence) -> Verdict:
    """Three facts that follow from the update, checked by steps of this code."""
    del evidence
    plain = _step(lambda p: torch.optim.Adam(p, lr=0.1))
    wrapped = _step(lambda p: ProbStep(torch.optim.Adam(p, lr=0.1), rule=PaperRule()))
    small, large = (
        _step(
            lambda p, r=rate: ProbStep(torch.optim.Adam(p, lr=r), rule=PaperRule(), lower_bound=0.0)
        )
        for rate in (1e-3, 1e-1)
    )
    theta = _START.clone().requires_grad_()
    loss = _bowl(theta)
    (g,) = torch.autograd.grad(loss, theta)
    polyak = (theta - 2 * loss / (g @ g) * g).detach()
    sgd = _step(lambda p: ProbStep(torch.optim.SGD(p, lr=0.1), rule=PaperRule(), lower_bound=0.0))
    gaps = [
        float((a - b).abs().max()) for a, b in ((plain, wrapped), (small, large), (sgd, polyak))
    ]
    said = (
        f"largest differences after a step: {gaps[0]:.0g} from the base's own step, {gaps[1]:.0g} "
        f"between rates of 1e-3 and 1e-1, {gaps[2]:.0g} from the Polyak step"
    )
    why = "Computed on a quadratic in double precision when this page was made."
    return Verdict("confirmed" if max(gaps) < ROUNDING else "refuted", said, why)


_START = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


def _bowl(theta: torch.Tensor) -> torch.Tensor:
    return (theta * theta * torch.tensor([1.0, 3.0, 0.2], dtype=torch.float64)).sum()


def _step(make: Callable[..., torch.optim.Optimizer]) -> torch.Tensor:
    theta = _START.clone().requires_grad_()
    optimizer = make([theta])

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = _bowl(theta)
        if torch.is_grad_enabled():
            loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    return theta.detach()
