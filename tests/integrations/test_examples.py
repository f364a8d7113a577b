"""Every recipe runs, and lowers its loss."""

import math
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
UNTRAINED = math.log(3)
RECIPES = {
    "10_amp.py": (),
    "11_accumulation.py": (),
    "12_clipping.py": (),
    "13_groups.py": (),
    "14_compile.py": ("aot_eager",),  # no compiler needed
    "15_weight_averaging.py": (),
    "16_schedules.py": (),
    "17_stateful_rnn.py": (),
    "18_moco.py": (),
    "19_history.py": (),
}
OTHERWISE_UNTRAINED = {"18_moco.py": math.log(1 + 128)}  # one positive among so many
NEEDS = {
    "20_lightning.py": "lightning",
    "21_transformers.py": "transformers",
    "22_accelerate.py": "accelerate",
    "23_tensorboard.py": "tensorboard",
}


def run(name, *arguments, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return runpy.run_path(str(EXAMPLES / name))["main"](*arguments)


def test_no_recipe_is_left_out():
    numbered = {path.name for path in EXAMPLES.glob("[12]?_*.py")}
    assert numbered == RECIPES.keys() | NEEDS.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_a_plain_recipe_learns(name, monkeypatch):
    untrained = OTHERWISE_UNTRAINED.get(name, UNTRAINED)
    assert run(name, *RECIPES[name], monkeypatch=monkeypatch) < 0.8 * untrained


@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:The number of training batches")
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.`:FutureWarning")
@pytest.mark.parametrize("name", NEEDS)
def test_a_trainers_recipe_learns(name, monkeypatch, tmp_path):
    pytest.importorskip(NEEDS[name])
    arguments = (str(tmp_path),) if "tensorboard" in name else ()
    untrained = math.log(32) if "transformers" in name else UNTRAINED
    assert run(name, *arguments, monkeypatch=monkeypatch) < 0.8 * untrained
