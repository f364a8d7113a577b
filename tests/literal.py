"""The paper's Algorithm 1, transcribed literally: the oracle of the equivalence tests.

Nothing is shared with the library. `phi_i / 2` stands for the misprinted `f_i - phi_i / 2` of line 11.
"""

from collections.abc import Callable

import torch


def lr_adapt(
    theta: list[torch.Tensor],
    optimizer: torch.optim.Optimizer,
    losses: list[Callable[[], torch.Tensor]],
    f_star: float | None = None,
    noise: Callable[[float], float] = lambda f: 0.0,
) -> list[float]:
    """Run Algorithm 1 over the given batch losses; return the rate eta after each step."""
    rates = []
    for F in losses:
        optimizer.zero_grad()
        loss = F()
        loss.backward()
        f_i = loss.item()
        g = [p.grad.clone() for p in theta]
        theta_i = [p.detach().clone() for p in theta]
        optimizer.step()
        with torch.no_grad():
            v = [a - p for a, p in zip(theta_i, theta, strict=True)]
            phi = sum((a.double() * b.double()).sum().item() for a, b in zip(g, v, strict=True))
            delta_f = phi / 2 if f_star is None else f_i - f_star
            factor = 2 * delta_f / (phi + noise(f_i))
            if f_star is not None or noise(f_i) != 0:
                for p, a, b in zip(theta, theta_i, v, strict=True):
                    p.copy_(a - factor * b)
            f_plus = F().item()
        change = 1.0
        if phi / 2 > torch.finfo(loss.dtype).eps * abs(f_i):  # where Algorithm 1 is defined
            ratio = (f_i - f_plus) / (phi / 2)
            change = 1.2 if ratio > 4 / 3 else 0.5 if ratio < 3 / 4 else 1.0
        for group in optimizer.param_groups:
            group["lr"] *= change
        rates.append(optimizer.param_groups[0]["lr"])
    return rates
