"""The page about the paper says what its records say, and each verdict can go either way."""

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from probstep.bench.plans import list_runs, read_plan
from probstep.bench.problems import get_problem
from probstep.bench.records import Run, read_curves
from probstep.bench.records.curves import DIGITS
from probstep.bench.report.studies.reproduction import Evidence, read_evidence
from probstep.bench.report.studies.reproduction.claims import CLAIMS, find_most_different
from probstep.bench.report.studies.reproduction.effort import estimate_effort
from probstep.bench.report.studies.reproduction.evidence import NETS
from probstep.bench.report.studies.reproduction.page import make_page
from probstep.bench.report.studies.reproduction.verdict import Verdict
from probstep.bench.runs.training import Epoch, train
from probstep.drawing.svg import write_svg_file

from ..report_cases import RATES, cells_of, make_records

ROOT = Path(__file__).parents[3]
RECORDS, DOCS = ROOT / "benchmarks" / "records", ROOT / "docs"
JUDGES = {claim.name: claim.judge for claim in CLAIMS}
OURS = {
    "probstep_sgd": {},
    "probstep_momentum": {"momentum": 0.5},
    "probstep_adam": {"betas": [0.5, 0.999]},
}


@pytest.fixture(scope="module")
def runs():
    return read_curves(RECORDS / "paper-small.jsonl.gz")


@pytest.fixture(scope="module")
def page():
    return make_page(read_evidence(RECORDS))


def test_the_figures_are_what_the_records_make(page):
    drawn = {
        f"{slug}.svg": write_svg_file(scene, Path(slug).name.replace("-", " "))
        for slug, scene in page.drawings.items()
    }
    files = (DOCS / "figures" / "paper").glob("*.svg")
    assert {f"paper/{file.name}": file.read_text() for file in files} == drawn
    assert all(f"(figures/{name})" in page.text for name in drawn)


def test_every_figure_fits_a_phone_and_follows_the_readers_mode(page):
    for slug, scene in page.drawings.items():
        assert scene.width <= 500, slug  # letters of 10 pixels are then 7 high where 360 are free
        assert "prefers-color-scheme: dark" in write_svg_file(scene, slug)


def test_no_number_is_typed_by_hand():
    """Without records no claim has a number of ours, but for what the page computes itself."""
    empty = make_page(Evidence([])).text
    rows = re.findall(r"^\| (C\d+) .* \| \*\*(.*?)\*\* \| .* \|(.*)\|$", empty, re.M)
    assert len(rows) == len(CLAIMS)
    assert [name for name, word, _ in rows if word != "no records"] == ["C14"]
    assert [name for name, _, here in rows if here.strip()] == ["C14"]


@pytest.mark.parametrize(
    ("name", "words", "hours"), [("paper-small", "five", 5), ("paper-beside", "three", 3)]
)
def test_a_plan_takes_less_of_a_core_than_it_says(name, words, hours):
    evidence, plan = read_evidence(RECORDS).with_beside(), read_plan(name)
    assert f"under {words} hours on one core" in plan.about
    assert estimate_effort(list_runs(plan), evidence.cells).hours < hours


def test_a_run_of_the_plan_is_taken_to_be_as_fast_as_the_fastest_of_its_kind():
    quick = [replace(r, time={"training_seconds": 1.0}) for r in end("adam", 0.5, 0.9)]  # 4 epochs
    cells = cells_of([*sweep("adam", FIXED), quick])
    runs = [Run("fmnist_mlp", method, 0.1, 0, epochs=3600) for method in ("adam", "momentum")]
    effort = estimate_effort(runs, cells)
    assert (effort.hours, effort.unknown) == (0.25, 1)


def test_every_recorded_run_is_of_the_plan_and_carries_what_made_it(runs):
    planned = {run.key for run in list_runs(read_plan("paper-small"))}
    recorded = [records[0].run.key for records in runs]
    assert len(recorded) == len(set(recorded))
    assert set(recorded) <= planned
    for records in runs:
        assert records[-1].commit
        assert {"torch", "python", "numpy"} <= records[-1].versions.keys()


def test_the_plan_has_every_net_of_the_paper_from_six_rates_and_five_factors():
    rates = {}
    for run in list_runs(read_plan("paper-small")):
        rates.setdefault((run.problem, run.method), set()).add(run.rate)
    for problem in NETS:
        for method in ("adam", "probstep_adam", "adam_hd", "momentum", "probstep_momentum"):
            assert {1e-5, 1.0} <= rates[problem, method]
            assert len(rates[problem, method]) >= 6
        assert len(rates[problem, "l4_adam"]) == len(rates[problem, "l4_momentum"]) == 5


BETAS = {"betas": [0.7, 0.999]}
FUNCTIONS = {  # in double precision, sums of a few terms: the same on every machine
    "fixed": ("adam", 0.1, BETAS),
    "adapted": ("probstep_adam", 1e-3, BETAS),
    "with f* and R": ("probstep_adam", 1e-3, {**BETAS, "lower_bound": 0.0, "noise_share": 0.05}),
}
NETS_MADE_AGAIN = {
    "fixed Adam": ("adam", 1e-2, {"betas": [0.5, 0.999]}),
    "adapted Adam": ("probstep_adam", 1e-3, {"betas": [0.5, 0.999]}),
    "adapted momentum": ("probstep_momentum", 1e-2, {"momentum": 0.5}),
}


def make_again(runs, problem, case, count, **budget):
    """A run's first epochs, as recorded and as they are now."""
    method, rate, settings = case
    run = Run(problem, method, rate, 0, settings=settings, **budget)
    (recorded,) = (records for records in runs if records[0].run.key == run.key)
    made = (message.record for message in train(run) if isinstance(message, Epoch))
    pairs = list(zip(recorded[: count + 1], islice(made, count + 1), strict=True))
    for old, new in pairs:
        assert (old.epoch, old.steps) == (new.epoch, new.steps)
        # The records are older than the passes with which a step proves its loss.
        assert 0 <= new.forward_passes - old.forward_passes < 8
    return pairs


@pytest.mark.parametrize("case", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_record_that_is_made_again_is_equal(case, runs):
    for old, new in make_again(runs, "rosenbrock", case, 60, epochs=300, subset=1, batch_size=1):
        assert float(f"{new.train_loss:.{DIGITS}g}") == old.train_loss


@pytest.mark.parametrize("case", NETS_MADE_AGAIN.values(), ids=NETS_MADE_AGAIN)
def test_a_record_of_a_net_that_is_made_again_is_equal_but_for_the_processor(case, runs):
    """Another processor adds in another order: on this one all recorded digits are the same."""
    batch = get_problem("digits_conv").batch_size
    budget = {"epochs": 10, "batch_size": batch, "evaluation": "paper"}
    for old, new in make_again(runs, "digits_conv", case, 2, **budget):
        assert new.train_loss == pytest.approx(old.train_loss, rel=1e-3)
        assert new.test_loss == pytest.approx(old.test_loss, rel=1e-3)
        assert new.effective_rate == pytest.approx(old.effective_rate, rel=1e-3)


# What came after the paper


def since(accuracies, method="robust_adam", problem="fmnist_mlp"):
    return [
        make_records(Run(problem, method, rate, 0, 4), accuracy=accuracy)
        for rate, accuracy in zip(RATES, accuracies, strict=True)
    ]


def page_with(beside):
    cells = cells_of(sweep("adam", FIXED) + sweep("probstep_adam", [0.9] * 6))
    return make_page(Evidence(cells, beside=cells_of(beside)))


def test_what_came_later_is_shown_only_when_it_is_on_record():
    assert "paper/since" not in page_with([]).drawings
    page = page_with(since([0.95] * 5 + [0.1]))
    assert "paper/since" in page.drawings
    assert "| RobustRule | Adam | where it starts | 5 of 6 | 5 of 6 | 1 of 1 |" in page.text
    assert "| fixed | Adam | the rate | 3 of 6 | 1 of 6 | 0 of 1 |" in page.text


def test_the_guess_of_prodigy_takes_the_place_of_its_rate():
    settings = [{"d0": d0} for d0 in (1e-6, *RATES)]
    runs = [Run("fmnist_mlp", "prodigy", 1.0, 0, 4, settings=values) for values in settings]
    text = page_with([make_records(run, accuracy=0.95) for run in runs]).text
    assert "| Prodigy | Adam | its first guess, `d0` | 6 of 6 | 6 of 6 | 1 of 1 |" in text


def test_no_verdict_looks_at_what_came_later():
    """A method that is better than all of the paper's makes none of these worse."""

    def verdicts(text):
        return re.search(r"## Verdicts.*?## Where training ends", text, re.DOTALL)[0]

    assert verdicts(page_with([]).text) == verdicts(page_with(since([1.0] * 6)).text)


def test_every_run_beside_is_of_its_plan_and_has_the_budget_of_the_paper_s(runs):
    beside = list_runs(read_plan("paper-beside"))
    recorded = {records[0].run.key for records in read_curves(RECORDS / "paper-beside.jsonl.gz")}
    assert recorded <= {run.key for run in beside}
    budgets = {budget(run) for run in list_runs(read_plan("paper-small"))}
    assert {budget(run) for run in beside} <= budgets


def budget(run):
    return run.problem, run.epochs, run.subset, run.batch_size, run.evaluation, run.seed


# Verdicts, of made-up ends


def end(method, rate, accuracy, problem="fmnist_mlp", settings=None, **values):
    settings = OURS.get(method, {}) if settings is None else settings
    run = Run(problem, method, rate, 0, 4, settings=settings)
    return make_records(run, accuracy=accuracy, passes=1 + method.startswith("probstep"), **values)


def judge(name, runs):
    return JUDGES[name](Evidence(cells_of(runs)))


def sweep(method, accuracies, **values):
    return [end(method, rate, a, **values) for rate, a in zip(RATES, accuracies, strict=True)]


FIXED = [0.1, 0.2, 0.5, 0.95, 0.5, 0.1]


@pytest.mark.parametrize(
    ("adam", "word"),
    [
        ([0.95] * 5 + [0.1], "confirmed"),
        ([0.2, 0.5, 0.95, 0.95, 0.5, 0.1], "not at this scale"),
        ([0.1] * 6, "refuted"),
    ],
)
def test_near_the_best_is_a_matter_of_how_many(adam, word):
    runs = sweep("adam", FIXED) + sweep("probstep_adam", adam)
    assert judge("C4", runs).word == word


def test_a_slow_optimizer_is_no_fault_of_the_rule():
    slow = sweep("momentum", [0.4 * a for a in FIXED]) + sweep("probstep_momentum", [0.38] * 6)
    runs = slow + sweep("adam", FIXED) + sweep("probstep_adam", [0.95] * 3 + [0.5] * 3)
    verdict = judge("C4", runs)
    assert "same optimizer end 75 % of the runs" in verdict.here
    assert "of the best on the net 25 %" in verdict.here
    assert "57 points apart" in verdict.why
    assert verdict.word == "partly"


@pytest.mark.parametrize("claim", ["C4", "C5", "C6", "C7"])
def test_a_net_that_no_fixed_rate_trains_judges_nothing(claim):
    runs = sweep("adam", FIXED) + sweep("probstep_adam", [0.1, *[0.9] * 5])
    runs += [*sweep("adam_hd", FIXED), end("l4_adam", 0.15, 0.9)]
    dull = sweep("adam", [0.3] * 6, problem="svhn_wrn164_narrow")
    dull += sweep("probstep_adam", [0.01] * 6, problem="svhn_wrn164_narrow")
    alone, beside = judge(claim, runs), judge(claim, runs + dull)
    assert (alone.word, alone.here, alone.runs) == (beside.word, beside.here, beside.runs)
    assert judge(claim, dull).word == "no records"


@pytest.mark.parametrize(
    ("smallest", "word", "named"),
    [(0.9, "confirmed", "No exception"), (0.1, "refuted", "from 1e-5")],
)
def test_one_small_rate_that_does_not_train_is_an_exception(smallest, word, named):
    runs = sweep("adam", FIXED) + sweep("probstep_adam", [smallest, *[0.9] * 5])
    verdict = judge("C5", runs)
    assert verdict.word == word
    assert named in verdict.why


def test_large_rates_are_said_to_fail_only_if_they_do():
    fixed = sweep("adam", FIXED)
    assert judge("C6", fixed + sweep("probstep_adam", [0.9] * 5 + [0.1])).word == "confirmed"
    assert judge("C6", fixed + sweep("probstep_adam", [0.9] * 6)).word == "not at this scale"
    everywhere = [
        run
        for net in NETS
        for method, ends in (("adam", FIXED), ("probstep_adam", [0.9] * 6))
        for run in sweep(method, ends, problem=net)
    ]
    assert judge("C6", everywhere).word == "refuted"
    momentum = sweep("probstep_momentum", [0.9] * 5 + [0.1])
    assert judge("C6", fixed + momentum).word == "partly"


def test_a_run_that_diverged_counts_as_not_trained():
    lost = end("probstep_adam", 1.0, 0.9, status="diverged", reason="nan")
    runs = [*sweep("adam", FIXED), lost]
    assert judge("C6", runs).here.startswith("1 of 1 ")


@pytest.mark.parametrize(("other", "word"), [(0.9, "confirmed"), (0.2, "refuted")])
@pytest.mark.parametrize(
    ("claim", "method", "settings"),
    [
        ("C8", "probstep_adam_noise", {"betas": [0.5, 0.999], "noise": "samples"}),
        ("C12", "probstep_adam", {"betas": [0.5, 0.999], "doubling_epochs": True}),
    ],
)
def test_a_variant_is_compared_with_the_same_run_without_it(claim, method, settings, other, word):
    runs = sweep("probstep_adam", [0.9] * 6) + sweep(method, [other] * 6, settings=settings)
    assert judge(claim, runs).word == word


@pytest.mark.parametrize(
    ("light", "heavy", "word"),
    [(0.9, 0.1, "confirmed"), (0.9, 0.9, "partly"), (0.1, 0.9, "refuted")],
)
def test_the_heat_map_is_judged_below_and_above_the_heavy_momentum(light, heavy, word):
    runs = []
    for beta in (0.0, 0.5, 0.9):
        settings = {"betas": [beta, 0.999]}
        ours = heavy if beta == 0.9 else light
        runs += sweep("adam", [0.5] * 6, problem="digits_conv", settings=settings)
        runs += sweep("probstep_adam", [ours] * 6, problem="digits_conv", settings=settings)
    assert judge("C9", runs).word == word


def test_rates_have_met_when_they_end_within_a_decade():
    problem = "cifar100_resnet18_narrow"
    apart = sweep("probstep_adam", [0.5] * 6, problem=problem)
    nearer = [with_rate(records, records[0].run.rate ** 0.5) for records in apart]
    met = [with_rate(records, 0.01) for records in apart]
    assert judge("C11", apart).word == "refuted"
    assert judge("C11", nearer).word == "not at this scale"
    assert judge("C11", met).word == "partly"


def with_rate(records, rate):
    return [replace(record, effective_rate=rate) for record in records]


def test_the_figures_that_differ_most_are_those_whose_numbers_miss_the_claim_most():
    verdicts = {claim.name: Verdict("confirmed", "so it is", "") for claim in CLAIMS}
    assert find_most_different(verdicts) == []
    for name, gap in {"C4": 0.2, "C7": 0.4, "C9": 0.9, "C10": 0.1, "C11": 0.3, "C12": 1.0}.items():
        verdicts[name] = replace(verdicts[name], gap=gap)
    assert [claim.name for claim in find_most_different(verdicts)] == ["C9", "C7", "C11"]


def test_the_exact_facts_hold():
    assert judge("C14", []).word == "confirmed"


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ({"cifar10_3c3d": 1.4}, "confirmed"),
        ({"cifar10_3c3d": 1.4, "fmnist_mlp": 1.9}, "partly"),
        ({"fmnist_mlp": 1.4}, "partly"),
        ({"cifar10_3c3d": 1.9}, "refuted"),
        ({}, "partly"),
    ],
)
def test_the_cost_is_confirmed_only_by_a_measured_time_where_the_paper_took_its_own(ratios, word):
    times = [
        {"kind": "time", "problem": net, "base": "adam", "ratio": r} for net, r in ratios.items()
    ]
    verdict = JUDGES["C1"](Evidence(cells_of(sweep("probstep_adam", [0.9] * 6)), times))
    assert verdict.word == word
    assert verdict.here.startswith("2.00 forward passes")
