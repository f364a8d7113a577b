"""ProbStep: an optimizer proposes a step, a probe says how wrong its quadratic was, a rule rescales it.

`ProbStep._adapt` is the paper's Algorithm 1, line by line. The rest are the ways in which a loss
arrives, and what a user reads.
"""

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn, optim

from .checks import (
    as_bound,
    check_loss,
    check_same_shape,
    check_step_arguments,
    checked,
    checked_noise,
    frames_to_caller,
)
from .closures import Evidence, Forward, first_pass, mean_of
from .displacement import Step, pack, squared_gradient, wide
from .distributed import Group, Ranks, find_ranks, whole
from .estimators import LowerBound, Noise, SampleNoise
from .inference import implied_bound, step_factor
from .lengths import UNPAIRED, Trial
from .probe import ModelHooks, Tape, gradients_set_aside
from .robust import RobustRule
from .rules import Decision, Observation, Rule, WatchingRule
from .schedule import Schedule
from .wrapper import Wrapper, firing_own_hooks

WORDS = ("up", "down", "keep", "search", "reject", "uninformative", "unpaired", "skipped")
NO_DECISIONS = dict.fromkeys(WORDS, 0)
SKIPPED = Decision(1.0, math.nan, "skipped")
NOTHING_PENDING = {"has": 0, "loss": math.nan, "gradient": math.nan}
AVERAGED = 10.0  # a loss averages the roundings of 16-bit numbers, and is finer than these
PATIENCE = 20  # probes that say nothing, from the first one on, before we say so


@dataclass(frozen=True)
class Probe:
    """What the last probe saw and what was decided.

    Args:
        loss: f, before the step; coupled weight decay counts as part of the loss.
        slope: phi, the slope along the optimizer's own step.
        loss_after: f+, of the same batch after the step.
        ratio: Observed over predicted decrease; NaN where the probe says nothing.
        scale: The scale after the decision.
        decision: "up", "down" or "keep"; "search" (RobustRule's first batch); "uninformative" (the
            predicted decrease lies under the rounding of the loss), "unpaired" (the probe saw other
            random numbers than the first pass) or "skipped" (the gradients were not finite, so no step
            was taken).
    """

    loss: float
    slope: float
    loss_after: float
    ratio: float
    scale: float
    decision: str


class _Registered(NamedTuple):
    """What was handed over for the next step."""

    reevaluate: Forward | None = None
    loss: Tensor | None = None
    grad_scale: float | Tensor | None = None


NOBODY_REGISTERED = _Registered()


class ProbStep(Wrapper):
    """Adapt the learning rate of a torch optimizer while it trains.

    ProbStep is itself a torch optimizer: schedulers, hooks, checkpoints and trainers take it as they
    would take the one inside. It multiplies every group's `lr` by one adapted factor, `scale`, only
    while the inner optimizer steps, so schedules and the ratios between groups keep their meaning.

    Args:
        optimizer: The optimizer to adapt: an instance. It stays reachable as `.base`.
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

    Example:
        >>> model = nn.Linear(4, 1)
        >>> opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-9))
        >>> x, y = torch.ones(8, 4), torch.full((8, 1), 9.0)
        >>> for _ in range(20):
        ...     loss = opt.step(lambda: nn.functional.mse_loss(model(x), y))
        >>> opt.effective_lr[0] > 0.01, opt.last_probe.loss_after < opt.last_probe.loss
        (True, True)
    """

    def __init__(
        self,
        optimizer: optim.Optimizer,
        rule: Rule | None = None,
        lower_bound: float | LowerBound | None = None,
        noise: Noise = 0.0,
        probe: Schedule | None = None,
        model: nn.Module | None = None,
        process_group: Group = None,
    ) -> None:
        super().__init__(optimizer)
        self.rule: Rule = RobustRule() if rule is None else checked(rule, "rule", "judge")
        self.lower_bound = as_bound(lower_bound, sign=self._sign)
        self.noise = checked_noise(noise)
        self.probe: Schedule | None = probe
        if probe is not None:
            checked(probe, "probe", "is_due")
        self._watcher = cast("WatchingRule", self.rule) if self.rule.watches else None
        if self.rule.watches and self._is_stretching:
            default = ", the default," if rule is None else ""
            raise ValueError(
                f"{type(self.rule).__name__}{default} decides on the length of steps by itself: "
                "lower_bound and noise go with PaperRule(). Add rule=probstep.PaperRule(), or leave "
                "them out."
            )
        self.model = model
        self.process_group = process_group
        self._tape = Tape(model)
        self._clip: float | Tensor = 1.0  # `.grad` over the gradient of the loss
        self._registered = NOBODY_REGISTERED
        self._evidence = Evidence()
        self._pending: Tensor | None = None  # loss and |g|^2 of the last step, unread
        self._warned: set[str] = set()
        self._bind()
        # In a model that is compiled in place the hooks would be compiled too.
        if model is not None and model._compiled_call_impl is None:
            model.register_forward_pre_hook(ModelHooks(self._on_forward, begins=True))
            model.register_forward_hook(ModelHooks(self._on_forward, begins=False))

    # Algorithm 1

    def _adapt(self, loss: Tensor, reevaluate: Forward, clip: float | Tensor) -> None:
        """Take one step of the paper's Algorithm 1; its line numbers stand at the right."""
        with self._undone_if_it_raises() as step:
            f = self._objective(loss, step)  # line 3; the gradients, line 4, are in place
            known, is_finite = self._known_before(step, loss, f)
            if not is_finite:
                step.undo()
                return self._skip(known)
            self._step_base(known.rate / known.multiplier)  # line 5: v = eta W g is the base's step
            phi = self._slope(step, clip)  # line 6
            s = self._stretch(step, loss, f, phi)  # lines 8 to 14
            probe = functools.partial(self._probe, step, loss, reevaluate)
            if self._watcher is None:
                seen, decision = self._probe_once(probe, known, phi, s)  # lines 16 to 22
            else:  # not in the paper: a step that proves bad is shortened
                seen, decision = self._probe_lengths(self._watcher, probe, step, known, phi, clip)
        return self._conclude(seen, decision)

    def _known_before(self, step: Step, loss: Tensor, f: Tensor) -> tuple[Observation, bool]:
        """Return what is known before the step, and whether the gradients are finite."""
        share = wide(mean_of(loss).detach()) / self._ranks.size
        rounding = self._tape.rounding / AVERAGED if self._watcher is not None else 0.0
        of_model = torch.tensor(rounding / self._ranks.size)
        numbers = self._ranks.total(pack(f, share, step.sum_of_gradients(), of_model))
        f_before, value, gradients, rounding = numbers.tolist()
        multiplier = self._multiplier or 1.0  # 0 only of a tensor on a device: an empty step
        known = Observation(
            loss=f_before,
            slope=math.nan,
            loss_after=math.nan,
            resolution=max(torch.finfo(loss.dtype).eps, rounding) * abs(value),
            rate=self._scale_to_propose * multiplier,
            multiplier=multiplier,
            beta=self._beta,
        )
        return known, math.isfinite(gradients)

    def _probe_once(
        self, probe: Callable[[], tuple[Tensor, Tensor]], known: Observation, phi: Tensor, s: Tensor
    ) -> tuple[Observation, Decision]:
        f_plus, unpaired = probe()
        numbers = self._ranks.total(pack(phi, f_plus, unpaired))
        slope, loss_after, is_unpaired, factor = pack(*numbers, s).tolist()
        seen = replace(known, slope=slope, loss_after=loss_after, step_factor=factor)
        return seen, UNPAIRED if is_unpaired else self._judge(seen)

    def _probe_lengths(
        self,
        rule: WatchingRule,
        probe: Callable[[], tuple[Tensor, Tensor]],
        step: Step,
        known: Observation,
        phi: Tensor,
        clip: float | Tensor,
    ) -> tuple[Observation, Decision]:
        """Probe one length of the step after the other until the rule keeps one."""
        numbers = self._ranks.total(pack(phi, *step.squared_norms(), torch.as_tensor(clip)))
        slope, gradient, distance, clips = numbers.tolist()
        gradient = math.sqrt(gradient) * self._ranks.size / clips
        whole = replace(known, slope=slope, gradient=gradient, length=math.sqrt(distance))
        trial = Trial(
            step,
            whole,
            measure=lambda: self._ranks.total(self._slope(step, clip)).item(),
            probe=lambda: self._ranks.total(pack(*probe())).tolist(),
            judge=self._judge,
        )
        if not self._is_searching:
            return trial.shorten()
        first = rule.first_length(known.loss, slope, known.resolution)
        own = self.scale * known.multiplier  # the user's rate, as if there were no rule
        seen, decision = trial.search(first, blind=own / known.rate)
        return replace(seen, rate=own) if self._is_searching else seen, decision

    def _judge(self, seen: Observation) -> Decision:
        memory, decision = self.rule.judge(self._memory["rule"], seen)
        self._remember(rule=memory)
        if decision.word == "reject":
            self._count("reject")
        return decision

    @contextmanager
    def _undone_if_it_raises(self) -> Iterator[Step]:
        """Begin a step; if anything raises, put the parameters back.

        The optimizer's state goes back only if it was empty: a copy would be larger than the model.
        """
        step = Step.begin(
            self.base,
            self._ranks,
            keep_state=not self.base.state,
            from_zero=self._is_stretching,
        )
        try:
            yield step
        except BaseException:
            step.undo()
            raise

    def _objective(self, loss: Tensor, step: Step) -> Tensor:
        """Return this rank's share of what is really minimised: negated if maximised, plus decay."""
        share = self._sign * wide(mean_of(loss).detach()) / self._ranks.size
        return share + wide(step.penalty().to(loss.device)) if step.has_penalty else share

    def _slope(self, step: Step, clip: float | Tensor) -> Tensor:
        if self.rule.momentum_as_gradient:
            return step.slope_along_momentum(clip)
        return step.slope(clip, sign=self._sign)

    def _stretch(self, step: Step, loss: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """Turn the base's step into the posterior mean of Eq. 12; return its factor."""
        if not self._is_stretching:
            return torch.ones_like(f)
        n = self._ranks.size
        shares = pack(f, phi, mean_of(loss) / n, self._variance(loss) / n**2)
        f, phi, mean, variance = self._ranks.total(shares)
        noise = self._noise(mean, variance).clamp(min=0.0)  # a function of a negative loss may slip
        s = step_factor(f, self._bound(f, phi), phi, noise, exact=self.rule.exact_noise)
        # not in the paper: where the denominator vanishes the base's own step is taken
        s = torch.where(torch.isfinite(s), s, torch.ones_like(s))
        step.stretch(s)
        return s

    def _bound(self, f: Tensor, phi: Tensor) -> Tensor:
        if self.lower_bound is None:
            return implied_bound(f, phi)
        bound, memory = self.lower_bound.estimate(self._memory["bound"], f)
        self._remember(bound=memory)
        return bound

    def _variance(self, loss: Tensor) -> Tensor:
        """Return the variance of this rank's mean loss; zero unless per-sample losses tell."""
        if isinstance(self.noise, SampleNoise):
            return self.noise.variance(loss.detach())
        return torch.zeros_like(mean_of(loss))

    def _noise(self, mean: Tensor, variance: Tensor) -> Tensor:
        if isinstance(self.noise, SampleNoise):
            return variance
        if callable(self.noise):
            return torch.as_tensor(self.noise(mean), device=mean.device)
        return torch.full_like(mean, self.noise)

    def _probe(self, step: Step, loss: Tensor, reevaluate: Forward) -> tuple[Tensor, Tensor]:
        """Return this rank's share of the objective after the step, and 1 if it is unpaired."""
        value, paired = self._replay(reevaluate)
        self._check_loss(value)
        check_same_shape(value, loss)
        after = self._objective(value, step)
        if step.has_penalty:
            after = after - wide(step.penalty_decrease().to(loss.device))
        return after, torch.tensor(float(not paired))

    def _conclude(self, seen: Observation, decision: Decision) -> None:
        self._record(seen, decision)
        if decision.word == "unpaired":
            self._warn_once(
                "unpaired",
                "The probe drew other random numbers than the pass that gave the loss (dropout?), so it "
                "says nothing and the scale stays. Use step(closure), or compute the whole loss inside "
                "`with opt.forward_pass():`.",
            )
        elif not math.isfinite(seen.loss_after):
            self._warn_once(
                "not finite",
                "The loss was not finite after a step: the rate counts as too large and comes down.",
            )
        elif self._memory["decisions"] == {**NO_DECISIONS, "uninformative": PATIENCE}:
            self._warn_once(
                "blind",
                f"In none of the first {PATIENCE} probes the loss could have changed visibly, given its "
                "rounding, so the scale has not moved. Start from a larger rate.",
            )

    def _skip(self, known: Observation) -> None:
        self._record(replace(known, rate=self.scale * known.multiplier), SKIPPED)
        self._warn_once(
            "skipped",
            "The gradients were not finite: the step was skipped. If this goes on, the loss or the "
            "data hold values that are not finite.",
        )

    def _record(self, seen: Observation, decision: Decision) -> None:
        scale = seen.rate / seen.multiplier * decision.factor
        last = Probe(seen.loss, seen.slope, seen.loss_after, decision.ratio, scale, decision.word)
        self._remember(scale=scale, last=asdict(last))
        self._count(decision.word)

    def _count(self, word: str) -> None:
        decisions = self._memory["decisions"]
        self._remember(decisions={**decisions, word: decisions[word] + 1})

    # What a rule may want to know of every step

    def _hand_over(self) -> None:
        """Tell the rule of the step before, whose loss the device has long computed."""
        pending = self._memory["pending"]
        if self._watcher is not None and pending["has"]:
            seen = Observation(
                math.nan, math.nan, math.nan, multiplier=self._multiplier, beta=self._beta
            )
            memory, factor = self._watcher.watch(
                self._memory["rule"], pending["loss"], pending["gradient"], self.scale, seen
            )
            self._remember(rule=memory, scale=self.scale * factor, pending=dict(NOTHING_PENDING))

    def _note(self, loss: Tensor) -> None:
        """Keep loss and gradient norm of this step, unread, for the next."""
        if self._watcher is not None:
            share = self._sign * mean_of(loss).detach() / self._ranks.size
            self._pending = self._ranks.total(pack(share, squared_gradient(self.base, self._ranks)))

    def _settle(self) -> None:
        """Read what is pending into the memory, so that a checkpoint has it."""
        if self._pending is not None:
            loss, squared = self._pending.tolist()
            self._pending = None
            gradient = math.sqrt(squared) if squared >= 0 else math.nan
            self._remember(pending={"has": 1, "loss": loss, "gradient": gradient})

    # The ways in which a loss arrives

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
        probing = self._is_due()
        try:
            with torch.no_grad(), self._forgotten_if_it_raises():
                self._hand_over()
                again = None
                if closure is not None:
                    loss, again = self._first_pass(closure, record=probing)
                handed = self._registered  # read only now: a trainer's closure may hand it over
                whole_loss = handed.loss if closure is not None or loss is None else None
                grad_scale = handed.grad_scale if grad_scale is None else grad_scale
                loss = loss if whole_loss is None else whole_loss
                clip = self._clip if grad_scale is None else grad_scale
                self._take(loss, reevaluate or handed.reevaluate or again, clip, probing)
        finally:
            self._clip, self._registered = 1.0, NOBODY_REGISTERED
            self._tape.clear()
        if loss is not None or not self._rates_are_zero():  # not the dry run of a checkpoint
            self._remember(steps=self._memory["steps"] + 1)
        if closure is None and self._is_due():
            self._tape.mark(self._devices())
        return loss

    def _take(
        self, loss: Tensor | None, reevaluate: Forward | None, clip: float | Tensor, probing: bool
    ) -> None:
        is_needed = probing or self._is_stretching or self._watcher is not None
        if loss is None and reevaluate is not None and is_needed:
            loss, _ = self._replay(reevaluate)  # whether it is paired shows after the step
        if loss is not None:
            self._check_loss(loss)
            self._note(loss)
        if probing and loss is not None and reevaluate is not None:
            self._adapt(loss, reevaluate, clip)
        elif self._is_stretching and loss is not None:
            self._take_stretched(loss, clip)
        else:
            self._step_base(self.scale)
        is_blind = probing or (self._is_stretching and loss is None)
        is_skipped = self._registered is not NOBODY_REGISTERED  # a trainer has no batch
        if reevaluate is None and is_blind and not is_skipped and not self._rates_are_zero():
            self._warn_once(
                "no loss",
                "ProbStep.step() got no way to evaluate the loss again, so it steps as "
                f"{type(self.base).__name__} does, at the present scale. Use step(closure), "
                "step(loss=loss, reevaluate=fn), or reevaluate_with(fn) before a bare step().",
            )

    def _take_stretched(self, loss: Tensor, clip: float | Tensor) -> None:
        """Take the posterior mean's step without a probe and without waiting for the device."""
        with self._undone_if_it_raises() as step:
            f = self._objective(loss, step)
            self._step_base(self.scale)
            self._stretch(step, loss, f, self._slope(step, clip))

    def _first_pass(
        self, closure: Forward, *, record: bool
    ) -> tuple[Tensor | None, Forward | None]:
        params = list(self._params())
        if self._registered is not NOBODY_REGISTERED:
            # A trainer: it records its own passes, may skip a batch, and its closure sometimes begins
            # the gradients and sometimes adds to them, so that earlier steps teach nothing.
            return first_pass(closure, params, self._check_unless_none, nullcontext(), Evidence())
        recording = self._tape.recording("closure", self._devices()) if record else nullcontext()
        return first_pass(closure, params, self._check_loss, recording, self._evidence)

    def _on_forward(self, model: nn.Module, value: object, begins: bool) -> None:
        is_training = model.training and torch.is_grad_enabled()
        if not (self._tape.is_replaying or (is_training and self._is_due())):
            return
        if not begins:
            self._tape.see_output(value)
            self._tape.close("model", self._devices())
        elif (taken := self._tape.open("model", self._devices())) is not None:
            taken.buffers.see(model)

    def _replay(self, forward: Forward) -> tuple[Tensor, bool]:
        self._remember(forwards=self._memory["forwards"] + 1)
        others = (p for module in self._tape.modules for p in module.parameters(recurse=False))
        with gradients_set_aside({*self._params(), *others}):
            return self._tape.replay(forward, self._devices())

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
        with self._tape.recording("forward_pass", self._devices()):
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
                and, for a rule that watches every loss (RobustRule), on any other.
            grad_scale: As for `step`: the factor by which somebody clipped the gradients.
        """
        self._registered = _Registered(reevaluate, loss, grad_scale)

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """Clip the norm of the gradients and remember by how much, so that the slope stays right.

        Returns:
            The norm before clipping, as `torch.nn.utils.clip_grad_norm_` does.
        """
        norm = whole(
            nn.utils.clip_grad_norm_(self._params(), max_norm, norm_type, error_if_nonfinite)
        )
        self._clip = self._clip * (max_norm / (norm + 1e-6)).clamp(max=1.0)  # torch's own factor
        return norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        self._clip, self._registered = 1.0, NOBODY_REGISTERED
        self._tape.gradients_cleared()
        if self._is_due():
            self._tape.mark(self._devices())
        self.base.zero_grad(set_to_none)

    # What a user reads

    @property
    def scale(self) -> float:
        """The adapted factor: a step uses `lr * scale` in every group.

        RobustRule sees a loss one step late, and may lower it as the next step begins.
        """
        return self._memory["scale"]  # type: ignore[no-any-return]

    @property
    def effective_lr(self) -> list[float]:
        """The rates of the next step as they now stand: `lr * scale` of every group."""
        return [float(group["lr"]) * self.scale for group in self.param_groups]

    @property
    def last_probe(self) -> Probe | None:
        """What the last probe saw; None before the first."""
        last = Probe(**self._memory["last"])
        return last if last.decision else None

    def metrics(self) -> dict[str, float]:
        """Return plain numbers for a logger: scale, effective rate, the last probe, counts.

        Example:
            >>> opt = ProbStep(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5))
            >>> opt.metrics()["effective_lr"]
            0.5
        """
        memory = self._memory
        numbers = {"scale": self.scale, "effective_lr": self.effective_lr[0]}
        numbers |= {f"effective_lr/{k}": rate for k, rate in enumerate(self.effective_lr) if k}
        numbers |= {"steps": memory["steps"], "probe_forwards": memory["forwards"]}
        numbers |= {f"probes/{word}": count for word, count in memory["decisions"].items()}
        if self._watcher is not None:
            numbers["log_scale_deviation"] = math.sqrt(memory["rule"]["variance"])
        return numbers | {k: v for k, v in memory["last"].items() if k not in ("scale", "decision")}

    def __repr__(self) -> str:
        return f"ProbStep({self.base!r}, rule={self.rule!r}, scale={self.scale:.4g})"

    # Memory and small change

    def state_dict(self) -> dict[str, Any]:
        """Return the base's state_dict; the adaptation's memory lies in its param_groups."""
        self._settle()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint of ProbStep, or one of the bare optimizer (then the scale starts at 1)."""
        super().load_state_dict(state_dict)
        self._pending = None  # of a step that the checkpoint knows nothing of

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return {
            "optimizer": self.base,
            "rule": self.rule,
            "lower_bound": self.lower_bound,
            "noise": self.noise,
            "probe": self.probe,
            "model": self.model,
            "process_group": self.process_group,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _complete(self, found: dict[str, Any]) -> dict[str, Any]:
        fresh = _new_memory(self.lower_bound, self.rule)
        for key in ("bound", "rule"):  # saved with another kind of lower bound, or another rule
            if found.get(key, {}).keys() != fresh[key].keys():
                found = {**found, key: fresh[key]}
        return {**fresh, **found}

    @contextmanager
    def _forgotten_if_it_raises(self) -> Iterator[None]:
        """Put the memory back if a step raises, so that the step can be taken again."""
        self._settle()
        memory = self._memory
        try:
            yield
        except BaseException:
            self._pending = None
            self._remember(**memory)
            raise

    @property
    def _ranks(self) -> Ranks:
        return find_ranks(self.process_group, self.model)

    @property
    def _is_searching(self) -> bool:
        return self._watcher is not None and self._watcher.is_searching(self._memory["rule"])

    @property
    def _scale_to_propose(self) -> float:
        """The scale of the base's step: for a search that of rate 1, whatever rate the user gave."""
        return 1 / self._reference_lr if self._is_searching else self.scale

    @property
    def _is_stretching(self) -> bool:
        return self.lower_bound is not None or self.noise != 0.0

    def _is_due(self) -> bool:
        if self.probe is None:
            is_due = self.rule.is_due(self._memory["rule"])
        else:
            is_due = self.probe.is_due(self._memory["steps"])
        return is_due and not self._rates_are_zero()

    def _check_loss(self, loss: object) -> None:
        check_loss(loss, per_sample=isinstance(self.noise, SampleNoise))

    def _check_unless_none(self, loss: object) -> None:
        if loss is not None:  # a trainer says so that it skips its batch
            self._check_loss(loss)

    def _warn_once(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(message, RuntimeWarning, stacklevel=frames_to_caller())


def _new_memory(bound: LowerBound | None, rule: Rule) -> dict[str, Any]:
    """Return a memory that has seen nothing; its keys never change, as distributed checkpoints need."""
    nothing = Probe(math.nan, math.nan, math.nan, math.nan, 1.0, "")
    return {
        "scale": 1.0,
        "steps": 0,
        "forwards": 0,  # extra forward passes, over all probes
        "decisions": dict(NO_DECISIONS),  # a copy: loaders write in place
        "last": asdict(nothing),
        "bound": {} if bound is None else bound.init(),
        "rule": rule.init(),
        "pending": dict(NOTHING_PENDING),
    }
