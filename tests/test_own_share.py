"""What a setting says of a gradient's own share is what torch's optimizers do with one gradient."""

import pytest
import torch
from torch import nn, optim

from probstep.rules import Setting
from probstep.rules.robust import bound
from probstep.step.base import setting_of

HUGE = 1e8  # so large an eps makes the steps of an Adam proportional to its gradients
OPTIMIZERS = {
    "sgd": lambda w: optim.SGD([w], lr=1.0),
    "momentum": lambda w: optim.SGD([w], lr=1.0, momentum=0.9),
    "nesterov": lambda w: optim.SGD([w], lr=1.0, momentum=0.9, nesterov=True),
    "adam": lambda w: optim.Adam([w], lr=HUGE, eps=HUGE),
    "nadam": lambda w: optim.NAdam([w], lr=HUGE, eps=HUGE),
}
LATE = 400  # steps: Adam's corrections of its first steps have faded


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_the_part_of_all_that_a_gradient_moves_which_its_own_step_moves(name):
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = OPTIMIZERS[name](w)
    setting = setting_of(optimizer.param_groups, [1.0], steps=LATE)
    places = []
    for t in range(2 * LATE):
        w.grad = torch.full_like(w, float(t == LATE))
        optimizer.step()
        places.append(w.item())
    own = (places[LATE] - places[LATE - 1]) / (places[-1] - places[LATE - 1])
    assert setting.own_share == pytest.approx(own, rel=0.02)


def test_with_nesterovs_momentum_the_slope_may_be_so_many_times_larger():
    plain, ahead = Setting(beta=0.9), Setting(beta=0.9, look_ahead=0.9)
    ratio = bound.first_slope(1.0, ahead) / bound.first_slope(1.0, plain)
    assert ratio == pytest.approx(1.9)
    assert bound.excess(1.9, ahead) == pytest.approx(bound.excess(1.0, plain))
