"""Small nets, and the supervised training that most rows vary."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .data import Batch, digits, sampler
from .hazard import Player, Training

Loss = Callable[[Tensor, Tensor], Tensor]


def mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for k, (before, after) in enumerate(pairwise(widths)):
        layers += [act()] if k else []
        layers.append(nn.Linear(before, after))
    return nn.Sequential(*layers)


def conv(width: int = 8, classes: int = 10) -> nn.Sequential:
    """Return a conv net for 8 x 8 digits that come as rows of 64 pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, classes),
    )


class Block(nn.Module):
    """A transformer's block, with the norm before or after."""

    def __init__(self, width: int, heads: int, pre_norm: bool, causal: bool) -> None:
        super().__init__()
        self.heads, self.pre_norm, self.causal = heads, pre_norm, causal
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = mlp(width, 4 * width, width, act=nn.GELU)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.mix(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        for norm, part in zip(self.norms, (self.attend, self.think), strict=True):
            x = x + part(norm(x)) if self.pre_norm else norm(x + part(x))
        return x


class GPT(nn.Module):
    """A transformer over symbols that says, for each place, what follows."""

    def __init__(
        self,
        symbols: int,
        width: int = 32,
        layers: int = 2,
        length: int = 32,
        pre_norm: bool = True,
    ) -> None:
        super().__init__()
        self.symbol, self.place = nn.Embedding(symbols, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4, pre_norm, True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width) if pre_norm else nn.Identity()
        self.head = nn.Linear(width, symbols)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])
        x = self.symbol(x) + self.place(places)
        return self.head(self.norm(self.blocks(x)))


class Encoder(nn.Module):
    """A transformer over the eight rows of a digit that says which digit it is."""

    def __init__(self, width: int = 32, layers: int = 2, pre_norm: bool = False) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(8, width), nn.Parameter(0.02 * torch.randn(8, width))
        self.blocks = nn.Sequential(*(Block(width, 4, pre_norm, False) for _ in range(layers)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.view(-1, 8, 8)) + self.place
        return self.head(self.blocks(x).mean(1))


class Reader(nn.Module):
    """A recurrent net over symbols that says, for each place, what follows."""

    def __init__(self, symbols: int, width: int = 48, cell: Any = nn.GRU, layers: int = 1) -> None:
        super().__init__()
        self.symbol = nn.Embedding(symbols, width)
        self.cell = cell(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, symbols)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(self.symbol(x))[0])


def of_symbols(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of every place of every sequence."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def supervised(
    net: nn.Module,
    batch: Callable[[int], Batch],
    steps: int,
    measure: Callable[[], float] | None = None,
    loss: Loss = F.cross_entropy,
    **more: Any,
) -> Training:
    """Return the training of a net on pairs of inputs and targets."""

    def of_batch(drawn: Batch) -> Tensor:
        x, y = drawn
        return loss(net(x), y)

    return Training(steps, alone(net.parameters(), batch, of_batch), measure, **more)


def alone(
    params: Iterable[nn.Parameter], batch: Callable[[int], Any], loss: Callable[[Any], Tensor]
) -> tuple[Player, ...]:
    """Return the one player of an ordinary training."""
    return (Player(list(params), batch, loss),)


def mean_loss(net: nn.Module, data: Batch, loss: Loss = F.cross_entropy) -> Callable[[], float]:
    """Return what measures the loss over all data, in evaluation mode."""

    def measure() -> float:
        net.eval()
        value = loss(net(data[0]), data[1]).item()
        net.train()
        return value

    return measure


def accuracy(net: nn.Module, data: Batch) -> Callable[[], float]:
    """Return what measures the accuracy in points."""

    def measure() -> float:
        net.eval()
        share = (net(data[0]).argmax(-1) == data[1]).float().mean().item()
        net.train()
        return 100 * share

    return measure


def small_net() -> nn.Module:
    return mlp(64, 64, 10)


def on_digits(
    steps: int, make: Callable[[], nn.Module] = small_net, size: int = 32, **more: Any
) -> Callable[[int], Training]:
    """Return what builds the training of a net on the digits, judged by its loss over all of them."""

    def build(seed: int) -> Training:
        train, _ = digits()
        net = make()
        return supervised(net, sampler(*train, size, seed), steps, mean_loss(net, train), **more)

    return build
