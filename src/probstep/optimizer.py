"""ProbStep: what a user calls and reads. What a step does is in `step/`, Algorithm 1 in its adapt.py."""

import functools
import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn, optim

from .checks import (
    as_bound,
    check_per_group,
    check_step_arguments,
    checked,
    checked_max_lr,
    checked_noise,
    refuse_graph_capture,
    refuse_mixed_maximize,
)
from .estimators import LowerBound, Noise, SampleNoise
from .history import Event, History
from .horizon import checked_horizon, decay
from .memory import NO_PROBE, Memory, Probe, Published
from .notices import Notices, brief
from .ratios import Member, Ratios
from .rules import Gauge, RobustRule, Rule, WatchRule
from .schedule import Schedule
from .step.adapt import Parts, adapt, factors_of
from .step.arrival import Arrival, Arrived, Given
from .step.base import (
    Groups,
    are_stuck_at_zero,
    count_moving,
    devices_of,
    has_gradients,
    keep_up,
    largest_scale,
    leading_rate,
    may_have_risen,
    params_of,
    rates_are_zero,
    scaled_rates,
    setting_of,
    sign_of,
    step_at,
)
from .step.closures import Forward
from .step.hooks import firing_own_hooks
from .step.joint import bases_of, name_of
from .step.members import Members
from .step.observe import BARE, observe
from .step.ranks import Group, Parallel, find_ranks, whole
from .step.replay import ModelHooks, Tape
from .step.stateful import declared
from .step.stretch import Stretch
from .step.unprobed import TAKEN, step_unprobed
from .step.unread import Unread
from .wrapper import Wrapper, as_one

MEMORY = "probstep"  # the key in every param group under which a checkpoint carries the memory


class Rates(list[float]):
    """The rates of several members, one number per group, each also under its name.

    >>> rates = Rates([0.02, 0.001], ["Muon", "AdamW"])
    >>> rates["AdamW"], rates[0], rates
    (0.001, 0.02, {'Muon': 0.02, 'AdamW': 0.001})
    """

    def __init__(self, rates: Sequence[float], names: Sequence[str]) -> None:
        super().__init__(rates)
        self.names = list(names)

    def named(self) -> Iterator[tuple[str, float]]:
        """Give the names and their rates."""
        return zip(self.names, self, strict=True)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names.index(key) if isinstance(key, str) else key)

    def __repr__(self) -> str:
        return repr(dict(self.named()))


class ProbStep(Wrapper):
    """Adapt the learning rate of a torch optimizer while it trains.

    ProbStep is itself a torch optimizer: schedulers, hooks, checkpoints and trainers take it as they
    would take the one inside. It multiplies every group's `lr` by one adapted factor, `scale`, only
    while the inner optimizer steps, so schedules and the ratios between groups keep their meaning.

    Args:
        optimizer: The optimizer to adapt: an instance. It stays reachable as `.base`. Or a list of
            several for one loss, such as Muon and AdamW: each gets a ratio to the common scale, and
            they stay reachable as `.base.bases`.
        rule: What turns a probe into a new scale; None is `RobustRule()`. `PaperRule()` is the paper's.
        lower_bound: f*, if known: a number or an estimator; None takes the minimum of the quadratic
            that the optimizer's own step implies. With `maximize=True` a number is an upper bound.
            It goes with `PaperRule`, as does the noise.
        noise: R, the variance of the loss: a number, a function of the loss, or `SampleNoise()`.
        probe: When to probe; None leaves it to the rule.
        model: The model. Needed where it is compiled; otherwise one of the ways to have its dropout
            masks and spectral norms replayed (the others are a closure and `forward_pass()`).
        process_group: The ranks that train one model together; None is torch's default group, if
            there is one; False says that this process trains alone though there are others.
        max_lr: No step uses a rate above it, in any group: the scale stays so low that the largest
            `lr * scale` is at most this. The first search may look beyond it. None is no limit.
        stateful: What a forward pass changes beside buffers and the global random streams: a generator,
            `probstep.stateful(model, "hidden")`, or a list of such. A module with the methods of
            `probstep.Stateful` is found by itself.
        per_group: Give every parameter group a ratio to the common scale, too: at most 8 groups.
        check: Prove on the first probed step, and on every search, that the loss which is evaluated
            again is the loss whose gradients were taken (docs/checks.md). False leaves that out.
        horizon: How many steps training has, if that is known: the rate then comes down to zero at the
            end, whatever a schedule makes of it before. None leaves the end open.

    Example:
        >>> model = nn.Linear(4, 1)
        >>> opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-9))
        >>> x, y = torch.ones(8, 4), torch.full((8, 1), 9.0)
        >>> for _ in range(20):
        ...     loss = opt.step(lambda: nn.functional.mse_loss(model(x), y))
        >>> opt.effective_lr[0] > 0.001, loss.item() < 1.0
        (True, True)
    """

    def __init__(
        self,
        optimizer: optim.Optimizer | Sequence[optim.Optimizer],
        rule: Rule | None = None,
        lower_bound: float | LowerBound | None = None,
        noise: Noise = 0.0,
        probe: Schedule | None = None,
        model: nn.Module | None = None,
        process_group: Group = None,
        max_lr: float | None = None,
        stateful: object = (),
        check: bool = True,
        horizon: int | None = None,
        per_group: bool = False,
    ) -> None:
        optimizer = as_one(optimizer)
        super().__init__(optimizer)
        self.rule: Rule = RobustRule() if rule is None else checked(rule, "rule", "judge")
        self.lower_bound = as_bound(lower_bound, sign=sign_of(optimizer))
        self.noise = checked_noise(noise)
        self.probe = None if probe is None else checked(probe, "probe", "is_due")
        self.model = model
        self.process_group = process_group
        self.max_lr = checked_max_lr(max_lr)
        self.stateful = stateful
        self.check = check
        self.per_group = per_group
        is_stretching = self.lower_bound is not None or self.noise != 0.0
        if self.rule.chooses_lengths and is_stretching:
            default = ", the default," if rule is None else ""
            raise ValueError(
                f"{type(self.rule).__name__}{default} decides on the length of steps by itself: "
                "lower_bound and noise go with PaperRule(). Add rule=probstep.PaperRule(), or leave "
                "them out."
            )
        if self.rule.only_watches and max_lr is not None:
            raise ValueError(
                f"{type(self.rule).__name__} moves no rate, so it cannot keep one below max_lr. Leave "
                "max_lr out."
            )
        stretch = Stretch(self.lower_bound, self.noise, self.rule.exact_noise)
        self._tape = Tape(model, declared(stateful))
        self._parts = Parts(
            optimizer,
            self.rule,
            stretch if is_stretching else None,
            self._tape,
            self.max_lr,
            check,
            self._members(),
        )
        self._arrival = Arrival(self._tape, per_sample=isinstance(self.noise, SampleNoise))
        self._unread = Unread()
        self._parallel = Parallel()
        self._notices = Notices()
        self._is_stepping = self._is_decayed = False
        self._horizon: int | None = None  # a copy may have gone beyond it, a checkpoint may not
        self._bind()
        self._horizon = checked_horizon(horizon)
        me = weakref.ref(self)
        for base in bases_of(optimizer):
            base.register_state_dict_pre_hook(lambda _: _publish_memory_of(me()))
            base.register_state_dict_post_hook(_make_plain)
            base.register_step_pre_hook(functools.partial(_notice_step_of_base, me))
        # In a model that is compiled in place the hooks would be compiled too.
        if model is not None and model._compiled_call_impl is None:
            model.register_forward_pre_hook(ModelHooks(self._on_forward, begins=True))
            model.register_forward_hook(ModelHooks(self._on_forward, begins=False))

    # What a user calls

    @firing_own_hooks
    def step(  # type: ignore[override]
        self,
        closure: Forward | None = None,
        *,
        loss: Tensor | None = None,
        reevaluate: Forward | None = None,
        grad_scale: float | Tensor | None = None,
    ) -> Tensor | None:
        """Take one step, and probe it if the schedule says so and the loss can be evaluated again.

        Args:
            closure: Returns the loss of the batch. If it does not call backward (the cheap form: a probe
                is one forward pass), ProbStep clears the gradients and runs backward itself. If it does,
                it owns its `zero_grad`, and a probe costs a full pass.
            loss: The loss whose gradients are in place, if backward was called outside.
            reevaluate: Computes that loss again, at whatever the parameters then are.
            grad_scale: The factor by which `.grad` differs from the gradient of the loss, if you clipped
                it yourself. `clip_grad_norm_` remembers it by itself.

        Returns:
            The loss, as the closure, `loss=` or `reevaluate_with` gave it; None without any.
        """
        check_step_arguments(closure, loss, grad_scale)
        refuse_graph_capture()
        if self._parts.members is not None:
            self._see_new_groups()
        is_due = self._is_due()
        kept: Memory | None = None
        if is_due:
            self._settle()
            kept = self._current.copy()
        self._is_stepping = True
        grad_mode = torch.is_grad_enabled()
        try:
            torch._C._set_grad_enabled(True)  # cheaper than contexts; for the closure
            given = Given(reevaluate, loss, grad_scale)
            arrived = self._arrival.receive(closure, given, self.base, record=is_due)
            torch._C._set_grad_enabled(False)
            if self._arrival.has_piled_gradients:
                self._notices.of_piled_gradients()
            memory = self._current
            with self._decayed():
                self._tell_rule(memory)
                if arrived.loss is None and arrived.again is not None:
                    arrived = self._with_loss(arrived, is_due=is_due)
                self._take(memory, arrived, is_due=is_due)
        except BaseException:
            if kept is not None:
                self._memory = kept  # so that the step can be taken again
            raise
        finally:
            torch._C._set_grad_enabled(grad_mode)
            self._is_stepping = False
            self._arrival.clear()
            self._tape.clear()
        if closure is None and self._will_be_due(memory):
            self._tape.mark(devices_of(self.base))
        return arrived.loss

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Record where a forward pass begins, so that the probe can replay its random numbers.

        Optional, with `step(loss=, reevaluate=)`: around the computation of the loss, once per
        micro-batch. A `reevaluate` that covers several micro-batches may use it the same way inside.

        Example:
            >>> model = nn.Sequential(nn.Linear(4, 1), nn.Dropout())
            >>> opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
            >>> x, y = torch.ones(8, 4), torch.full((8, 1), 9.0)
            >>> with opt.forward_pass():
            ...     loss = nn.functional.mse_loss(model(x), y)
            >>> loss.backward()
            >>> _ = opt.step(loss=loss, reevaluate=lambda: nn.functional.mse_loss(model(x), y))
            >>> opt.last_probe.decision
            'search'
        """
        if not self._is_due():
            yield
            return
        with self._tape.recording("forward_pass", devices_of(self.base)):
            yield

    def reevaluate_with(
        self,
        reevaluate: Forward | None,
        loss: Tensor | None = None,
        grad_scale: float | Tensor | None = None,
    ) -> None:
        """Hand over the means to probe the next step, for trainers that call a bare `step()`.

        A trainer's closure may call it, too: what was handed over counts, not what the closure returns.

        Args:
            reevaluate: Computes the loss of the coming step's batch again; None if there is no batch, or
                not before the closure has run.
            loss: That loss, if it is at hand; otherwise it costs one more forward pass, on a probed step
                and, for a rule that wants the loss of every step (RobustRule), on any other.
            grad_scale: As for `step`: the factor by which somebody clipped the gradients.
        """
        self._arrival.hand_over(Given(reevaluate, loss, grad_scale))

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """Clip the norm of the gradients and remember by how much, so that the slope stays right.

        Returns:
            The norm before clipping, as `torch.nn.utils.clip_grad_norm_` does.
        """
        norm = whole(
            nn.utils.clip_grad_norm_(params_of(self.base), max_norm, norm_type, error_if_nonfinite)
        )
        self._arrival.clipped((max_norm / (norm + 1e-6)).clamp(max=1.0))  # torch's own factor
        return norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        self._arrival.clear()
        self._tape.gradients_cleared()
        if self._is_due():
            self._tape.mark(devices_of(self.base))
        self.base.zero_grad(set_to_none)

    def freeze(self) -> None:
        """Keep the scale as it is: no probes, no lowering, until `unfreeze()`. A checkpoint knows it.

        Frozen before its first step, the optimizer steps at its own rates.

        Example:
            >>> opt = ProbStep(torch.optim.SGD([w := nn.Parameter(torch.ones(1))], lr=0.25))
            >>> opt.freeze()
            >>> _ = opt.step(lambda: w.square().sum())
            >>> w.item(), opt.scale, opt.is_frozen
            (0.5, 1.0, True)
        """
        self._current.is_frozen = True

    def unfreeze(self) -> None:
        """Adapt the scale again, from where it is."""
        self._current.is_frozen = False

    # What a user reads

    @property
    def scale(self) -> float:
        """The adapted factor: a step uses `lr * scale` in every group.

        RobustRule sees a loss one step late, and may lower it as the next step begins.
        """
        memory = self._current
        if self.max_lr is None:
            return memory.scale
        factors = factors_of(self._parts, memory)
        with self._decayed():
            return min(memory.scale, largest_scale(self.param_groups, self.max_lr, factors))

    @property
    def effective_lr(self) -> list[float]:
        """The rates of the next step as they now stand: `lr * scale`, one number per group.

        Where optimizers or groups have a ratio of their own it is `lr * scale * ratio`, and the list
        says whose each rate is: `opt.effective_lr["AdamW"]`.

        `metrics()` and the loggers of trainers call it `effective_lr` if there is one group, and
        `effective_lr/0`, `effective_lr/1`, ... if there are several.
        """
        with self._decayed():
            scale, factors = self.scale, factors_of(self._parts, self._current)
            rates = [float(group["lr"]) * scale for group in self.param_groups]
        if self._parts.members is None or factors is None:
            return rates
        rates = [rate * factor for rate, factor in zip(rates, factors, strict=True)]
        return Rates(rates, self._parts.members.names())

    @property
    def horizon(self) -> int | None:
        """How many steps training has; it may be set while it lasts.

        >>> opt = ProbStep(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5))
        >>> opt.horizon = 1000
        """
        return self._horizon

    @horizon.setter
    def horizon(self, steps: int | None) -> None:
        self._horizon = checked_horizon(steps, taken=self._current.steps)

    @property
    def is_frozen(self) -> bool:
        """Whether `freeze()` holds the scale."""
        return self._current.is_frozen

    @property
    def last_probe(self) -> Probe | None:
        """What the last probe saw; None before the first."""
        return self._current.last

    def history(self) -> History:
        """Return what the training looked like so far: loss, rate, probes, limits, events.

        It needs little memory however long the training is, and a checkpoint carries it.

        Example:
            >>> opt = ProbStep(torch.optim.SGD([w := nn.Parameter(torch.ones(1))], lr=1e-6))
            >>> for _ in range(3):
            ...     loss = opt.step(lambda: w.square().sum())
            >>> opt.history()
            <History of 3 rows, steps 1 to 3, 1 events>
        """
        memory = self._current
        self._settle()
        return memory.history.history()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of `history()` so far: cheap enough to be read after every step."""
        return tuple(self._current.history.events)

    @property
    def gauge(self) -> Gauge:
        """How far the present rate is from what curvature and noise allow: for `probstep.watch`."""
        groups, memory = self.param_groups, self._current
        if not isinstance(self.rule, WatchRule):
            return Gauge()
        setting = setting_of(groups, memory.first_rates)
        return self.rule.gauge(memory.rule, setting, leading_rate(groups))

    def metrics(self) -> dict[str, float]:
        """Return plain numbers for a logger: scale, effective rate, the last probe, counts.

        Example:
            >>> opt = ProbStep(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5))
            >>> opt.metrics()["effective_lr"]
            0.5
        """
        memory, rates = self._current, self.effective_lr
        numbers = {"scale": self.scale}
        if isinstance(rates, Rates):
            numbers |= {f"effective_lr/{name}": rate for name, rate in rates.named()}
        elif len(rates) == 1:
            numbers["effective_lr"] = rates[0]
        else:
            numbers |= {f"effective_lr/{k}": rate for k, rate in enumerate(rates)}
        numbers |= {"steps": memory.steps, "probe_forwards": memory.forwards}
        numbers |= {f"probes/{word}": count for word, count in memory.decisions.items()}
        numbers |= {"slope_factor": memory.proof.slope_factor}
        numbers |= {"blind_probes": memory.health.blind, "taken_back": memory.health.taken_back}
        numbers |= self.rule.metrics(memory.rule)
        last = asdict(memory.last or NO_PROBE)
        return numbers | {k: v for k, v in last.items() if k not in ("scale", "decision")}

    def __repr__(self) -> str:
        rates = [f"{rate:.4g}" for rate in self.effective_lr]
        shown = ", ".join(rates) if len(rates) < 4 else f"{rates[0]}, ..., {rates[-1]}"
        return (
            f"ProbStep({name_of(self.base)}, rule={brief(self.rule)}, "
            f"scale={self.scale:.4g}, effective_lr=[{shown}])"
        )

    # One step

    def _with_loss(self, arrived: Arrived, *, is_due: bool) -> Arrived:
        """Compute a loss that nobody told, if the step needs it."""
        is_needed = is_due or self._parts.stretch is not None or self._is_listening
        if arrived.again is None or not is_needed:
            return arrived
        # Whether the pass is paired shows after the step.
        loss, _ = self._tape.again(arrived.again, params_of(self.base))
        self._arrival.check(loss)
        return arrived._replace(loss=loss, is_told=False)

    def _take(self, memory: Memory, arrived: Arrived, *, is_due: bool) -> None:
        groups = self.base.param_groups
        if self.max_lr is not None:
            most = self.scale  # a schedule may have risen towards it
            if most < memory.scale:
                memory.history.limited("max_lr")
            memory.scale = most
        ranks = find_ranks(self.process_group, self.model)
        if ranks.size > 1:
            self._parallel.see((self.model, *self._tape.modules))
            self._parallel.refuse_join()
        batch = arrived.batch if is_due else None
        taken = TAKEN
        if batch is None and self.rule.only_watches:
            step_at(self.base, BARE)
        elif batch is None:
            taken = step_unprobed(self._parts, memory, arrived, ranks)
            if not taken.is_taken:
                self._skipped(memory, memory.steps + 1)
            if is_due or (arrived.loss is None and self._parts.stretch is not None):
                self._say_if_no_loss(arrived)
            if arrived.again is not None and are_stuck_at_zero(groups, memory.first_rates):
                self._notices.of_no_rate()
        else:
            if not has_gradients(self.base):
                self._notices.of_no_gradients()
            take = observe if self.rule.only_watches else adapt
            outcome = take(self._parts, memory, batch, ranks)
            memory.record(outcome.probe, outcome.rejected, outcome.seen, outcome.limit)
            if outcome.refusal:
                memory.is_frozen = True
                self._notices.of_refusal(outcome.refusal)
            self._notices.of_probe(outcome.probe, memory)
            self._notices.of_slope(memory)
        if self._parts.members is not None:
            self._parts.members.ask_for_missing(memory, ranks)
        self._notices.of_scale(memory)
        memory.forwards += self._tape.replays
        if arrived.loss is not None or not rates_are_zero(groups):
            memory.steps += 1  # not in the dry run of a checkpoint
        if self._horizon is not None and memory.steps > self._horizon:
            self._notices.of_horizon(self._horizon)
        if arrived.loss is None:
            return
        memory.history.open(memory.steps, memory.scale, groups[0]["lr"])
        if not self._is_listening:
            if batch is not None and memory.last is not None:
                memory.history.close(sign_of(self.base) * memory.last.loss)
        elif taken.loss is not None:
            memory.pending = sign_of(self.base) * taken.loss
            memory.history.close(taken.loss)
        else:
            self._unread.keep(
                arrived.loss,
                sign_of(self.base),
                ranks,
                taken.found,
                is_guarded=taken.is_guarded,
            )

    def _skipped(self, memory: Memory, step: int) -> None:
        memory.decisions["skipped"] += 1
        memory.history.add("not finite", step)
        self._notices.of_skipped_step()

    def _say_if_no_loss(self, arrived: Arrived) -> None:
        is_missing = arrived.again is None and not arrived.is_handed_over
        if is_missing and not rates_are_zero(self.param_groups):
            self._notices.of_missing_loss(name_of(self.base))

    def _tell_rule(self, memory: Memory) -> None:
        """Tell the rule the loss of the step before, which the device has long computed."""
        self._settle()
        loss, memory.pending = memory.pending, None
        if loss is not None and self._is_listening:
            setting = setting_of(self.base.param_groups, memory.first_rates)
            factor = self.rule.notice(memory.rule, loss, memory.scale, setting)
            memory.scale *= factor
            memory.history.hear(
                memory.steps, loss, factor, is_new_level=self.rule.is_new_level(memory.rule)
            )

    def _decayed(self) -> AbstractContextManager[None]:
        """Let the rates be those of the next step meanwhile: near the horizon they come down."""
        if self._horizon is None or self._is_decayed:
            return nullcontext()
        return self._scaled(decay(self._current.steps, self._horizon))

    @contextmanager
    def _scaled(self, factor: float) -> Iterator[None]:
        self._is_decayed = True
        try:
            with scaled_rates(self.param_groups, factor):
                yield
        finally:
            self._is_decayed = False

    @property
    def _is_listening(self) -> bool:
        """Whether the rule wants the loss of every step."""
        return self.rule.chooses_lengths and not self._memory.is_frozen

    def _is_due(self) -> bool:
        """Say whether the next step is probed, at the rates that the groups have now."""
        memory, groups = self._current, self.base.param_groups
        if memory.is_frozen or rates_are_zero(groups):
            return False
        if self.rule.chooses_lengths:
            self._search_again_if_changed(memory, groups)
        return self._will_be_due(memory)

    def _search_again_if_changed(self, memory: Memory, groups: Groups) -> None:
        """Let the rule search again if a rate has risen far, layers were unfrozen or a group is new."""
        is_searching = self.rule.is_searching(memory.rule)
        has_changed = may_have_risen(groups, memory.first_rates) and keep_up(
            groups, memory.first_rates, is_searching=is_searching
        )
        moving = count_moving(groups)
        if moving > memory.moving:
            has_changed |= memory.moving > 0 and not is_searching
            memory.moving = moving
        if has_changed:
            self.rule.search_again(memory.rule)
            memory.history.add("restarted", memory.steps + 1)

    def _will_be_due(self, memory: Memory) -> bool:
        """Say the same for rates that stay as they are."""
        if memory.is_frozen:
            return False
        if self.probe is None:
            return self.rule.is_due(memory.rule) or memory.ratios.is_wanted
        return self.probe.is_due(memory.steps)

    def _on_forward(self, model: nn.Module, value: object, begins: bool) -> None:
        is_training = model.training and torch.is_grad_enabled()
        if not (self._tape.is_replaying or (is_training and self._is_due())):
            return
        if not begins:
            self._tape.see_output(value)
            self._tape.close("model", devices_of(self.base))
        elif (taken := self._tape.open("model", devices_of(self.base))) is not None:
            taken.buffers.see(model)

    # Memory

    @property
    def _current(self) -> Memory:
        """The memory, read anew if somebody has exchanged the groups: the base loaded a checkpoint."""
        if self.base.param_groups[0].get(MEMORY) is not self._published:
            self._bind()
        return self._memory

    def _bind(self) -> None:
        """Find what a checkpoint has put into any group, or begin anew, and mirror it in all."""
        groups = self.param_groups
        refuse_mixed_maximize(groups)
        found = next((group[MEMORY] for group in groups if MEMORY in group), None)
        if found is None or found is not getattr(self, "_published", None):
            self._memory = Memory.new(self.rule, self.lower_bound)
            if found is not None:
                self._memory, faults = Memory.restored(found, self.rule, self.lower_bound)
                self._notices.of_checkpoint(faults)
                checked_horizon(self._horizon, taken=self._memory.steps)
            self._unread.read()  # of a step that the checkpoint knows nothing of
        new = groups[len(self._memory.first_rates) :]
        self._memory.first_rates += [float(group["lr"]) for group in new]
        self._fit_ratios()
        self._publish()

    def _members(self) -> Members | None:
        """Return what has a ratio of its own; None if all steps at one scale."""
        if self.per_group:
            check_per_group(self.param_groups, is_searching=self.rule.chooses_lengths)
        elif not (self.rule.chooses_lengths and len(bases_of(self.base)) > 1):
            return None
        return Members(self.base, self.per_group)

    def _fit_ratios(self) -> None:
        """Give the memory as many ratios as there are members."""
        memory, members = self._memory, self._parts.members
        count = 0 if members is None else len(members.counts())
        if len(memory.ratios.members) == count:
            return
        if self.per_group:
            check_per_group(self.param_groups, is_searching=self.rule.chooses_lengths)
        memory.ratios = Ratios([Member() for _ in range(count)])
        if self.rule.chooses_lengths and not self.rule.is_searching(memory.rule):
            self.rule.search_again(memory.rule)  # rates that were found for other members

    def _see_new_groups(self) -> None:
        """Take note of groups that were added to an optimizer inside, or that it has loaded."""
        if all(MEMORY in group for group in self.base.param_groups):
            return
        memory, old = self._current, iter(self._memory.first_rates)
        memory.first_rates = [
            next(old) if MEMORY in group else float(group["lr"]) for group in self.param_groups
        ]
        self._bind()

    def _settle(self) -> None:
        """Read what the last step left into the memory."""
        if (left := self._unread.read()) is not None:
            self._memory.pending = left.loss
            self._memory.history.close(sign_of(self.base) * left.loss)
            if left.was_skipped:
                self._skipped(self._memory, self._memory.steps)
            elif not (left.was_guarded or math.isfinite(left.loss)):
                self._notices.of_touched_parameters(name_of(self.base))

    def _publish(self) -> None:
        """Put a plain copy of the memory into every group, where a checkpoint finds it."""
        self._settle()
        self._published = Published(self._memory.plain())
        for group in self.base.param_groups:
            group[MEMORY] = self._published

    def __getstate__(self) -> dict[str, Any]:
        self._publish()
        return {
            "optimizer": self.base,
            "rule": self.rule,
            "lower_bound": self.lower_bound,
            "noise": self.noise,
            "probe": self.probe,
            "model": self.model,
            "process_group": self.process_group,
            "max_lr": self.max_lr,
            "stateful": self.stateful,
            "check": self.check,
            "horizon": self._horizon,
            "per_group": self.per_group,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        ProbStep.__init__(self, **state)  # a class of `wrap` is constructed in another way


def _publish_memory_of(optimizer: ProbStep | None) -> None:
    if optimizer is not None:
        optimizer._publish()


def _notice_step_of_base(owner: weakref.ref[ProbStep], base: optim.Optimizer, *_: object) -> None:
    """Say so if the base steps and nobody has called the ProbStep around it, unless it has another."""
    optimizer = owner()
    if optimizer is None or optimizer._is_stepping:
        return
    if optimizer.base.param_groups[0].get(MEMORY) is optimizer._published:
        optimizer._notices.of_step_of_base(type(base).__name__)


def _make_plain(_: optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """Put a plain dictionary into a checkpoint: `torch.load(weights_only=True)` takes nothing else."""
    for group in state_dict["param_groups"]:
        if isinstance(group.get(MEMORY), Published):
            group[MEMORY] = dict(group[MEMORY])
