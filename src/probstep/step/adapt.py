"""The paper's Algorithm 1, in one function: `adapt`.

It takes what arrived (a `Batch`), lets the base step, probes the step, asks the rule, and returns an
`Outcome`. It writes nothing that lasts but the parameters, the base's state and the rule's state.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, optim

from ..checks import check_loss, check_same_shape
from ..memory import Memory, Probe
from ..rules import Decision, Observation, Rule
from .arrival import Batch
from .base import params_of, reference_rate, setting_of, step_at
from .displacement import Displacement, pack
from .objective import Objective
from .prove import Check
from .ranks import Ranks
from .replay import Tape
from .stretch import Stretch
from .trial import Before, Trial

AVERAGED = 10.0  # a loss averages the roundings of 16-bit numbers, and is finer than these
UNPAIRED = Decision(1.0, math.nan, "unpaired")
CONTRADICTED = Decision(1.0, math.nan, "contradicted")


@dataclass(frozen=True)
class Parts:
    """What every step is made of.

    Args:
        base: The optimizer that proposes the step.
        rule: What turns a probe into a decision.
        stretch: Lower bound and noise; None without both.
        tape: Where the forward passes of the batch are recorded.
        check: Prove that what is evaluated again is the same loss.
    """

    base: optim.Optimizer
    rule: Rule
    stretch: Stretch | None
    tape: Tape
    check: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of a probed step.

    Args:
        probe: What the last probe saw and what was decided.
        rejected: How many lengths were tried and rejected before.
        seen: What the last probe saw, as the rule was told; None if there was none.
    """

    probe: Probe
    rejected: int = 0
    seen: Observation | None = None


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
    check = None
    if parts.check:
        params = params_of(parts.base)
        check = Check(evaluate, loss, params, memory.proof, ranks, parts.tape.rounding)
        check.begin(is_searching=is_searching)
    with displacement_of(parts, ranks) as moved:
        f = objective.before(loss, moved)  # line 3; the gradients, line 4, are in place
        before, is_finite = _known_before(parts, memory, objective, moved, loss, f)
        if not is_finite:
            moved.undo()
            return Outcome(Probe.skipped(before.loss, memory.scale))
        step_at(parts.base, before.scale)  # line 5: v = eta W g is the base's step
        phi = objective.slope(moved)  # line 6
        s = None
        if parts.stretch is not None:  # lines 8 to 14
            s, memory.bound = parts.stretch.apply(moved, loss, f, phi, ranks, memory.bound)
        trial = Trial(moved, objective, before, phi, s, with_norms=rule.chooses_lengths)
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
        if is_searching and not is_paired:
            trial.resize(memory.scale / before.scale)  # the user's own rate
        elif is_paired and _is_ruinous(seen):  # at any length
            trial.resize(0.0)
    is_found = not rule.is_searching(memory.rule)
    scale = seen.step.rate / seen.step.setting.multiplier if is_found else memory.scale
    probe = Probe(
        loss=seen.step.loss,
        slope=seen.step.slope,
        loss_after=seen.loss_after,
        ratio=decision.ratio,
        scale=scale * decision.factor,
        decision=decision.word,
    )
    return Outcome(probe, rejected=0 if is_searching else tries - 1, seen=seen)


@contextmanager
def displacement_of(parts: Parts, ranks: Ranks) -> Iterator[Displacement]:
    """Begin a step; if anything raises, put the parameters back.

    The optimizer's state goes back only if it was empty: a copy would be larger than the model.
    """
    moved = Displacement.begin(
        parts.base,
        ranks,
        keep_state=not parts.base.state,
        from_zero=parts.stretch is not None,
    )
    try:
        yield moved
    except BaseException:
        moved.undo()
        raise


def evaluate_again(parts: Parts, batch: Batch) -> tuple[Tensor, bool]:
    """Return the batch's loss at the present parameters, and whether the same function was seen."""
    value, is_paired = parts.tape.again(batch.again, params_of(parts.base))
    check_loss(value, per_sample=batch.loss.dim() == 1)
    check_same_shape(value, batch.loss)
    return value, is_paired


def _known_before(
    parts: Parts,
    memory: Memory,
    objective: Objective,
    moved: Displacement,
    loss: Tensor,
    f: Tensor,
) -> tuple[Before, bool]:
    """Return what is known before the step, and whether the gradients are finite."""
    groups, ranks = parts.base.param_groups, objective.ranks
    # A 16-bit model under a 32-bit loss: what matters to a rule that looks at small changes.
    rounding = parts.tape.rounding / AVERAGED if parts.rule.chooses_lengths else 0.0
    of_model = torch.tensor(rounding / ranks.size)
    shares = pack(f, objective.share(loss), moved.sum_of_gradients(), of_model)
    f_before, value, gradients, rounding = ranks.total(shares).tolist()
    is_searching = parts.rule.is_searching(memory.rule)
    before = Before(
        loss=f_before,
        resolution=max(torch.finfo(loss.dtype).eps, rounding) * abs(value),
        scale=1 / reference_rate(groups) if is_searching else memory.scale,
        setting=setting_of(groups),
    )
    return before, math.isfinite(gradients)


def _is_ruinous(seen: Observation) -> bool:
    return math.isfinite(seen.step.loss) and not math.isfinite(seen.loss_after)
