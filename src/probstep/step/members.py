"""The members of a step: what has a ratio of its own, each searched alone, then looked at now and then.

A member is an optimizer of a list, or a parameter group. `ratios` decides; here a part of the step is
moved while the others stay.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, optim

from ..checks import check_per_group
from ..memory import Memory
from ..ratios import balance, geometric_mean, learn
from ..rules import Rule, Setting
from .attempt import TRIES, Attempt, growth
from .base import Groups, leading_rate, params_of, setting_of
from .displacement import Displacement
from .joint import bases_of
from .objective import Objective
from .ranks import Ranks
from .same import Evaluate
from .trial import Before, Trial


@dataclass(frozen=True)
class Members:
    """Which groups belong to which member.

    Args:
        base: The optimizer whose step it is.
        per_group: Every group is a member; else every optimizer of a list is.
    """

    base: optim.Optimizer
    per_group: bool = False

    def counts(self) -> list[int]:
        """Return how many groups each member has, in the order of the groups."""
        if self.per_group:
            return [1] * len(self.base.param_groups)
        return [len(base.param_groups) for base in bases_of(self.base)]

    def names(self) -> list[str]:
        """Return what to call each group: by its optimizer, numbered where that is not enough."""
        bases = bases_of(self.base)
        kinds = [type(base).__name__ for base in bases]
        names = []
        for k, (base, kind) in enumerate(zip(bases, kinds, strict=True)):
            name = kind if kinds.count(kind) == 1 else f"{kind}{k}"
            groups = base.param_groups
            names += [name] if len(groups) == 1 else [f"{name}/{j}" for j in range(len(groups))]
        return names

    def factors(self, ratios: list[float]) -> list[float]:
        """Return the ratio of each group."""
        return [r for r, count in zip(ratios, self.counts(), strict=True) for _ in range(count)]

    def units(self, grown: Sequence[float] | None = None) -> list[float]:
        """Return factors that give every member the rate of the first, whatever the users gave.

        Args:
            grown: How many times that rate each gets; None for once.
        """
        unit, groups = leading_rate(self.base.param_groups), self.groups()
        rates = zip(grown or [1.0] * len(groups), groups, strict=True)
        return self.factors([unit * times / (leading_rate(own) or 1.0) for times, own in rates])

    def groups(self) -> list[Groups]:
        """Return the groups of each member."""
        return list(_cut(self.base.param_groups, self.counts()))

    def settings(self, memory: Memory) -> list[Setting]:
        """Return what the optimizer's settings say of each member's step."""
        cut = zip(self.groups(), _cut(memory.first_rates, self.counts()), strict=True)
        return [setting_of(groups, rates, memory.steps) for groups, rates in cut]

    def part(self, moved: Displacement, k: int) -> tuple[Displacement, Displacement]:
        """Return a member's part of a displacement, and the rest."""
        params = {id(p) for group in self.groups()[k] for p in group["params"]}
        return moved.divided(lambda param: id(param) in params)

    def ask_for_missing(self, memory: Memory, ranks: Ranks) -> None:
        """Make the next step a probed one if a member that is still to be searched has gradients."""
        ratios = memory.ratios
        if ratios.is_wanted or memory.is_frozen or memory.steps < ratios.tried_at + ratios.wait:
            return
        groups = self.groups()
        open_ones = [k for k in ratios.missing if _may_move(groups[k])]
        if open_ones:
            params = [p for k in open_ones for group in groups[k] for p in group["params"]]
            found = torch.tensor(float(any(p.grad is not None for p in params)))
            ratios.is_wanted = bool(ranks.total(found.to(params[0].device)).item())


def members_of(base: optim.Optimizer, rule: Rule, *, per_group: bool) -> Members | None:
    """Return what has a ratio of its own; None if everything has one scale."""
    if per_group:
        check_per_group(base.param_groups, is_searching=rule.chooses_lengths)
    elif not (rule.chooses_lengths and len(bases_of(base)) > 1):
        return None
    return Members(base, per_group)


class Alone:
    """A part of a step that is tried while the rest stays: what a Trial needs of an Attempt.

    Args:
        moved: The part.
    """

    def __init__(self, moved: Displacement) -> None:
        self.moved = moved

    def keep_direction(self) -> None:
        """Keep a copy of the displacement, so that the step can grow as well as shrink."""
        if self.moved.directions is None:
            self.moved = self.moved.keeping_direction()

    def resize(self, length: float, was: float) -> bool:
        """Take `length` times the step, after `was` times."""
        self.moved.resize(length, was=was)
        return False


def search_members(
    members: Members,
    memory: Memory,
    rule: Rule,
    attempt: Attempt,
    objective: Objective,
    before: Before,
    loss: Tensor,
    evaluate: Evaluate,
) -> Before:
    """Search each member alone if the rule searches, else only those that are missing; set the ratios.

    For this the base takes a step, with every member at rate 1. That step is taken back.

    Returns:
        What is known before the step, with the scale at which a search of all together begins.
    """
    ratios, is_searching = memory.ratios, rule.is_searching(memory.rule)
    if not (is_searching or ratios.is_wanted):
        return before
    rates = [leading_rate(groups) or 1.0 for groups in members.groups()]
    settings = members.settings(memory)
    parts, grown = _try_visibly(members, attempt, objective.ranks)
    attempt.moved.resize(0.0, was=1.0)
    counts = [torch.tensor(len(part.moved)) for part in parts]  # of parameters with a gradient
    shares = [objective.before(loss, part) for part in parts]
    losses, with_gradients = _halves(objective.ranks.read(*shares, *counts))
    found: list[float | None] = [None] * len(parts)
    for k in range(len(parts)) if is_searching else ratios.missing:
        own = Before(losses[k], before.resolution, grown[k] / rates[k], settings[k])
        found[k] = _search_alone(rule, Alone(parts[k]), objective, own, evaluate)
    attempt.rewind()
    known = [scale for scale in found if scale is not None]
    if known:
        ratios.take_found(found, geometric_mean(known) if is_searching else memory.scale)
    is_absent = not any(with_gradients[k] for k in ratios.missing)
    ratios.note_search(memory.steps, is_absent=is_absent)
    attempt.factors = members.factors(ratios.values)
    if not is_searching:
        return before
    groups, factors = members.base.param_groups, attempt.factors
    unit = next((u for g, f in zip(groups, factors, strict=True) if (u := float(g["lr"]) * f)), 1.0)
    # The members have no common momentum: take a mean, which does not depend on their order.
    beta = 1 - geometric_mean([1 - setting.beta for setting in settings])
    own_share = geometric_mean([setting.own_share for setting in settings])
    common = before.setting._replace(beta=beta, look_ahead=(1 - own_share) / beta if beta else None)
    return before._replace(scale=1 / unit, setting=common)


def _try_visibly(
    members: Members, attempt: Attempt, ranks: Ranks
) -> tuple[list[Displacement], list[float]]:
    """Let the base step with every member at rate 1, or at the first rate above that is visible.

    Returns:
        The part of each member, and its rate.
    """
    grown, tries = [1.0] * len(members.counts()), 0
    while True:
        attempt.factors = members.units(grown)
        attempt.try_at(1 / (leading_rate(members.base.param_groups) or 1.0))
        parts = [members.part(attempt.moved, k)[0] for k in range(len(grown))]
        device = params_of(members.base)[0].device  # a part without gradients knows no device
        squares = [part.squares().to(device) for part in parts]
        sizes = ranks.total(torch.stack(squares)).tolist()
        by = [growth(*size) for size in sizes]
        if max(by) == 1.0 or tries == TRIES:
            return [part.keeping_direction() for part in parts], grown
        grown = [times * more for times, more in zip(grown, by, strict=True)]
        tries += 1
        attempt.undo()


def _search_alone(
    rule: Rule, part: Alone, objective: Objective, before: Before, evaluate: Evaluate
) -> float | None:
    """Return the scale that is good for a member by itself; None if nothing is seen of it."""
    state = rule.init()
    part.resize(1.0, was=1.0)
    phi, *squares = objective.measure(part.moved)
    trial = Trial(part, objective, before, phi, squares, None)
    trial.begin_search(rule)
    if not trial.length:
        return None
    for tries in itertools.count(1):
        value, is_paired = evaluate()
        seen, is_paired = trial.see(value, is_paired=is_paired, tries=tries)
        if not is_paired:
            break
        decision = rule.judge(state, seen)
        if decision.again is None:
            break
        trial.resize(trial.length * decision.again)
    trial.resize(0.0)
    is_found = is_paired and math.isfinite(seen.loss_after) and not rule.is_searching(state)
    scale = seen.step.rate * decision.factor if is_found else 0.0
    return scale if 0 < scale < math.inf else None


def look_at_one(
    members: Members,
    memory: Memory,
    attempt: Attempt,
    objective: Objective,
    before: Before,
    length: float,
    loss: Tensor,
    evaluate: Evaluate,
) -> None:
    """Evaluate the loss with only one member moved, if that is affordable; learn from it.

    Args:
        members: Who has a ratio.
        memory: Its ratios change.
        attempt: The step as it was taken.
        objective: What it descends on.
        before: What was known before it.
        length: How much of the step was kept.
        loss: The batch's loss before the step.
        evaluate: Computes it again.
    """
    ratios = memory.ratios
    if not length or not ratios.is_affordable(memory.steps):
        return
    k, ratios.turn = ratios.turn, (ratios.turn + 1) % len(ratios.members)
    member = ratios.members[k]
    if not member.is_found:
        return
    part, rest = members.part(attempt.moved, k)
    own = Before(
        loss=objective.ranks.total(objective.before(loss, part)).item(),
        resolution=before.resolution,
        scale=before.scale * member.ratio * length,
        setting=members.settings(memory)[k],
    )
    phi, *squares = objective.measure(part)
    trial = Trial(Alone(part), objective, own, phi, squares, None)
    with rest.kept():
        rest.resize(0.0, was=1.0)
        value, is_paired = evaluate()
        seen, is_paired = trial.see(value, is_paired=is_paired, tries=1)
    ratios.forwards += 1
    if is_paired and learn(member, seen):
        balance(ratios, memory.scale)


def _may_move(groups: Groups) -> bool:
    """Say whether any parameter of these groups could be moved by its rate and could have a gradient."""
    return any(bool(group["lr"]) and _are_trained(group["params"]) for group in groups)


def _are_trained(params: list[Tensor]) -> bool:
    return any(p.requires_grad for p in params)


def _halves(items: list[float]) -> tuple[list[float], list[float]]:
    half = len(items) // 2
    return items[:half], items[half:]


def _cut(items: list[Any], counts: list[int]) -> Iterator[list[Any]]:
    ends = itertools.accumulate(counts, initial=0)
    return (items[begin:end] for begin, end in itertools.pairwise(ends))
