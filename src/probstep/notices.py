"""What ProbStep says to its user: warnings, each once."""

import math
import warnings

from .checks import frames_to_caller
from .memory import Memory, Probe

PATIENCE = 20  # probes that say nothing, from the first one on, before we say so


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

    def _once(self, key: str, message: str) -> None:
        if key not in self._given:
            self._given.add(key)
            warnings.warn(message, RuntimeWarning, stacklevel=frames_to_caller())
