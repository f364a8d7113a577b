"""The page about the paper: verdicts, figures, what differs, and the commands that make it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from probstep.bench.plans import list_runs, read_plan
from probstep.bench.report.drawing.chart import Figure
from probstep.bench.report.drawing.layout import lay_out
from probstep.bench.report.page.markdown import write_table
from probstep.drawing.axes import spell
from probstep.drawing.scene import Scene

from .claims import CLAIMS, find_most_different
from .cost import write_costs
from .differences import PLAN, write_commands, write_differences
from .effort import write_records
from .evidence import (
    CLOSE,
    ENOUGH,
    FIXED,
    LEARNT,
    NETS,
    OURS,
    Evidence,
    from_same_starts,
)
from .extremes import draw_heavy, draw_large
from .failures import draw_misprint, draw_rounding, follow
from .figures import (
    draw_all_curves,
    draw_doubling,
    draw_ends,
    draw_heatmaps,
    draw_inference,
    draw_noise,
    draw_rates,
    draw_rosenbrocks,
)
from .since import draw_since, write_shares
from .verdict import Verdict, percent, share

FIGURES = "paper"  # their folder among the figures


@dataclass(frozen=True)
class Page:
    """A text, and the drawings that it shows by the names of their files."""

    text: str
    drawings: dict[str, Scene]


def write_study(evidence: Evidence) -> str:
    """The text of the page."""
    return make_page(evidence).text


def draw_study(evidence: Evidence) -> dict[str, Scene]:
    """The drawings of the page."""
    return make_page(evidence).drawings


def make_page(evidence: Evidence) -> Page:
    """The page that these records make, and nothing else."""
    shelf = _Shelf({})
    verdicts = {claim.name: claim.judge(evidence) for claim in CLAIMS}
    parts = [
        *_opening(evidence, verdicts),
        *_verdicts(evidence, verdicts),
        *_most_different(verdicts),
        *_figures(evidence, shelf),
        *_failures(evidence, shelf),
        *_costs(evidence),
        *_since(evidence, shelf),
        *write_differences(evidence),
        *write_records(evidence),
        *write_commands(),
    ]
    return Page("\n".join(parts).rstrip() + "\n", shelf.drawings)


@dataclass(frozen=True)
class _Shelf:
    """The drawings that the page has shown so far."""

    drawings: dict[str, Scene]

    def show(self, figure: Figure | None) -> Iterator[str]:
        """A sentence that says what to see, and the picture; a remark where there are no records."""
        if figure is None:
            yield "*No runs on record yet.*\n"
            return
        slug = f"{FIGURES}/{figure.slug}"
        self.drawings[slug] = lay_out(figure).whole()
        yield f"{figure.sentence}\n"
        yield f"![{figure.title}](figures/{slug}.svg)\n"


def _opening(evidence: Evidence, verdicts: dict[str, Verdict]) -> Iterator[str]:
    counts = Counter(verdict.word for verdict in verdicts.values())
    said = ", ".join(f"{n} {word}" for word, n in counts.most_common())
    planned, origin = len(list_runs(read_plan(PLAN))), evidence.origin
    yield f"""# The paper, reproduced

<!-- Made by `make results` from benchmarks/records; change it in report/studies/reproduction. -->

**What was done.** The paper's experiments with its rule (`PaperRule`), fixed rates, hypergradient
descent (HD) and L4, cut to what two cores can do: {len(origin.keys):,} of {planned:,} planned runs are
[on record](#the-records).

**What came out.** Of {len(CLAIMS)} claims: {said}.{_outcome(evidence)}

**What differs.** Small subsets, few epochs, mostly one seed, two narrower nets, torch
{_join(origin.torch)} instead of 1.4: [the list](#what-differs-from-the-paper).
"""


def _outcome(evidence: Evidence) -> str:
    """The two numbers that say most: from how many starts a net trains, and ends as if tuned."""
    able = evidence.judging
    groups = from_same_starts(able.choose(FIXED, OURS))
    if not groups.get(FIXED) or not groups.get(OURS):
        return ""
    trained = {way: percent(share(map(able.has_trained, groups[way]))) for way in (OURS, FIXED)}
    tuned = {way: percent(share(map(able.is_close_to_fixed, groups[way]))) for way in (OURS, FIXED)}
    return (
        f" From the same initial rates {trained[OURS]} of the runs train with the paper's rule and "
        f"{trained[FIXED]} with a fixed rate; {tuned[OURS]} and {tuned[FIXED]} end within "
        f"{100 * CLOSE:.0f} points of the best fixed rate."
    )


def _join(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _judging(evidence: Evidence) -> str:
    """Which nets judge, and how far the best fixed rate came on each."""
    if not evidence.learnt:
        return ""
    nets = [(way >= LEARNT, f"{net} {percent(way)}") for net, way in evidence.learnt.items()]
    able, others = ([text for judges, text in nets if judges == side] for side in (True, False))
    text = (
        "\n\nC4 to C7 are judged by the nets that a fixed rate can train in so short a time: the best "
        f"one must go {percent(LEARNT)} of the way from the accuracy of the untrained net to no "
        f"mistake. These are {_join(able)}."
    )
    if others:
        text += f" These are not: {_join(others)}. They are shown below and judge nothing."
    return text


def _verdicts(evidence: Evidence, verdicts: dict[str, Verdict]) -> Iterator[str]:
    yield f"""## Verdicts

They are computed from the records. The limits are ours, as the paper gives none, and were set when a
part of the records was known: a run *has trained* if it ends with at least {percent(ENOUGH)} of the best
training accuracy that anything reached on its net, and is *close* to the best within
{100 * CLOSE:.0f} points. *Not at this scale* means that these runs are too short or too few
to tell.{_judging(evidence)}
"""
    head = ("claim", "verdict", "the paper", "here")
    rows = [
        (f"{c.name} {c.title}", f"**{verdicts[c.name].word}**", c.paper, verdicts[c.name].here)
        for c in CLAIMS
    ]
    yield from write_table(head, rows)
    yield "### Why\n"
    for claim in CLAIMS:
        verdict = verdicts[claim.name]
        nets = f" on {verdict.nets} of {len(NETS)} nets" if verdict.nets else ""
        runs = f" ({verdict.runs:,} runs{nets})" if verdict.runs else ""
        yield f"- **{claim.name}, {claim.title}: {verdict.word}**{runs}. {verdict.why} *{claim.rule}*"
    yield ""


def _most_different(verdicts: dict[str, Verdict]) -> Iterator[str]:
    found = find_most_different(verdicts)
    if found:
        names = _join(f"{claim.figure} ({claim.name})" for claim in found)
        yield f"The figures that miss the paper's description most, by their numbers: {names}.\n"


def _costs(evidence: Evidence) -> Iterator[str]:
    yield """## What it costs

The paper's rule beside the bare optimizer, on the paper's nets at full width: how many times as long
an epoch takes, and how many copies of the parameters a step needs. Steps of both in turn on the same
batches, one thread, no evaluation.
"""
    yield from write_costs(evidence)


def _since(evidence: Evidence, shelf: _Shelf) -> Iterator[str]:
    yield """## Since 2021

The same nets with what came after the paper: this library's default rule (`RobustRule` of version 0.2.0)
around Adam and Momentum at their usual momentum of 0.9, Schedule-Free, Prodigy and MoMo.
"""
    figure = draw_since(evidence)
    yield from shelf.show(figure)
    if figure is None:
        return
    yield from write_shares(evidence)
    yield """Counted are the initial rates that all with the same optimizer have on record on a net that
judges. *Trained* and *close* mean the same as above, but the best is over these methods, too. Prodigy
has no initial rate: it begins with a guess `d0`, by default 1e-6, which only grows, so that a large one
is not what it is made for. MoMo's rate is a bound of its steps. All other settings are the packages'
own. The authors of Schedule-Free advise to refresh the statistics of BatchNorm before an evaluation;
that was not done.
"""


def _figures(evidence: Evidence, shelf: _Shelf) -> Iterator[str]:
    yield """## Where training ends

The paper shows that its rule makes the initial rate matter little, and that large momentum spoils it.
"""
    yield from shelf.show(draw_ends(evidence))
    yield """## Fig. 1: the inference

The paper draws a quadratic, the line of minimisers that would explain the loss, and two priors of
different width with their posterior means.
"""
    yield from shelf.show(draw_inference())
    yield """## Fig. 2: rate and momentum

The paper shows Adam on cifar10_3c3d after 50 epochs, best of three: green except for large β₁; the text
speaks of the same for momentum.
"""
    yield from shelf.show(draw_heatmaps(evidence))
    yield """## Fig. 3: training accuracy

The paper shows a row per net and a group of panels per optimizer: with a fixed rate the curves fan out,
with its rule they lie together at the top but for a few that start too high, with hypergradient descent
(HD) less so, and some of L4's are missing because they diverged.
"""
    yield from _show_all(shelf, draw_all_curves(evidence, "train_accuracy"))
    yield "## Training loss\n\nThe supplement shows the same runs by their loss.\n"
    yield from _show_all(shelf, draw_all_curves(evidence, "train_loss"))
    yield "## Test accuracy\n\nThe supplement's other figure: the order of the methods stays.\n"
    yield from _show_all(shelf, draw_all_curves(evidence, "test_accuracy"))
    yield """## The rates over time

The supplement shows, for CIFAR-100, rates from all starts that come together within a few epochs and get
noisier later.
"""
    yield from _show_all(shelf, draw_rates(evidence))
    yield """## Rosenbrock's function

The appendix shows Adam on the two-dimensional function with four variants of the step in three panels.
"""
    yield from shelf.show(draw_rosenbrocks(evidence))
    yield """## The noise R

The paper reports no significant difference without `f*` and shows no figure.
"""
    yield from shelf.show(draw_noise(evidence))
    yield "## Every 2^i-th epoch\n\nThe paper proposes it against the cost and shows no figure.\n"
    yield from shelf.show(draw_doubling(evidence))


def _show_all(shelf: _Shelf, figures: Iterable[Figure]) -> Iterator[str]:
    found = list(figures)
    for figure in found:
        yield from shelf.show(replace(figure, sentence=f"**{figure.title}.** {figure.sentence}"))
    if not found:
        yield from shelf.show(None)


def _failures(evidence: Evidence, shelf: _Shelf) -> Iterator[str]:
    printed, literal = follow(misprinted=True), follow(single=True)
    yield f"""## Where the letter fails

`PaperRule` is Algorithm 1 but for two places. On f(x) = 1 + x²/2 they look like this.

**A misprint.** The listing sets the decrease to f - φ/2; the text means φ/2. As printed, the loss cycles
between {printed.excess[-2]:.2g} and {printed.excess[-1]:.2g} above its minimum for ever.
"""
    yield from shelf.show(draw_misprint())
    yield f"""**Rounding.** Where φ/2 is below what the loss can show, the ratio is noise. Taken
literally, the rate falls to {spell(literal.rates[-1])} in {len(literal.rates)} steps; `PaperRule` leaves
it alone there.
"""
    yield from shelf.show(draw_rounding())
    yield """**Large momentum.** The step is then mostly that of earlier batches, and the ratio says
little about it. This and the next are not repaired in `PaperRule`: see
[why not the paper's rule](why-not-the-paper.md), and [the robust rule](robust.md), which is another.
"""
    yield from shelf.show(draw_heavy(evidence))
    yield """**Large initial rates.** The first steps are taken at that rate, whatever they do, and each
halves it at most: a net may never recover.
"""
    yield from shelf.show(draw_large(evidence))
