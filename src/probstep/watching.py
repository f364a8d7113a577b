"""`watch`: observe the rate of an optimizer that is to stay as it is."""

from torch import nn, optim

from .optimizer import ProbStep
from .rules import WatchRule
from .step.ranks import Group


def watch(
    optimizer: optim.Optimizer,
    *,
    model: nn.Module | None = None,
    process_group: Group = None,
    stateful: object = (),
    check: bool = True,
    rule: WatchRule | None = None,
) -> ProbStep:
    """Observe an optimizer: it trains bit for bit as without it, and `gauge` says what its rate is like.

    What comes back is stepped instead of the optimizer, in any of the ways a `ProbStep` is: with a
    closure, with `loss=` and `reevaluate=`, by a trainer. A probe is a few more forward passes of the
    same batch; in the long run there are at most 0.04 of them per step, after 40 to begin with.

    Args:
        optimizer: The optimizer to watch: an instance. Its rate is never touched.
        model: As for `ProbStep`.
        process_group: As for `ProbStep`.
        stateful: As for `ProbStep`.
        check: As for `ProbStep`; but where the check fails, training goes on and watching ends, with a
            warning.
        rule: How often to probe and what to aim at; None is `WatchRule()`.

    Example:
        >>> import torch
        >>> model = nn.Linear(4, 1)
        >>> opt = watch(torch.optim.SGD(model.parameters(), lr=1e-4))
        >>> x, y = torch.ones(8, 4), torch.full((8, 1), 9.0)
        >>> for _ in range(20):
        ...     loss = opt.step(lambda: nn.functional.mse_loss(model(x), y))
        >>> print(opt.gauge)
        The rate 0.0001 is about 1300 times too low (between 130 and 13000).
    """
    return ProbStep(
        optimizer,
        rule=WatchRule() if rule is None else rule,
        model=model,
        process_group=process_group,
        stateful=stateful,
        check=check,
    )
