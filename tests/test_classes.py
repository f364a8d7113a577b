"""What `wrap` makes is a class like that of the optimizer inside, and makes ProbSteps."""

import copy
import importlib
import inspect
import pickle
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

import probstep
from probstep import PaperRule, ProbStep

from .cases import batches, plain_network, step_with_closure

NAMES = [
    name
    for name in ("AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "Muon")
    if hasattr(torch.optim, name)
]


class Strict(torch.optim.SGD):
    """An optimizer of somebody's own, which asks for a rate."""

    def __init__(self, params, lr, momentum=0.0):
        super().__init__(params, lr=lr, momentum=momentum)


class Stricter(torch.optim.SGD):
    """One that asks for more than a rate."""

    def __init__(self, params, lr, momentum):
        super().__init__(params, lr=lr, momentum=momentum)


def train(model, opt, steps=6):
    for batch in batches(steps):
        step_with_closure(opt, model, batch)
    return [p.detach().tolist() for p in model.parameters()]


def network():
    torch.manual_seed(0)
    return plain_network()


@pytest.mark.parametrize("name", NAMES)
def test_a_ready_made_name_is_a_class_with_the_signature_of_torchs(name):
    made = getattr(importlib.import_module("probstep"), name)
    kind = getattr(torch.optim, name)
    assert issubclass(made, ProbStep)
    assert made is probstep.wrap(kind)
    assert (made.__module__, made.__name__) == ("probstep", name)
    assert inspect.signature(made) == inspect.signature(kind)


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_as_probstep_around_the_optimizer_does(name):
    matrices = [[p for p in net.parameters() if p.dim() == 2] for net in (network(), network())]
    one, other = matrices if name == "Muon" else (network().parameters(), network().parameters())
    settings = {"lr": 1e-4, "weight_decay": 0.01}
    made = getattr(probstep, name)(one, **settings)
    by_hand = ProbStep(getattr(torch.optim, name)(other, **settings))
    assert repr(made) == repr(by_hand)
    for key, value in by_hand.param_groups[0].items():
        is_setting = key not in ("params", "probstep")
        assert not is_setting or made.param_groups[0][key] == value


def test_its_trajectory_is_that_of_probstep():
    one, other = network(), network()
    made = train(one, probstep.AdamW(one.parameters(), betas=(0.8, 0.99)))
    base = torch.optim.AdamW(other.parameters(), betas=(0.8, 0.99))
    assert made == train(other, ProbStep(base))


def test_it_takes_groups_and_positional_arguments():
    net = network()
    groups = [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.5}]
    opt = probstep.SGD(groups, 0.1, 0.9)
    assert [group["lr"] for group in opt.param_groups] == [0.1, 0.5]
    assert opt.param_groups[0]["momentum"] == 0.9


def test_the_rate_may_be_left_out_though_the_optimizer_asks_for_one():
    made = probstep.wrap(Strict)
    params = [nn.Parameter(torch.zeros(1))]
    assert made(params, momentum=0.5).param_groups[0]["lr"] == 1e-3
    assert made(params, 0.1).param_groups[0]["lr"] == 0.1
    assert made(params, lr=0.1).param_groups[0]["lr"] == 0.1
    assert inspect.signature(made).parameters["lr"].default == 1e-3
    assert inspect.signature(probstep.wrap(Stricter)) == inspect.signature(Stricter)


def test_settings_go_to_every_probstep_that_the_class_makes():
    made = probstep.wrap(torch.optim.SGD, rule=PaperRule(up=1.1), max_lr=0.5, check=False)
    opt = made([nn.Parameter(torch.zeros(1))])
    assert (opt.rule, opt.max_lr, opt.check) == (PaperRule(up=1.1), 0.5, False)
    assert made is probstep.wrap(torch.optim.SGD, check=False, max_lr=0.5, rule=PaperRule(up=1.1))
    assert made is not probstep.SGD


KINDS = {
    "ready-made": probstep.AdamW,
    "with settings": probstep.wrap(torch.optim.AdamW, rule=PaperRule(), max_lr=0.5),
    "somebody's own": probstep.wrap(Strict),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_class_is_pickled_and_copied_as_itself(name):
    kind = KINDS[name]
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert copy.deepcopy(kind) is copy.copy(kind) is kind


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("again", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_goes_on_as_the_original_does(name, again):
    model = network()
    opt = KINDS[name](model.parameters())
    train(model, opt)
    twin, copied = again((model, opt))
    assert type(copied) is type(opt)
    assert (copied.rule, copied.max_lr) == (opt.rule, opt.max_lr)
    assert train(twin, copied) == train(model, opt)
    assert copied.metrics() == opt.metrics()


def test_a_checkpoint_loads_into_the_bare_optimizer_and_back():
    one, other = network(), network()
    opt = probstep.AdamW(one.parameters())
    train(one, opt)
    bare = torch.optim.AdamW(other.parameters())
    bare.load_state_dict(opt.state_dict())
    assert ProbStep(bare).scale == opt.scale


@dataclass
class Changeable:
    """A setting that may change."""

    entries: list[int] = field(default_factory=list)


REFUSED = {
    "an optimizer": (
        lambda: probstep.wrap(torch.optim.SGD([nn.Parameter(torch.zeros(1))])),
        "class",
    ),
    "not an optimizer": (lambda: probstep.wrap(nn.Linear), "class of an optimizer"),
    "ProbStep": (lambda: probstep.wrap(ProbStep), "adapted already"),
    "a wrapped one": (lambda: probstep.wrap(probstep.AdamW), "adapted already"),
    "the optimizer's own setting": (
        lambda: probstep.wrap(torch.optim.SGD, momentum=0.9),
        "momentum",
    ),
    "a list": (lambda: probstep.wrap(torch.optim.SGD, stateful=[]), "stateful"),
    "what may change": (lambda: probstep.wrap(torch.optim.SGD, rule=Changeable()), "may change"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_wrapped_is_refused(case):
    make, complaint = REFUSED[case]
    with pytest.raises(TypeError, match=complaint):
        make()
