"""`suggest`: a rate for an optimizer, from a handful of batches; nothing is changed afterwards.

The optimizer takes some steps in silence. The first is searched for the order of magnitude of the rate,
as RobustRule does it; at each of the others the length that bends by 1 is measured, as `watch` does it.
Then everything is put back. What those lengths say is a posterior of the logarithm of the best rate.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor, nn, optim

from .checks import refuse_unusable
from .memory import Memory
from .rules import RobustRule, Rule, WatchRule
from .step.adapt import Outcome, Parts, adapt
from .step.arrival import Arrival, Batch, Given
from .step.base import devices_of, has_gradients, leading_rate, params_of, setting_of
from .step.closures import Forward
from .step.hooks import AFTER, BEFORE, silent
from .step.kept import Kept
from .step.observe import observe
from .step.randomness import RandomState
from .step.ranks import Ranks, find_ranks
from .step.replay import Buffers, Tape, gradients_set_aside, watching
from .step.same import NotTheSameLoss
from .step.stateful import Stateful, declared
from .wrapper import Wrapper

T = TypeVar("T")
Take = Callable[[Parts, Memory, Batch, Ranks], Outcome]

STEPS, SETTLED = 48, 16  # silent steps, and how many of them are only the way to a usual place
HANDFUL = 64  # batches at most: an endless stream gives no more
ENOUGH = 4  # measurements, below which nothing is suggested
RECENT = 6  # measurements from which the rate of the next silent step is taken
CAUTION = 0.5  # of the way to the minimum along a step, at silent steps
SEARCHING = RobustRule()
MEASURING = WatchRule(RobustRule(target=1.0))
# The best fixed rates that were measured, over the rate of bend 1; with momentum sqrt(1 - beta) of that.
AIM = SEARCHING.target
# The deviation of their decimal logarithms around it, and how many measurements count as one.
OPEN, ALIKE = 0.4, 4
GRID = 61  # points of a posterior, over four deviations either way
BARS = "▁▂▃▄▅▆▇█"
NOTHING_SEEN = (
    "No rate can be suggested: no length of a step changed the loss in a way that can be judged. Either "
    "the gradients are zero or not finite, or they are not those of this loss, or the optimizer holds "
    "other parameters than those that the loss depends on."
)


@dataclass(frozen=True)
class Suggestion:
    """A rate for an optimizer, as a posterior of its decimal logarithm.

    Args:
        rate: The rate suggested, for the first group that moves: the middle of the posterior.
        low: The rate below which the best one lies in one of ten cases.
        high: The rate above which it lies in one of ten cases.
        scale: The factor by which it differs from the optimizer's own rate: for all its groups.
        grid: Decimal logarithms of rates.
        density: The posterior there; its integral over the grid is 1.
        forwards: The forward passes that were made, beside those of the silent steps.

    >>> print(Suggestion.gaussian(mean=-2.0, deviation=0.25, lr=0.1, forwards=9))
    The rate 0.01 is suggested (between 0.0048 and 0.021).
    """

    rate: float
    low: float
    high: float
    scale: float
    grid: tuple[float, ...]
    density: tuple[float, ...]
    forwards: int = 0

    @classmethod
    def gaussian(cls, mean: float, deviation: float, lr: float, forwards: int) -> "Suggestion":
        """Return the suggestion of a Gaussian posterior of the decimal logarithm.

        Args:
            mean: Its mean.
            deviation: Its standard deviation.
            lr: The optimizer's own rate.
            forwards: The forward passes that were made.
        """
        belief = statistics.NormalDist(mean, deviation)
        grid = tuple(mean + deviation * (8 * k / (GRID - 1) - 4) for k in range(GRID))
        return cls(
            rate=10**mean,
            low=10 ** belief.inv_cdf(0.1),
            high=10 ** belief.inv_cdf(0.9),
            scale=10**mean / lr,
            grid=grid,
            density=tuple(belief.pdf(x) for x in grid),
            forwards=forwards,
        )

    def sparkline(self) -> str:
        """Return the posterior in one line of text, between its ends.

        >>> Suggestion.gaussian(mean=-2.0, deviation=0.25, lr=0.1, forwards=9).sparkline()
        '0.001 ▁▁▁▁▁▂▃▄▆███▆▄▃▂▁▁▁▁▁ 0.1'
        """
        points = self.density[:: max(1, len(self.density) // 20)]
        most = max(points)
        bars = "".join(BARS[min(len(BARS) - 1, int(p / most * len(BARS)))] for p in points)
        return f"{10 ** self.grid[0]:.2g} {bars} {10 ** self.grid[-1]:.2g}"

    def plot(self, axes: Any = None) -> Any:
        """Draw the posterior, and return the axes; without matplotlib return it in one line of text.

        Args:
            axes: Where to draw; None makes a new figure.
        """
        try:
            from matplotlib import pyplot as plt
        except ImportError:
            return self.sparkline()
        if axes is None:
            axes = plt.figure(layout="constrained").subplots()
        rates = [10**x for x in self.grid]
        is_likely = [self.low <= rate <= self.high for rate in rates]
        axes.plot(rates, self.density, color="C0")
        axes.fill_between(rates, self.density, where=is_likely, alpha=0.3, color="C0")
        axes.axvline(self.rate, color="C1")
        axes.set(xscale="log", xlabel="rate", ylabel="posterior of log10 rate", title=str(self))
        return axes

    def __str__(self) -> str:
        return (
            f"The rate {self.rate:.2g} is suggested (between {self.low:.2g} and {self.high:.2g})."
        )


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
    It costs 48 steps, and one or two more forward passes for each.

    Args:
        optimizer: The optimizer whose rate is asked for. Of several, each is asked alone, while the
            others stand still.
        batches: Training batches as they are trained on, 8 or more; they are used again and again.
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
            raise ValueError("There is no batch. Give some training batches, 8 or more.")
        closures, scene = (
            [_bound(loss, batch) for batch in handful],
            _Scene(model, declared(stateful)),
        )
        return [_suggest(one, closures, scene) for one in inner]
    finally:
        streams.restore()


def _bound(loss: Callable[[T], Tensor], batch: T) -> Forward:
    return lambda: loss(batch)


class _Scene(NamedTuple):
    """What a forward pass involves beside the optimizer's parameters."""

    model: nn.Module | None
    stateful: tuple[Stateful, ...]


def _suggest(optimizer: optim.Optimizer, closures: Sequence[Forward], scene: _Scene) -> Suggestion:
    with _untouched(optimizer, closures[0], scene):
        lr = _without_schedule(optimizer)
        silence = _Silence(optimizer, Tape(*scene))
        logs = silence.measure(closures)
        beta = silence.beta
    spread = statistics.variance(logs)
    return Suggestion.gaussian(
        mean=math.log10(AIM * math.sqrt(1 - beta) * lr) + statistics.fmean(logs),
        deviation=math.sqrt(OPEN**2 + spread * ALIKE / len(logs)),
        lr=lr,
        forwards=silence.forwards,
    )


@contextmanager
def _untouched(optimizer: optim.Optimizer, closure: Forward, scene: _Scene) -> Iterator[None]:
    """Put everything back afterwards that steps in silence change; fire no hooks meanwhile."""
    buffers = Buffers()
    buffers.declared.see(scene.stateful)
    with ExitStack() as stack:
        stack.callback(RandomState(devices_of(optimizer)).restore)
        stack.callback(buffers.restore)
        stack.callback(Kept([optimizer]).restore)
        stack.enter_context(watching(buffers, scene.model))
        with torch.no_grad(), suppress(RuntimeError):
            closure()  # shows the modules; what cannot run without gradients shows them, too
        others = (p for module in buffers.modules for p in module.parameters(recurse=False))
        stack.enter_context(gradients_set_aside({*params_of(optimizer), *others}))
        stack.enter_context(silent(optimizer, BEFORE, AFTER))
        yield


def _without_schedule(optimizer: optim.Optimizer) -> float:
    """Give the groups the rates that they have without a schedule; return the leading one."""
    for group in optimizer.param_groups:
        first = group.pop("initial_lr", 0.0)
        group.pop("max_lr", None)
        group["lr"] = float(group["lr"]) or float(first)
    lr = leading_rate(optimizer.param_groups)
    if not lr > 0:
        raise ValueError(
            "lr is 0 in every group: a rate for it has no ratio. Give any positive lr."
        )
    return lr


class _Silence:
    """Steps that are taken in silence, and what is measured at them.

    Args:
        optimizer: Whose steps they are. Its rates are changed.
        tape: Where the forward passes are recorded.
    """

    def __init__(self, optimizer: optim.Optimizer, tape: Tape) -> None:
        self._base, self._tape = optimizer, tape
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._arrival = Arrival(self._tape, per_sample=False)
        self._ranks = find_ranks(None, None)
        self.beta = setting_of(optimizer.param_groups, self._rates).beta
        self.forwards = 0

    def measure(self, closures: Sequence[Forward]) -> list[float]:
        """Return the decimal logarithms of the scales at which a step bends by 1, when settled."""
        first, *others = itertools.islice(itertools.cycle(closures), STEPS)
        searched = self._memory(SEARCHING)
        self._step(first, SEARCHING, searched, adapt)
        if searched.decisions["search"] == 0:
            raise ValueError(NOTHING_SEEN)
        scale, memory, found = searched.scale, self._memory(MEASURING), dict[int, float]()
        for step, closure in enumerate(others, 1):
            self._go_at(scale)
            known = memory.rule.limit.probes
            self._step(closure, MEASURING, memory, observe)
            if memory.rule.limit.probes > known:
                found[step] = memory.rule.limit.last / math.log(10)
                recent = statistics.fmean(list(found.values())[-RECENT:])
                scale = CAUTION * math.sqrt(1 - self.beta) * 10**recent
        logs = [log for step, log in found.items() if step >= SETTLED]
        if len(logs) < ENOUGH:
            raise ValueError(NOTHING_SEEN)
        return logs

    def _memory(self, rule: Rule) -> Memory:
        memory = Memory.new(rule, None)
        memory.first_rates = list(self._rates)
        return memory

    def _go_at(self, scale: float) -> None:
        for group, rate in zip(self._base.param_groups, self._rates, strict=True):
            group["lr"] = scale * rate

    def _step(self, closure: Forward, rule: Rule, memory: Memory, take: Take) -> None:
        parts = Parts(self._base, rule, None, self._tape)
        with torch.enable_grad():
            arrived = self._arrival.receive(closure, Given(), self._base, record=True)
        with torch.no_grad():
            if arrived.batch is None or not has_gradients(self._base):
                raise ValueError(NOTHING_SEEN)
            outcome = take(parts, memory, arrived.batch, self._ranks)
        if outcome.refusal:
            raise NotTheSameLoss(outcome.refusal)
        memory.record(outcome.probe, outcome.rejected, outcome.seen)
        self.forwards += self._tape.replays
        self._arrival.clear()
        self._tape.clear()
