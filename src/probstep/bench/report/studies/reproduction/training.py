"""C4 to C8 and C12: how the paper's nets end from every initial rate."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from probstep.drawing.axes import spell

from .evidence import (
    CLOSE,
    DOUBLING,
    FIXED,
    HYPER,
    L4,
    LARGE,
    NETS,
    NOISE,
    OURS,
    SMALL,
    End,
    Evidence,
    from_same_starts,
)
from .verdict import (
    HALF,
    MOST,
    NEARLY_ALL,
    NO_RECORDS,
    Verdict,
    Word,
    count,
    fall_short,
    name_ends,
    passes_per_step,
    percent,
    share,
)


def judge_best(evidence: Evidence) -> Verdict:
    """Most times close to the best on the task; SGD is the exception."""
    evidence = evidence.judging
    both = from_same_starts(evidence.choose(OURS, FIXED))
    sgd = [e for e in both.get(OURS, ()) if e.base == "sgd"]
    ours, fixed = ([e for e in both.get(way, ()) if e.base != "sgd"] for way in (OURS, FIXED))
    if not ours or not fixed:
        return NO_RECORDS
    near, own = evidence.is_close, evidence.is_close_to_fixed
    close, tuned, beside = share(map(near, ours)), share(map(own, ours)), share(map(own, fixed))
    said = (
        f"within {100 * CLOSE:.0f} points of the best fixed rate of the same optimizer end "
        f"{percent(tuned)} of the runs (fixed rates: {percent(beside)}; SGD: "
        f"{percent(share(map(own, sgd)))}), of the best on the net {percent(close)} (fixed rates: "
        f"{percent(share(map(near, fixed)))}; SGD: {percent(share(map(near, sgd)))})"
    )
    by_net = {p: [e for e in ours if e.problem == p] for p in NETS}
    shares = (f"{p} {percent(share(map(own, es)))}" for p, es in by_net.items() if es)
    why = (
        "The paper's sentence is about the best on the net, after a training in full. In this short "
        "one even the best fixed rates of two optimizers on a net end up to "
        f"{100 * _apart(evidence):.0f} points apart, so that a distance from the best on the net is "
        "the optimizer's, too. What the rule alone can answer for is the distance from the best fixed "
        f"rate of its own optimizer. By net, of that: {', '.join(shares)}."
    )
    word: Word = (
        "confirmed" if close >= MOST else "partly" if tuned >= MOST else "not at this scale"
    )
    if tuned <= beside:
        word = "refuted"  # a start is as good without the rule
    runs = len(ours) + len(fixed)
    return Verdict(word, said, why, runs, _count_nets(ours), fall_short(tuned, MOST))


def _apart(evidence: Evidence) -> float:
    """How far the best fixed rates of two optimizers lie apart on a net, at most."""
    groups: dict[str, list[float]] = {}
    for (problem, _), best in evidence.best_fixed.items():
        groups.setdefault(problem, []).append(best)
    return max(max(values) - min(values) for values in groups.values())


def judge_small(evidence: Evidence) -> Verdict:
    """Small initial rates converge without exception."""
    able = evidence.judging
    small, fixed = ([e for e in able.choose(way) if e.rate <= SMALL] for way in (OURS, FIXED))
    if not small:
        return NO_RECORDS
    lost = [e for e in small if not able.has_trained(e)]
    trained = 1 - len(lost) / len(small)
    said = (
        f"{count(map(able.has_trained, small))} runs from {spell(SMALL)} and below have trained "
        f"(fixed rates: {count(map(able.has_trained, fixed))})"
    )
    why = f"Exceptions: {name_ends(lost)}; {_name_stuck(lost)}." if lost else "No exception."
    others = [e for e in evidence.choose(OURS) if e.rate <= SMALL and e.problem not in able.best]
    if others:
        why += f" On the nets that do not judge {count(map(evidence.has_trained, others))} have."
    word: Word = "confirmed" if not lost else "partly" if trained >= NEARLY_ALL else "refuted"
    runs = len(small) + len(fixed)
    return Verdict(word, said, why, runs, _count_nets(small), 1 - trained)


def _name_stuck(ends: Sequence[End]) -> str:
    """Of how many the rate never rose, which is what a step too small to show in the loss does."""
    rates = [(e.rate, e.cell.curve("effective_rate")[1]) for e in ends]
    stuck = [bool(values) and (values[-1] or 0.0) < 2 * rate for rate, values in rates]
    return (
        f"in {count(stuck)} the rate never rose, because a step so small does not show in a loss "
        "of single precision ([rounding](#where-the-letter-fails))"
    )


def judge_large(evidence: Evidence) -> Verdict:
    """Too large an initial rate may fail, Adam on fmnist for one."""
    evidence = evidence.judging
    large = [e for e in evidence.choose(OURS) if e.rate >= LARGE]
    if not large:
        return NO_RECORDS
    lost = [e for e in large if not evidence.has_trained(e)]
    has_named = any(e.base == "adam" and e.problem.startswith("fmnist") for e in lost)
    said = f"{len(lost)} of {len(large)} runs from {spell(LARGE)} and above have not trained"
    why = f"They are: {name_ends(lost)}. " if lost else ""
    why += f"Adam on fmnist, the paper's example, is {'' if has_named else 'not '}among them."
    word: Word = "confirmed" if has_named else "partly" if lost else _no(large)
    gap = 0.0 if has_named else 0.5 if lost else 1.0
    return Verdict(word, said, why, len(large), _count_nets(large), gap)


def judge_rivals(evidence: Evidence) -> Verdict:
    """Hypergradient descent and L4."""
    evidence = evidence.judging
    bases = {e.base for e in evidence.choose(HYPER)}
    hyper, l4 = evidence.choose(HYPER), evidence.choose(L4)
    fixed = evidence.choose(FIXED, bases=bases)
    ours = evidence.choose(OURS, bases=bases)
    if not hyper or not l4:
        return NO_RECORDS
    same = from_same_starts([*fixed, *hyper, *ours])
    trained = {w: share(map(evidence.has_trained, same.get(w, ()))) for w in (FIXED, HYPER, OURS)}
    stuck = [e for e in hyper if e.rate <= 1e-5 and e.problem.startswith("fmnist")]
    stuck = [e for e in stuck if not evidence.has_trained(e)]
    lost = [e for e in l4 if not evidence.has_trained(e)]
    early = [e for e in l4 if evidence.has_trained(e)]
    fast = share(_is_early(evidence, e) for e in early)
    parts = {
        "HD is better than a fixed rate": trained[HYPER] > trained[FIXED],
        "HD is more sensitive than the paper's rule": trained[HYPER] < trained[OURS],
        "HD is stuck at 1e-5 on fmnist": bool(stuck),
        "L4 is not robust": bool(lost),
        "L4 is among the fastest where it trains": fast >= HALF,
    }
    said = (
        f"trained: fixed {percent(trained[FIXED])}, HD {percent(trained[HYPER])}, paper's rule "
        f"{percent(trained[OURS])}; L4 lost {len(lost)} of {len(l4)}, among the fastest third in "
    )
    said += percent(fast)
    why = "; ".join(f"{text}: {'yes' if holds else 'no'}" for text, holds in parts.items()) + "."
    why += (
        f" The shares are over the {len(same.get(HYPER, ()))} starts that all three have on record."
    )
    word: Word = (
        "confirmed" if all(parts.values()) else "partly" if any(parts.values()) else "refuted"
    )
    runs = [*hyper, *l4, *fixed, *ours]
    return Verdict(word, said, why, len(runs), _count_nets(runs), 1 - share(parts.values()))


def _is_early(evidence: Evidence, end: End) -> bool:
    """Whether a run is among the best third of its net after a quarter of the epochs."""
    mates = [_early_accuracy(e) for e in evidence.ends if e.problem == end.problem]
    above = sum(value > _early_accuracy(end) for value in mates)
    return above <= len(mates) / 3


def _early_accuracy(end: End) -> float:
    values = end.cell.curve("train_accuracy")[1]
    at = math.ceil(end.cell.run.epochs / 4)
    return values[at] or 0.0 if at < len(values) else 0.0


def judge_noise(evidence: Evidence) -> Verdict:
    """Without f* the noise R makes no significant difference."""
    pairs = evidence.pair(OURS, NOISE)
    if not pairs:
        return NO_RECORDS
    said, same = _compare(pairs, "with R")
    worse = [other for usual, other in pairs if other.accuracy < usual.accuracy - CLOSE]
    why = (
        "R is the variance of the batch mean, from the losses of the samples. It shortens every step "
        "by phi/(phi + R), and so hurts where the predicted decrease phi is small against it"
    )
    why += f": {name_ends(worse)}." if worse else "; here it hardly ever is."
    word: Word = "confirmed" if same >= NEARLY_ALL else "partly" if same >= HALF else "refuted"
    return Verdict(word, said, why, 2 * len(pairs), _count_nets(e for _, e in pairs))


def judge_doubling(evidence: Evidence) -> Verdict:
    """Adapting in every 2^i-th epoch only."""
    pairs = evidence.pair(OURS, DOUBLING)
    if not pairs:
        return NO_RECORDS
    said, same = _compare(pairs, "adapting in every 2^i-th epoch")
    passes = fmean(passes_per_step(other.cell) for _, other in pairs)
    said += f"; {passes:.2f} forward passes per step instead of 2"
    why = (
        "A proposal of the paper, without numbers. It holds where the rate of the first epochs "
        "is good for the later ones."
    )
    word: Word = "confirmed" if same >= NEARLY_ALL else "partly" if same >= HALF else "refuted"
    return Verdict(word, said, why, 2 * len(pairs), _count_nets(e for _, e in pairs))


def _compare(pairs: Sequence[tuple[End, End]], label: str) -> tuple[str, float]:
    gaps = [other.accuracy - usual.accuracy for usual, other in pairs]
    same = share(abs(gap) <= CLOSE for gap in gaps)
    text = (
        f"{label} {percent(same)} of {len(gaps)} runs end within {100 * CLOSE:.0f} points of the "
        f"same run without; median difference {100 * median(gaps):+.1f} points, worst "
    )
    return text + f"{100 * min(gaps):+.0f}", same


def _no(ends: Sequence[End]) -> Word:
    """What is not so on some nets may be so on those that are not on record."""
    return "refuted" if _count_nets(ends) == len(NETS) else "not at this scale"


def _count_nets(ends: Iterable[End]) -> int:
    return len({end.problem for end in ends})
