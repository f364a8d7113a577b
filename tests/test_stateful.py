"""State beside buffers is put back around a probe once it is declared; buffers always, of any shape."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao.quantization.observer import MovingAveragePerChannelMinMaxObserver
from torch.utils.checkpoint import checkpoint

import probstep
from probstep import ProbStep

from .cases import FORMS, FROZEN, batches, for_every_probe, loss_of, plain_network, train_bare


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


class Recurrent(nn.Module):
    """Carries its hidden state from batch to batch as an attribute."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(6, 8), nn.Linear(8, 3)
        self.hidden = None

    def forward(self, x):
        self.hidden = self.cell(x, None if self.hidden is None else self.hidden.detach())
        return self.out(self.hidden)


class SelfSaving(Recurrent):
    def save_for_probe(self):
        return self.hidden

    def restore_after_probe(self, saved):
        self.hidden = saved


class InPlace(Recurrent):
    """Changes its hidden state in place."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.zeros(12, 8)

    def forward(self, x):
        new = self.cell(x, self.hidden.clone())
        self.hidden.copy_(new.detach())
        return self.out(new)


class Momentum(nn.Module):
    """Moves a second encoder after the first one in every forward pass."""

    def __init__(self):
        super().__init__()
        self.query = plain_network()
        self.key = copy.deepcopy(self.query).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for key, query in zip(self.key.parameters(), self.query.parameters(), strict=True):
                key.lerp_(query, 0.3)
        return self.query(x) - 0.5 * self.key(x)


class Drawing(nn.Module):
    """Draws from a generator of its own."""

    def __init__(self, draw, generator):
        super().__init__()
        self.net, self.draw, self.generator = plain_network(), draw, generator

    def forward(self, x):
        return self.net(x * self.draw(self.generator))


def torch_draw(generator):
    return torch.rand(6, generator=generator)


CASES = {
    "hidden state, by name": lambda: (m := Recurrent(), probstep.stateful(m, "hidden")),
    "hidden state, by its methods": lambda: (SelfSaving(), ()),
    "hidden state, in place": lambda: (m := InPlace(), [probstep.stateful(m, "hidden")]),
    "momentum encoder, by name": lambda: (m := Momentum(), probstep.stateful(m, "key")),
    "momentum encoder, the module": lambda: (m := Momentum(), m.key),
    "generator of torch": lambda: (
        m := Drawing(torch_draw, torch.Generator().manual_seed(1)),
        m.generator,
    ),
    "generator of numpy": lambda: (
        m := Drawing(lambda g: g.random(), np.random.default_rng(1)),
        m.generator,
    ),
    "old generator of numpy": lambda: (
        m := Drawing(lambda g: g.rand(), np.random.RandomState(1)),
        m.generator,
    ),
    "generator of python": lambda: (
        m := Drawing(lambda g: g.random(), random.Random(1)),
        [m.generator],
    ),
    "all of a module": lambda: (m := Recurrent(), m),
}


def outcome(model):
    drawn = model.draw(model.generator) if isinstance(model, Drawing) else 0.0
    hidden = model.hidden.detach() if isinstance(model, Recurrent) else 0.0
    return [p.detach().clone() for p in model.parameters()], drawn, hidden


# The registered form records no pass, so that the loss is evaluated from where the pass has left the
# state: another function, as is said.
@pytest.mark.filterwarnings("ignore:The gradients are about")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_with_its_state_declared_training_is_the_bare_optimizers(case, form):
    data = batches(4)
    torch.manual_seed(3)
    model, _ = CASES[case]()
    losses = train_bare(model, torch.optim.Adam(model.parameters(), lr=1e-2), data)
    expected = outcome(model)

    torch.manual_seed(3)
    model, state = CASES[case]()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-2), FROZEN, stateful=state)
    assert [FORMS[form](opt, model, batch) for batch in data] == losses
    same(outcome(model), expected)


@pytest.mark.parametrize("form", ["closure", "closure with backward", "loss and reevaluate"])
@pytest.mark.parametrize("with_model", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_step_of_no_length_is_probed_to_the_first_loss(case, with_model, form):
    model, state = CASES[case]()
    base = torch.optim.SGD(model.parameters(), lr=1e-30)
    opt = ProbStep(base, FROZEN, model=model if with_model else None, stateful=state)
    for batch in batches(3):
        FORMS[form](opt, model, batch)
        assert opt.last_probe.loss == opt.last_probe.loss_after


def test_a_stateful_net_is_searched_and_learns():
    ends = []
    for state in (True, False):
        torch.manual_seed(0)
        model = Recurrent()
        base = torch.optim.Adam(model.parameters(), lr=1e-3 if state else 1e-2)
        opt = ProbStep(base, stateful=probstep.stateful(model, "hidden")) if state else base
        for batch in batches(60):
            if state:
                opt.step(lambda batch=batch, model=model: loss_of(model, batch))
            else:
                train_bare(model, base, [batch])
        ends.append(loss_of(model, batches(1)[0]).item())
    assert ends[0] < 1.5 * ends[1]


def test_what_cannot_be_put_back_is_refused_with_what_to_do():
    with pytest.raises(TypeError, match="Name its attributes"):
        ProbStep(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), stateful=object())
    with pytest.raises(AttributeError, match="has no attribute 'hidde'"):
        probstep.stateful(Recurrent(), "hidde")


def test_none_declares_nothing():
    w = nn.Parameter(torch.ones(1))
    opt = probstep.ProbStep(torch.optim.SGD([w], lr=0.1), stateful=None)
    assert opt.step(lambda: w.square().sum()).item() == 1.0
    assert opt.last_probe.decision == "search"


def test_a_copy_of_the_optimizer_knows_of_it_too():
    generator = torch.Generator().manual_seed(0)
    opt = ProbStep(
        torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), FROZEN, stateful=[generator]
    )
    w = (copied := copy.copy(opt)).param_groups[0]["params"][0]
    copied.step(lambda: (w * torch.rand(1, generator=generator)).sum())
    once = torch.Generator().manual_seed(0)
    torch.rand(1, generator=once)
    assert torch.equal(torch.rand(1, generator=generator), torch.rand(1, generator=once))


class Observed(nn.Module):
    """Observes the range of its activations per channel: the observer's buffers begin empty."""

    def __init__(self):
        super().__init__()
        self.net = plain_network()
        self.observer = MovingAveragePerChannelMinMaxObserver(ch_axis=1)

    def forward(self, x):
        y = self.observer(self.net(x))
        return y / (1 + self.observer.max_val.max() - self.observer.min_val.min())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("form", FORMS)
def test_buffers_that_change_their_shape_are_put_back_as_they_were(form):
    data = batches(3)
    torch.manual_seed(3)
    model = Observed()
    losses = train_bare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
    expected = dict(model.state_dict())

    torch.manual_seed(3)
    model = Observed()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.1), FROZEN)
    assert [FORMS[form](opt, model, batch) for batch in data] == losses
    same(dict(model.state_dict()), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")
def test_quantisation_aware_training_is_the_bare_optimizers():
    ends = []
    for is_adapted in (False, True):
        torch.manual_seed(3)
        model = plain_network().train()
        model.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
        model = torch.ao.quantization.prepare_qat(model)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        if is_adapted:
            opt = ProbStep(opt, FROZEN)
            losses = [FORMS["closure"](opt, model, batch) for batch in batches(3)]
        else:
            losses = train_bare(model, opt, batches(3))
        ends.append((losses, [b.clone() for b in model.buffers()]))
    same(ends[0], ends[1])


class Checkpointed(nn.Module):
    """Computes its activations again in the backward pass, dropout included."""

    def __init__(self, *, use_reentrant):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first = nn.Linear(6, 16)
        self.block = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Tanh())
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        inner = checkpoint(self.block, self.first(x), use_reentrant=self.use_reentrant)
        return self.last(inner)


@for_every_probe
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_activation_checkpointing_is_no_obstacle(form, use_reentrant, rule):
    losses = []
    for kind in (None, use_reentrant):
        torch.manual_seed(3)
        model = Checkpointed(use_reentrant=use_reentrant)
        if kind is None:
            model.forward = lambda x, model=model: model.last(model.block(model.first(x)))
        opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-2), rule)
        losses.append([FORMS[form](opt, model, batch) for batch in batches(4)])
        assert opt.metrics()["probes/unpaired"] == 0
    same(losses[0], losses[1])
