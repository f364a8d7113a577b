"""The page about the paper: verdicts, figures, what differs, and the commands that make it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probstep.bench.plans import list_runs, read_plan
from probstep.bench.report.drawing.chart import Figure
from probstep.bench.report.drawing.layout import lay_out
from probstep.bench.report.page.markdown import write_table
from probstep.drawing.axes import spell
from probstep.drawing.scene import Scene

from .claims import CLAIMS, find_most_different
from .differences import PLAN, write_commands, write_differences
from .evidence import (
    CLOSE,
    ENOUGH,
    NETS,
    RECORDS,
    ROBUST,
    Evidence,
    Origin,
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
from .since import PLAN as BESIDE
from .since import draw_since, write_shares
from .verdict import Verdict

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
        *_verdicts(verdicts),
        *_most_different(verdicts),
        *_since(evidence, shelf),
        *_figures(evidence, shelf),
        *_failures(evidence, shelf),
        *write_differences(evidence),
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

The paper's experiments with the paper's rule (`PaperRule`), fixed rates, hypergradient descent and L4,
at a scale that two cores can do. Of {len(CLAIMS)} claims: {said}.

On record are {len(origin.keys):,} of the {planned:,} runs of the plan `{PLAN}`, {60 * origin.hours:,.0f}
minutes of training by the clock of a machine that did other work, too, made at commit
{_name_commits(origin)} with torch {_join(origin.torch)}. The plan is ranked, the most telling
runs first, so that a part of it is a result too. `make results` makes this page and its figures from
{_join(f"`{name}`" for name in RECORDS)} in benchmarks/records; no number is typed by hand.
"""


def _name_commits(*origins: Origin) -> str:
    commits = dict.fromkeys(commit for origin in origins for commit in origin.commits)
    return _join(f"`{commit[:7]}`" for commit in commits)


def _join(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _verdicts(verdicts: dict[str, Verdict]) -> Iterator[str]:
    yield f"""## Verdicts

A run *has trained* if it ends with at least {ENOUGH:.0%} of the best training accuracy that anything
reached on its net, and is *close* to the best within {100 * CLOSE:.0f} points. The verdicts are computed
from that.
"""
    head = ("", "claim", "the paper", "here", "verdict")
    rows = [
        (c.name, c.title, c.paper, verdicts[c.name].here, f"**{verdicts[c.name].word}**")
        for c in CLAIMS
    ]
    yield from write_table(head, rows)
    yield "### Why\n"
    for claim in CLAIMS:
        verdict = verdicts[claim.name]
        nets = f" on {verdict.nets} of {len(NETS)} nets" if verdict.nets else ""
        runs = f" ({verdict.runs:,} runs{nets})" if verdict.runs else ""
        yield f"- **{claim.name}, {claim.title}: {verdict.word}**{runs}. {verdict.why}"
    yield ""


def _most_different(verdicts: dict[str, Verdict]) -> Iterator[str]:
    yield "### What differs most\n"
    yield """The three figures that are least as the paper describes them, by how far the numbers of a
claim miss it:
"""
    for place, claim in enumerate(find_most_different(verdicts), start=1):
        figure = claim.figure[0].upper() + claim.figure[1:]
        yield f"{place}. **{figure}** ({claim.name}). The paper: {claim.paper}. Here: " + (
            f"{verdicts[claim.name].here}."
        )
    yield ""


def _since(evidence: Evidence, shelf: _Shelf) -> Iterator[str]:
    yield """## Since 2021

The same nets with what came after the paper: this library's default rule (`RobustRule`) around Adam and
Momentum at their usual momentum of 0.9, Schedule-Free, Prodigy and MoMo.
"""
    figure = draw_since(evidence)
    yield from shelf.show(figure)
    if figure is None:
        return
    yield from write_shares(evidence)
    planned, origins = len(list_runs(read_plan(BESIDE))), evidence.beside_origins
    theirs = _name_commits(*(o for way, o in origins.items() if way != ROBUST))
    ours = _name_commits(origins[ROBUST]) if ROBUST in origins else ""
    yield f"""Counted are the initial rates that all with the same optimizer have on record on a net.
*Trained* and *close* mean the same as above, but the best is over these methods, too. Prodigy has no
initial rate: it begins with a guess `d0`, by default 1e-6, which only grows, so that a large one is not
what it is made for. MoMo's rate is a bound of its steps. All other settings are the packages' own. The
authors of Schedule-Free advise to refresh the statistics of BatchNorm before an evaluation; that was
not done.

On record are {sum(len(o.keys) for o in origins.values()):,} of the {planned:,} runs of the plan
`{BESIDE}`, {60 * sum(o.hours for o in origins.values()):,.0f} minutes of training by the clock; those of
RobustRule {f"made at commit {ours}" if ours else "are not on record yet"}, the others at {theirs}.
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
        yield f"### {figure.title.split(':')[0]}\n"
        yield from shelf.show(figure)
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
