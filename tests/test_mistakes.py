"""Whatever is wrong in the calling code is named, and what is right is left in peace."""

import re
import warnings

import pytest
import torch

from probstep import NotTheSameLoss, PaperRule, RobustRule

from .cases import OPTIMIZERS
from .mistakes import MISTAKES, TRAINERS, WAYS, Mistake, prepared

RULES = {"paper": PaperRule, "robust": RobustRule}
# Trainers take a while to begin: one rule is enough there.
RUNS = [
    (mistake, way, rule)
    for mistake, row in MISTAKES.items()
    for way in row.ways
    for rule in (RULES if way not in TRAINERS else ["robust"])
]
BASES = ("sgd", "sgd-momentum", "sgd-decay", "adam", "adamw", "adagrad")
CORRECT = Mistake("", ())


def outcome_of(mistake, way, folder, base="adam", **settings):
    """Train with a mistake; return what was said, and the parameters before and after."""
    run = prepared(mistake, settings)
    before = [p.detach().clone() for p in run.model.parameters()]
    error = None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            WAYS[way](run, OPTIMIZERS[base], folder)
        except (NotTheSameLoss, TypeError) as raised:
            error = raised
    said = [str(w.message) for w in heard if issubclass(w.category, RuntimeWarning)]
    return error, said, before, [p.detach() for p in run.model.parameters()]


@pytest.mark.parametrize(("mistake", "way", "rule"), RUNS, ids=[", ".join(run) for run in RUNS])
def test_a_mistake_is_named_within_three_steps(mistake, way, rule, tmp_path):
    row = MISTAKES[mistake]
    says, expected = row.expected(way)
    error, said, before, after = outcome_of(row, way, tmp_path, rule=RULES[rule]())
    assert (type(error) if error else None) is expected, error
    if error:
        torch.testing.assert_close(after, before, rtol=0, atol=0)
    messages = [str(error)] if error else said
    assert any(re.search(says, message) for message in messages), messages


@pytest.mark.parametrize(("way", "rule"), [(way, rule) for way in WAYS for rule in RULES])
def test_a_correct_program_hears_nothing(way, rule, tmp_path):
    is_own_loop = way not in TRAINERS
    for base in BASES if is_own_loop else ("adam",):
        error, said, _, _ = outcome_of(CORRECT, way, tmp_path, base=base, rule=RULES[rule]())
        assert error is None
        assert said == []


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "mistake", [name for name, row in MISTAKES.items() if row.error is NotTheSameLoss]
)
def test_without_the_check_nothing_is_refused(mistake, rule, tmp_path):
    for way in ("closure", "loss and reevaluate"):
        error, said, _, _ = outcome_of(
            MISTAKES[mistake], way, tmp_path, rule=RULES[rule](), check=False
        )
        assert error is None
        assert not [words for words in said if "evaluated again" in words]
