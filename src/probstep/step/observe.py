"""A probed step that is only watched: the base's own step at its own rate, whatever a probe says.

Nothing is taken back, shortened or skipped, even if the base makes the parameters infinite.
Other lengths of the step are looked at on the way, and put back bit for bit.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ..memory import Memory, Probe
from ..rules import Decision, Observation, Rule
from .adapt import (
    CONTRADICTED,
    UNPAIRED,
    Outcome,
    Parts,
    evaluate_again,
    is_empty,
    known_before,
    model_rounding,
)
from .arrival import Batch
from .attempt import Attempt
from .base import params_of
from .objective import Objective
from .prove import Check
from .ranks import Ranks
from .same import Evaluate, NotTheSameLoss
from .trial import Aside, Trial

BARE = 1.0  # the scale of every step that is only watched


def observe(parts: Parts, memory: Memory, batch: Batch, ranks: Ranks) -> Outcome:
    """Let the base step at its own rate, and let the rule learn from looks at that step.

    Args:
        parts: What every step is made of.
        memory: What earlier steps left; the rule's state changes.
        batch: What the step descends on: a loss that can be evaluated again.
        ranks: Who else takes the step.
    """
    objective = Objective.of(parts.base, batch.grad_scale, ranks, parts.rule)
    evaluate = functools.partial(evaluate_again, parts, batch)
    short = functools.partial(model_rounding, parts, memory)
    check = Check(evaluate, batch.loss, params_of(parts.base), memory.proof, ranks, short)
    refusal = _refusal(lambda: check.begin(is_searching=False)) if parts.check else ""
    with Attempt(parts.base, ranks) as attempt:
        f = objective.before(batch.loss, attempt.moved)
        before, is_finite = known_before(parts, memory, objective, attempt.moved, batch.loss, f)
        is_blind = not is_finite or is_empty(parts.base, before, ranks)
        attempt.take(BARE)
        if refusal or is_blind:
            return Outcome(_unseen(before.loss), refusal=refusal)
        phi, *squares = objective.measure(attempt.moved)
        trial = Trial(attempt, objective, before, phi, squares, None)
        value, is_paired = evaluate()
        seen, is_paired = trial.see(value, is_paired=is_paired, tries=1)
        if not is_paired:
            decision = UNPAIRED
        elif parts.check and not check.believes(trial, seen):
            decision = CONTRADICTED
        else:
            decision = _look(parts.rule, memory, trial, seen, evaluate, batch.loss)
            if parts.check:
                refusal = _refusal(lambda: check.end(trial, is_told=batch.is_told))
    memory.short = parts.tape.rounding
    probe = Probe(
        loss=seen.step.loss,
        slope=seen.step.slope,
        loss_after=seen.loss_after,
        ratio=decision.ratio,
        scale=BARE,
        decision=decision.word,
    )
    return Outcome(probe, seen=seen, refusal=refusal)


def _look(
    rule: Rule,
    memory: Memory,
    trial: Trial,
    first: Observation,
    evaluate: Evaluate,
    loss: Tensor,
) -> Decision:
    """Tell the rule of the step as it was taken, then of every length that it asks for."""
    decision = last = rule.judge(memory.rule, first)
    if last.again is None:
        return decision
    with trial.aside() as aside:
        length, tries = 1.0, 1
        while last.again is not None:
            length, tries = length * last.again, tries + 1
            seen = _seen_at(aside, length, first, evaluate, loss, tries)
            if seen is None:
                return UNPAIRED
            last = rule.judge(memory.rule, seen)
    return decision


def _seen_at(
    aside: Aside, length: float, first: Observation, evaluate: Evaluate, loss: Tensor, tries: int
) -> Observation | None:
    """Return what a length shows; None if the random numbers of the pass did not agree."""
    look = aside.look(length, evaluate, loss)
    is_finite = math.isfinite(look.drop) and math.isfinite(look.slope)
    if is_finite and not look.is_usable:
        return None
    step = first.step.times(length)
    if not is_finite:
        return Observation(step, math.inf, tries)
    # The slope is that of the step after the rounding of the parameters.
    return Observation(replace(step, slope=look.slope), step.loss - look.drop, tries)


def _refusal(prove: Callable[[], None]) -> str:
    """Return why the loss that is evaluated again is another one; training goes on."""
    try:
        prove()
    except NotTheSameLoss as error:
        return str(error)
    return ""


def _unseen(loss: float) -> Probe:
    return Probe(loss, math.nan, math.nan, math.nan, BARE, "watched")
