"""The ratios between the members of a step, and how probes of one member alone keep them right.

A *member* is what has a ratio of its own: an optimizer of a list, or a parameter group. It steps at
`lr * scale * ratio`; the scale is common, and the rule's business. No tensors here.

What is aimed at is one bend for all: curvature over slope along each member's own part of the step.
The averages are those of the rule's belief, one per member.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .plain import refuse_outside, restored
from .rules import Observation
from .rules.robust import belief
from .rules.robust.belief import Belief
from .rules.robust.search import is_visible

AT_ONCE, PER_STEP = 4.0, 0.02  # forward passes: so many for each member, and so many per step
ENOUGH = 3  # probes of a member alone, before its ratio moves
GAIN = 0.5  # the share of the way to equal bends that a ratio goes at a probe
MOST = math.log(2.0)  # no ratio moves further than by this factor at a probe
FLOOR = 0.1  # the least weight of a probe in an average: it is taken over about ten of them
FLOORS = dict.fromkeys(("cosine", "root_curvature", "log_gradient_per_length"), FLOOR)


@dataclass(slots=True)
class Member:
    """What is remembered of one member.

    Args:
        ratio: Its factor beside the common scale; 0 for one that is still to be searched.
        is_found: It has been searched, alone.
        belief: What probes of it alone said.
    """

    ratio: float = 1.0
    is_found: bool = False
    belief: Belief = field(default_factory=Belief)

    def __post_init__(self) -> None:
        refuse_outside(self, ratio=(0.0, 1e300))


@dataclass(slots=True)
class Ratios:
    """What is remembered of all members; of none where a step is not divided.

    Args:
        members: One after the other.
        forwards: The forward passes that told members apart, those of searches not counted.
        turn: Whose turn it is.
        is_wanted: A member that is still to be searched has gradients.
        tried_at: The step at which the last search of such a member failed.
        wait: How many steps to wait after it.
    """

    members: list[Member] = field(default_factory=list)
    forwards: int = 0
    turn: int = 0
    is_wanted: bool = False
    tried_at: int = 0
    wait: int = 1

    def __post_init__(self) -> None:
        refuse_outside(
            self,
            forwards=(0, math.inf),
            turn=(0, max(len(self.members) - 1, 0)),
            tried_at=(0, math.inf),
            wait=(1, math.inf),
        )

    @property
    def values(self) -> list[float]:
        """The ratios."""
        return [member.ratio for member in self.members]

    @property
    def missing(self) -> list[int]:
        """Which members are still to be searched."""
        return [k for k, member in enumerate(self.members) if not member.is_found]

    def is_affordable(self, steps: int) -> bool:
        """Say whether a member may be looked at alone, after so many steps."""
        return self.forwards < AT_ONCE * len(self.members) + PER_STEP * steps

    def take_found(self, scales: Sequence[float | None], common: float) -> None:
        """Set ratios by what a search of each member alone has found; None where it saw nothing.

        Members that are not found do not move.

        Args:
            scales: The scale that is good for each member by itself.
            common: The common scale, beside which they become ratios.

        >>> ratios = Ratios([Member(), Member(), Member()])
        >>> ratios.take_found([0.5, None, 2.0], common=1.0)
        >>> ratios.values, ratios.missing
        ([0.5, 0.0, 2.0], [1])
        """
        for member, scale in zip(self.members, scales, strict=True):
            if scale is not None:
                member.ratio, member.is_found, member.belief = scale / common, True, Belief()
            elif not member.is_found:
                member.ratio = 0.0

    def note_search(self, steps: int, *, is_absent: bool) -> None:
        """Take note that the missing members were searched at this step.

        Args:
            steps: How many were taken before it.
            is_absent: They had no gradient in this very step; the next one may bring it.
        """
        if is_absent and self.is_wanted and self.is_affordable(steps):
            self.forwards += 1
            return
        self.is_wanted = False
        self.tried_at = steps
        self.wait = 2 * self.wait if self.missing else 1

    def plain(self) -> dict[str, Any]:
        """Return a copy of plain numbers: a list for each number of the members."""
        beliefs = {
            f.name: [getattr(m.belief, f.name) for m in self.members] for f in fields(Belief)
        }
        return {
            "ratio": self.values,
            "is_found": [int(member.is_found) for member in self.members],
            "belief": beliefs,
            "forwards": self.forwards,
            "turn": self.turn,
            "is_wanted": int(self.is_wanted),
            "tried_at": self.tried_at,
            "wait": self.wait,
        }

    @classmethod
    def restored(cls, plain: Mapping[str, Any]) -> "Ratios":
        """Return what a checkpoint carries; raise ValueError if it is something else."""
        columns = {"ratio": plain["ratio"], "is_found": plain["is_found"]}
        count = len(columns["ratio"])
        rows = []
        for k in range(count):
            told = {name: values[k] for name, values in plain["belief"].items()}
            told = belief.renewed(told) if "curvature" in told else told
            row = {name: values[k] for name, values in columns.items()}
            rows.append(restored(Member, row | {"belief": told}))
        rest = {name: plain[name] for name in ("forwards", "turn", "is_wanted", "tried_at", "wait")}
        return cls(rows, **asdict(restored(_Rest, rest)))


@dataclass
class _Rest:
    """What `Ratios` remembers beside its members."""

    forwards: int
    turn: int
    is_wanted: bool
    tried_at: int
    wait: int


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers; 1 of none.

    >>> geometric_mean([1e-200, 1e200])
    1.0
    """
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0


def learn(member: Member, seen: Observation) -> bool:
    """Learn from a step of the member alone; say whether it could be seen."""
    step = seen.step
    can_be_seen = is_visible(step) and math.isfinite(seen.loss_after)
    if not (can_be_seen and math.isfinite(step.loss) and step.rate > 0):
        return False
    news = belief.measure(seen, with_curvature=True)
    if "root_curvature" not in news:
        return False
    belief.learn(member.belief, news, floors=FLOORS)
    return True


def balance(ratios: Ratios, scale: float) -> None:
    """Move the ratios towards equal bends, where enough has been seen of at least two members.

    Their geometric mean stays: the common scale is the rule's business.

    >>> beliefs = [Belief(probes=3, cosine=1.0, root_curvature=bent) for bent in (2.0, 1.0)]
    >>> ratios = Ratios([Member(1.0, True, belief) for belief in beliefs])
    >>> for _ in range(9):
    ...     balance(ratios, scale=1.0)
    >>> [round(ratio, 1) for ratio in ratios.values]
    [0.5, 2.0]
    """
    aims = {k: _aim(member, scale) for k, member in enumerate(ratios.members)}
    known = {k: aim for k, aim in aims.items() if aim is not None}
    if len(known) < 2:
        return
    mean = sum(known.values()) / len(known)
    moves = {k: min(max(GAIN * (aim - mean), -MOST), MOST) for k, aim in known.items()}
    rest = sum(moves.values()) / len(moves)
    for k, move in moves.items():
        ratios.members[k].ratio *= math.exp(move - rest)


def _aim(member: Member, scale: float) -> float | None:
    """Return the logarithm of the factor to a bend of 1; None where nothing is known of it."""
    told = member.belief
    if not (
        member.is_found and told.probes >= ENOUGH and told.cosine > 0 and told.root_curvature > 0
    ):
        return None
    aim = belief.aimed_factor(told, 1.0, scale * member.ratio)
    return math.log(aim) if 0 < aim < math.inf else None
