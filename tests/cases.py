"""Tables that the contracts run over: optimizers, models, and one training loop for both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn.utils.parametrizations import spectral_norm

import probstep
from probstep.rules import Decision, Observation


class Fickle(probstep.RobustRule):
    """Searches the first step, and takes every later one back twice before it keeps it."""

    def is_due(self, state: Any) -> bool:
        return True

    def judge(self, state: Any, seen: Observation) -> Decision:
        if not self.is_searching(state) and seen.tries < 3:
            return Decision(1.0, 1.0, "reject", again=0.5)
        return super().judge(state, seen)


class Searching(probstep.RobustRule):
    """Searches the first step, and stays at the very rate of that step."""

    def judge(self, state: Any, seen: Observation) -> Decision:
        return super().judge(state, seen)._replace(factor=1.0)


FROZEN = probstep.PaperRule(up=1, down=1)  # probes, but never moves the scale
SEARCHING = Searching()
FICKLE = Fickle()  # probes as often as can be, and moves the scale as it likes
RULES = {"paper": probstep.PaperRule(), "robust": probstep.RobustRule()}
for_every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
for_every_probe = pytest.mark.parametrize("rule", [FROZEN, FICKLE], ids=["once", "often"])


@dataclass(frozen=True)
class Case:
    """An optimizer and its settings."""

    kind: type[optim.Optimizer]
    settings: dict[str, Any] = field(default_factory=dict)
    warns: bool = False  # ProbStep leaves its rate alone, and says so

    def make(self, params: Any) -> optim.Optimizer:
        settings = {k: v() if callable(v) else v for k, v in self.settings.items()}
        return self.kind(params, **settings)


OPTIMIZERS = {
    "sgd": Case(optim.SGD, {"lr": 0.05}),
    "sgd-momentum": Case(optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "sgd-dampening": Case(optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
    "sgd-nesterov": Case(optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "sgd-decay": Case(optim.SGD, {"lr": 0.05, "weight_decay": 0.1}),
    "sgd-maximize": Case(optim.SGD, {"lr": 0.005, "maximize": True, "weight_decay": 0.1}),
    "sgd-single-tensor": Case(optim.SGD, {"lr": 0.05, "momentum": 0.9, "foreach": False}),
    "sgd-foreach": Case(optim.SGD, {"lr": 0.05, "momentum": 0.9, "foreach": True}),
    "sgd-fused": Case(optim.SGD, {"lr": 0.05, "momentum": 0.9, "fused": True}),
    "sgd-tensor-lr": Case(optim.SGD, {"lr": lambda: torch.tensor(0.05)}),
    "adam": Case(optim.Adam, {"lr": 1e-3}),
    "adam-amsgrad": Case(optim.Adam, {"lr": 1e-3, "amsgrad": True}),
    "adam-decay": Case(optim.Adam, {"lr": 1e-3, "weight_decay": 0.1}),
    "adam-maximize": Case(optim.Adam, {"lr": 1e-3, "maximize": True}),
    "adam-foreach": Case(optim.Adam, {"lr": 1e-3, "foreach": True}),
    "adam-fused": Case(optim.Adam, {"lr": 1e-3, "fused": True}),
    "adam-tensor-lr": Case(optim.Adam, {"lr": lambda: torch.tensor(1e-3), "foreach": False}),
    "adamw": Case(optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1}),
    "adamw-fused": Case(optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1, "fused": True}),
    "rmsprop": Case(optim.RMSprop, {"lr": 1e-3}),
    "rmsprop-centered": Case(optim.RMSprop, {"lr": 1e-3, "centered": True, "momentum": 0.9}),
    "adagrad": Case(optim.Adagrad, {"lr": 1e-2}),
    "adagrad-fused": Case(optim.Adagrad, {"lr": 1e-2, "fused": True}),
    "adadelta": Case(optim.Adadelta, {"lr": 1.0}),
    "adamax": Case(optim.Adamax, {"lr": 2e-3, "weight_decay": 0.1}),
    "nadam": Case(optim.NAdam, {"lr": 2e-3}),
    "nadam-decoupled": Case(
        optim.NAdam, {"lr": 2e-3, "weight_decay": 0.1, "decoupled_weight_decay": True}
    ),
    "radam": Case(optim.RAdam, {"lr": 1e-3}),
    "adafactor": Case(optim.Adafactor, {"lr": 1e-2}),
    "asgd": Case(optim.ASGD, {"lr": 1e-2}, warns=True),
    "rprop": Case(optim.Rprop, {"lr": 1e-2}, warns=True),
}
OPTIMIZERS["sgd-momentum-paper"] = Case(optim.SGD, {"lr": 0.05, "momentum": 0.5})
OPTIMIZERS["adam-paper"] = Case(optim.Adam, {"lr": 1e-3, "betas": (0.5, 0.999)})
PAPER_ROWS = (
    "sgd",
    "sgd-momentum-paper",
    "sgd-momentum",
    "adagrad",
    "rmsprop",
    "adam-paper",
    "adam",
)
TABLE_1 = ("sgd", "sgd-momentum", "adagrad", "rmsprop", "adam")  # the rows of the paper's Table 1


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    """A net with everything that a second forward pass could disturb."""
    return nn.Sequential(
        spectral_norm(nn.Linear(6, 16)),
        nn.BatchNorm1d(16),
        nn.Tanh(),
        nn.Dropout(0.3),
        nn.Linear(16, 3),
    ).to(dtype)


def plain_network(dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)


def batches(
    count: int, dtype: torch.dtype = torch.float32
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(count, 12, 6, generator=generator, dtype=torch.float64).to(dtype)
    return [(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()) for x in inputs]


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def train_bare(model: nn.Module, optimizer: optim.Optimizer, data: Any) -> list[torch.Tensor]:
    losses = []
    for batch in data:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def step_with_closure(opt: probstep.ProbStep, model: nn.Module, batch: Any) -> torch.Tensor:
    return opt.step(lambda: loss_of(model, batch)).detach()


def step_with_backward_closure(
    opt: probstep.ProbStep, model: nn.Module, batch: Any
) -> torch.Tensor:
    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    return opt.step(closure).detach()


def step_with_loss(opt: probstep.ProbStep, model: nn.Module, batch: Any) -> torch.Tensor:
    opt.zero_grad()
    with opt.forward_pass():
        loss = loss_of(model, batch)
    loss.backward()
    opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
    return loss.detach()


def step_registered(opt: probstep.ProbStep, model: nn.Module, batch: Any) -> torch.Tensor:
    opt.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    opt.reevaluate_with(lambda: loss_of(model, batch))
    opt.step()
    return loss.detach()


FORMS: dict[str, Callable[[probstep.ProbStep, nn.Module, Any], torch.Tensor]] = {
    "closure": step_with_closure,
    "closure with backward": step_with_backward_closure,
    "loss and reevaluate": step_with_loss,
    "registered": step_registered,
}
