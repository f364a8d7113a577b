"""What a hazard is: a row of a table that can be trained in several ways.

A row says what is usual for its training (optimizer, rate) and builds it for a seed. The half of a
row is fixed by how the rows are written down: in pairs, the first for tuning, the second kept apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

Half = Literal["tuning", "kept"]
Measured = Literal["loss", "score"]  # a score is in points of 100: an accuracy, a return
GRID = tuple(3.0**k for k in range(-3, 4))  # the fixed rates of the grid, over the usual one


@dataclass(frozen=True)
class Player:
    """Whoever minimises a loss of its own; almost every training has one.

    Args:
        params: What its optimizer moves.
        batch: Draws the data of a step; it is called once for every step, and may play an episode.
        loss: The loss of such a batch. It may be evaluated as often as one likes.
    """

    params: Sequence[nn.Parameter]
    batch: Callable[[int], Any]
    loss: Callable[[Any], Tensor]


@dataclass(frozen=True)
class Training:
    """A training, ready to start.

    Args:
        steps: How many; every player takes one in each.
        players: Who takes turns.
        measure: What the training is judged by, as it stands; None is the mean training loss of the
            last tenth of the steps.
        score: What else is told of the training when it has ended, such as its test accuracy.
        before: Called with the number of each step before it: data change, layers are unfrozen.
        schedule: Makes the schedule of an optimizer.
        clip: The largest norm of the gradients.
        pieces: Into how many micro-batches a batch comes apart. If more than one, `batch` returns a
            tuple of them, and the loss of the step is the mean of theirs.
    """

    steps: int
    players: tuple[Player, ...]
    measure: Callable[[], float] | None = None
    score: Callable[[], float] | None = None
    before: Callable[[int], None] = lambda _: None
    schedule: Callable[[Optimizer], Any] | None = None
    clip: float | None = None
    pieces: int = 1


@dataclass(frozen=True)
class Hazard:
    """A row: one unusual training, and what is usually done about its rate.

    Args:
        name: Its name, without spaces.
        build: Makes the training for a seed.
        base: The optimizer that people would take, a key of `ways.BASES`.
        rate: The rate that they would give it without tuning.
        measured: Whether the measure is a loss (smaller is better) or a score (larger is better).
        settings: Further arguments of the optimizer.
        family: The class of hazards that it belongs to.
        half: Whether a rule may be tuned on it.
    """

    name: str
    build: Callable[[int], Training]
    base: str = "adam"
    rate: float = 1e-3
    measured: Measured = "loss"
    settings: tuple[tuple[str, Any], ...] = ()
    family: str = ""
    half: Half = "tuning"

    @property
    def grid(self) -> tuple[float, ...]:
        """The fixed rates whose best is the oracle: seven, factors of three apart."""
        return tuple(self.rate * factor for factor in GRID)


def pair(family: str, tuning: Hazard, kept: Hazard) -> tuple[Hazard, Hazard]:
    """Return two hazards of one class, one for each half."""
    return (
        replace(tuning, family=family, half="tuning"),
        replace(kept, family=family, half="kept"),
    )
