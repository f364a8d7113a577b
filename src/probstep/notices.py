"""What ProbStep says to its user: warnings, each once."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import fields, is_dataclass

from .checks import frames_to_caller
from .memory import Memory, Probe

PATIENCE = 20  # probes that say nothing, from the first one on, before we say so


def brief(settings: object) -> str:
    """Return an object of frozen settings as it would be written: only what is not as usual.

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
        if probe.decision == "skipped":
            self.of_skipped_step()
        elif probe.decision == "unpaired":
            self._once(
                "unpaired",
                "The probe drew other random numbers than the pass that gave the loss (dropout?), so it "
                "says nothing and the scale stays. Use step(closure), or compute the whole loss inside "
                "`with opt.forward_pass():`.",
            )
        elif not math.isfinite(probe.loss_after):
            self._once(
                "not finite",
                "The loss was not finite after a step: the rate counts as too large and comes down.",
            )
        elif sum(memory.decisions.values()) == memory.decisions["uninformative"] == PATIENCE:
            self._once(
                "uninformative",
                f"In none of the first {PATIENCE} probes the loss could have changed visibly, given its "
                "rounding, so the scale has not moved. Start from a larger rate.",
            )

    def of_skipped_step(self) -> None:
        """Say that a step was skipped."""
        self._once(
            "skipped",
            "The gradients were not finite: the step was skipped. If this goes on, the loss or the "
            "data hold values that are not finite.",
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
        """Say what of a checkpoint could not be taken over, every time that one is loaded."""
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
