"""What the page on other methods says of their memory is what they keep."""

import pytest
import torch
from torch import nn

from probstep import ProbStep

from .pages import read


def prodigy(params):
    return pytest.importorskip("prodigyopt").Prodigy(params)


def d_adaptation(params):
    return pytest.importorskip("dadaptation").DAdaptAdam(params)


def schedule_free(params):
    return pytest.importorskip("schedulefree").AdamWScheduleFree(params)


def momo(params):
    return pytest.importorskip("momo").MomoAdam(params)


def ours(params):
    return ProbStep(torch.optim.Adam(params))


OPTIMIZERS = {
    "ProbStep": ours,
    "Prodigy": prodigy,
    "D-Adaptation": d_adaptation,
    "Schedule-Free": schedule_free,
    "MoMo": momo,
}


def said_of_memory() -> dict[str, int]:
    lines = read("docs/comparisons.md").splitlines()
    head = next(line for line in lines if line.startswith("| | ProbStep"))
    row = next(line for line in lines if line.startswith("| state per parameter"))
    names, said = ([cell.strip() for cell in line.split("|")[2:-1]] for line in (head, row))
    return {name: int(text.split()[0]) for name, text in zip(names, said, strict=True)}


@pytest.mark.filterwarnings("ignore")  # of the packages
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_method_keeps_as_many_states_per_parameter_as_the_page_says(name: str) -> None:
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(500))
    opt = OPTIMIZERS[name]([p])
    if name == "Schedule-Free":
        opt.train()
    for _ in range(3):

        def closure():
            opt.zero_grad()
            loss = p.square().sum()
            loss.backward()
            return loss

        opt.step(closure)
    kept = [v for v in opt.state[p].values() if isinstance(v, torch.Tensor) and v.dim()]
    assert sum(v.numel() for v in kept) == said_of_memory()[name] * p.numel()
