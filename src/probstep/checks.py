"""What ProbStep refuses, each with what happened, what is allowed and what to do."""

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import NoReturn, SupportsFloat, TypeVar

import torch
from torch import Tensor, nn, optim

from .estimators import KnownBound, LowerBound, Noise, SampleNoise
from .rules import Rule

# Keys that stand beside `d` in the groups of D-Adaptation, Prodigy and their kind. Their first steps
# look like any other optimizer's, so behaviour cannot tell.
OWN_RATE = {"d0", "growth_rate", "d_coef", "d_max", "d_numerator", "k", "step"}
MOST_GROUPS = 8  # that may have a scale each
CAN_CAPTURE: bool = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]  # without CUDA there are no graphs of it
OWN_FRAMES = ("probstep.", "torch.", "contextlib")
T = TypeVar("T")

AUTOCAST = (  # a cause with its cure
    "it was computed inside autocast only once: enter autocast inside the function that computes the "
    "loss, too"
)

NOT_WITH_THEIR_RATE = {
    optim.Rprop: "ignores lr after its first step",
    optim.ASGD: "steps with the rate that it computed one step earlier",
}


def steps_with_its_rate(optimizer: optim.Optimizer) -> bool:
    """Say whether an optimizer steps with its `lr`, so that it can be adapted."""
    return not isinstance(optimizer, tuple(NOT_WITH_THEIR_RATE))


def refuse_unusable(optimizer: object) -> None:
    """Raise for what ProbStep cannot wrap; warn of what it wraps and leaves alone."""
    if isinstance(optimizer, type) and issubclass(optimizer, optim.Optimizer):
        raise TypeError(
            f"ProbStep takes an optimizer, not a class: ProbStep({optimizer.__name__}(params, lr=...))."
        )
    if not isinstance(optimizer, optim.Optimizer):
        raise TypeError(
            f"ProbStep takes a torch.optim.Optimizer, not {_describe(optimizer)}. Write "
            "ProbStep(torch.optim.AdamW(model.parameters())). If it is a wrapper, adapt the optimizer "
            "inside it."
        )
    if "_optimizer_state_dict_pre_hooks" not in vars(optimizer):
        raise TypeError(
            f"{type(optimizer).__name__} was made without torch.optim.Optimizer.__init__, so it has no "
            "hooks and no checkpoint of its own. If it wraps an optimizer, adapt the one inside it; if "
            "it is yours, call super().__init__(params, defaults)."
        )
    if isinstance(optimizer, optim.LBFGS):
        raise TypeError(
            "LBFGS searches along its own line and evaluates the closure many times a step, so there is "
            "no single step to scale. Use its line_search_fn, or a first-order optimizer."
        )
    if any("d" in group and group.keys() & OWN_RATE for group in optimizer.param_groups):
        raise TypeError(
            f"{type(optimizer).__name__} estimates its own learning rate (`d` in its groups), so two "
            "would adapt one rate and each would undo what the other does. Use it as it is, or wrap an "
            "optimizer whose rate is only its `lr`, such as torch.optim.AdamW."
        )
    if not steps_with_its_rate(optimizer):
        reason = next(
            why for kind, why in NOT_WITH_THEIR_RATE.items() if isinstance(optimizer, kind)
        )
        warnings.warn(
            f"{type(optimizer).__name__} {reason}, so its rate cannot be adapted, and ProbStep leaves "
            "it as it is. Wrap an optimizer that steps with its lr, such as torch.optim.AdamW.",
            RuntimeWarning,
            stacklevel=frames_to_caller(),
        )
    if any(group.get("lr") is None for group in optimizer.param_groups):
        raise ValueError(
            f"{type(optimizer).__name__} has no learning rate: `lr` is missing or None in a group, "
            "so there is nothing to adapt. Give it one, or use it as it is."
        )


def refuse_unusable_list(optimizers: Sequence[optim.Optimizer]) -> None:
    """Raise for a list of optimizers that cannot step as one."""
    if not optimizers:
        raise ValueError(
            "ProbStep([]) has nothing to adapt: give one optimizer, or a list of several."
        )
    _refuse_shared_rates([optimizer.param_groups for optimizer in optimizers])
    owners: dict[int, int] = {}
    for k, optimizer in enumerate(optimizers):
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            if owners.setdefault(id(p), k) != k:
                raise ValueError(
                    f"A parameter of shape {tuple(p.shape)} is in optimizer {owners[id(p)]} of the "
                    f"list and in optimizer {k}: it would be moved twice. Give every parameter to one "
                    "of them."
                )
    params = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    kinds = sorted({p.device.type for p in params})
    if len(kinds) > 1:
        raise ValueError(
            f"The optimizers of the list have parameters on {' and '.join(kinds)}: one step cannot be "
            "judged there. Put the model on one kind of device before the optimizers are made."
        )


def refuse_idle_settings(
    rule: Rule, *, is_stretching: bool, max_lr: float | None, is_default: bool
) -> None:
    """Raise for settings that the rule leaves without an effect.

    Args:
        rule: Which one.
        is_stretching: There is a lower bound, or noise.
        max_lr: The largest rate that a step may use; None without a limit.
        is_default: Nobody has chosen the rule.
    """
    if rule.chooses_lengths and is_stretching:
        default = ", the default," if is_default else ""
        raise ValueError(
            f"{type(rule).__name__}{default} decides on the length of steps by itself: "
            "lower_bound and noise go with PaperRule(). Add rule=probstep.PaperRule(), or leave "
            "them out."
        )
    if rule.only_watches and max_lr is not None:
        raise ValueError(
            f"{type(rule).__name__} moves no rate, so it cannot keep one below max_lr. Leave "
            "max_lr out."
        )


def check_per_group(groups: Sequence[Mapping[str, object]], *, is_searching: bool) -> None:
    """Raise where groups cannot have a scale each."""
    if not is_searching:
        raise ValueError(
            "per_group=True needs a rule that searches, as RobustRule does: the paper's rule knows one "
            "scale only. Leave one of them out."
        )
    if len(groups) > MOST_GROUPS:
        raise ValueError(
            f"per_group=True finds a scale for each group, and there are {len(groups)}: more than "
            f"{MOST_GROUPS} cannot be told apart at a fair price. Put parameters that are alike into "
            "one group (body and head, embeddings and the rest)."
        )
    _refuse_shared_rates([[group] for group in groups])


def _refuse_shared_rates(members: Sequence[Sequence[Mapping[str, object]]]) -> None:
    owners: dict[int, int] = {}
    for k, groups in enumerate(members):
        rates = [group["lr"] for group in groups if isinstance(group["lr"], Tensor)]
        if any(owners.setdefault(id(rate), k) != k for rate in rates):
            raise ValueError(
                "Two optimizers or groups that get a scale each have one tensor as their lr, and it "
                "cannot have two values: give each a tensor of its own."
            )


def refuse_model_not_trained(model: object, params: Sequence[Tensor]) -> None:
    """Raise if the optimizer has parameters of modules, but none of this model, as of a teacher.

    A model may be the right one though it shares none: it is frozen, and what goes into it is trained;
    or copies are trained in its place, in another format, in pieces, or by `functional_call`. So
    nothing is refused unless all are ordinary parameters of one format in one place.
    """
    own = list(model.parameters()) if isinstance(model, nn.Module) else []
    if not any(p.requires_grad for p in own):
        return
    trained = {id(p) for p in params}
    if any(id(p) in trained for p in own):
        return
    both = (*own, *params)
    if not all(map(_is_ordinary, both)) or len({(p.dtype, p.device) for p in both}) > 1:
        return
    memory = {p.untyped_storage().data_ptr() for p in params}
    if any(p.untyped_storage().data_ptr() in memory for p in own):
        return
    raise ValueError(
        f"The optimizer has no parameter of the {type(model).__name__} that was given as model=. Give "
        "the model that is trained, compiled or not: ProbStep(optimizer, model=model). Any other module "
        "is found when it runs. If the model is right, and something else is trained, leave model= out."
    )


def _is_ordinary(p: Tensor) -> bool:
    """Say whether this is a module's parameter, whole, and with numbers in memory."""
    is_usual = type(p) is nn.Parameter and p.layout is torch.strided and not p.is_meta
    return is_usual and p.untyped_storage().data_ptr() != 0


def checked(value: T, name: str, method: str) -> T:
    """Return an argument if it is an object with that method."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        example = {"rule": "PaperRule()", "probe": "Every(10)"}[name]
        raise TypeError(
            f"{name} must be an object such as probstep.{example}, not {_describe(value)}."
        )
    return value


def as_bound(bound: float | LowerBound | None, *, sign: float) -> LowerBound | None:
    """Return the lower bound of the objective as an estimator; an upper one is negated."""
    if bound is None:
        return None
    if isinstance(bound, KnownBound):  # as a copy of a ProbStep hands it over
        return bound
    if isinstance(bound, float | int):
        if not math.isfinite(bound):
            raise ValueError(f"lower_bound must be finite, not {bound!r}; None means unknown.")
        return KnownBound(sign * bound)
    if isinstance(bound, type) or not callable(getattr(bound, "estimate", None)):
        raise TypeError(
            f"lower_bound must be a number, None or an estimator such as probstep.Interpolation(), not "
            f"{_describe(bound)}."
        )
    if sign < 0:
        raise ValueError(
            f"{type(bound).__name__} estimates a lower bound, and with maximize=True an upper one is "
            "needed: give a number."
        )
    return bound


def checked_noise(noise: Noise) -> Noise:
    """Return the noise if it can be a variance."""
    if isinstance(noise, float | int):
        if not 0 <= noise < math.inf:
            raise ValueError(f"noise is a variance: at least 0 and finite, not {noise!r}.")
    elif isinstance(noise, type) or not (callable(noise) or isinstance(noise, SampleNoise)):
        raise TypeError(
            "noise must be a number, a function of the loss or probstep.SampleNoise(), not "
            f"{_describe(noise)}."
        )
    return noise


def checked_model(model: nn.Module | None) -> nn.Module | None:
    """Return the model if it is one."""
    if not (model is None or isinstance(model, nn.Module)):
        raise TypeError(
            f"model must be a torch.nn.Module or None, not {_describe(model)}. Give the model that "
            "computes the loss, or leave it out."
        )
    return model


def checked_max_lr(max_lr: float | None) -> float | None:
    """Return the largest rate if it can be one."""
    if max_lr is not None and not (isinstance(max_lr, SupportsFloat) and 0 < max_lr < math.inf):
        raise ValueError(f"max_lr must be positive and finite, or None, not {max_lr!r}.")
    return max_lr


def refuse_assignment(name: str) -> NoReturn:
    """Raise for a setting that is given to an optimizer which is made already."""
    raise AttributeError(
        f"{name} is set when a ProbStep is made, and stays as it is. Of the settings, max_lr, horizon, "
        f"probe and process_group may be set later. For another {name} make another ProbStep around the "
        "same optimizer."
    )


def refuse_graph_capture() -> None:
    """Raise while a CUDA graph is captured."""
    is_ready = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if is_ready and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "ProbStep cannot step inside a CUDA graph: it reads the loss and decides on the host, and a "
            "graph would repeat the decision of the capture for ever. Capture forward and backward, and "
            "call opt.step(loss=..., reevaluate=...) outside; capturable=True does no harm there."
        )


def check_step_arguments(
    closure: object, reevaluate: object, loss: object, grad_scale: object
) -> None:
    """Raise if `step` was called with what cannot go together."""
    if closure is not None and not callable(closure):
        raise TypeError(
            f"step() takes a function that computes the loss, not {_describe(closure)}. Write "
            "step(lambda: loss_fn(model(x), y)); or, after backward, step(loss=loss, "
            "reevaluate=lambda: loss_fn(model(x), y))."
        )
    if reevaluate is not None and not callable(reevaluate):
        raise TypeError(
            f"reevaluate must be a function that computes the loss again, not {_describe(reevaluate)}. "
            "Write reevaluate=lambda: loss_fn(model(x), y)."
        )
    if closure is not None and loss is not None:
        raise TypeError("step() takes a closure, which gives the loss, or loss=; not both.")
    if isinstance(grad_scale, float | int):
        if not 0 < grad_scale < math.inf:
            raise ValueError(f"grad_scale must be positive and finite, not {grad_scale!r}.")
    elif not (grad_scale is None or isinstance(grad_scale, Tensor | SupportsFloat)):
        raise TypeError(
            f"grad_scale must be a number or a tensor of one, not {_describe(grad_scale)}. Give the "
            "factor by which the gradients were clipped, or use opt.clip_grad_norm_(max_norm)."
        )


def frames_to_caller() -> int:
    """Return the stacklevel of the first frame outside this package and torch: the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(OWN_FRAMES):
        level, frame = level + 1, frame.f_back
    return level


def check_loss(loss: object, *, per_sample: bool) -> None:
    """Raise unless this is a loss: a floating-point scalar, or a vector of per-sample losses."""
    if not isinstance(loss, Tensor) or not loss.is_floating_point():
        raise TypeError(
            f"The loss must be a floating-point tensor, not {_describe(loss)}: its number format says "
            "how small a change it can show. Return the loss itself, without .item() or float()."
        )
    if per_sample and loss.dim() != 1:
        raise ValueError(
            f"SampleNoise() needs the vector of per-sample losses, not {_describe(loss)}. "
            'Compute the loss with reduction="none".'
        )
    if not per_sample and loss.numel() != 1:
        raise ValueError(
            f"The loss must be a single number, not {_describe(loss)}. Return its mean; per-sample "
            "losses are for ProbStep(..., noise=probstep.SampleNoise())."
        )


def check_same_shape(value: Tensor, loss: Tensor) -> None:
    """Raise unless a probe returned what the loss was."""
    if value.shape != loss.shape or value.dtype != loss.dtype:
        cause = f"Usual cause: {AUTOCAST}. " if value.shape == loss.shape else ""
        raise ValueError(
            f"The probe returned {_describe(value)} where the loss was {_describe(loss)}: it must "
            f"compute the same loss of the same batch. {cause}The parameters are as before the step; "
            "the moments of the optimizer may not be."
        )


def refuse_mixed_maximize(groups: Sequence[Mapping[str, object]]) -> None:
    """Raise if some groups maximise and some minimise."""
    if len({bool(group.get("maximize", False)) for group in groups}) > 1:
        raise ValueError(
            "Some param groups have maximize=True and some not, so there is no one loss that falls. "
            "Give all groups the same value."
        )


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and type {value.dtype}"
    return f"a {type(value).__name__}"
