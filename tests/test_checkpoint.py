"""A checkpoint is checked when it is loaded, and one of version 0.1.0 goes on as it did."""

import copy
import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from probstep import PaperRule, ProbStep, RobustRule, RunningMinimum

# Twenty steps of `go_on` by version 0.1.0, with each rule; it went on with the losses below.
OLD = Path(__file__).parent / "checkpoint-0.1.0.pt"
RULES = {"paper": PaperRule, "robust": RobustRule}
LOSSES = {
    "paper": """0x1.6ea642p+0 0x1.cadb8ap-1 0x1.00b67ap-1 0x1.06a8d2p-1 0x1.1fe728p+0
        0x1.2191b0p+0 0x1.3de0c0p+0 0x1.0440d0p-1 0x1.71e842p-4 0x1.771f62p-4""",
    "robust": """0x1.4ca900p+0 0x1.af1862p-1 0x1.def030p-2 0x1.0fbdcap-1 0x1.1c2fd8p+0
        0x1.5108a4p+0 0x1.994e2ap+0 0x1.b324eap-1 0x1.c71f2cp-3 0x1.00cb14p-1""",
}
SCALES = {"paper": "0x1.49b07795c0e50p+5", "robust": "0x1.3612c1e458914p+4"}


def start(rule):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    return model, ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)


def inputs():
    return torch.randn(30, 8, 3, generator=torch.Generator().manual_seed(1))


def go_on(model, opt, inputs):
    return [opt.step(lambda x=x: (model(x)[:, 0] - x[:, 0]).square().mean()).item() for x in inputs]


def saved(rule, steps=20):
    model, opt = start(rule)
    go_on(model, opt, inputs()[:steps])
    return copy.deepcopy(opt.state_dict())


@pytest.mark.parametrize("name", RULES)
def test_a_checkpoint_of_0_1_0_goes_on_as_0_1_0_did(name):
    old = torch.load(OLD, weights_only=True)[name]
    model, opt = start(RULES[name]())
    model.load_state_dict(old["model"])
    opt.load_state_dict(old["opt"])
    expected = [float.fromhex(x) for x in LOSSES[name].split()]
    losses = go_on(model, opt, inputs()[20:])
    assert opt.metrics()["steps"] == 30
    if name == "robust":  # the rule has changed since: it goes on from there, not as it did
        assert losses[:2] == pytest.approx(expected[:2], rel=1e-5)
        assert 0.2 < opt.scale / float.fromhex(SCALES[name]) < 5
        return
    # Up to the rounding of single precision, which differs between processors.
    assert losses == pytest.approx(expected, rel=1e-5)
    assert opt.scale == pytest.approx(float.fromhex(SCALES[name]), rel=1e-5)


DAMAGED = {
    "scale": [math.nan, 0.0, -1.0, math.inf, "much"],
    "steps": [-1, 0.5, None],
    "forwards": [math.nan],
    "decisions": [{"sideways": 1}, {"up": -1}, 3],
    "last": [{"loss": 1.0}, None],
    "pending": [{"has": 1}],
    "first_rates": [[math.nan], 3],
    "bound": [{"lowest": 1.0}, None],
    "rule": [{"t": 1}, None],
}
for_every_damage = pytest.mark.parametrize(
    ("part", "value"), [(part, value) for part, values in DAMAGED.items() for value in values]
)


@for_every_damage
def test_a_damaged_part_is_named_and_begins_anew_and_training_goes_on(part, value):
    state = saved(RobustRule())
    sound = copy.deepcopy(state["param_groups"][0]["probstep"])
    state["param_groups"][0]["probstep"][part] = value
    model, opt = start(RobustRule())
    with pytest.warns(RuntimeWarning, match=f"begins anew: '{part}'") as caught:
        opt.load_state_dict(state)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (opt.scale == sound["scale"]) == (part != "scale")
    assert (opt.metrics()["steps"] == sound["steps"]) == (part != "steps")
    assert all(map(math.isfinite, go_on(model, opt, inputs()[20:])))


def test_a_missing_and_an_unknown_part_are_named():
    state = saved(PaperRule())
    memory = state["param_groups"][0]["probstep"]
    memory["colour"] = memory.pop("last")
    _, opt = start(PaperRule())
    with pytest.warns(RuntimeWarning, match="'colour' is unknown. 'last' is missing"):
        opt.load_state_dict(state)
    assert opt.last_probe is None
    assert opt.scale == memory["scale"]


def test_a_memory_that_is_none_is_named():
    state = saved(PaperRule())
    state["param_groups"][0]["probstep"] = 3
    _, opt = start(PaperRule())
    with pytest.warns(RuntimeWarning, match="must be a dictionary, not 3"):
        opt.load_state_dict(state)
    assert opt.scale == 1.0


def test_without_its_scale_a_rule_searches_again():
    state = saved(RobustRule())
    state["param_groups"][0]["probstep"]["scale"] = math.nan
    model, opt = start(RobustRule())
    with pytest.warns(RuntimeWarning, match="'scale'"):
        opt.load_state_dict(state)
    go_on(model, opt, inputs()[:1])
    assert opt.last_probe.decision == "search"


def test_another_rule_keeps_the_scale_and_says_that_it_begins_anew():
    state = saved(PaperRule())
    _, opt = start(RobustRule())
    with pytest.warns(RuntimeWarning, match="'rule'.*not a RobustState"):
        opt.load_state_dict(state)
    assert opt.scale == state["param_groups"][0]["probstep"]["scale"]


def test_a_nan_in_the_memory_of_a_bound_is_named():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    opt = ProbStep(
        torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule(), lower_bound=RunningMinimum()
    )
    state = opt.state_dict()
    state["param_groups"][0]["probstep"]["bound"] = {"lowest": math.nan}
    with pytest.warns(RuntimeWarning, match="'bound': must hold no NaN"):
        opt.load_state_dict(state)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_sound_checkpoint_loads_without_a_word(name, steps):
    _, opt = start(RULES[name]())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt.load_state_dict(saved(RULES[name](), steps))
