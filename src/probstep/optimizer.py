"""ProbStep: what a user calls and reads. A step is taken in stepper.py; Algorithm 1 is step/adapt.py."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn, optim

from .binding import Binding
from .checks import (
    CAN_CAPTURE,
    as_bound,
    check_step_arguments,
    checked,
    checked_max_lr,
    checked_model,
    checked_noise,
    refuse_graph_capture,
    refuse_idle_settings,
    refuse_model_not_trained,
)
from .estimators import LowerBound, Noise, SampleNoise
from .history import Event, History
from .horizon import checked_horizon
from .memory import Probe
from .metrics import metrics_of
from .notices import Notices, brief
from .rules import RobustRule, Rule
from .step.adapt import Parts
from .step.arrival import Arrival, Given
from .step.base import clear_gradients, devices_of, leading_rate, params_of, setting_of, sign_of
from .step.closures import Forward
from .step.ending import Ending
from .step.hooks import firing_own_hooks
from .step.joint import name_of
from .step.members import members_of
from .step.ranks import Group, checked_group, find_ranks, whole
from .step.replay import ModelHooks, Tape
from .step.stateful import declared
from .stepper import Stepper
from .wrapper import Wrapper, as_one

if TYPE_CHECKING:
    from .rules import Gauge
    from .schedule import Schedule
    from .step.stretch import Stretch


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
        model: The model that is trained. It is needed if it is compiled. Otherwise it is one of the
            ways to replay its dropout masks and spectral norms (the others are a closure and
            `forward_pass()`).
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
        horizon: How many steps training has, if that is known: the rate then comes down to almost zero
            over the last fifth of them, in addition to any schedule. None leaves the end open.

    Example:
        >>> model = nn.Linear(4, 1)
        >>> opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-9))
        >>> x, y = torch.ones(8, 4), torch.full((8, 1), 9.0)
        >>> for _ in range(60):
        ...     loss = opt.step(lambda: nn.functional.mse_loss(model(x), y))
        >>> opt.effective_lr[0] > 0.001, loss.item() < 1.0
        (True, True)
    """

    _FIXED: ClassVar = {"rule", "lower_bound", "noise", "model", "stateful", "check", "per_group"}
    _SHARED: ClassVar = {"process_group"}

    def __init__(
        self,
        optimizer: optim.Optimizer | Sequence[optim.Optimizer],
        rule: Rule | None = None,
        lower_bound: float | LowerBound | None = None,
        noise: Noise = 0.0,
        probe: "Schedule | None" = None,
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
        if model is not None:
            refuse_model_not_trained(model, params_of(optimizer))
        self.rule: Rule = RobustRule() if rule is None else checked(rule, "rule", "judge")
        self.lower_bound = as_bound(lower_bound, sign=sign_of(optimizer))
        self.noise = checked_noise(noise)
        self.probe = None if probe is None else checked(probe, "probe", "is_due")
        self.model = checked_model(model)
        self.process_group = checked_group(process_group)
        self.stateful = stateful
        self.check = check
        self.per_group = per_group
        is_stretching = self.lower_bound is not None or self.noise != 0.0
        refuse_idle_settings(
            self.rule, is_stretching=is_stretching, max_lr=max_lr, is_default=rule is None
        )
        self._tape = Tape(model, declared(stateful), lambda: params_of(optimizer))
        self._parts = parts = Parts(
            optimizer,
            self.rule,
            _stretch_of(self) if is_stretching else None,
            self._tape,
            checked_max_lr(max_lr),
            check,
            members_of(optimizer, self.rule, per_group=per_group),
        )
        self._arrival = Arrival(self._tape, per_sample=isinstance(self.noise, SampleNoise))
        notices, self._ending = Notices(), Ending()
        self._binding = Binding(parts, self.lower_bound, self._ending, notices)
        # Set only now: a copy may have taken more steps than this, a checkpoint may not.
        self._ending.horizon = checked_horizon(horizon)
        self._stepper = Stepper(parts, self._binding, self._arrival, self._ending, notices, model)
        self._binding.follow_checkpoints()
        self._stepper.watch_base()
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
        if closure is not None or reevaluate is not None or grad_scale is not None:
            check_step_arguments(closure, reevaluate, loss, grad_scale)
        if CAN_CAPTURE:
            refuse_graph_capture()
        given = Given(reevaluate, loss, grad_scale)
        ranks = find_ranks(self.process_group, self.model)
        return self._stepper.step(closure, given, self.probe, ranks)

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Record where a forward pass begins, so that the probe can replay its random numbers.

        It is optional, and goes with `step(loss=, reevaluate=)`. Put it around the computation of the
        loss, once per micro-batch. A `reevaluate` over several micro-batches may use it inside, too.

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
        if not self._stepper.is_due(self.probe):
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
            loss: That loss, if it is at hand. Otherwise one more forward pass computes it: on every
                probed step, and on any other if the rule wants the loss of every step (RobustRule).
            grad_scale: As for `step`: the factor by which somebody clipped the gradients.
        """
        check_step_arguments(None, reevaluate, loss, None)  # a trainer's factor may be 0
        self._arrival.keep(Given(reevaluate, loss, grad_scale))

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """Clip the norm of the gradients and remember by how much, so that the slope stays right.

        Returns:
            The norm before clipping, as `torch.nn.utils.clip_grad_norm_` does.
        """
        earlier = self._arrival.clip_so_far(self.base)
        norm = whole(
            nn.utils.clip_grad_norm_(params_of(self.base), max_norm, norm_type, error_if_nonfinite)
        )
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # torch's own
        self._arrival.clipped(earlier * factor, self.base)
        return norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        self._arrival.clear()
        self._tape.gradients_cleared()
        if self._stepper.is_due(self.probe):
            self._tape.mark(devices_of(self.base))
        clear_gradients(self.base, set_to_none=set_to_none)

    def freeze(self) -> None:
        """Keep the scale as it is: no probes, no lowering, until `unfreeze()`. Checkpoints keep this.

        Frozen before its first step, the optimizer steps at its own rates.

        Example:
            >>> opt = ProbStep(torch.optim.SGD([w := nn.Parameter(torch.ones(1))], lr=0.25))
            >>> opt.freeze()
            >>> _ = opt.step(lambda: w.square().sum())
            >>> w.item(), opt.scale, opt.is_frozen
            (0.5, 1.0, True)
        """
        self._binding.current.is_frozen = True

    def unfreeze(self) -> None:
        """Adapt the scale again, from where it is."""
        self._binding.current.is_frozen = False

    # What a user reads

    @property
    def scale(self) -> float:
        """The adapted factor: a step uses `lr * scale` in every group.

        RobustRule hears a loss one step late, and may lower the scale when the next step begins. Without
        momentum it hears it at once, if the step was not probed and one process trains on the CPU.
        """
        return self._stepper.scale()

    @property
    def effective_lr(self) -> list[float]:
        """The rates of the next step as they now stand: `lr * scale`, one number per group.

        Where optimizers or groups have a ratio of their own it is `lr * scale * ratio`, and the rates
        can also be read by name: `opt.effective_lr["AdamW"]`.

        `metrics()` and the loggers of trainers call it `effective_lr` if there is one group, and
        `effective_lr/0`, `effective_lr/1`, ... if there are several.
        """
        return self._stepper.rates()

    @property
    def max_lr(self) -> float | None:
        """The largest rate that a step may use, in any group; it may also be set during training.

        >>> opt = ProbStep(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5))
        >>> opt.max_lr = 0.25
        >>> opt.effective_lr
        [0.25]
        """
        return self._parts.max_lr

    @max_lr.setter
    def max_lr(self, rate: float | None) -> None:
        refuse_idle_settings(self.rule, is_stretching=False, max_lr=rate, is_default=False)
        self._parts.max_lr = checked_max_lr(rate)

    @property
    def horizon(self) -> int | None:
        """How many steps training has; it may also be set during training.

        >>> opt = ProbStep(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5))
        >>> opt.horizon = 1000
        """
        return self._ending.horizon

    @horizon.setter
    def horizon(self, steps: int | None) -> None:
        horizon = self._ending.horizon
        self._ending.horizon = (
            None  # the base may have loaded a checkpoint with more steps than that
        )
        try:
            horizon = checked_horizon(steps, taken=self._binding.current.steps)
        finally:
            self._ending.horizon = horizon

    @property
    def is_frozen(self) -> bool:
        """Whether `freeze()` holds the scale."""
        return self._binding.current.is_frozen

    @property
    def last_probe(self) -> Probe | None:
        """What the last probe saw; None before the first."""
        return self._binding.current.last

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
        memory = self._binding.current
        self._binding.settle()
        return memory.history.history()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of `history()` so far: cheap enough to be read after every step."""
        return tuple(self._binding.current.history.events)

    @property
    def gauge(self) -> "Gauge":
        """How far the present rate is from what curvature and noise allow: for `probstep.watch`."""
        from .rules import Gauge, WatchRule  # only here: few trainings are watched

        groups, memory = self.param_groups, self._binding.current
        if not isinstance(self.rule, WatchRule):
            return Gauge()
        setting = setting_of(groups, memory.first_rates, memory.steps)
        return self.rule.gauge(memory.rule, setting, leading_rate(groups))

    def metrics(self) -> dict[str, float]:
        """Return plain numbers for a logger: scale, effective rate, the last probe, counts.

        Example:
            >>> opt = ProbStep(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5))
            >>> opt.metrics()["effective_lr"]
            0.5
        """
        return metrics_of(self._binding.current, self.rule, self.scale, self.effective_lr)

    def __repr__(self) -> str:
        rates = [f"{rate:.4g}" for rate in self.effective_lr]
        shown = ", ".join(rates) if len(rates) < 4 else f"{rates[0]}, ..., {rates[-1]}"
        return (
            f"ProbStep({name_of(self.base)}, rule={brief(self.rule)}, "
            f"scale={self.scale:.4g}, effective_lr=[{shown}])"
        )

    # What torch calls

    def __getstate__(self) -> dict[str, Any]:
        self._binding.publish()
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
            "horizon": self._ending.horizon,
            "per_group": self.per_group,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        ProbStep.__init__(self, **state)  # a class of `wrap` is constructed in another way

    def _on_forward(self, model: nn.Module, value: object, begins: bool) -> None:
        is_training = model.training and torch.is_grad_enabled()
        if not (self._tape.is_replaying or (is_training and self._stepper.is_due(self.probe))):
            return
        if not begins:
            self._tape.see_output(value)
            self._tape.close("model", devices_of(self.base))
        elif (taken := self._tape.open("model", devices_of(self.base))) is not None:
            taken.buffers.see(model)

    def _bind(self) -> None:
        self._binding.bind()


def _stretch_of(optimizer: ProbStep) -> "Stretch":
    from .step.stretch import Stretch  # only here: it brings the paper's inference with it

    return Stretch(optimizer.lower_bound, optimizer.noise, optimizer.rule.exact_noise)
