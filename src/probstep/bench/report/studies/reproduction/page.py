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

from .claims import CLAIMS
from .evidence import (
    CLOSE,
    ENOUGH,
    NETS,
    RECORDS,
    Evidence,
    paper_problem,
)
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
from .forecast import (
    GPU,
    LEAST_SECONDS,
    PEAK,
    SHARE_OF_PEAK,
    forecast,
)
from .verdict import Verdict

PLAN, FULL = "paper-small", "paper"
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
        *_figures(evidence, shelf),
        *_failures(shelf),
        *_differences(evidence),
        *_commands(),
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

On record are {origin.runs:,} of the {planned:,} runs of the plan `{PLAN}`, {origin.hours:.1f} hours of
training by the clock, made at commit {_join(f"`{commit[:7]}`" for commit in origin.commits)} with
torch {_join(origin.torch)}. The plan is ranked, the most telling runs first, so that a part of it is a
result too. `make results` makes this page and its figures from `{RECORDS[0]}` and `{RECORDS[1]}` in
benchmarks/records; no number is typed by hand.
"""


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


def _failures(shelf: _Shelf) -> Iterator[str]:
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
    yield """**Momentum 0.9 and large initial rates.** These are not repaired in `PaperRule`: see
[where training ends](#where-training-ends), [why not the paper's rule](why-not-the-paper.md), and
[the robust rule](robust.md), which is another rule.
"""


def _differences(evidence: Evidence) -> Iterator[str]:
    yield """## What differs from the paper

- Subsets and fewer epochs, and smaller batches for the larger nets, so that few samples make enough
  steps (the table below). What needs many epochs, as the noisier regime of C11, cannot show.
- Two nets are narrower, and named so. The wide residual net and ResNet18 themselves need a GPU.
- One seed; three for the heat maps once they are on record. The paper does not say how many it used.
- The heat maps are of digits_conv, scikit-learn's digits, instead of cifar10_3c3d.
- Which code of hypergradient descent and L4 the paper used is not said; ours follow their papers.
- SVHN and CIFAR-100 here are random subsets of the files, in the standard format.
"""
    runs = {e.problem: e.cell.run for e in evidence.ends}
    rows = [
        (
            f"`{p}`",
            f"`{NETS[p]}`",
            f"{runs[p].epochs} ({paper_problem(p).paper_epochs})",
            runs[p].subset or "all",
            f"{runs[p].batch_size} ({paper_problem(p).batch_size})",
        )
        for p in NETS
        if p in runs
    ]
    head = ("net", "stands for", "epochs (the paper's)", "samples", "batch (the paper's)")
    yield from write_table(head, rows)


def _commands() -> Iterator[str]:
    full = forecast(FULL)
    yield f"""## Make it again

```bash
python -m probstep.bench.data fashion_mnist cifar10 cifar100 svhn --data-dir DATA
probstep run {PLAN} --data-dir DATA --dry-run   # a forecast for this machine
probstep run {PLAN} --data-dir DATA             # resumes where it was stopped
probstep export runs/{PLAN} --curves --to benchmarks/records/{RECORDS[0]}
python benchmarks/paper_cost.py                       # on a machine that does nothing else
make results                                          # this page and its figures
```

## At full size

```bash
probstep run {FULL} --data-dir DATA --backend ray --address auto   # on an existing Ray cluster
```

{full.runs:,} runs: all nets at their own width, all data, the paper's epochs. **An estimate by
arithmetic, not a measurement:** {full.hours:,.0f} hours on one {GPU} ({PEAK / 1e12:g} TFLOP/s in single
precision by its data sheet, of which {SHARE_OF_PEAK:.0%} are assumed to be reached, and at least
{1000 * LEAST_SECONDS:g} ms per step), so {full.hours / 8:,.0f} hours on eight of them.
"""
