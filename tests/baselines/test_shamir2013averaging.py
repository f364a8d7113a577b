import pytest
import torch
from torch import nn

from probstep.baselines.shamir2013averaging import averaged, update_average


def wander(model: nn.Module) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p))
    model(torch.randn(4, 3))  # moves the running statistics too


def test_the_average_weighs_later_weights_more() -> None:
    model, memory = nn.Linear(1, 1, bias=False), {}
    expected = 0.0
    for step, value in enumerate((1.0, -2.0, 5.0), start=1):
        nn.init.constant_(model.weight, value)
        update_average(memory, model)
        share = 9 / (8 + step)
        expected = (1 - share) * expected + share * value
    assert memory["average"]["weight"].item() == pytest.approx(expected)


def test_a_model_has_its_own_weights_again_afterwards() -> None:
    model, memory = nn.Linear(1, 1), {}
    update_average(memory, model)
    nn.init.constant_(model.weight, 7.0)
    with averaged(memory, model):
        assert torch.equal(model.weight, memory["average"]["weight"])
    assert model.weight.item() == 7.0


def test_it_agrees_with_the_averager_of_dog() -> None:
    dog = pytest.importorskip("dog", reason='pip install "probstep[peers]"')
    torch.manual_seed(0)
    model, memory = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), {}
    theirs = dog.PolynomialDecayAverager(model)
    for _ in range(5):
        wander(model)
        theirs.step()
        update_average(memory, model)
    for name, tensor in theirs.averaged_model.state_dict().items():
        assert torch.equal(memory["average"][name], tensor)
