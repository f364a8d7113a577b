"""One run: a row, a way and a seed in; a record out.

A record is plain data. A run that raises is a record, too.
"""

import math
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from .hazard import Hazard, Player, Training
from .ways import Reading, Way

POINTS = 60  # of a trace
EARLY = 1000  # steps: what they cost is judged apart
LOOKS = 5  # measurements at the end, whose mean counts
LAST = 0.1  # the share of the steps over which the end is measured
HOPELESS = 25  # losses in a row that are not finite, after which a run is ended

Record = dict[str, Any]


@dataclass
class Trace:
    """The time line of a run, thinned: what was seen and done at some of the steps."""

    step: list[int] = field(default_factory=list)
    loss: list[float | None] = field(default_factory=list)
    rate: list[float | None] = field(default_factory=list)
    scale: list[float | None] = field(default_factory=list)
    decision: list[str] = field(default_factory=list)
    forwards: list[float] = field(default_factory=list)

    def add(self, step: int, loss: float, seen: Reading, forwards: float) -> None:
        self.step.append(step)
        self.loss.append(finite(loss))
        self.rate.append(finite(seen.rate))
        self.scale.append(finite(seen.scale))
        self.decision.append(seen.decision)
        self.forwards.append(forwards)


def finite(value: float | None) -> float | None:
    """Return the number to six digits, or None for what JSON does not have."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def trace_steps(steps: int, points: int = POINTS) -> set[int]:
    """Return where a trace looks: powers of two, the thousandth, evenly, and the last step."""
    early = {count - 1 for count in (*(2**k for k in range(20)), EARLY) if count <= steps}
    return early | {steps * k // points for k in range(points)} | {steps - 1}


def look_steps(steps: int) -> set[int]:
    """Return after which steps the end is measured."""
    return {max(0, math.ceil(steps * (1 - LAST * k / LOOKS)) - 1) for k in range(LOOKS)}


def run(
    row: Hazard, way: Way, seed: int, rate: float, steps: int | None = None, points: int = POINTS
) -> Record:
    """Train a row and return the record.

    Args:
        row: What to train.
        way: How.
        seed: Decides the initial weights and the data.
        rate: The rate that the optimizer is given.
        steps: Fewer steps than the row's, for a test.
        points: How many points the trace has.
    """
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.manual_seed(seed)
            training = row.build(seed)
            if steps is not None:
                training = replace(training, steps=steps)
            outcome = train(training, row, way, rate, points)
        except Exception as error:
            outcome = {"status": "raised", "error": tell(error), "final": None, "first": None}
        finally:
            torch.set_grad_enabled(True)  # a peer that fails may leave it off
    outcome["warnings"] = sorted({f"{w.category.__name__}: {str(w.message)[:160]}" for w in caught})
    outcome["seconds"] = round(time.process_time() - began, 2)
    return outcome


def tell(error: Exception) -> str:
    """Return what was raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:300]} ({last.name}, line {last.lineno})"


def train(training: Training, row: Hazard, way: Way, rate: float, points: int) -> Record:
    """Train until the end, or until it is hopeless, and return what the record says of it."""
    passes = Passes()
    players = [passes.counting(player) for player in training.players]
    optimizers = [way.make(row, player.params, rate) for player in players]
    schedules = [training.schedule(o) for o in optimizers] if training.schedule else []
    measure = delivered(training.measure, training, way, optimizers)
    score = delivered(training.score, training, way, optimizers)
    first = math.nan if measure is None else measure()
    looks: list[float] = []
    losses: list[float] = []
    trace, traced, looked = Trace(), trace_steps(training.steps, points), look_steps(training.steps)
    for t in range(training.steps):
        training.before(t)
        taken = []
        for player, optimizer in zip(players, optimizers, strict=True):
            taken.append(way.step(optimizer, training, player, player.batch(t)))
        losses.append(taken[0].item())
        if t in traced:
            trace.add(t, losses[-1], way.read(optimizers[0]), passes.extra(training, t + 1))
        if measure is not None and t in looked:
            looks.append(measure())
        for schedule, loss in zip(schedules, taken, strict=False):
            advance(schedule, loss)
        if not any(map(math.isfinite, losses[-HOPELESS:])) and t >= HOPELESS:
            break
    seen = way.read(optimizers[0])
    final = mean_of_end(looks, LOOKS) if measure else mean_of_end(losses, end_of(training.steps))
    is_whole = len(losses) == training.steps and math.isfinite(final)
    return {
        "status": "done" if is_whole else "diverged",
        "final": finite(final) if is_whole else None,
        "first": finite(losses[0] if measure is None else first),
        "score": finite(score()) if score and is_whole else None,
        "steps": len(losses),
        "forwards": passes.extra(training, len(losses)),
        "last_rate": finite(rate if seen.scale is None else rate * seen.scale),
        "decisions": dict(seen.counts),
        "trace": vars(trace),
    }


class Passes:
    """Counts how often losses are evaluated."""

    def __init__(self) -> None:
        self.count = 0

    def counting(self, player: Player) -> Player:
        def loss(batch: Any) -> Tensor:
            self.count += 1
            return player.loss(batch)

        return replace(player, loss=loss)

    def extra(self, training: Training, steps: int) -> float:
        """Return the passes over whole batches beyond one a step."""
        return self.count / (training.pieces * len(training.players)) - steps


def delivered(
    inner: Callable[[], float] | None, training: Training, way: Way, optimizers: list[Any]
) -> Callable[[], float] | None:
    """Return a measure of what the method would deliver; it leaves no trace."""
    if inner is None:
        return None

    def measure() -> float:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), ExitStack() as stack:
            torch.manual_seed(1)
            for optimizer, player in zip(optimizers, training.players, strict=True):
                stack.enter_context(way.delivering(optimizer, player.params))
            return inner()

    return measure


def end_of(steps: int) -> int:
    return max(1, math.ceil(LAST * steps))


def mean_of_end(values: list[float], count: int) -> float:
    return sum(values[-count:]) / len(values[-count:]) if values else math.nan


def advance(schedule: Any, loss: Tensor) -> None:
    if isinstance(schedule, ReduceLROnPlateau):
        schedule.step(loss.item())
    else:
        schedule.step()
