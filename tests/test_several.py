"""Several optimizers under one loss, and groups with a scale each: one optimizer, any initial rates."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch import nn, optim
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.functional import cross_entropy

import probstep
from probstep import ratios
from probstep.step import joint

EXTREMES = [(1e-3, 1e-3), (1e-8, 1.0), (1.0, 1e-8)]


def network(dtype=torch.float64):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    return model.to(dtype)


def batches(count, dtype=torch.float64):
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(count, 16, 6, generator=draw).to(dtype)
    return [(part, part[:, :3].argmax(1)) for part in x]


def muon_adamw(model, rates=(0.02, 1e-3), **settings):
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    return [
        optim.Muon(matrices, lr=rates[0], **settings),
        optim.AdamW(vectors, lr=rates[1]),
    ]


def sgd_adam(model, rates=(0.1, 1e-3)):
    first, *rest = [layer for layer in model if isinstance(layer, nn.Linear)]
    others = [p for layer in rest for p in layer.parameters()]
    return [
        optim.SGD(first.parameters(), lr=rates[0], momentum=0.9),
        optim.Adam(others, lr=rates[1]),
    ]


PAIRS = {"muon and adamw": muon_adamw, "sgd and adam": sgd_adam}
for_every_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())


def train(model, opt, data):
    return [opt.step(lambda x=x, y=y: cross_entropy(model(x), y)).item() for x, y in data]


def begin(pair=muon_adamw, rates=None, **settings):
    model = network()
    bases = pair(model) if rates is None else pair(model, rates)
    return model, probstep.ProbStep(bases, **settings)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def parameters(*values):
    return [nn.Parameter(torch.tensor([value], dtype=torch.float64)) for value in values]


# What is found


@for_every_pair
def test_any_combination_of_initial_rates_gives_the_same_training_to_rounding(pair):
    found, losses = [], []
    for rates in EXTREMES:
        model, opt = begin(pair, rates)
        losses.append(train(model, opt, batches(12)))
        found.append(opt.effective_lr)
    for k in (1, 2):
        assert found[k] == pytest.approx(found[0], rel=1e-6)
        assert losses[k] == pytest.approx(losses[0], rel=1e-6)


def test_the_order_of_the_list_does_not_matter_to_the_search():
    def rates(order):
        model = network()
        opt = probstep.ProbStep(sgd_adam(model)[::order])
        train(model, opt, batches(1))
        return [opt.effective_lr[name] for name in ("SGD", "Adam")]

    assert rates(1) == pytest.approx(rates(-1), rel=1e-9)


def test_nor_if_only_one_of_them_looks_ahead():
    def rates(order):
        v, w = parameters(1.0, 1.0)
        ahead = optim.SGD([v], lr=1.0, momentum=0.9, nesterov=True)
        opt = probstep.ProbStep([ahead, optim.SGD([w], lr=1.0, momentum=0.9)][::order])
        opt.step(lambda: (v + w).sum() + 10.0)  # without a bend only the loss ends the search
        return sorted(opt.effective_lr)

    assert rates(1) == pytest.approx(rates(-1), rel=1e-9)


def test_the_first_search_finds_the_ratio_of_the_curvatures():
    v, w = parameters(1.0, 1.0)
    opt = probstep.ProbStep([optim.SGD([v], lr=1e-5), optim.SGD([w], lr=1e3)])
    opt.step(lambda: (50 * v.square() + 0.5 * w.square()).sum())
    of_v, of_w = opt.effective_lr
    assert of_w / of_v == pytest.approx(100.0, rel=1e-6)


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_the_ratio_does_not_depend_on_the_unit_of_the_loss(unit):
    def rates(unit):
        model = network().float()  # in which a step for a loss of 1e-12 is lost
        matrices = [p for p in model.parameters() if p.ndim == 2]
        vectors = [p for p in model.parameters() if p.ndim == 1]
        opt = probstep.ProbStep([optim.SGD(matrices, lr=0.1), optim.Adam(vectors, eps=1e-8 * unit)])
        ((x, y),) = batches(1, torch.float32)
        opt.step(lambda: unit * cross_entropy(model(x), y))
        return opt.effective_lr["SGD"] * unit, opt.effective_lr["Adam"]

    assert rates(unit) == pytest.approx(rates(1.0), rel=1e-5)


def test_groups_get_a_scale_each_only_where_asked():
    def rates(**settings):
        v, w = parameters(1.0, 1.0)
        groups = [{"params": [v]}, {"params": [w]}]
        opt = probstep.ProbStep(optim.SGD(groups, lr=0.1), **settings)
        opt.step(lambda: (50 * v.square() + 0.5 * w.square()).sum())
        return opt.effective_lr

    apart, together = rates(per_group=True), rates()
    assert apart[1] / apart[0] == pytest.approx(100.0, rel=1e-6)
    assert together[0] == together[1]


def looks_of(opt):
    """Return the forward passes that told members apart."""
    return opt.state_dict()["param_groups"][0]["probstep"]["ratios"]["forwards"]


def test_later_probes_correct_a_ratio_that_is_wrong():
    v, w = parameters(1.0, 1.0)
    opt = probstep.ProbStep([optim.SGD([v], lr=0.1), optim.SGD([w], lr=0.1)])
    draw = torch.Generator().manual_seed(0)

    def step():
        a, b = torch.randn(2, generator=draw, dtype=torch.float64)
        opt.step(lambda: (5 * (v - a).square() + 0.5 * (w - b).square()).sum())

    step()
    saved = opt.state_dict()
    for group in saved["param_groups"]:
        first, second = group["probstep"]["ratios"]["ratio"]
        group["probstep"]["ratios"]["ratio"] = [30.0 * first, second / 30]
    opt.load_state_dict(saved)
    wrong = opt.effective_lr[1] / opt.effective_lr[0]
    for _ in range(150):
        step()
    corrected = opt.effective_lr[1] / opt.effective_lr[0]
    assert wrong < 0.1
    assert 2 < corrected < 50  # the curvatures differ by 10


def test_what_tells_members_apart_costs_no_more_than_its_budget():
    model, opt = begin(muon_adamw)
    train(model, opt, batches(100))
    spent = looks_of(opt)
    assert 4 <= spent <= 2 * ratios.AT_ONCE + ratios.PER_STEP * 100 + 1


def test_a_look_at_one_member_moves_no_parameter(monkeypatch):
    def after(most):
        monkeypatch.setattr(ratios, "AT_ONCE", most)
        monkeypatch.setattr(ratios, "PER_STEP", 0.0)
        model, opt = begin(muon_adamw)
        train(model, opt, batches(2))
        return looks_of(opt), [p.detach().clone() for p in model.parameters()]

    (looks, with_looks), (none, without) = after(4.0), after(0.0)
    assert looks > none == 0
    assert all(torch.equal(a, b) for a, b in zip(with_looks, without, strict=True))


def test_max_lr_holds_for_every_member():
    model, opt = begin(muon_adamw, max_lr=1e-3)
    for batch in batches(10):
        train(model, opt, [batch])
        assert max(opt.effective_lr) <= 1e-3 * (1 + 1e-12)


# Members that cannot be searched


def test_an_optimizer_without_gradients_waits_and_is_searched_when_it_has_some():
    v, w = parameters(1.0, 1.0)
    opt = probstep.ProbStep([optim.SGD([v], lr=0.1), optim.Adam([w], lr=1e6)])
    for _ in range(3):
        opt.step(lambda: v.square().sum())
    assert w.item() == 1.0
    assert opt.effective_lr["Adam"] == 0.0
    for _ in range(12):
        opt.step(lambda: (v.square() + w.square()).sum())
    assert 0 < opt.effective_lr["Adam"] < 1
    assert abs(w.item()) < 1


def test_a_frozen_group_stays_and_a_group_that_thaws_is_searched():
    model = network()
    groups = [{"params": model[0].parameters()}, {"params": model[4].parameters()}]
    opt = probstep.ProbStep(optim.Adam(groups), per_group=True)
    model[0].requires_grad_(requires_grad=False)
    kept = model[0].weight.detach().clone()
    train(model, opt, batches(5))
    assert torch.equal(model[0].weight, kept)
    model[0].requires_grad_()
    train(model, opt, batches(12))
    assert opt.effective_lr[0] > 0
    assert not torch.equal(model[0].weight, kept)


def test_a_base_whose_rate_is_zero_does_not_move():
    model, opt = begin(sgd_adam, rates=(0.0, 1e-3))
    kept = model[0].weight.detach().clone()
    losses = train(model, opt, batches(10))
    assert torch.equal(model[0].weight, kept)
    assert losses[-1] < losses[0]


def test_a_base_without_gradients_in_a_later_step_is_left_alone():
    v, w = parameters(1.0, 1.0)
    opt = probstep.ProbStep([optim.SGD([v], lr=0.1), optim.Adam([w], lr=0.1)])
    for k in range(20):
        opt.step(lambda k=k: (v.square() + (w.square() if k % 2 else 0.0)).sum())
    assert all(0 < rate < math.inf for rate in opt.effective_lr)


# Kinds of optimizers


def test_sparse_and_dense_gradients_go_together():
    torch.manual_seed(0)
    table, layer = nn.Embedding(20, 4, sparse=True), nn.Linear(4, 2)
    opt = probstep.ProbStep(
        [optim.SparseAdam(table.parameters(), lr=1.0), optim.Adam(layer.parameters(), lr=1e-8)]
    )
    draw = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(60):
        x = torch.randint(20, (32,), generator=draw)
        losses.append(opt.step(lambda x=x: cross_entropy(layer(table(x)), x % 2)).item())
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_muon_with_its_adjusted_rate_and_its_decay_steps_as_it_does_alone(adjust):
    alone, inside = network(), network()
    settings = {"adjust_lr_fn": adjust, "weight_decay": 0.1}
    bare = muon_adamw(alone, **settings)
    opt = probstep.ProbStep(muon_adamw(inside, **settings))
    opt.freeze()
    for x, y in batches(3):
        alone.zero_grad()
        cross_entropy(alone(x), y).backward()
        for base in bare:
            base.step()
        train(inside, opt, [(x, y)])
    assert all(map(torch.equal, alone.parameters(), inside.parameters()))


def test_muon_and_adamw_learn():
    model, opt = begin(muon_adamw, rates=(1e-8, 1.0))
    losses = train(model, opt, batches(80))
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


def test_a_list_of_one_is_that_optimizer():
    model = network()
    base = optim.Adam(model.parameters())
    assert probstep.ProbStep([base]).base is base


# One torch optimizer


@for_every_pair
@pytest.mark.parametrize("stop", [1, 5, 12])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(pair, stop):
    data = batches(20)
    model, opt = begin(pair)
    whole = train(model, opt, data)
    model, opt = begin(pair)
    train(model, opt, data[:stop])
    weights, state = through_a_file([model.state_dict(), opt.state_dict()])
    model, opt = begin(pair, rates=(1.0, 1.0))
    model.load_state_dict(weights)
    opt.load_state_dict(state)
    assert train(model, opt, data[stop:]) == whole[stop:]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_goes_on_alike(again):
    data = batches(14)
    model, opt = begin()
    train(model, opt, data[:7])
    other, its_opt = again((model, opt))
    assert train(other, its_opt, data[7:]) == train(model, opt, data[7:])
    assert its_opt.effective_lr == opt.effective_lr


def test_a_distributed_checkpoint_carries_all():
    data = batches(14)
    model, opt = begin()
    train(model, opt, data[:7])
    weights, state = copy.deepcopy(get_state_dict(model, opt))
    expected = train(model, opt, data[7:])
    model, opt = begin(rates=(1.0, 1.0))
    set_state_dict(model, opt, model_state_dict=weights, optim_state_dict=state)
    assert train(model, opt, data[7:]) == expected


def test_checkpoints_of_the_single_optimizers_load():
    bare_model = network()
    bare = muon_adamw(bare_model, rates=(0.03, 0.004))
    for x, y in batches(3):
        bare_model.zero_grad()
        cross_entropy(bare_model(x), y).backward()
        for base in bare:
            base.step()
    model, opt = begin()
    model.load_state_dict(bare_model.state_dict())
    for inside, base in zip(opt.base.bases, bare, strict=True):
        inside.load_state_dict(base.state_dict())
    assert [group["lr"] for group in opt.param_groups] == [0.03, 0.004]
    momentum = bare[0].state[bare_model[0].weight]["momentum_buffer"]
    assert torch.equal(opt.state[model[0].weight]["momentum_buffer"], momentum)
    assert all(math.isfinite(loss) for loss in train(model, opt, batches(3)))


def test_the_checkpoint_of_a_single_optimizer_inside_is_plain():
    model, opt = begin()
    train(model, opt, batches(2))
    state = through_a_file(opt.base.bases[1].state_dict())
    optim.AdamW([p for p in model.parameters() if p.ndim == 1]).load_state_dict(state)


def test_a_checkpoint_of_another_number_of_members_is_searched_anew():
    model = network()
    groups = [{"params": model[0].parameters()}, {"params": model[4].parameters()}]
    opt = probstep.ProbStep(optim.Adam(groups))
    train(model, opt, batches(3))
    other = probstep.ProbStep(optim.Adam(groups), per_group=True)
    other.load_state_dict(through_a_file(opt.state_dict()))
    train(model, other, batches(1))
    assert other.last_probe.decision == "search"


def test_one_scheduler_over_all_and_one_for_each():
    model, opt = begin(rates=(0.5, 0.25))
    over_all = optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
    own = optim.lr_scheduler.StepLR(opt.base.bases[1], step_size=1, gamma=0.5)
    train(model, opt, batches(1))
    rates = opt.effective_lr
    over_all.step()
    own.step()
    assert [group["lr"] for group in opt.param_groups] == [0.25, 0.0625]
    assert opt.effective_lr == pytest.approx([rates[0] / 2, rates[1] / 4])


def test_a_gradient_scaler_takes_it():
    model = network(torch.float32)
    opt = probstep.ProbStep(muon_adamw(model))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    for x, y in batches(20, torch.float32):
        opt.zero_grad()
        loss = cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt, loss=loss, reevaluate=lambda x=x, y=y: cross_entropy(model(x), y))
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_every_hook_fires_once_a_step():
    model, opt = begin()
    fired = []
    for name, one in [
        ("all", opt),
        ("joint", opt.base),
        ("first", opt.base.bases[0]),
        ("second", opt.base.bases[1]),
    ]:
        one.register_step_pre_hook(lambda *_, name=name: fired.append(f"before {name}"))
        one.register_step_post_hook(lambda *_, name=name: fired.append(f"after {name}"))
    for count, batch in enumerate(batches(4), 1):
        train(model, opt, [batch])
        assert {word: fired.count(word) for word in fired} == dict.fromkeys(fired, count)
    assert len(set(fired)) == 8


def test_a_base_that_steps_by_itself_is_told():
    model, opt = begin()
    train(model, opt, batches(1))
    with pytest.warns(RuntimeWarning, match=r"AdamW\.step\(\) was called directly"):
        opt.base.bases[1].step()


def test_a_group_is_added_to_the_optimizer_that_it_belongs_to():
    model, opt = begin()
    train(model, opt, batches(2))
    new = nn.Parameter(torch.ones((), dtype=torch.float64))
    with pytest.raises(TypeError, match="belongs to one of the optimizers"):
        opt.add_param_group({"params": [new]})
    opt.base.bases[0].add_param_group({"params": nn.Parameter(torch.ones(2, 2)), "lr": 0.5})
    opt.base.bases[1].add_param_group({"params": [new], "lr": 0.25})
    for x, y in batches(3):
        opt.step(lambda x=x, y=y: cross_entropy(new * model(x), y))
    assert new.item() != 1.0
    assert list(opt.effective_lr.names) == ["Muon/0", "Muon/1", "AdamW/0", "AdamW/1"]


def test_a_step_that_raises_is_taken_back_whole():
    model, opt = begin()
    (x, y), *_ = batches(1)
    kept = [p.detach().clone() for p in model.parameters()]
    calls = iter(range(100))

    def closure():
        if next(calls) == 6:
            raise RuntimeError("no more")
        return cross_entropy(model(x), y)

    with pytest.raises(RuntimeError, match="no more"):
        opt.step(closure)
    assert all(map(torch.equal, kept, model.parameters()))
    assert not opt.state
    train(model, opt, [(x, y)])
    assert opt.last_probe.decision == "search"


# What is said


def test_rates_say_whose_they_are():
    model, opt = begin()
    train(model, opt, batches(1))
    assert set(opt.effective_lr.names) == {"Muon", "AdamW"}
    assert opt.metrics()["effective_lr/AdamW"] == opt.effective_lr["AdamW"] == opt.effective_lr[1]
    assert repr(opt).startswith("ProbStep(Muon + AdamW, ")


def test_two_of_a_kind_are_numbered():
    v, w = parameters(1.0, 1.0)
    opt = probstep.ProbStep([optim.SGD([v], lr=0.1), optim.SGD([w], lr=0.2)])
    assert dict(opt.effective_lr.named()) == {"SGD0": 0.1, "SGD1": 0.2}


def test_lists_that_cannot_step_as_one_are_refused():
    v, w = parameters(1.0, 1.0)
    sgd = optim.SGD([v], lr=0.1)
    with pytest.raises(ValueError, match="nothing to adapt"):
        probstep.ProbStep([])
    with pytest.raises(ValueError, match="in optimizer 0 of the list and in optimizer 1"):
        probstep.ProbStep([sgd, optim.Adam([w, v])])
    with pytest.raises(TypeError, match="adapted already"):
        probstep.ProbStep([probstep.ProbStep(sgd), optim.Adam([w])])
    with pytest.raises(TypeError, match="not a class"):
        probstep.ProbStep([sgd, optim.Adam])
    with pytest.raises(ValueError, match="maximize"):
        probstep.ProbStep([sgd, optim.Adam([w], maximize=True)])
    rate = torch.tensor(0.1)
    with pytest.raises(ValueError, match="one tensor as their lr"):
        probstep.ProbStep([optim.SGD([v], lr=rate), optim.SGD([w], lr=rate)])
    with pytest.raises(ValueError, match="on cpu and meta"):
        probstep.ProbStep([sgd, optim.Adam([nn.Parameter(torch.ones(1, device="meta"))])])


def groups_of(count):
    return [{"params": [p]} for p in parameters(*range(count))]


def test_more_than_eight_groups_or_a_rule_without_a_search_cannot_have_a_scale_each():
    with pytest.raises(ValueError, match="there are 9"):
        probstep.ProbStep(optim.SGD(groups_of(9), lr=0.1), per_group=True)
    opt = probstep.ProbStep(optim.SGD(groups_of(8), lr=0.1), per_group=True)
    with pytest.raises(ValueError, match="there are 9"):
        opt.add_param_group(*groups_of(1))
    with pytest.raises(ValueError, match="one tensor as their lr"):
        probstep.ProbStep(optim.SGD(groups_of(2), lr=torch.tensor(0.1)), per_group=True)
    sgd = optim.SGD(groups_of(2), lr=0.1)
    with pytest.raises(ValueError, match="needs a rule that searches"):
        probstep.ProbStep(sgd, rule=probstep.PaperRule(), per_group=True)


def test_the_papers_rule_scales_a_list_as_one():
    model, opt = begin(sgd_adam, rates=(0.1, 1e-3), rule=probstep.PaperRule())
    train(model, opt, batches(10))
    assert opt.effective_lr[0] / opt.effective_lr[1] == pytest.approx(100.0)


# The parts


def test_the_states_of_several_are_one_mapping():
    v, w = parameters(1.0, 1.0)
    one = joint.Joint([optim.SGD([v], lr=0.1, momentum=0.9), optim.Adam([w])])
    v.grad, w.grad = torch.ones_like(v), torch.ones_like(w)
    one.step()
    assert len(one.state) == 2
    assert set(one.state[v]) == {"momentum_buffer"}
    assert one.state.get(torch.ones(1)) is None
    held = one.state_dict()
    assert list(held["state"]) == [0, 1]
    one.state.clear()
    assert not one.state
    one.load_state_dict(held)
    assert one.state[w]["step"] == 1
    with pytest.raises(ValueError, match=r"1 \+ 1 parameter groups, and there are 1"):
        one.load_state_dict(one.bases[0].state_dict())


def test_ratios_come_back_from_plain_numbers():
    found = ratios.Ratios([ratios.Member(2.0, True), ratios.Member(0.0)], forwards=3, turn=1)
    assert ratios.Ratios.restored(through_a_file(found.plain())) == found
    with pytest.raises(ValueError, match="ratio"):
        ratios.Ratios.restored(found.plain() | {"ratio": [-1.0, 1.0]})
