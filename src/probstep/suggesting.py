"""`suggest`: a rate for an optimizer, from a handful of batches; nothing is changed afterwards.

In silence the curvature along some steps is measured: it says where the best rate is likely. Around that
rates race: each trains from the same start for some steps. What both say is a posterior of the logarithm
of the best rate.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, overload

from torch import Tensor, nn, optim

from .checks import refuse_unusable
from .racing import FINE, posterior, run_races
from .rules import RobustRule
from .silence import Scene, Silence, untouched
from .step.base import devices_of
from .step.closures import Forward
from .step.randomness import RandomState
from .step.stateful import declared
from .suggestion import Suggestion
from .wrapper import Wrapper

T = TypeVar("T")

HANDFUL = 64  # batches at most: an endless stream gives no more
# The best fixed rates that were measured, over the rate of bend 1; with momentum sqrt(1 - beta) of that.
AIM = RobustRule().target
# What races cannot know, the length of the training and the noise to come: the deviation of the decimal
# logarithms of the best rates that were measured.
OPEN = 0.4


@overload
def suggest(
    optimizer: optim.Optimizer,
    batches: Iterable[T],
    loss: Callable[[T], Tensor],
    *,
    model: nn.Module | None = None,
    stateful: object = (),
) -> Suggestion: ...
@overload
def suggest(
    optimizer: Sequence[optim.Optimizer],
    batches: Iterable[T],
    loss: Callable[[T], Tensor],
    *,
    model: nn.Module | None = None,
    stateful: object = (),
) -> list[Suggestion]: ...
def suggest(
    optimizer: optim.Optimizer | Sequence[optim.Optimizer],
    batches: Iterable[T],
    loss: Callable[[T], Tensor],
    *,
    model: nn.Module | None = None,
    stateful: object = (),
) -> Suggestion | list[Suggestion]:
    """Suggest a fixed rate, from a handful of batches. Nothing is changed afterwards, bit for bit.

    That holds for parameters, gradients, the optimizer's state, buffers and the global random streams.
    It costs as much as some hundreds of steps: curvature is measured first, then some rates race.
    `steps` and `forwards` of what is returned say how many there were. Meanwhile there is one more copy
    of the parameters and of the optimizer's state.

    Args:
        optimizer: The optimizer whose rate is asked for. Of several, each is asked alone, while the
            others stand still.
        batches: Training batches as they are trained on, about 32; they are used again and again, the
            first 64 at most.
        loss: Computes the loss of a batch.
        model: The model, if it is compiled.
        stateful: What a forward pass changes beside buffers and the global random streams, as for
            `ProbStep`.

    Returns:
        The suggestion; of several optimizers a list of them.

    Raises:
        ValueError: There is no batch, or no length of a step changes the loss visibly.
        NotTheSameLoss: The loss of the same batch is not the same number twice.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(4, 1)
        >>> xs = torch.randn(8, 16, 4, generator=torch.Generator().manual_seed(0))
        >>> sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
        >>> found = suggest(sgd, xs, lambda x: (model(x) - x.sum(1, keepdim=True)).square().mean())
        >>> found.low < found.rate < found.high, sgd.param_groups[0]["lr"]
        (True, 0.001)
    """
    if isinstance(optimizer, optim.Optimizer):
        (found,) = suggest([optimizer], batches, loss, model=model, stateful=stateful)
        return found
    inner = [o.base if isinstance(o, Wrapper) else o for o in optimizer]
    for one in inner:
        refuse_unusable(one)
    devices = {device for one in inner for device in devices_of(one)}
    streams = RandomState(devices)
    try:
        handful = list(itertools.islice(batches, HANDFUL))
        if not handful:
            raise ValueError("There is no batch. Give some training batches, about 32.")
        closures = [_bound(loss, batch) for batch in handful]
        scene = Scene(model, declared(stateful))
        return [_suggest(one, closures, scene) for one in inner]
    finally:
        streams.restore()


def _bound(loss: Callable[[T], Tensor], batch: T) -> Forward:
    return lambda: loss(batch)


def _suggest(optimizer: optim.Optimizer, closures: Sequence[Forward], scene: Scene) -> Suggestion:
    with untouched(optimizer, closures[0], scene) as put_back:
        silence = Silence(optimizer, scene, closures, put_back)
        guess = math.log10(AIM * math.sqrt(1 - silence.beta)) + silence.measure()
        # Whole multiples: which rates race does not depend on the optimizer's own.
        centre = FINE * round(guess / FINE)
        races = run_races(silence.race, silence.start(), centre)
    places, shares = posterior(races.behind(), guess)
    return Suggestion.mixture(
        places, shares, OPEN, silence.lr, steps=silence.steps, forwards=silence.forwards
    )
