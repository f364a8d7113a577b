"""The polynomial average plugs into torch's AveragedModel, and is that of the published formula."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn, update_bn

import probstep
from probstep.baselines.shamir2013averaging import update_average

from .cases import batches, loss_of, network, plain_network, step_with_closure

ETA = 8.0


def weights_of(model):
    return [p.detach().clone() for p in model.parameters()]


def train(model, opt, average, data):
    for batch in data:
        step_with_closure(opt, model, batch)
        average.update_parameters(model)


def begin(net=plain_network, **settings):
    torch.manual_seed(0)
    model = net()
    opt = probstep.SGD(model.parameters())
    average = AveragedModel(model, multi_avg_fn=probstep.polynomial_average(ETA), **settings)
    return model, opt, average


def test_it_is_the_weighted_sum_that_the_recursion_stands_for():
    model, opt, average = begin(lambda: plain_network(torch.float64))
    expected = None
    for t, batch in enumerate(batches(12, torch.float64), start=1):
        step_with_closure(opt, model, batch)
        average.update_parameters(model)
        share = (ETA + 1) / (ETA + t)
        now = weights_of(model)
        if expected is None:
            expected = now
        expected = [(1 - share) * old + share * new for old, new in zip(expected, now, strict=True)]
    torch.testing.assert_close(weights_of(average.module), expected)


def test_it_is_the_average_that_the_bench_measures():
    model, opt, average = begin()
    memory = {}
    for batch in batches(12):
        step_with_closure(opt, model, batch)
        average.update_parameters(model)
        update_average(memory, model, ETA)
    torch.testing.assert_close(dict(average.module.state_dict()), memory["average"])


def test_with_eta_zero_all_weights_count_alike():
    model, opt, _ = begin()
    mine = AveragedModel(model, multi_avg_fn=probstep.polynomial_average(0))
    torchs = AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())
    for batch in batches(8):
        step_with_closure(opt, model, batch)
        mine.update_parameters(model)
        torchs.update_parameters(model)
    torch.testing.assert_close(weights_of(mine.module), weights_of(torchs.module))


def test_it_does_not_change_the_training():
    model, opt, average = begin()
    alone, other, _ = begin()
    train(model, opt, average, batches(8))
    for batch in batches(8):
        step_with_closure(other, alone, batch)
    torch.testing.assert_close(weights_of(model), weights_of(alone), rtol=0, atol=0)


def test_it_lies_lower_than_the_last_weights_where_noise_is_all_that_is_left():
    torch.manual_seed(0)
    target = torch.randn(4, 200)
    w = nn.Linear(4, 1, bias=False)
    average = AveragedModel(w, multi_avg_fn=probstep.polynomial_average(ETA))
    opt = torch.optim.SGD(w.parameters(), lr=0.5)
    for column in target.T:
        opt.zero_grad()
        (w.weight - column).square().sum().mul(0.5).backward()
        opt.step()
        average.update_parameters(w)
    best = target.mean(1)
    last, averaged = ((m.weight - best).square().sum() for m in (w, average.module))
    assert averaged < 0.2 * last


def test_a_resumed_average_goes_on_bit_for_bit():
    data = batches(12)
    model, opt, average = begin()
    train(model, opt, average, data[:5])
    saved = copy.deepcopy([part.state_dict() for part in (model, opt, average)])
    parts = begin()
    for part, state in zip(parts, saved, strict=True):
        part.load_state_dict(state)
    train(*parts, data[5:])
    train(model, opt, average, data[5:])
    found, expected = parts[2].state_dict(), average.state_dict()
    assert found["n_averaged"] == expected["n_averaged"] == 12
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_buffers_are_averaged_or_copied_and_update_bn_refreshes_them():
    model, opt, average = begin(network, use_buffers=True)
    train(model, opt, average, batches(6))
    counted = average.module[1].num_batches_tracked
    assert counted == model[1].num_batches_tracked  # a counter has no average
    mean, own = average.module[1].running_mean, model[1].running_mean
    assert not torch.equal(mean, own)
    update_bn(batches(6), average)
    assert average.module[1].num_batches_tracked == 6
    average.eval()
    assert loss_of(average, batches(1)[0]).isfinite()


def test_it_can_be_pickled_and_copied():
    average = probstep.polynomial_average(3.0)
    for again in (pickle.loads(pickle.dumps(average)), copy.deepcopy(average)):
        held, newest = [torch.zeros(2)], [torch.ones(2)]
        again(held, newest, torch.tensor(4))
        assert torch.allclose(held[0], torch.full((2,), 0.5))  # 4 / (4 + 4)


def test_complex_and_half_weights_are_averaged():
    for dtype in (torch.complex64, torch.bfloat16, torch.float64):
        held, newest = [torch.zeros(2, dtype=dtype)], [torch.ones(2, dtype=dtype)]
        probstep.polynomial_average(3)(held, newest, 4)
        assert torch.equal(held[0], torch.full((2,), 0.5, dtype=dtype))


@pytest.mark.parametrize("eta", [-1, float("inf"), float("nan")])
def test_an_impossible_exponent_is_refused(eta):
    with pytest.raises(ValueError, match="finite eta of at least 0"):
        probstep.polynomial_average(eta)
