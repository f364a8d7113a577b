"""The paper's Algorithm 1, in one function: `adapt`.

It takes what arrived (a `Batch`), lets the base step, probes the step, asks the rule, and returns an
`Outcome`. Of what lasts it changes only the parameters, the base's state and the memory.
"""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, optim

from ..checks import check_loss, check_same_shape
from ..memory import Memory, Probe
from ..plain import copied
from ..rules import Decision, Observation, Rule
from .arrival import Batch
from .attempt import Attempt
from .base import largest_scale, leading_rate, params_of, setting_of
from .displacement import Displacement
from .examine import keeps_weights
from .finite import are_finite, gradients_are_zero, is_on_host
from .members import Members, look_at_one, search_members
from .objective import Objective
from .prove import Check
from .ranks import Ranks
from .replay import Tape
from .scalars import flag
from .trial import Before, Trial

if TYPE_CHECKING:
    from .stretch import Stretch

AVERAGED = 10.0  # a loss averages the roundings of 16-bit numbers, and is finer than these
NOT_FINITE = torch.tensor(math.nan, device="cpu", dtype=torch.float64)
UNPAIRED = Decision(1.0, math.nan, "unpaired")
CONTRADICTED = Decision(1.0, math.nan, "contradicted")


@dataclass
class Parts:
    """What every step is made of.

    Args:
        base: The optimizer that proposes the step.
        rule: What turns a probe into a decision.
        stretch: Lower bound and noise; None without both.
        tape: Where the forward passes of the batch are recorded.
        max_lr: The largest rate that a step may use; None without a limit. Only this changes: a user
            may set it during training.
        check: Prove that what is evaluated again is the same loss.
        members: What has a ratio of its own; None if everything has one scale.
    """

    base: optim.Optimizer
    rule: Rule
    stretch: "Stretch | None"
    tape: Tape
    max_lr: float | None = None
    check: bool = True
    members: Members | None = None


class Outcome(NamedTuple):
    """What became of a probed step.

    Args:
        probe: What the last probe saw and what was decided.
        rejected: How many lengths were tried and rejected before.
        seen: What the last probe saw, as the rule was told; None if there was none.
        limit: What keeps the scale from being higher; "" if unknown.
        refusal: Why the step cannot be watched; "" if it can.
    """

    probe: Probe
    rejected: int = 0
    seen: Observation | None = None
    limit: str = ""
    refusal: str = ""


def adapt(parts: Parts, memory: Memory, batch: Batch, ranks: Ranks) -> Outcome:
    """Take one step of the paper's Algorithm 1; its line numbers stand at the right.

    Args:
        parts: What every step is made of.
        memory: What earlier steps left; the rule's state and the bound's memory change.
        batch: What the step descends on: a loss that can be evaluated again.
        ranks: Who else takes the step.
    """
    rule, loss = parts.rule, batch.loss
    objective = Objective.of(parts.base, batch.grad_scale, ranks, rule)
    is_searching = rule.is_searching(memory.rule)
    evaluate = functools.partial(evaluate_again, parts, batch)
    short = functools.partial(model_rounding, parts, memory)
    check = None
    if parts.check:
        params = params_of(parts.base)
        check = Check(evaluate, loss, params, memory.proof, ranks, short)
        check.begin(is_searching=is_searching)
    with begin_step(parts, memory, ranks) as attempt:
        moved = attempt.moved
        f = objective.before(loss, moved)  # line 3; the gradients, line 4, are in place
        before, is_finite = known_before(parts, memory, objective, moved, loss, f)
        if not is_finite:
            attempt.undo()
            return Outcome(Probe.skipped(before.loss, memory.scale))
        if rule.chooses_lengths and is_empty(parts.base, before, ranks):
            if not is_searching:  # else nothing moves before a rate is found
                attempt.take(memory.scale)
            return Outcome(Probe.empty(memory.scale))
        prepare(parts, memory, attempt, ranks)
        ratios = memory.ratios
        if parts.members is not None:  # not in the paper: each member alone, then all together
            ratios = copied(ratios)
            before = search_members(
                parts.members, memory, rule, attempt, objective, before, loss, evaluate
            )
        most = largest_scale(parts.base.param_groups, parts.max_lr, attempt.factors)
        if is_searching:
            before = before._replace(scale=attempt.take_visibly(before.scale))
        else:
            attempt.take(before.scale)  # line 5: v = eta W g is the base's step
        phi, *squares = objective.measure(attempt.moved)  # line 6
        s = None
        if parts.stretch is not None:  # lines 8 to 14
            s, memory.bound = parts.stretch.apply(attempt, loss, f, phi, ranks, memory.bound)
        trial = Trial(attempt, objective, before, phi, squares, s)
        if is_searching:  # not in the paper: the rule chooses the first length, not the user
            trial.begin_search(rule)
        for tries in itertools.count(1):
            f_plus, is_paired = evaluate()  # line 16
            seen, is_paired = trial.see(f_plus, is_paired=is_paired, tries=tries)  # line 17
            if not is_paired:
                decision = UNPAIRED
            elif check is not None and not check.believes(trial, seen):
                decision = CONTRADICTED
            else:
                decision = rule.judge(memory.rule, seen)  # lines 18 to 22
            if decision.again is None:
                break
            trial.resize(trial.length * decision.again)  # not in the paper: try another length
        if check is not None and not objective.along_momentum:
            check.end(trial, is_told=batch.is_told)
        if is_paired and _is_ruinous(seen):  # at any length
            trial.resize(0.0)
        elif parts.members is not None and is_paired and not is_searching:
            look_at_one(
                parts.members, memory, attempt, objective, before, trial.length, loss, evaluate
            )
        if is_searching:  # the base's own step, at the rate found or else at the user's
            # The scale that was found is for the rate without its schedule.
            found = before.scale * trial.length * before.setting.multiplier
            is_found = is_paired and not (trial.length and rule.is_searching(memory.rule))
            if not is_found:
                memory.ratios = ratios
                attempt.factors = factors_of(parts, memory)
            attempt.settle(min(found if is_found else memory.scale, most))
    memory.short = parts.tape.rounding
    is_found = not rule.is_searching(memory.rule)
    scale = seen.step.rate if is_searching else seen.step.rate / before.setting.multiplier
    if not is_found:
        scale = memory.scale
    probe = Probe(
        loss=seen.step.loss,
        slope=seen.step.slope,
        loss_after=seen.loss_after,
        ratio=decision.ratio,
        scale=min(scale * decision.factor, most),
        decision=decision.word,
    )
    limit = "max_lr" if scale * decision.factor >= most else decision.limit
    return Outcome(probe, rejected=0 if is_searching else tries - 1, seen=seen, limit=limit)


def begin_step(parts: Parts, memory: Memory, ranks: Ranks) -> Attempt:
    """Begin a step, as a context: if anything raises, it is taken back."""
    from_zero = parts.stretch is not None and not memory.keeps_weights
    return Attempt(parts.base, ranks, from_zero=from_zero, factors=factors_of(parts, memory))


def factors_of(parts: Parts, memory: Memory) -> list[float] | None:
    """Return the ratio of each group; None if everything has one scale."""
    return None if parts.members is None else parts.members.factors(memory.ratios.values)


def prepare(parts: Parts, memory: Memory, attempt: Attempt, ranks: Ranks) -> None:
    """Keep what a step will change, if the step may have to be taken anew.

    That is so in a search, of all or of a member, and if the base keeps weights in its state. A search
    finds out whether the base does. A base that was never examined is examined now.
    """
    is_searching = parts.rule.is_searching(memory.rule)
    is_trying = is_searching or memory.ratios.is_wanted
    is_known = memory.keeps_weights is not None and not is_trying
    if is_known and not memory.keeps_weights:
        return
    attempt.keep(is_search=is_searching)
    if not is_known and not memory.keeps_weights:
        if parts.members is not None:
            attempt.factors = parts.members.units()
        memory.keeps_weights = keeps_weights(attempt, parts.base, ranks)
        attempt.factors = factors_of(parts, memory)
    if memory.keeps_weights:
        attempt.shorten_by_rate()


def evaluate_again(parts: Parts, batch: Batch) -> tuple[Tensor, bool]:
    """Return the batch's loss at the present parameters, and whether the same function was seen.

    A loss that cannot be computed there, but could where the step began, is infinite: the matrix of a
    Gaussian process, for example, may have no Cholesky factor.
    """
    try:
        value, is_paired = parts.tape.again(batch.again, params_of(parts.base))
    except (torch.linalg.LinAlgError, ArithmeticError):  # type: ignore[attr-defined]
        return torch.full_like(batch.loss, math.inf), True
    check_loss(value, per_sample=batch.loss.dim() == 1)
    check_same_shape(value, batch.loss)
    return value, is_paired


def known_before(
    parts: Parts,
    memory: Memory,
    objective: Objective,
    moved: Displacement,
    loss: Tensor,
    f: Tensor,
) -> tuple[Before, bool]:
    """Return what is known before the step, and whether the loss and the gradients are finite."""
    groups, ranks = parts.base.param_groups, objective.ranks
    # A model may compute in 16 bits under a 32-bit loss. A rule that looks at small changes must know.
    rounding = model_rounding(parts, memory) if parts.rule.chooses_lengths else 0.0
    of_model = torch.tensor(rounding / AVERAGED / ranks.size) if rounding else flag(False)
    # Without a penalty the objective is the loss, up to its sign.
    of_loss = objective.share(loss) if moved.has_penalty else f
    if is_on_host(parts.base):
        gradients = flag(False) if are_finite(parts.base) else NOT_FINITE
    else:
        gradients = moved.sum_of_gradients()
    f_before, value, sum_of_gradients, rounding = ranks.read(f, of_loss, gradients, of_model)
    is_searching = parts.rule.is_searching(memory.rule)
    before = Before(
        loss=f_before,
        resolution=max(torch.finfo(loss.dtype).eps, rounding) * abs(value),
        scale=1 / (leading_rate(groups) or 1.0) if is_searching else memory.scale,
        setting=setting_of(groups, memory.first_rates, memory.steps),
    )
    return before, math.isfinite(sum_of_gradients) and math.isfinite(f_before)


def model_rounding(parts: Parts, memory: Memory) -> float:
    """Return the rounding of a 16-bit format in which the model computes: now, or when last probed."""
    return max(parts.tape.rounding, memory.short)


def is_empty(base: optim.Optimizer, before: Before, ranks: Ranks) -> bool:
    """Say whether a batch has neither a loss nor a gradient: a probe of it could see nothing."""
    if before.resolution:  # it is zero where the loss is
        return False
    (count,) = ranks.read(flag(not gradients_are_zero(base)))
    return count == 0


def _is_ruinous(seen: Observation) -> bool:
    return math.isfinite(seen.step.loss) and not math.isfinite(seen.loss_after)
