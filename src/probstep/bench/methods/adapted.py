"""ProbStep as a row of the bench: its settings as plain data, as a plan can write them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from torch.optim import Optimizer

from probstep import (
    DoublingEpochs,
    Every,
    EveryStep,
    Interpolation,
    PaperRule,
    ProbStep,
    RobustRule,
    RunningMinimum,
    SampleNoise,
)

LowerBound = Interpolation | RunningMinimum
Schedule = DoublingEpochs | Every | EveryStep

ROBUST = frozenset(field.name for field in fields(RobustRule))
RULE = frozenset(field.name for field in fields(PaperRule))
OURS = RULE | {"lower_bound", "noise", "noise_share", "every", "doubling_epochs"}
BOUNDS: dict[str, Callable[[], LowerBound]] = {
    "interpolation": Interpolation,
    "running_minimum": RunningMinimum,
}


def adapted(
    base: Callable[..., Optimizer], *, per_sample: bool = False
) -> Callable[..., Optimizer]:
    """Return a function that makes ProbStep with PaperRule around an optimizer.

    Its settings go to PaperRule (`up`, `down`, ...), to ProbStep, or else to the optimizer inside:

    - `lower_bound`: a number, "interpolation" or "running_minimum";
    - `noise`: a number; or, of a row with per-sample losses, "samples" for their variance;
    - `noise_share`: instead, the noise as a share of the loss, the paper's 0.05 f;
    - `every`: probe every so many steps; or `doubling_epochs`: in the epochs 1, 2, 4, 8, ...

    Args:
        base: Makes the optimizer inside.
        per_sample: Whether the loop hands over the loss of every sample.
    """

    def build(params: Any, steps_per_epoch: int | None = None, **settings: Any) -> Optimizer:
        ours = {name: settings.pop(name) for name in OURS & settings.keys()}
        _refuse_contradictions(ours, per_sample)
        bound = ours.get("lower_bound")
        return ProbStep(
            base(params, **settings),
            rule=PaperRule(**{name: ours[name] for name in RULE & ours.keys()}),
            lower_bound=_named_bound(bound) if isinstance(bound, str) else bound,
            noise=_noise(ours),
            probe=_schedule(ours, steps_per_epoch),
        )

    return build


def robust(base: Callable[..., Optimizer]) -> Callable[..., Optimizer]:
    """Return a function that makes ProbStep with RobustRule around an optimizer.

    Settings with the name of a field of RobustRule go to it, others to the optimizer.
    """

    def build(params: Any, **settings: Any) -> Optimizer:
        ours = {name: settings.pop(name) for name in ROBUST & settings.keys()}
        if "budget" in ours:
            ours["budget"] = tuple(ours["budget"])
        return ProbStep(base(params, **settings), rule=RobustRule(**ours))

    return build


def _refuse_contradictions(ours: Mapping[str, Any], per_sample: bool) -> None:
    """Raise where one setting would silently win over another, or could not be followed."""
    noise = ours.get("noise")
    if per_sample and (noise != "samples" or "noise_share" in ours):
        raise ValueError(
            "The rows that end in `_noise` take the noise from the batch's samples: leave noise and "
            "noise_share out, or use the row without `_noise`."
        )
    if not per_sample and isinstance(noise, str):
        raise ValueError(
            f"noise must be a number here, got {noise!r}. For the variance of the batch's losses "
            "use the row that ends in `_noise`."
        )
    if "noise_share" in ours and "noise" in ours:
        raise ValueError("noise and noise_share both say what the noise is: give one of them.")
    if "every" in ours and ours.get("doubling_epochs"):
        raise ValueError("every and doubling_epochs both say when to probe: give one of them.")
    if not 0 <= ours.get("noise_share", 0.0) < math.inf:
        raise ValueError(f"noise_share must be at least 0 and finite, got {ours['noise_share']}.")


def _named_bound(name: str) -> LowerBound:
    if name not in BOUNDS:
        raise ValueError(f"lower_bound must be a number or one of {sorted(BOUNDS)}, got {name!r}.")
    return BOUNDS[name]()


def _noise(ours: Mapping[str, Any]) -> Any:
    """Return the noise in the form that ProbStep takes."""
    if ours.get("noise") == "samples":
        return SampleNoise()
    if "noise_share" in ours:
        share = ours["noise_share"]
        return lambda loss: share * loss
    return ours.get("noise", 0.0)


def _schedule(ours: Mapping[str, Any], steps_per_epoch: int | None) -> Schedule:
    """Return when to probe."""
    if ours.get("doubling_epochs"):
        if steps_per_epoch is None:
            raise ValueError(
                "doubling_epochs needs steps_per_epoch: make the method with prepare()."
            )
        return DoublingEpochs(steps_per_epoch)
    return Every(ours["every"]) if "every" in ours else EveryStep()
