"""RobustRule: its settings, and what each of its functions is called by.

What a loss changes is in `losses`, what a probe changes in `probes`; which steps are probed is in `due`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..protocol import Decision, Observation, Proposal, Setting
from . import due, losses, probes, search
from .numbers import HUNDREDTH
from .state import RobustState, restore

HELD = int(1 / HUNDREDTH)  # losses that rose without a bend, after which the user is told

NO_OBJECTIVE = (
    f"{HELD} times the losses have risen although probed steps lowered the loss of their own batch as "
    "promised. So it is not the learning rate that raises them, and the rate is kept while that lasts. "
    "Either the data change (batches sorted by class, a weight that grows), or the loss is not what "
    "training is to reduce (a policy gradient, an adversary, bootstrapped targets): then no rule can "
    "judge a rate by it. Take a fixed rate there, or opt.freeze() once the rate is good."
)

# Parts that can be left out, to measure what they are for (benchmarks/ablations.py).
PARTS = {
    "noise": "the bound by noise: its excess loss against the gain of the next e-fold of time",
    "certain": "what the bound says for certain is done at once, not slowly",
    "return": "what the bound took from the scale it gives back when it allows more",
    "plateau": "a little is always hoped for, so that a plateau does not bring the scale down",
    "scatter": "less is hoped for where single losses differ by more than their mean",
    "unlike": "a search takes a tenth of its step, and begins anew if its batch was like no other",
    "early": "in the first hundred losses noise may cost up to twice the loss",
    "hold": "a rise of the losses that no probe can explain by a bend does not lower the scale",
    "share": "the search ends where a step promises its share of the loss",
    "curvature": "the aim at a bend: without it the bound alone limits the scale",
    "shortening": "a step that raises the loss is shortened (without it, only an infinite one)",
    "restraint": "a step that bends does not raise the scale; some in a row that went too far lower it",
    "gentle": "in the first hundred losses steps of Adam, or of what is like it, must bend less",
    "climb": "the scale may double at a probe, first and after straight probes (without it, times 1.2)",
    "pace": "with SGD's momentum the scale rises no faster than it shows what a rise does",
    "surprise": "a high loss asks for a probe, and counts less in the averages of the loss",
    "rises": "without momentum five rises of the loss in a row, or a rise to ten times, ask for a probe",
    "level": "surprises in short order begin these averages anew",
    "explosion": "a loss ten times as large as usual is followed by a probe, whatever the budget says",
    "caution": "the gradient of a step whose own loss explodes counts only in part",
    "reserve": "forward passes are kept for surprises and for great doubt",
    "again": "after probes that saw nothing the rule searches again",
    "wall": "with SGD a step too far whose noise costs more than the loss is shortened at once",
    "regain": "after a setback, when losses are as before, the scale comes back fast",
    "smooth": "with SGD a step that bends keeps the next probe from raising the scale, too",
    "floors": "the size of the gradients is averaged over fewer probes than the slope",
}


@dataclass(frozen=True)
class RobustRule:
    """Find, hold and defend a good rate: a filter on the logarithm of the scale.

    The first batch is searched for the order of magnitude, from below, so that nothing depends on the
    initial rate. Later a step is probed when the scale has become too uncertain, and shortened when
    the probe shows that it was bad. Between probes the losses of the steps bound the scale.

    Args:
        target: 2 - r*, the curvature over slope that is aimed at, and the largest share of the loss
            that a step may be predicted to gain. Smaller is more cautious; 1 aims at the minimum along
            the step, 2 at no gain.
        up: Largest factor per probe. Larger is faster after a plateau and more dangerous on leaving it.
        doubt: The variance of log scale at which a probe is due. Smaller means more probes.
        budget: The probes allowed: so many at once, and so many per step.
        without: Names of parts to leave out, for ablations; `rule.PARTS` says what each one does.

    >>> rule = RobustRule()
    >>> rule.is_due(rule.init())
    True
    """

    target: float = 4 / 3
    up: float = 1.2
    doubt: float = 0.09
    budget: tuple[float, float] = (40.0, 0.04)
    without: frozenset[str] = frozenset()

    exact_noise: ClassVar[bool] = False
    momentum_as_gradient: ClassVar[bool] = False
    chooses_lengths: ClassVar[bool] = True
    only_watches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.target < 2:
            raise ValueError(f"RobustRule(target=) must lie between 0 and 2, not {self.target!r}.")
        if not 1 < self.up < math.inf:
            raise ValueError(f"RobustRule(up=) must be above 1 and finite, not {self.up!r}.")
        if not 0 < self.doubt < 1:
            raise ValueError(f"RobustRule(doubt=) must lie between 0 and 1, not {self.doubt!r}.")
        is_pair = isinstance(self.budget, tuple | list) and len(self.budget) == 2
        if not (is_pair and all(0 <= number < math.inf for number in self.budget)):
            raise ValueError(
                f"RobustRule(budget=) holds two finite numbers of at least 0, not {self.budget!r}."
            )
        if not set(self.without) <= PARTS.keys():
            raise ValueError(
                f"RobustRule(without=) holds names of parts, not {self.without!r}. "
                f"The parts are: {', '.join(PARTS)}."
            )

    def init(self) -> RobustState:
        """Return the state before the first step."""
        return RobustState()

    def restore(self, plain: Mapping[str, Any]) -> RobustState:
        """Return the state that a checkpoint carries, also one of 0.1.0; raise ValueError for others."""
        return restore(plain)

    def is_due(self, state: RobustState) -> bool:
        """Say whether the next step is probed: the scale is uncertain, and the budget allows it."""
        return due.is_due(self, state)

    def is_searching(self, state: RobustState) -> bool:
        """Say whether the order of magnitude is still to be found."""
        return not state.search.is_done

    def search_again(self, state: RobustState) -> None:
        """Forget everything that is measured in units of the rate; the losses stay known."""
        losses.search_again(self, state)

    def first_length(self, proposal: Proposal) -> float:
        """Return the share of a step at rate 1 with which the search begins: just visible."""
        return search.first_length(proposal)

    def judge(self, state: RobustState, seen: Observation) -> Decision:
        """Learn from a probe, and say what becomes of step and scale."""
        return probes.judge(self, state, seen)

    def notice(self, state: RobustState, loss: float, scale: float, setting: Setting) -> float:
        """Learn from the loss of a step; return a factor for the scale, above 1 only to give back."""
        return losses.notice(self, state, loss, scale, setting)

    def part_to_take(self, state: RobustState, loss: float, *, is_probed: bool) -> float:
        """Return the part of a step to take: less than 1 if its own loss explodes."""
        return losses.part_to_take(self, state, loss, is_probed=is_probed)

    def is_new_level(self, state: RobustState) -> bool:
        """Say whether the averages of the loss began anew with the last loss, not with the first."""
        return state.losses == 1 and state.t > 2

    def complaint(self, state: RobustState) -> str:
        """Say it if the losses are not what the rule reduces."""
        return NO_OBJECTIVE if state.held >= HELD else ""

    def metrics(self, state: RobustState) -> dict[str, float]:
        """Return the standard deviation of log scale."""
        return {"log_scale_deviation": math.sqrt(state.belief.variance)}
