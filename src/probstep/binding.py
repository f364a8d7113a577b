"""The memory of an optimizer, and where a checkpoint finds it: under one key in each of its groups."""

import math
import weakref
from typing import Any

from torch import optim

from .checks import check_per_group, refuse_mixed_maximize, steps_with_its_rate
from .estimators import LowerBound
from .memory import Memory, Published
from .notices import Notices
from .ratios import Member, Ratios
from .step.adapt import Parts
from .step.base import sign_of
from .step.ending import Ending
from .step.joint import bases_of, name_of
from .step.unread import Unread

MEMORY = "probstep"  # the key in every param group under which a checkpoint carries the memory


class Binding:
    """Keeps the memory, reads it from the groups and writes it there.

    Args:
        parts: What every step is made of: the optimizer with its groups, the rule, the members.
        bound: The lower bound; None without one.
        ending: The end of training. A checkpoint must not have more steps than that.
        notices: What is said to the user.
    """

    memory: Memory

    def __init__(
        self, parts: Parts, bound: LowerBound | None, ending: Ending, notices: Notices
    ) -> None:
        self.unread = Unread()
        self._parts, self._bound = parts, bound
        self._ending, self._notices = ending, notices
        self._published: Published | None = None
        self.bind()

    @property
    def current(self) -> Memory:
        """The memory. It is read anew if the groups were replaced: the base has loaded a checkpoint."""
        groups = self._parts.base.param_groups
        # Not by `is_in_place`: every step comes here several times.
        if groups[0].get(MEMORY) is not self._published:
            self.bind()
        elif len(groups) > len(self.memory.first_rates):  # the base was given one
            self.see_new_groups()
        return self.memory

    @property
    def is_in_place(self) -> bool:
        """Whether the groups hold this memory, and not that of another ProbStep around the base."""
        return self._parts.base.param_groups[0].get(MEMORY) is self._published

    def bind(self) -> None:
        """Take the memory that a checkpoint has put into any group, or a new one; put it into all."""
        groups, rule = self._parts.base.param_groups, self._parts.rule
        refuse_mixed_maximize(groups)
        found = next((group[MEMORY] for group in groups if MEMORY in group), None)
        is_new = found is None or found is not self._published
        if is_new:
            self.memory = Memory.new(rule, self._bound)
            if found is not None:
                self.memory, faults = Memory.restored(found, rule, self._bound)
                self._notices.of_checkpoint(faults)
            self.unread.read()  # forget a loss of which the checkpoint knows nothing
        new = groups[len(self.memory.first_rates) :]
        self.memory.first_rates += [float(group["lr"]) for group in new]
        self._fit_ratios()
        if not (rule.only_watches or all(map(steps_with_its_rate, bases_of(self._parts.base)))):
            self.memory.is_frozen = True
        self.publish()
        if is_new:
            self._ending.check(self.memory.steps)  # last: who is told goes on with what was loaded

    def see_new_groups(self) -> None:
        """Take note of groups that were added to an optimizer inside, or that it has loaded."""
        groups = self._parts.base.param_groups
        if all(MEMORY in group for group in groups) and len(self.memory.first_rates) >= len(groups):
            return
        if not self.is_in_place:
            self.bind()
        old = iter(self.memory.first_rates)
        # A group that was copied from another one carries the memory, too.
        self.memory.first_rates = [
            next(old, float(group["lr"])) if MEMORY in group else float(group["lr"])
            for group in groups
        ]
        self.bind()

    def settle(self) -> None:
        """Read what the last step left into the memory."""
        if (left := self.unread.read()) is not None:
            self.memory.pending = left.loss
            self.memory.history.close(sign_of(self._parts.base) * left.loss)
            if left.was_skipped:
                self.memory.record_skipped(self.memory.steps)
                self._notices.of_skipped_step()
            elif not (left.was_guarded or math.isfinite(left.loss)):
                self._notices.of_touched_parameters(name_of(self._parts.base))

    def publish(self) -> None:
        """Put a plain copy of the memory into every group, where a checkpoint finds it."""
        if len(self._parts.base.param_groups) > len(self.memory.first_rates):
            self.see_new_groups()  # it publishes, too
            return
        self.settle()
        self._published = Published(self.memory.plain())
        for group in self._parts.base.param_groups:
            group[MEMORY] = self._published

    def follow_checkpoints(self) -> None:
        """Publish the memory whenever the base, or an optimizer of a list, makes a checkpoint."""
        me = weakref.ref(self)  # the base may outlive us
        for base in bases_of(self._parts.base):
            base.register_state_dict_pre_hook(lambda _: _publish(me()))
            base.register_state_dict_post_hook(_make_plain)

    def _fit_ratios(self) -> None:
        """Give the memory as many ratios as there are members."""
        memory, members, rule = self.memory, self._parts.members, self._parts.rule
        count = 0 if members is None else len(members.counts())
        if len(memory.ratios.members) == count:
            return
        if members is not None and members.per_group:
            check_per_group(members.base.param_groups, is_searching=rule.chooses_lengths)
        memory.ratios = Ratios([Member() for _ in range(count)])
        if rule.chooses_lengths and not rule.is_searching(memory.rule):
            rule.search_again(memory.rule)  # the old rates were found for other members


def _publish(binding: Binding | None) -> None:
    if binding is not None:
        binding.publish()


def _make_plain(_: optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """Put a plain dictionary into a checkpoint: `torch.load(weights_only=True)` takes nothing else."""
    for group in state_dict["param_groups"]:
        if isinstance(group.get(MEMORY), Published):
            group[MEMORY] = dict(group[MEMORY])
