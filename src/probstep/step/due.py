"""What the next step needs: a probe, a new search, its loss."""

from typing import TYPE_CHECKING

from ..memory import Memory
from ..rules import Rule
from .base import Groups, glance, keep_up

if TYPE_CHECKING:
    from ..schedule import Schedule


def probe_is_due(rule: Rule, schedule: "Schedule | None", memory: Memory, groups: Groups) -> bool:
    """Say whether the next step is probed, at the rates that the groups have now.

    Args:
        rule: It may be told to search again.
        schedule: When to probe; None leaves it to the rule.
        memory: What earlier steps left.
        groups: The groups of the optimizer.
    """
    if memory.is_frozen:
        return False
    is_moving, moving, may_have_risen = glance(groups, memory.first_rates, memory.moving)
    if not is_moving:
        return False
    if rule.chooses_lengths and (may_have_risen or moving > memory.moving):
        _search_again_if_changed(rule, memory, groups, moving)
    return probe_will_be_due(rule, schedule, memory)


def probe_will_be_due(rule: Rule, schedule: "Schedule | None", memory: Memory) -> bool:
    """Say whether the next step is probed if the rates stay as they are."""
    if memory.is_frozen:
        return False
    if schedule is None:
        return rule.is_due(memory.rule) or memory.ratios.is_wanted
    return schedule.is_due(memory.steps)


def is_listening(rule: Rule, memory: Memory) -> bool:
    """Say whether the rule wants the loss of every step."""
    return rule.chooses_lengths and not memory.is_frozen


def _search_again_if_changed(rule: Rule, memory: Memory, groups: Groups, moving: int) -> None:
    """Let the rule search again if a rate has risen far, layers were unfrozen or a group is new."""
    is_searching = rule.is_searching(memory.rule)
    has_changed = keep_up(groups, memory.first_rates, is_searching=is_searching)
    if moving > memory.moving:
        has_changed |= memory.moving > 0 and not is_searching
        memory.moving = moving
    if has_changed:
        rule.search_again(memory.rule)
        memory.history.add("restarted", memory.steps + 1)
