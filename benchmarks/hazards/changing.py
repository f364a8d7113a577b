"""Trainings whose loss changes its level or its meaning while they run."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .data import (
    SYMBOLS,
    Batch,
    corpus,
    digits,
    generator,
    regression,
    sampler,
    then,
    windows,
)
from .hazard import Hazard, Training, pair
from .nets import GPT, Reader, alone, conv, mean_loss, mlp, of_symbols, small_net, supervised


def permuted(data: Batch, seed: int) -> Batch:
    """Return the digits with their pixels in another order."""
    return data[0][:, torch.randperm(64, generator=generator(seed))], data[1]


def relabelled(data: Batch, seed: int) -> Batch:
    """Return the digits under other names."""
    return data[0], torch.randperm(10, generator=generator(seed))[data[1]]


def rotated(data: Batch, turns: int) -> Batch:
    """Return the digits turned by so many right angles."""
    return data[0].view(-1, 8, 8).rot90(turns, (1, 2)).flatten(1), data[1]


def tasks_in_a_row(
    net: nn.Module, tasks: list[Batch], each: int, seed: int, size: int = 32
) -> Training:
    """Return a training on one task after the other, judged on the last."""
    draws = [sampler(*task, size, seed + k) for k, task in enumerate(tasks)]
    return supervised(
        net, lambda t: draws[t // each](t), each * len(tasks), mean_loss(net, tasks[-1])
    )


def permuted_pixels(seed: int) -> Training:
    train, _ = digits()
    return tasks_in_a_row(small_net(), [train, permuted(train, 7)], 500, seed)


def new_names(seed: int) -> Training:
    train, _ = digits()
    return tasks_in_a_row(conv(), [train, relabelled(train, 7)], 400, seed)


def six_tasks(seed: int) -> Training:
    train, _ = digits()
    return tasks_in_a_row(small_net(), [permuted(train, k) for k in range(6)], 250, seed)


def four_turns(seed: int) -> Training:
    train, _ = digits()
    return tasks_in_a_row(mlp(64, 64, 64, 10), [rotated(train, k) for k in range(4)], 300, seed)


def longer_sequences(seed: int) -> Training:
    """Sequences whose running sum (mod 4) is to be told, longer at every stage."""
    net, stream = Reader(4, 32), generator(seed)

    def draw(t: int) -> Batch:
        x = torch.randint(4, (32, 2 ** (1 + t // 200)), generator=stream)
        return x, x.cumsum(1) % 4

    held = torch.randint(4, (200, 16), generator=generator(99))
    return supervised(
        net, draw, 800, mean_loss(net, (held, held.cumsum(1) % 4), of_symbols), of_symbols
    )


def more_classes(seed: int) -> Training:
    """Two digits first, then five, then all."""
    train, _ = digits()
    net = small_net()
    parts = [sampler(*(part[train[1] < k] for part in train), 32, seed) for k in (2, 5, 10)]
    return supervised(net, lambda t: parts[min(t // 250, 2)](t), 800, mean_loss(net, train))


def harder_noise(seed: int) -> Training:
    """Denoising with more noise at every stage."""
    (x, _), _ = digits()
    net, stream = mlp(64, 96, 64), generator(seed)

    def draw(t: int) -> Batch:
        clean = x[torch.randint(len(x), (32,), generator=stream)]
        return clean + 0.3 * (1 + t // 200) * torch.randn(clean.shape, generator=stream), clean

    noisy = x + 1.2 * torch.randn(x.shape, generator=generator(98))
    return supervised(net, draw, 800, mean_loss(net, (noisy, x), F.mse_loss), F.mse_loss)


def easy_first(seed: int) -> Training:
    """Small targets first: those of the next stage are ten times as large."""
    x, y = regression(3)
    net = mlp(20, 64, 1)
    stages = [sampler(x, y * 10.0**k, 32, seed + k) for k in (-1, 0, 1)]
    measure = mean_loss(net, (x, 10 * y), F.mse_loss)
    return supervised(net, lambda t: stages[min(t // 300, 2)](t), 1200, measure, F.mse_loss)


def reweighted(weight: Callable[[int], float]) -> Callable[[int], Training]:
    """Return what builds a training whose loss is multiplied by a weight of each step."""

    def build(seed: int) -> Training:
        train, _ = digits()
        net, draw = small_net(), sampler(*train, 32, seed)

        def loss(drawn: tuple[float, Batch]) -> Tensor:
            factor, (x, y) = drawn
            return factor * F.cross_entropy(net(x), y)

        players = alone(net.parameters(), lambda t: (weight(t), draw(t)), loss)
        return Training(800, players, mean_loss(net, train))

    return build


def second_loss(begins: int, weight: float) -> Callable[[int], Training]:
    """Return what builds a classifier that has to draw its input as well, from some step on."""

    def build(seed: int) -> Training:
        train, _ = digits()
        body, name, picture = mlp(64, 64), nn.Linear(64, 10), nn.Linear(64, 64)
        net, draw = nn.ModuleList([body, name, picture]), sampler(*train, 32, seed)

        def total(x: Tensor, y: Tensor, factor: float) -> Tensor:
            code = body(x).relu()
            return F.cross_entropy(name(code), y) + factor * F.mse_loss(picture(code), x)

        def loss(drawn: tuple[float, Batch]) -> Tensor:
            return total(*drawn[1], drawn[0])

        players = alone(net.parameters(), lambda t: (weight * (t >= begins), draw(t)), loss)
        return Training(900, players, lambda: total(*train, weight).item())

    return build


def change_of_corpus(
    make: Callable[[int], nn.Module], at: int, steps: int
) -> Callable[[int], Training]:
    """Return what builds a model of a language that another language replaces."""

    def build(seed: int) -> Training:
        net, second = make(SYMBOLS), corpus(2)
        draw = then(windows(corpus(1), 16, 16, seed), windows(second, 16, 16, seed + 1), at)
        held = windows(second, 16, 64, 97)(0)
        return supervised(net, draw, steps, mean_loss(net, held, of_symbols), of_symbols)

    return build


def unfrozen(stages: dict[int, int], depth: int, steps: int) -> Callable[[int], Training]:
    """Return what builds a training in which layers join: `stages` says from which step which layer."""

    def build(seed: int) -> Training:
        train, _ = digits()
        net = mlp(64, *[48] * depth, 10)

        def before(t: int) -> None:
            if t in stages:
                for p in list(net.children())[stages[t] :]:
                    p.requires_grad_(True)

        net.requires_grad_(False)
        before(0)
        draw = sampler(*train, 32, seed)
        return supervised(net, draw, steps, mean_loss(net, train), before=before)

    return build


def taking_turns(weights: tuple[float, ...]) -> Callable[[int], Training]:
    """Return what builds a net with a head for each task, one task a step, losses of unlike size."""

    def build(seed: int) -> Training:
        train, _ = digits()
        body = mlp(64, 64)
        heads = nn.ModuleList([nn.Linear(64, 10) for _ in weights])
        data = [relabelled(train, k) for k in range(len(weights))]
        draws = [sampler(*d, 32, seed + k) for k, d in enumerate(data)]

        def draw(t: int) -> tuple[int, Batch]:
            k = t % len(weights)
            return k, draws[k](t)

        def loss(drawn: tuple[int, Batch]) -> Tensor:
            k, (x, y) = drawn
            return weights[k] * F.cross_entropy(heads[k](body(x).relu()), y)

        def measure() -> float:
            return sum(loss((k, d)).item() / weights[k] for k, d in enumerate(data)) / len(weights)

        return Training(900, alone([*body.parameters(), *heads.parameters()], draw, loss), measure)

    return build


CHANGING: tuple[Hazard, ...] = (
    *pair("new task", Hazard("permuted-pixels", permuted_pixels), Hazard("new-names", new_names)),
    *pair(
        "new task",
        Hazard("six-tasks", six_tasks),
        Hazard("four-turns-momentum", four_turns, "momentum", 0.1),
    ),
    *pair(
        "curriculum",
        Hazard("longer-sequences", longer_sequences, rate=3e-3),
        Hazard("more-classes", more_classes),
    ),
    *pair("curriculum", Hazard("larger-targets", easy_first), Hazard("harder-noise", harder_noise)),
    *pair(
        "loss reweighted",
        Hazard("loss-x100-at-5", reweighted(lambda t: 100.0 if t >= 5 else 1.0)),
        Hazard("loss-x1000-half-way", reweighted(lambda t: 1000.0 if t >= 400 else 1.0)),
    ),
    *pair(
        "loss reweighted",
        Hazard("second-loss-on", second_loss(300, 100.0)),
        Hazard("loss-weight-grows", reweighted(lambda t: 1.02 ** min(t, 600))),
    ),
    *pair(
        "corpus changed",
        Hazard("gpt-other-corpus", change_of_corpus(GPT, 300, 700)),
        Hazard("gru-other-corpus", change_of_corpus(Reader, 400, 900), rate=3e-3),
    ),
    *pair(
        "layers unfrozen",
        Hazard("unfreeze-half-way", unfrozen({0: -1, 400: 0}, 3, 900)),
        Hazard(
            "unfreeze-one-by-one",
            unfrozen({0: -1, 250: -3, 500: 0}, 2, 900),
            "momentum",
            0.1,
        ),
    ),
    *pair(
        "tasks in turn",
        Hazard("turns-1-1000", taking_turns((1.0, 1000.0))),
        Hazard("turns-of-three", taking_turns((0.01, 1.0, 100.0))),
    ),
)
