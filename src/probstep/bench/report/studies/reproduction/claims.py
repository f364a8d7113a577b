"""What the paper claims: the table of its claims, each with what judges it.

The numbers of the claims, C1 to C14, are those of the page.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .cost import MOST_COPIES, PAPER_LIMIT, judge_cost, judge_memory
from .evidence import CLOSE, HEAVY, Evidence
from .identities import ROUNDING, judge_identities
from .setup import judge_budget, judge_settings
from .sweeps import (
    APART,
    FORGOTTEN,
    judge_heatmap,
    judge_rates,
    judge_rosenbrock,
)
from .training import (
    judge_best,
    judge_doubling,
    judge_large,
    judge_noise,
    judge_rivals,
    judge_small,
)
from .verdict import HALF, MOST, NEARLY_ALL, Verdict, percent


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the function that judges it.

    Args:
        rule: What decides, in words.
        figure: The paper's figure that shows it, if there is one.
    """

    name: str
    title: str
    paper: str
    judge: Callable[[Evidence], Verdict]
    rule: str
    figure: str = ""


SAME_RUNS = (
    f"Confirmed: {percent(NEARLY_ALL)} of the runs end within {100 * CLOSE:.0f} points of the same run "
    f"without it. Partly: {percent(HALF)}. Refuted: fewer."
)
CLAIMS = (
    Claim(
        "C1",
        "Cost",
        "one forward pass more per step; an epoch takes on average 41 % longer, less than 50 %",
        judge_cost,
        f"Confirmed: one pass more, and at most {PAPER_LIMIT:g} times as long in the paper's case and "
        "on average. Refuted: another number of passes, or longer in all cases.",
    ),
    Claim(
        "C2",
        "Initial rates and momentum",
        "rates from 1e-5 to 1; momentum 0.5 for its own method, 0.9 for the others",
        judge_settings,
        "Confirmed: at least six initial rates from 1e-5 to 1 for each net and optimizer.",
    ),
    Claim(
        "C3",
        "Budget",
        "50 epochs of all data, 100 for cifar10_3c3d; L2 of 2e-3 (3c3d) and 5e-4 (WRN, ResNet18)",
        judge_budget,
        "Confirmed: the paper's epochs and penalties on all nets, with all data.",
    ),
    Claim(
        "C4",
        "Near the best",
        "most times a final accuracy close to the best on the task; SGD is the exception",
        judge_best,
        f"Confirmed: {percent(MOST)} close to the best on the net. Partly: {percent(MOST)} close to the "
        "best fixed rate of the same optimizer. Refuted: no more than of the fixed rates.",
        "Fig. 3",
    ),
    Claim(
        "C5",
        "Small initial rates",
        "converge without exception",
        judge_small,
        f"Confirmed: no exception. Partly: at least {percent(NEARLY_ALL)}. Refuted: fewer.",
        "Fig. 3",
    ),
    Claim(
        "C6",
        "Large initial rates",
        "some fail, Adam on fmnist for example",
        judge_large,
        "Confirmed: Adam on fmnist is among those that have not trained. Partly: others are. Refuted: "
        "none, on all nets of the paper.",
        "Fig. 3",
    ),
    Claim(
        "C7",
        "Hypergradient descent and L4",
        "HD is better than a fixed rate but sensitive, stuck at small rates on fmnist; L4 is fast "
        "where it does not diverge, but not robust",
        judge_rivals,
        "Confirmed: all five parts hold. Refuted: none does.",
        "Fig. 3",
    ),
    Claim("C8", "The noise R", "no significant difference without `f*`", judge_noise, SAME_RUNS),
    Claim(
        "C9",
        "Heat map of rate and momentum",
        "adapted minus fixed Adam is green except for large β₁",
        judge_heatmap,
        f"Confirmed: {percent(MOST)} of the tiles below {HEAVY} are green or equal, and "
        f"{percent(HALF)} of the others are worse. Refuted: neither.",
        "Fig. 2",
    ),
    Claim(
        "C10",
        "Rosenbrock",
        "with R = 0 the rate cancels until about iteration 100; adapting helps the other variants",
        judge_rosenbrock,
        f"Confirmed: the same for at least {APART // 10} steps, and adapting ends lower in all "
        "variants. Refuted: neither.",
        "the appendix's figure of Rosenbrock's function",
    ),
    Claim(
        "C11",
        "Rates over time on CIFAR-100",
        "they go to a point of convergence, then to a noisier regime",
        judge_rates,
        f"Partly: the largest rate ends below {FORGOTTEN:g} times the smallest. Refuted: they are no "
        "nearer than at first.",
        "the supplement's figure of the rates over time",
    ),
    Claim(
        "C12", "Adapting in every 2^i-th epoch", "a remedy for the cost", judge_doubling, SAME_RUNS
    ),
    Claim(
        "C13",
        "Memory",
        "the step is kept explicitly: one more copy of the parameters",
        judge_memory,
        f"Confirmed: the median is at most {MOST_COPIES:g} copies. Refuted: more.",
    ),
    Claim(
        "C14",
        "Exact facts",
        "R = 0 without `f*`: the base's step; with it: independent of the rate; with SGD: Polyak's step",
        judge_identities,
        f"Confirmed: all differences are below {ROUNDING:g}. Refuted: one is not.",
    ),
)


def find_most_different(verdicts: Mapping[str, Verdict], most: int = 3) -> list[Claim]:
    """The figures that are least as the paper describes them, each by its claim that is farthest off."""
    shown = [claim for claim in CLAIMS if claim.figure and verdicts[claim.name].here]
    ranked = sorted(shown, key=lambda claim: -verdicts[claim.name].gap)
    worst: dict[str, Claim] = {}
    for claim in ranked:
        worst.setdefault(claim.figure, claim)
    return [claim for claim in worst.values() if verdicts[claim.name].gap > 0][:most]
