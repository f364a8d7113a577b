"""Stepper: one step, from the loss that arrives to what is remembered of it and said about it.

What a step does to the parameters is in `step/`. Here it is decided whether a step is probed, the rule
hears the loss of the step before, and what became of the step goes into the memory.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn, optim

from .binding import Binding
from .memory import Memory
from .metrics import Rates
from .notices import Notices
from .step.adapt import Parts, adapt, factors_of
from .step.arrival import Arrival, Arrived, Batch, Given
from .step.base import (
    are_stuck_at_zero,
    devices_of,
    has_gradients,
    has_momentum,
    largest_scale,
    params_of,
    rates_are_zero,
    setting_of,
    sign_of,
    step_at,
)
from .step.closures import Forward
from .step.due import is_listening, probe_is_due, probe_will_be_due
from .step.ending import Ending
from .step.hooks import Overhears
from .step.joint import bases_of, name_of
from .step.observe import BARE, observe
from .step.ranks import Parallel, Ranks
from .step.unprobed import TAKEN, Unprobed, is_held_back, step_unprobed

if TYPE_CHECKING:
    from .schedule import Schedule


class Stepper:
    """Takes one step after another.

    Args:
        parts: What every step is made of.
        binding: The memory.
        arrival: How a loss comes in.
        ending: The end of training.
        notices: What is said to the user.
        model: The model, if the user gave it.
    """

    def __init__(
        self,
        parts: Parts,
        binding: Binding,
        arrival: Arrival,
        ending: Ending,
        notices: Notices,
        model: nn.Module | None,
    ) -> None:
        self._parts, self._binding, self._arrival = parts, binding, arrival
        self._ending, self._notices, self._model = ending, notices, model
        self._parallel = Parallel()
        self.is_stepping = False
        self._is_probed = False  # the step that is being taken

    def step(
        self,
        closure: Forward | None,
        given: Given,
        schedule: "Schedule | None",
        ranks: Ranks,
    ) -> Tensor | None:
        """Take one step, probed if that is due and the loss can be evaluated again; return the loss.

        Args:
            closure: Returns the loss of the batch, if the user gave one.
            given: What the user gave instead of a closure.
            schedule: When to probe; None leaves it to the rule.
            ranks: Who else takes the step.
        """
        parts, binding, tape = self._parts, self._binding, self._parts.tape
        if parts.members is not None:
            binding.see_new_groups()
        memory = binding.current
        is_probed = probe_is_due(parts.rule, schedule, memory, parts.base.param_groups)
        begun, kept = memory, None
        if is_probed:
            binding.settle()
            kept = memory.copy()
        self.is_stepping, self._is_probed = True, is_probed
        grad_mode = torch.is_grad_enabled()
        try:
            torch._C._set_grad_enabled(True)  # cheaper than contexts; for the closure
            arrived = self._arrival.receive(closure, given, parts.base, record=is_probed)
            torch._C._set_grad_enabled(False)
            if closure is not None:
                if self._arrival.has_piled_gradients:
                    self._notices.of_piled_gradients()
                memory = binding.current  # the closure may have loaded a checkpoint
            if self._ending.horizon is None:
                arrived = self._go_on(memory, arrived, ranks, is_probed=is_probed)
            else:
                with self._ending.decayed(parts.base.param_groups, memory.steps):
                    arrived = self._go_on(memory, arrived, ranks, is_probed=is_probed)
        except BaseException:
            if kept is not None and binding.memory is begun:  # not that of a loaded checkpoint
                binding.memory = kept  # so that the step can be taken again
            raise
        finally:
            torch._C._set_grad_enabled(grad_mode)
            self.is_stepping = False
            self._arrival.clear()
            tape.clear()
        if closure is None and probe_will_be_due(parts.rule, schedule, memory):
            tape.mark(devices_of(parts.base))
        return arrived.loss

    def is_due(self, schedule: "Schedule | None") -> bool:
        """Say whether the next step is probed, at the present rates; during a step, whether it is."""
        if self.is_stepping:
            return self._is_probed
        base = self._parts.base
        return probe_is_due(self._parts.rule, schedule, self._binding.current, base.param_groups)

    def scale(self) -> float:
        """Return the scale of the next step, so low that no rate is above `max_lr`."""
        memory, groups = self._binding.current, self._parts.base.param_groups
        max_lr = self._parts.max_lr
        if max_lr is None:
            return memory.scale
        factors = factors_of(self._parts, memory)
        with self._ending.decayed(groups, memory.steps):
            return min(memory.scale, largest_scale(groups, max_lr, factors))

    def rates(self) -> list[float]:
        """Return the rates of the next step, one number per group; by name if members have ratios."""
        memory, members = self._binding.current, self._parts.members
        groups = self._parts.base.param_groups
        with self._ending.decayed(groups, memory.steps):
            scale, factors = self.scale(), factors_of(self._parts, memory)
            rates = [float(group["lr"]) * scale for group in groups]
        if members is None or factors is None:
            return rates
        rates = [rate * factor for rate, factor in zip(rates, factors, strict=True)]
        return Rates(rates, members.names())

    def watch_base(self) -> None:
        """Warn if the base steps although nobody has called the ProbStep around it."""
        for base in bases_of(self._parts.base):
            base.register_step_pre_hook(Overhears(self.notice_step_of))

    def notice_step_of(self, base: optim.Optimizer) -> None:
        """Warn that nobody has called this ProbStep, unless another one is around the base."""
        if not self.is_stepping and self._binding.is_in_place:
            self._notices.of_step_of_base(type(base).__name__)

    def _go_on(
        self,
        memory: Memory,
        arrived: Arrived,
        ranks: Ranks,
        *,
        is_probed: bool,
    ) -> Arrived:
        """Tell the rule of the step before, take this one, and remember it; return what arrived."""
        self._tell_rule(memory)
        if arrived.loss is None and arrived.again is not None:
            arrived = self._with_loss(memory, arrived, is_probed=is_probed)
        if self._parts.max_lr is not None:
            self._limit(memory)
        if ranks.size > 1:
            self._parallel.see((self._model, *self._parts.tape.modules))
            self._parallel.refuse_join()
        if is_probed and is_held_back(self._parts, memory, arrived, ranks):
            is_probed = self._is_probed = False
        batch, taken = arrived.batch if is_probed else None, TAKEN
        if batch is not None:
            self._probe(memory, batch, ranks)
        elif self._parts.rule.only_watches:
            step_at(self._parts.base, BARE)
        else:
            taken = step_unprobed(self._parts, memory, arrived, ranks)
            if is_probed or arrived.loss is None or not (taken.is_taken and memory.moving):
                self._speak_of_unprobed(memory, arrived, taken, is_probed=is_probed)
        self._remember(memory, arrived.loss, taken, ranks, has_probe=batch is not None)
        return arrived

    def _tell_rule(self, memory: Memory) -> None:
        """Tell the rule the loss of the step before, which the device has long computed."""
        if self._binding.unread.kept is not None:
            self._binding.settle()
        rule, loss, memory.pending = self._parts.rule, memory.pending, None
        if loss is not None and is_listening(rule, memory):
            setting = setting_of(self._parts.base.param_groups, memory.first_rates, memory.steps)
            factor = rule.notice(memory.rule, loss, memory.scale, setting)
            memory.scale *= factor
            is_new_level = rule.is_new_level(memory.rule)
            if factor < 1.0 or is_new_level:
                told = sign_of(self._parts.base) * loss  # as the user knows it
                memory.history.hear(memory.steps, told, factor, is_new_level=is_new_level)

    def _with_loss(self, memory: Memory, arrived: Arrived, *, is_probed: bool) -> Arrived:
        """Compute the loss, if nobody gave it and the step needs it."""
        parts = self._parts
        is_needed = is_probed or parts.stretch is not None or is_listening(parts.rule, memory)
        if arrived.again is None or not is_needed:
            return arrived
        # Whether the pass drew the same random numbers is known only after the step.
        loss, _ = parts.tape.again(arrived.again, params_of(parts.base))
        self._arrival.check(loss)
        return arrived._replace(loss=loss, is_told=False)

    def _limit(self, memory: Memory) -> None:
        most = self.scale()  # a schedule may have raised the rates
        if most < memory.scale:
            memory.history.limited("max_lr")
        memory.scale = most

    def _speak_of_unprobed(
        self, memory: Memory, arrived: Arrived, taken: Unprobed, *, is_probed: bool
    ) -> None:
        """Say what a user should know about a step without a probe."""
        parts = self._parts
        if not taken.is_taken:
            memory.record_skipped(memory.steps + 1)
            self._notices.of_skipped_step()
        if is_probed or (arrived.loss is None and parts.stretch is not None):
            self._say_if_no_loss(arrived)
        is_unseen = not memory.moving and arrived.again is not None  # no rate has been seen yet
        if is_unseen and are_stuck_at_zero(parts.base.param_groups, memory.first_rates):
            self._notices.of_no_rate()

    def _probe(self, memory: Memory, batch: Batch, ranks: Ranks) -> None:
        if not has_gradients(self._parts.base):
            self._notices.of_no_gradients()
        take = observe if self._parts.rule.only_watches else adapt
        outcome = take(self._parts, memory, batch, ranks)
        memory.record(outcome.probe, outcome.rejected, outcome.seen, outcome.limit)
        if outcome.refusal:
            memory.is_frozen = True
            self._notices.of_refusal(outcome.refusal)
        self._notices.of_probe(outcome.probe, memory)
        self._notices.of_slope(memory)
        self._notices.of_rule(self._parts.rule.complaint(memory.rule))

    def _remember(
        self, memory: Memory, loss: Tensor | None, taken: Unprobed, ranks: Ranks, *, has_probe: bool
    ) -> None:
        """Count the step, and keep its loss for the rule and the history."""
        parts, groups = self._parts, self._parts.base.param_groups
        if parts.members is not None:
            parts.members.ask_for_missing(memory, ranks)
        self._notices.of_scale(memory)
        memory.forwards += parts.tape.replays
        if loss is None:
            memory.steps += not rates_are_zero(groups)  # not in the dry run of a checkpoint
        else:
            memory.steps += 1
        horizon = self._ending.horizon
        if horizon is not None and memory.steps > horizon:
            self._notices.of_horizon(horizon)
        if loss is None:
            return
        sign, history = sign_of(parts.base), memory.history
        rate, value = groups[0]["lr"], taken.loss
        if not is_listening(parts.rule, memory):
            if not (has_probe and memory.last is not None):
                return
            value = sign * memory.last.loss
        elif value is not None:
            memory.pending = sign * value
        if value is not None:
            history.write(memory.steps, memory.scale, rate, value)
            if taken.part < 1.0:
                history.add("held back", memory.steps, value)
            # A rate that is too high lets losses grow at every step, so the rule hears them at once.
            # With momentum the next step still goes where a surprising batch has pushed: a probe of it
            # would say more of that batch than of the rate. After an explosion it must be probed.
            if taken.part < 1.0 or not has_momentum(groups):
                self._tell_rule(memory)
        else:  # read a step later, where reading would wait for a device
            history.open(memory.steps, memory.scale, rate)
            self._binding.unread.keep(loss, sign, ranks, taken.found, is_guarded=taken.is_guarded)

    def _say_if_no_loss(self, arrived: Arrived) -> None:
        is_missing = arrived.again is None and not arrived.is_handed_over
        if is_missing and not rates_are_zero(self._parts.base.param_groups):
            self._notices.of_missing_loss(name_of(self._parts.base))
