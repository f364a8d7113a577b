import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from probstep.bench.methods import METHODS
from probstep.bench.plans import list_plans, list_runs, parse_plan, read_plan
from probstep.bench.problems import PROBLEMS

SMALL = """
problems = ["digits_mlp", "digits_logreg"]
methods = ["sgd", "adam"]
rates = [0.1, 0.01, "default"]
seeds = [0, 1]
epochs = 5
"""


def runs(text):
    return list_runs(parse_plan(text))


def test_a_plan_is_the_product_of_its_lists():
    found = runs(SMALL)
    assert len(found) == 2 * 2 * 3 * 2
    assert {run.epochs for run in found} == {5}


def test_runs_say_in_full_what_they_are():
    [run] = runs('problems = ["digits_mlp"]\nmethods = ["momentum"]')
    assert run.epochs == PROBLEMS["digits_mlp"].epochs
    assert run.batch_size == PROBLEMS["digits_mlp"].batch_size
    assert run.rate == METHODS["momentum"].default_rate
    assert run.settings == {"momentum": 0.9}


def test_a_run_that_is_planned_twice_is_made_once():
    assert (
        len(runs('problems=["digits_mlp"]\nmethods=["adam"]\nrates=[1e-3, "default", 0.001]')) == 1
    )


def test_a_method_without_a_rate_is_run_once_whatever_the_rates():
    [run] = runs('problems = ["digits_mlp"]\nmethods = ["vsgd"]\nrates = [0.1, 1.0]')
    assert run.rate is None


def test_an_override_changes_what_it_matches_and_nothing_else():
    changed = (
        SMALL + '[[override]]\nproblem = "digits_mlp"\nmethod = "sgd"\nepochs = 2\nseeds = [7]'
    )
    by_override = {run.epochs: [] for run in runs(changed)}
    for run in runs(changed):
        by_override[run.epochs].append(run)
    assert {(r.problem, r.method, r.seed) for r in by_override[2]} == {("digits_mlp", "sgd", 7)}
    assert len(by_override[5]) == 3 * 3 * 2


def test_further_products_inherit_what_they_do_not_say():
    text = SMALL + '[[runs]]\nmethods = ["adam"]\n[[runs]]\nproblems = ["digits_conv"]\nseeds = [3]'
    found = runs(text)
    assert len(found) == 2 * 2 * 3 * 2 + 2 * 3  # those of adam alone are at the top already
    assert {r.seed for r in found if r.problem == "digits_conv"} == {3}


def test_the_top_level_without_methods_is_only_inherited_from():
    found = runs('problems = ["digits_mlp"]\nseeds = [5]\n[[runs]]\nmethods = ["sgd"]')
    assert [(r.problem, r.method, r.seed) for r in found] == [("digits_mlp", "sgd", 5)]


def test_the_plan_of_the_documents_has_the_runs_that_they_say():
    text = (Path(__file__).parents[3] / "docs" / "bench.md").read_text(encoding="utf-8")
    found = runs(text.split("```toml\n")[1].split("```")[0])
    assert Counter(run.method for run in found) == {
        "adam": 24,
        "robust_adam": 24,
        "momentum": 48,
    }


def test_settings_are_set_and_varied():
    text = 'problems = ["digits_mlp"]\nmethods = ["sgd"]\nsettings = {nesterov = true}\n'
    found = runs(text + "vary = {momentum = [0.5, 0.9]}")
    assert [r.settings for r in found] == [
        {"nesterov": True, "momentum": 0.5},
        {"nesterov": True, "momentum": 0.9},
    ]


MISTAKES = {
    'problems = ["digits_mpl"]': ["line 1", "unknown problem 'digits_mpl'", "'digits_mlp'"],
    'methods = [\n"sgd",\n"adma"]': ["line 3", "unknown method 'adma'", "Did you mean 'adam'"],
    "seeds = [0]\nepoch = 3": ["line 2", "unknown key 'epoch'", "'epochs'", "Allowed: rates"],
    "[[runs]]\n[[runs]]\nmethod = []": ["line 3", "unknown key 'method'", "'methods'"],
    "[[override]]\nproblem = 3": ["line 2", "override[0].problem", "string", "3"],
    "rates = [0.1, -1.0]": ["line 1", "a rate is a positive number", '"default"'],
    "rates = [nan]": ["line 1", "a rate is a positive number"],
    "rates = []": ["line 1", "rates", "at least 1 item"],
    "epochs = 0": ["line 1", "epochs", "greater than 0", "not 0"],
    "seeds = 3": ["line 1", "seeds", "valid list"],
    'evaluation = "papr"': ["line 1", "'clean' or 'paper'", "'papr'"],
    'epochs = "3"': ["line 1", "epochs", "valid integer", "'3'"],
    "seeds = [true]": ["line 1", "seeds[0]", "valid integer", "True"],
    "batch_size = 8.0": ["line 1", "batch_size", "valid integer"],
    'problems=["digits_mlp"]\nmethods=["sgd"]\nsettings = {momentun = 0.9}': [
        "line 3",
        "unknown setting of sgd 'momentun'",
        "Did you mean 'momentum'",
    ],
    'problems=["digits_mlp"]\nmethods=["sgd", "adam"]\n[vary]\nmomentum = [0.9]': [
        "line 4",
        "unknown setting of adam 'momentum'",
        "Allowed: amsgrad, betas",
    ],
    'problems=["digits_mlp"]\nmethods=["probstep_sgd"]\nsettings = {upp = 2.0}': [
        "line 3",
        "unknown setting of probstep_sgd 'upp'",
        "Did you mean 'up'",
    ],
    'problems=["digits_mlp"]\nmethods=["sgd"]\nsettings = {momentum = -1.0}': [
        "line 3",
        "sgd refuses its settings {'momentum': -1.0}",
    ],
    'problems=["digits_mlp"]\nmethods=["sgd"]\nsettings = {schedule = "cosin"}': [
        "line 3",
        "unknown schedule 'cosin'. Did you mean 'cosine'",
    ],
    'problems=["digits_mlp"]\nmethods=["vsgd"]\nsettings = {schedule = "cosine"}': [
        "line 3",
        "takes no schedule",
    ],
    'problems=["digits_mlp"]\nmethods=["sgd"]\n[[override]]\nproblem = "digits_logreg"': [
        "line 3",
        "this override matches no run",
        "Did you mean 'digits_mlp'",
    ],
    "seeds = [0\nepochs = 1": ["not TOML", "line 2"],
    'import = "evil.py"': ["line 1", "unknown key 'import'"],
    'seeds = [0]\n[[override]]\nmethod = "sgd"\n[override.vary]\nmomentum = 0.9': [
        "line 5",
        "list",
    ],
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_with_its_line_and_what_is_allowed(text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the words are checked one by one
        parse_plan(text, "my.toml")
    for words in ["my.toml", *MISTAKES[text]]:
        assert words in str(caught.value)


def test_the_settings_of_a_peer_that_is_not_installed_are_passed_over(monkeypatch):
    def build(*_, **__):
        raise ImportError("not here")

    monkeypatch.setitem(METHODS, "dog", replace(METHODS["dog"], build=build))
    assert runs('problems = ["digits_mlp"]\nmethods = ["dog"]\nsettings = {any = 1}')


def test_several_mistakes_are_told_at_once():
    with pytest.raises(ValueError, match=r"line 1.*\n.*line 2"):
        parse_plan('problems = ["a"]\nmethods = ["b"]')


def test_a_plan_without_runs_is_a_mistake():
    with pytest.raises(ValueError, match=r"no runs.*`problems`.*`methods`"):
        runs("seeds = [1]")


def test_an_unknown_plan_gets_the_nearest_name():
    with pytest.raises(ValueError, match="Did you mean 'demo'"):
        read_plan("deno")


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        read_plan(str(tmp_path / "none.toml"))


def test_the_plans_of_the_package_are_those_that_were_promised():
    assert list_plans().keys() == RUNS.keys()


RUNS = {
    "averages": 576,
    "demo": 24,
    "front": 222,
    "heatmap": 432,
    "paper-beside": 140,
    "paper-small": 1088,
    "paper": 1332,
    "peers": 324,
    "robust": 1380,
    "rosenbrock": 12,
    "smoke": 18,
}


@pytest.mark.parametrize("name", list_plans())
def test_every_plan_of_the_package_is_valid(name):
    found = list_runs(read_plan(name))
    assert len(found) == RUNS[name]
    assert all(json.dumps(run.settings) for run in found)


@pytest.mark.parametrize("table", ["problems", "methods"])
def test_an_unknown_name_is_hinted_to_come_from_a_file_of_ones_own(table):
    names = {"problems": ["digits_mlp"], "methods": ["sgd"], table: ["my_own"]}
    with pytest.raises(ValueError, match="that you name with --import"):
        parse_plan("\n".join(f"{key} = {json.dumps(value)}" for key, value in names.items()))
