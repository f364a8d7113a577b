"""Steps in silence: an optimizer goes some way, is looked at, and is put back.

Nothing is to be seen of it afterwards: parameters, gradients, the optimizer's state, buffers and random
streams are what they were, and no hooks have fired.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn, optim

from .memory import Memory
from .rules import RobustRule, Rule, WatchRule
from .step.adapt import Outcome, Parts, adapt
from .step.arrival import Arrival, Batch, Given
from .step.base import (
    devices_of,
    has_gradients,
    leading_rate,
    params_of,
    setting_of,
    sign_of,
)
from .step.closures import Forward
from .step.hooks import AFTER, BEFORE, silent
from .step.kept import Kept
from .step.observe import observe
from .step.randomness import RandomState
from .step.ranks import Ranks, find_ranks
from .step.replay import Tape
from .step.same import NotTheSameLoss
from .step.seeing import Trained, watching
from .step.stateful import Stateful
from .step.traces import Buffers, gradients_set_aside

PutBack = Callable[[], None]
Take = Callable[[Parts, Memory, Batch, Ranks], Outcome]

STEPS, SETTLED = 24, 8  # that are measured, and how many of them are only the way to a usual place
ENOUGH = 4  # measurements there, below which the others count, too
RECENT = 6  # measurements from which the rate of the next step is taken
CAUTION = 0.5  # of the way to the minimum along a step, where curvature is measured
ROUNDS, ROUND = 4, 32  # of a race, and steps in each
# A first step may go as far as the loss lets it: it is taken back.
SEARCHING = RobustRule(without=frozenset({"share"}))
MEASURING = WatchRule(RobustRule(target=1.0))
NOTHING_SEEN = (
    "No rate can be suggested: no length of a step changed the loss in a way that can be judged. Either "
    "the gradients are zero or not finite, or they are not those of this loss, or the optimizer holds "
    "other parameters than those that the loss depends on."
)


class Scene(NamedTuple):
    """What a forward pass involves beside the optimizer's parameters."""

    model: nn.Module | None
    stateful: tuple[Stateful, ...]


@contextmanager
def untouched(optimizer: optim.Optimizer, closure: Forward, scene: Scene) -> Iterator[PutBack]:
    """Put everything back afterwards that steps in silence change, and meanwhile as often as asked.

    Args:
        optimizer: Whose steps they are; it fires no hooks.
        closure: Computes a loss; it shows which modules there are.
        scene: What else a forward pass involves.
    """
    with ExitStack() as stack:
        stack.enter_context(silent(optimizer, BEFORE, AFTER))  # first: what is kept has no hooks
        streams, kept, buffers = RandomState(devices_of(optimizer)), Kept([optimizer]), Buffers()
        buffers.declared.see(scene.stateful)

        def put_back() -> None:
            kept.restore()
            buffers.restore()
            streams.restore()

        stack.callback(put_back)
        stack.enter_context(watching(buffers, Trained(scene.model, lambda: params_of(optimizer))))
        with torch.no_grad(), suppress(RuntimeError):
            closure()  # shows the modules; what cannot run without gradients shows them, too
        others = (p for module in buffers.modules for p in module.parameters(recurse=False))
        stack.enter_context(gradients_set_aside({*params_of(optimizer), *others}))
        yield put_back


class Silence:
    """Steps that are taken in silence, and what is seen of them.

    Args:
        optimizer: Whose steps they are. Its rates are changed.
        scene: What else a forward pass involves.
        closures: Compute the loss of a batch each; they are used in turn.
        put_back: Puts everything back.
    """

    def __init__(
        self,
        optimizer: optim.Optimizer,
        scene: Scene,
        closures: Sequence[Forward],
        put_back: PutBack,
    ) -> None:
        self._base, self._closures, self._put_back = optimizer, closures, put_back
        self._tape = Tape(*scene, lambda: params_of(optimizer))
        self._arrival = Arrival(self._tape, per_sample=False)
        self._ranks = find_ranks(None, None)
        self.lr = _without_schedule(optimizer)
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]
        self.beta = setting_of(optimizer.param_groups, self._rates).beta
        self.steps = self.forwards = 0

    def measure(self) -> float:
        """Return the decimal logarithm of the rate at which a step bends by 1: the geometric mean.

        The first step is searched for the order of magnitude, as RobustRule does it, and taken back:
        where the loss is flat, it is far too long. At the others it is measured, as `watch` does it.
        """
        searched = self._memory(SEARCHING)
        self._probe(self._closures[0], SEARCHING, searched, adapt)
        if searched.decisions["search"] == 0:
            raise ValueError(NOTHING_SEEN)
        self._begin(CAUTION * math.sqrt(1 - self.beta) * searched.scale)
        memory, found = self._memory(MEASURING), dict[int, float]()
        for step, closure in enumerate(self._turns(STEPS)):
            known = memory.rule.limit.probes
            self._probe(closure, MEASURING, memory, observe)
            if memory.rule.limit.probes > known:
                found[step] = memory.rule.limit.last / math.log(10)
                recent = statistics.fmean(list(found.values())[-RECENT:])
                self._go_at(CAUTION * math.sqrt(1 - self.beta) * 10**recent)
        logs = [log for step, log in found.items() if step >= SETTLED]
        if len(logs) < ENOUGH:  # it was soon at a minimum, say
            logs = list(found.values()) or [math.log10(searched.scale)]
        return statistics.fmean(logs) + math.log10(self.lr)

    def start(self) -> float:
        """Return the mean loss of a round without any step."""
        self._begin(1.0)
        losses = [self._loss(closure) for closure in self._turns(min(ROUND, len(self._closures)))]
        self.forwards += len(losses)
        return statistics.fmean(losses)

    def race(self, place: float) -> Iterator[float]:
        """Train at one rate from the start; give the mean loss of one round after another.

        Args:
            place: The decimal logarithm of the rate.
        """
        self._begin(10**place / self.lr)
        turns = self._turns(ROUNDS * ROUND)
        for _ in range(ROUNDS):
            losses: list[float] = []
            for closure in itertools.islice(turns, ROUND):
                losses.append(self._loss(closure))
                if not math.isfinite(losses[-1]):
                    yield math.inf
                    return
                self._base.step()
                self.steps += 1
            yield statistics.fmean(losses)

    def _turns(self, count: int) -> Iterator[Forward]:
        return itertools.islice(itertools.cycle(self._closures), count)

    def _begin(self, scale: float) -> None:
        """Put everything back, and set the rates."""
        self._put_back()
        _without_schedule(self._base)
        self._go_at(scale)

    def _go_at(self, scale: float) -> None:
        for group, rate in zip(self._base.param_groups, self._rates, strict=True):
            group["lr"] = scale * rate

    def _memory(self, rule: Rule) -> Memory:
        memory = Memory.new(rule, None)
        memory.first_rates = list(self._rates)
        return memory

    def _loss(self, closure: Forward) -> float:
        """Return what is minimised, the same on all ranks; its gradients are in place."""
        for p in params_of(self._base):
            p.grad = None
        with torch.enable_grad():
            loss = self._arrival.receive(closure, Given(), self._base, record=False).loss
        self._arrival.clear()
        if loss is None:
            raise ValueError(NOTHING_SEEN)
        value: Tensor = self._ranks.total(loss.detach().double() / self._ranks.size)
        return sign_of(self._base) * value.item()

    def _probe(self, closure: Forward, rule: Rule, memory: Memory, take: Take) -> None:
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
        self.steps += 1
        self.forwards += self._tape.replays
        self._arrival.clear()
        self._tape.clear()


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
