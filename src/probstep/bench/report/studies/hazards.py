"""The default rule on unusual trainings: docs/hazards.md, from the records of benchmarks/hazards."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from probstep.bench.report.numbers.bars import Bar, judge_hazards, judge_peers
from probstep.bench.report.numbers.hazards import (
    FAR,
    GRID,
    HAZARDS,
    PEERS,
    PLAIN,
    PRESENT,
    RATES,
    WORST_POINTS,
    WORST_RATIO,
    Outcome,
    compare,
    mean_points,
    mean_ratio,
    read_records,
    spell_compared,
    spell_seeds,
)
from probstep.bench.report.page.markdown import (
    write_bars,
    write_items,
    write_paragraph,
    write_table,
)

RECORDS = ("hazards.jsonl.gz",)
LABELS = ("0.1.0", "0.13.0", PRESENT[1])  # rules of releases, the present one last
LOOKS_AT_THE_KEPT_HALF = (
    "once with each of 0.1.0 to 0.14.0; with candidates four times for 0.2.0, eight times for 0.3.0, "
    "twice for 0.4.0, once for each of 0.5.0 to 0.7.0, four times, in part, for 0.8.0, once for each "
    "of 0.9.0 and 0.11.0, once after that, twice, once in part, for 0.12.0, and twice for 0.14.0"
)
DECIDED_BY_THE_KEPT_HALF = (
    "0.2.0: a loss of 1e-12 with SGD was not searched at all; that was mended.",
    "0.3.0: rows whose loss grows with its weight led to the tenth of the loss that always counts as "
    "left to gain. A net that died led to two steps too far in a row lowering the rate.",
    "0.4.0: a candidate was dropped because an autoencoder, an ordinary training, died with it. "
    "Another got a tenth of the usual loss instead of a half, after small batches had ended higher "
    "on both halves.",
    "0.6.0: a huge target in the first batch and rare labels, which failed with 0.5.0, are why it "
    "was made, on other trainings of these classes. The tenth of the hope that is left where losses "
    "hover about zero was set after policies had ended worse. `labels-are-rare-conv` was trained "
    "with seven candidates, `labels-are-rare` with four, two policies with ten seeds; nothing was "
    "chosen by that.",
    "0.7.0 and 0.8.0: the autoencoder died in some seeds of its ordinary trainings. That is why they "
    "were made. Its trace was looked at for 0.8.0; the numbers were set on an autoencoder of another "
    "data set, which is now in the tuning half. "
    "Of `one-bit`, a new row, one candidate more was trained, and not taken.",
    "0.9.0: that the autoencoder still died in some seeds is why it was made. All that it changes was "
    "found and set on autoencoders of MNIST and of CIFAR-10; one of CIFAR-10 is now in the tuning half. "
    "After the candidate had been run, a review of its code found defects; they were mended.",
    "0.10.0: nothing. No candidate was run on it. `parity-momentum` and `beale-sgd` are new.",
    "0.11.0: a candidate was run once. `batch-4-sgd`, `beale-momentum` and `wood-sgd` had up to half "
    "a forward pass per step more than plain with it, where the bar is 0.15. Why was found on other "
    "batches of 1, 4 and 16 and on descents from other starts, and mended there. `wood-sgd`, "
    "`beale-momentum`, `parity-of-4` and `whole-batch-deep-momentum` are new.",
    "After 0.11.0: a candidate that kept no forward passes for surprises after 1,000 steps was run "
    "once. It was dropped, because rare labels of the tuning half and `batch-4-sgd` ended a quarter "
    "higher.",
    "0.12.0: a candidate was run once. `whole-batch-deep-momentum` failed with it. So one of its "
    "changes was tried on forty other trainings without noise, and dropped for what it did there. A "
    "second candidate was run in part. `stretch-of-noise-conv` and `stretch-x100-sgd-conv` are new.",
    "0.13.0: nothing. No candidate was run on it. `four-of-five-zero-conv` and `gaussian-process` are "
    "new; that the latter ended with an error is why such errors now count as an infinite loss.",
    "0.14.0: nothing. Two candidates were run on it, one of them with one seed. "
    "`four-of-five-zero-conv` failed with both, so other nets were trained of which most batches are "
    "empty; nothing that was tried helped all of them. With the records of 0.13.0 the rates of its "
    "ordinary trainings were looked at, too. Those of the recommender were far from the best, so "
    "factors of three other matrices were trained; nothing that was tried helped them. "
    "`stretch-x100-deep-regression` and `one-in-20-is-hard-momentum` are new.",
)


@dataclass(frozen=True)
class Study:
    """What the records say.

    Args:
        outcomes: Each rule beside plain, by its label.
        tuned: The present rule beside the best of the grid.
        others: Each peer beside plain, by its name, where it is on record.
        bars: The bars of the present rule.
        ahead: Whether it is ahead of the peers.
    """

    outcomes: Mapping[str, Sequence[Outcome]]
    tuned: Sequence[Outcome]
    others: Mapping[str, Sequence[Outcome]]
    bars: Sequence[Bar]
    ahead: Sequence[Bar]


def read_study(records: Path) -> Study:
    """The study in a folder of records."""
    found = read_records(records / RECORDS[0])
    others = {name: compare(found, way) for way, name in PEERS.items()}
    return Study(
        outcomes={label: compare(found, ("ours", label)) for label in LABELS},
        tuned=compare(found, PRESENT, GRID),
        others={name: part for name, part in others.items() if part},
        bars=judge_hazards(found, HAZARDS),
        ahead=judge_peers(found, PLAIN, HAZARDS),
    )


def write_study(study: Study) -> str:
    """The page."""
    return "\n".join(_page(study)).rstrip() + "\n"


def write_limits(study: Study) -> str:
    """What the first page says of it: where the present rule fails."""
    outcomes = study.outcomes[LABELS[-1]]
    count, failed = len(outcomes), sum(o.is_too_bad for o in outcomes)
    worse = sum(not o.is_as_good for o in outcomes)
    families: dict[str, list[bool]] = {}
    for one in outcomes:
        families.setdefault(one.family, []).append(one.is_too_bad)
    half = [
        f"{name} ({sum(bad)} of {len(bad)})"
        for name, bad in sorted(families.items())
        if 2 * sum(bad) >= len(bad)
    ]
    text = (
        f"- On {failed} of {count} [unusual trainings](hazards.md) it ended clearly worse than the same "
        f"optimizer at a usual rate, not tuned: a loss more than {WORST_RATIO} times as high, or a "
        f"score more than {-WORST_POINTS:g} points lower. On {worse} it ended worse at all."
    )
    if half:
        text += f" Classes of which at least half ended clearly worse: {', '.join(half)}."
    lines = textwrap.wrap(text, 118, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _page(study: Study) -> Iterator[str]:
    seeds = {label: spell_seeds(study.outcomes[label]) for label in LABELS}
    yield f"""# Hazards

<!-- Made by `probstep page hazards` from benchmarks/records; change it there. -->

A hazard is an unusual training on which a rule for the learning rate can fail: the task changes
half way, the batch has one sample, the first batch is an outlier, the loss is no objective.
`benchmarks/hazards` has {sum(HAZARDS.values())} of them, each a few seconds on one core. A row says
which optimizer people would take and which rate they would give it without tuning; *plain* is that.
The question is whether `ProbStep` around the same optimizer is ever much worse than not tuning.

Losses are floored at 1 % of the first loss. **The bar:** no row's loss is more than {WORST_RATIO} times
that of plain, no row's score more than {-WORST_POINTS:g} points below, no run raises or diverges; nine
of ten rows are at least as good as plain; and no last rate is outside 1/{FAR:g} to {FAR:g} times the
best of {RATES} fixed rates, factors of three apart, unless the loss has reached its floor. A *ratio* is
our loss over that of plain.
"""
    yield from write_paragraph(
        "Rows come in pairs of one class: one for tuning, one kept apart. The kept half has been run "
        f"{LOOKS_AT_THE_KEPT_HALF}. What it has decided is listed below; nothing else was. "
        "Seeds of a row: "
        + ", ".join(f"{seeds[label]} with {label}" for label in LABELS)
        + "; its loss is the geometric mean over them."
    )
    yield from write_items(DECIDED_BY_THE_KEPT_HALF)
    yield f"""To make it again: `python -m benchmarks.hazards run --ways WAYS --seeds 3 --label LABEL`,
where WAYS is `ours,plain`, or `grid` and others, then `python -m benchmarks.hazards pack` and
`probstep page hazards`.

## The bar, with {LABELS[-1]}
"""
    yield from write_bars(study.bars)
    yield "## All rows\n"
    yield from _totals(study)
    yield "## Beside the best fixed rate\n"
    yield from _tuned(study.tuned)
    yield "## Beside others\n"
    yield from _peers(study)
    yield "## By class\n"
    yield from _families(study)
    for label in reversed(LABELS):
        yield f"## What fails with {label}\n"
        yield from _failures(study.outcomes[label])


def _totals(study: Study) -> Iterator[str]:
    head = ["rule", "half", "rows", "failed", "at least as good", "geometric mean", "mean points"]
    rows = []
    for label in LABELS:
        for half in (*HAZARDS, "all"):
            part = [o for o in study.outcomes[label] if half in (o.half, "all")]
            rows.append([label, half, *_count(part), _spell_share(part), *_means(part)])
    shared = _shared(study)
    for label, part in shared.items():
        common = f"all that have been run with {' and '.join(LABELS)}"
        rows.append([label, common, *_count(part), _spell_share(part), *_means(part)])
    yield from write_table(head, rows)


def _tuned(outcomes: Sequence[Outcome]) -> Iterator[str]:
    if not outcomes:
        yield "Not run: `python -m benchmarks.hazards run --ways grid`.\n"
        return
    yield f"""Ours beside the best of {RATES} fixed rates, factors of three apart around the usual one,
chosen on the seeds that judge it. *Rate far* counts last rates that are outside 1/{FAR:g} to {FAR:g}
times the best, where the loss is not at its floor.
"""
    rows = []
    for half in (*HAZARDS, "all"):
        part = [o for o in outcomes if half in (o.half, "all")]
        if part:
            far = sum(o.is_rate_far for o in part)
            rows.append([half, len(part), spell_seeds(part), *_means(part), _worst(part), far])
    head = ["half", "rows", "seeds", "geometric mean", "mean points", "worst", "rate far"]
    yield from write_table(head, rows)


def _peers(study: Study) -> Iterator[str]:
    if not study.others:
        ways = ",".join(way for way, _ in PEERS)
        yield f"Not run: `python -m benchmarks.hazards run --ways {ways}`.\n"
        return
    yield """The same rows with what others offer against tuning, each at its published default. A row of
SGD or momentum has the variant for SGD, the others that for Adam, where there are two. All stand beside
plain; *failed* leaves out rates that are far off, as the methods' rates mean different things.
"""
    head = [
        "method",
        "rows",
        "seeds",
        "failed",
        "at least as good",
        "geometric mean",
        "mean points",
    ]
    methods = {f"`ProbStep` {LABELS[-1]}": study.outcomes[LABELS[-1]], **study.others}
    rows = []
    for name, part in methods.items():
        failed = sum(o.is_too_bad for o in part)
        shown = [_spell_share(part), *_means(part), _worst(part)]
        rows.append([name, len(part), spell_seeds(part), failed, *shown])
    yield from write_table([*head, "worst"], rows)
    yield "Ours, then theirs, on the rows and seeds that both have:\n"
    yield from write_bars(study.ahead)


def _shared(study: Study) -> dict[str, list[Outcome]]:
    """The outcomes of the rows that every rule has."""
    names = set.intersection(*({o.name for o in found} for found in study.outcomes.values()))
    return {k: [o for o in found if o.name in names] for k, found in study.outcomes.items()}


def _families(study: Study) -> Iterator[str]:
    families = sorted({o.family for found in study.outcomes.values() for o in found})
    rows = []
    for family in families:
        row: list[object] = [family]
        for label in LABELS:
            part = [o for o in study.outcomes[label] if o.family == family]
            row += [*_count(part), *_means(part)]
        rows.append(row)
    head = [f"{label}: {what}" for label in LABELS for what in ("rows", "failed", "mean", "points")]
    yield from write_table(["class", *head], rows)


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    failed = [o for o in outcomes if o.is_failed]
    if not failed:
        yield f"None of {len(outcomes)} rows.\n"
        return
    head = ["hazard", "class", "half", "plain", "best of grid", "ours", "compared"]
    head += ["best rate", "last rate", "why"]
    yield from write_table(head, [_failure(o) for o in failed])


def _failure(one: Outcome) -> list[object]:
    ends = (_spell(one.reference, ".4g"), _spell(one.best, ".4g"), _spell(one.ours, ".4g"))
    rates = (_spell(one.best_rate, ".2g"), _spell(one.rate, ".2g"))
    return [one.name, one.family, one.half, *ends, spell_compared(one), *rates, _why(one)]


def _why(one: Outcome) -> str:
    if one.status != "done":
        return one.status
    return "too bad" if one.is_too_bad else "rate far off"


def _spell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _count(part: Sequence[Outcome]) -> tuple[int, int]:
    return len(part), sum(o.is_failed for o in part)


def _spell_share(part: Sequence[Outcome]) -> str:
    return f"{sum(o.is_as_good for o in part) / len(part):.0%}" if part else ""


def _means(part: Sequence[Outcome]) -> tuple[str, str]:
    return _spell(mean_ratio(part), ".3g"), _spell(mean_points(part), "+.1f")


def _worst(part: Sequence[Outcome]) -> str:
    worst = max(part, key=lambda one: one.badness)
    return f"{spell_compared(worst)} ({worst.name})"
