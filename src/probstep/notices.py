"""What ProbStep says to its user: warnings, each once."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import fields, is_dataclass

from .checks import frames_to_caller
from .memory import Memory, Probe

PATIENCE = 20  # probes in a row that say nothing, before we say so
STUBBORN = 8  # probed steps in a row that were taken back
REPEATED = 3  # probes in a row that saw the same norm of the gradient
DEAD = 1e-6  # of the highest scale: below this, probes can see nothing any more
SCALED = 200.0  # a factor of the gradients that is too large for a sum of micro-batches
ABSURD = 1e6  # times the scale that the search found

NEARLY = 0.04  # a measured factor so close to a whole number is taken for it

ANOTHER = (
    "they are another function's: a lambda that binds late (bind what it needs, lambda x=x, y=y: ...), "
    "or a batch that is drawn anew when the loss is evaluated again"
)
CLIPPED = (
    "The norm of the gradients was {:.6g} at several probes in a row, while the loss differed, and the "
    "loss fell by more than they promise: they seem to be clipped without ProbStep's knowledge, so that "
    "its rate comes out too high. Use opt.clip_grad_norm_(max_norm) instead of "
    "torch.nn.utils.clip_grad_norm_, or give the factor: step(..., grad_scale=factor)."
)


def brief(settings: object) -> str:
    """Return frozen settings as code, with only those that differ from the defaults.

    >>> from probstep.rules import PaperRule
    >>> brief(PaperRule()), brief(PaperRule(up=1.1))
    ('PaperRule()', 'PaperRule(up=1.1)')
    """
    given = []
    if is_dataclass(settings):
        values = [(f.name, getattr(settings, f.name), f.default) for f in fields(settings)]
        given = [f"{name}={value!r}" for name, value, usual in values if value != usual]
    return f"{type(settings).__name__}({', '.join(given)})"


class Notices:
    """Warnings that are given once each."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def of_probe(self, probe: Probe, memory: Memory) -> None:
        """Say what a probed step calls for."""
        if probe.decision == "watched":
            return
        if probe.decision == "skipped":
            self.of_skipped_step()
        elif probe.decision == "unpaired":
            self._once(
                "unpaired",
                "The probe drew other random numbers than the pass that gave the loss (dropout?), so it "
                "says nothing and the scale stays. Use step(closure), or compute the whole loss inside "
                "`with opt.forward_pass():`.",
            )
        elif probe.decision == "contradicted":
            self._once(
                "contradicted",
                f"A probe saw another function than the loss that is trained: after the step the loss "
                f"was {probe.loss_after:.6g} instead of {probe.loss:.6g}. Evaluated again where the "
                "step began, it was another number than before. At the first step it was the same. "
                "Such probes teach nothing, so the scale stays. Has the data pipeline changed, or is "
                "the loss evaluated again with another batch?",
            )
        elif not math.isfinite(probe.loss_after):
            self._once(
                "not finite",
                "The loss was not finite after a step: the rate counts as too large and comes down.",
            )
        elif memory.health.blind >= PATIENCE:
            is_flat = probe.slope == 0
            is_first = sum(memory.decisions.values()) == PATIENCE
            which = f"none of the first {PATIENCE}" if is_first else f"none of the last {PATIENCE}"
            self._once(
                "uninformative",
                f"In {which} probes could the loss change visibly, given its rounding (in the last one "
                f"it was predicted to change by {probe.slope:.3g} of {probe.loss:.6g}), so they "
                "have not moved the scale. "
                + (
                    "The steps were empty. Either they are below the rounding of the parameters: with "
                    "PaperRule start from a larger rate; RobustRule searches for one by itself. Or the "
                    "gradients are zero, or not those of this loss."
                    if is_flat
                    else "The gradients have not vanished: check that they are those of this loss, and "
                    "with PaperRule start from a larger rate."
                ),
            )
        elif memory.health.taken_back >= STUBBORN:
            self._once(
                "taken back",
                f"The last {STUBBORN} probed steps were all taken back, because the loss rose by far "
                f"more than they promised to lower it; the scale is {probe.scale:.3g}. There are three "
                "likely reasons: the loss is not what the optimizer reduces (adversarial training, a "
                "policy gradient); the loss that is evaluated again is not the same loss; the batches "
                "differ too much for one rate: use larger batches.",
            )
        elif memory.health.repeats >= REPEATED:
            self._once("clipped", CLIPPED.format(memory.health.gradient))

    def of_refusal(self, refusal: str) -> None:
        """Say that watching has ended, because what is evaluated again is not the loss."""
        self._once("refusal", f"Watching has ended, and training goes on. {refusal}")

    def of_slope(self, memory: Memory) -> None:
        """Say that the gradients are not those of the loss, by a factor."""
        factor = memory.proof.slope_factor
        if factor not in (0.0, 1.0):
            self._once("slope", wrong_slope(factor))

    def of_rule(self, complaint: str) -> None:
        """Say what the rule has to say about the losses, if anything."""
        if complaint:
            self._once("rule", complaint)

    def of_scale(self, memory: Memory) -> None:
        """Say that the scale is dead or absurd."""
        scale, health = memory.scale, memory.health
        if scale < DEAD * health.highest:
            self._once(
                "dead",
                f"The scale has fallen to {scale:.3g}, from {health.highest:.3g}: steps this short "
                "teach nothing, and training stands still. Likely reasons: a few batches whose loss is "
                "far above the others', or a task that has changed. Load an earlier checkpoint, or "
                "begin anew with a new ProbStep around the same optimizer: it searches again.",
            )
        elif scale > ABSURD * health.found > 0:
            self._once(
                "absurd",
                f"The scale has risen to {scale:.3g}, from the {health.found:.3g} that the search "
                "found. Likely reason: the loss hardly depends on the parameters any more (dead units, "
                "a plateau). See whether the model still learns; a new ProbStep around the same "
                "optimizer searches again.",
            )

    def of_horizon(self, horizon: int) -> None:
        """Say that training goes on beyond its end."""
        self._once(
            "horizon",
            f"The horizon of {horizon} steps has been reached and training goes on: from now on every "
            "step has the small rate of the last one. If training is longer, set opt.horizon = steps "
            "before the horizon is reached.",
        )

    def of_skipped_step(self) -> None:
        """Say that a step was skipped."""
        self._once(
            "skipped",
            "The loss or a gradient was not finite: the step was skipped. If this goes on, the model or "
            "the data hold values that are not finite.",
        )

    def of_touched_parameters(self, base: str) -> None:
        """Say that a step was taken on a batch that was not finite."""
        self._once(
            "touched",
            f"The loss of a step without a probe was not finite, and {base} has taken that step: its "
            "moments and the parameters may hold values that are not finite now. Go back to a "
            "checkpoint. With fused=True such a step is skipped on the device.",
        )

    def of_missing_loss(self, base: str) -> None:
        """Say that a step could not be probed because nobody gave its loss."""
        self._once(
            "no loss",
            "ProbStep.step() got no way to evaluate the loss again, so it steps as "
            f"{base} does, at the present scale. Use step(closure), "
            "step(loss=loss, reevaluate=fn), or reevaluate_with(fn) before a bare step().",
        )

    def of_no_gradients(self) -> None:
        """Say that there is nothing to step along."""
        self._once(
            "no gradients",
            "No parameter of the optimizer has a gradient, so the step changes nothing. Was backward "
            "called on this loss, after the last zero_grad()? Does the optimizer hold the parameters of "
            "the model that was run, and do they require gradients?",
        )

    def of_no_rate(self) -> None:
        """Say that zero times any scale is zero."""
        self._once(
            "no rate",
            "lr is 0 in every group, and no schedule is known that raises it: nothing moves, because "
            "any scale times 0 is 0. Give any positive lr; with RobustRule its size does not matter.",
        )

    def of_piled_gradients(self) -> None:
        """Say that nobody clears the gradients."""
        self._once(
            "piled gradients",
            "The closure called backward() on top of the gradients of the step before: nobody cleared "
            "them, and they pile up. Call opt.zero_grad() at the start of the closure, or leave "
            "backward() out of it.",
        )

    def of_step_of_base(self, base: str) -> None:
        """Say that the base stepped by itself."""
        self._once(
            "step of base",
            f"{base}.step() was called directly, not through the ProbStep around it: that step used lr "
            "without the scale, and nothing was learnt from it. Call step() of the ProbStep.",
        )

    def of_checkpoint(self, faults: Sequence[str]) -> None:
        """Say which parts of a checkpoint could not be used, every time that one is loaded."""
        if faults:
            warnings.warn(
                "The checkpoint's memory of ProbStep was taken over in part. What could not be used "
                f"begins anew: {' '.join(faults)}",
                RuntimeWarning,
                stacklevel=frames_to_caller(),
            )

    def _once(self, key: str, message: str) -> None:
        if key not in self._given:
            self._given.add(key)
            warnings.warn(message, RuntimeWarning, stacklevel=frames_to_caller())


def wrong_slope(factor: float) -> str:
    """Return the message for gradients that are `factor` times those of the loss.

    >>> "GradScaler" in wrong_slope(65536.2), "micro-batches" in wrong_slope(0.25)
    (True, True)
    """
    return (
        f"The gradients are about {_short(factor)} times those of the loss that is evaluated again. "
        f"{_suggestion(factor)} If it is meant so (a stop-gradient, a straight-through estimator, "
        "gradient reversal, private training), the rate that is found is only a guess: compare it with "
        "a fixed one, and silence this with ProbStep(..., check=False)."
    )


def _short(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def _suggestion(factor: float) -> str:
    if factor >= SCALED:
        return (
            "So large a factor is that of a GradScaler that was not asked to step: call "
            "scaler.step(opt, loss=loss, reevaluate=fn) instead of opt.step(...)."
        )
    causes = [ANOTHER]
    if 0 < factor < 1:
        causes.insert(
            0,
            "they were clipped by something else: use opt.clip_grad_norm_(max_norm), or give "
            f"step(..., grad_scale={factor:.3g})",
        )
    if (count := _whole(1 / factor)) is not None:
        causes.insert(
            0,
            f"backward saw the loss divided by {count}, as for {count} micro-batches, and what is "
            "evaluated again is not: divide both",
        )
    if (count := _whole(factor)) is not None:
        causes.insert(
            0,
            f"the gradients are the sum of {count} micro-batches, and the loss is their mean: divide "
            "each by their number before backward. Or gradients of several steps have piled up: call "
            "opt.zero_grad() before backward",
        )
    listed = "; ".join(f"{number}. {cause}" for number, cause in enumerate(causes, 1))
    return f"Usual causes, the likeliest first: {listed}."


def _whole(number: float) -> int | None:
    """Return the whole number, from 2 on, to which a measured one is close; None if there is none."""
    near = round(number)
    return near if near > 1 and abs(number / near - 1) < NEARLY else None
