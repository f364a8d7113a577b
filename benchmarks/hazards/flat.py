"""Trainings whose loss does not move for long, or is zero: plateaus, what has converged, zeros."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .changing import relabelled, reweighted, rotated
from .data import SYMBOLS, Batch, corpus, digits, generator, sampler, windows
from .hazard import Hazard, Training, pair
from .nets import (
    GPT,
    Encoder,
    alone,
    conv,
    mean_loss,
    mlp,
    of_symbols,
    on_digits,
    small_net,
    supervised,
)

Make = Callable[[], nn.Module]


def learning_language(make: Make, steps: int) -> Callable[[int], Training]:
    """Return what builds the training of some net on a random language."""

    def build(seed: int) -> Training:
        text = corpus(3)
        net, held = make(), windows(text, 16, 64, 96)(0)
        measure = mean_loss(net, held, of_symbols)
        return supervised(net, windows(text, 16, 16, seed), steps, measure, of_symbols)

    return build


def deep(act: Callable[[], nn.Module], layers: int, width: int = 48) -> nn.Module:
    return mlp(64, *[width] * layers, 10, act=act)


def shrunk(net: nn.Module, factor: float) -> nn.Module:
    """Return the net with all its weights made smaller: near the saddle at zero."""
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(factor)
    return net


def he_initialised(net: nn.Module) -> nn.Module:
    """Return the net with weights that keep the size of what passes through ReLUs."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return net


class Residual(nn.Module):
    """Many residual blocks without any normalisation."""

    def __init__(self, layers: int, width: int = 48) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, width), nn.Linear(width, 10)
        self.blocks = nn.ModuleList([mlp(width, width, width) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x.relu())
        return self.last(x)


def copying(seed: int) -> Training:
    """A transformer that must find out that the second half repeats the first: a long plateau."""
    net, stream = GPT(16, 32, 2, 32), generator(seed)

    def draw(_: int) -> Batch:
        half = torch.randint(16, (32, 9), generator=stream)
        whole = torch.cat([half, half], 1)
        return whole[:, :-1], whole[:, 1:]

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return of_symbols(logits[:, 9:], y[:, 9:])

    return supervised(net, draw, 900, loss=loss)


def parity(bits: int, hidden: int, steps: int) -> Callable[[int], Training]:
    """Return what builds the training on the parity of some of twenty bits.

    No single bit tells anything of the answer: a net of one hidden layer stands on a plateau that the
    noise of the batches hides, until it has found the right ones.
    """

    def build(seed: int) -> Training:
        stream = generator(seed)

        def draw(count: int) -> Batch:
            x = torch.randint(0, 2, (count, 20), generator=stream) * 2.0 - 1.0
            return x, (x[:, :bits].prod(1, keepdim=True) + 1) / 2

        net, held = mlp(20, hidden, 1), draw(2000)
        loss = F.binary_cross_entropy_with_logits
        return supervised(net, lambda _: draw(64), steps, mean_loss(net, held, loss), loss)

    return build


def converged(
    change: Callable[[Batch], Batch], make: Make, head: bool = False, steps: int = 800
) -> Callable[[int], Training]:
    """Return what builds the fine-tuning of a net that has learnt the digits by heart.

    Its first training is plain Adam's. After 200 steps of fine-tuning the data change.
    """

    def build(seed: int) -> Training:
        train, _ = digits()
        net = make()
        learn_by_heart(net, train, seed)
        if head:
            list(net.modules())[-1].reset_parameters()  # type: ignore[operator]
        later = change(train)
        old, new = sampler(*train, 32, seed + 1), sampler(*later, 32, seed + 2)
        draw = new if head else lambda t: old(t) if t < 200 else new(t)
        return supervised(net, draw, steps, mean_loss(net, later))

    return build


def whole_batch(make: Make, steps: int = 600) -> Callable[[int], Training]:
    """Return what builds the fit of a curve by a small net, with all data in every batch: no noise."""

    def build(seed: int) -> Training:
        del seed  # it decides the initial weights only
        x = torch.linspace(-3, 3, 128)[:, None]
        data = x, torch.sin(2 * x) + 0.1 * x**2
        net = make()
        measure = mean_loss(net, data, F.mse_loss)
        return supervised(net, lambda _: data, steps, measure, F.mse_loss)

    return build


def rosenbrock(at: Tensor) -> Tensor:
    """A bent valley; its lowest point is (1, 1)."""
    x, y = at
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


def beale(at: Tensor) -> Tensor:
    """A flat valley between steep walls; its lowest point is (3, 0.5)."""
    x, y = at
    terms = [(c - x * (1 - y**k)) ** 2 for k, c in ((1, 1.5), (2, 2.25), (3, 2.625))]
    return torch.stack(terms).sum()


def wood(at: Tensor) -> Tensor:
    """Two bent valleys that depend on each other; their lowest point is (1, 1, 1, 1)."""
    a, b, c, d = at
    first = 100 * (b - a**2) ** 2 + (1 - a) ** 2
    second = 90 * (d - c**2) ** 2 + (1 - c) ** 2
    both = 10.1 * ((b - 1) ** 2 + (d - 1) ** 2) + 19.8 * (b - 1) * (d - 1)
    return first + second + both


def in_valley(
    height: Callable[[Tensor], Tensor], start: tuple[float, ...], steps: int = 1500
) -> Callable[[int], Training]:
    """Return what builds the descent of a function of a few numbers, without noise.

    A step along the floor of a valley shows little of its walls, and a rate that is too high only
    across it lets the loss grow by some factor at every step.
    """

    def build(seed: int) -> Training:
        shift = 0.05 * torch.randn(len(start), generator=generator(seed))
        at = nn.Parameter(torch.tensor(start) + shift)

        def measure() -> float:
            return height(at).item()

        return Training(steps, alone([at], lambda _: None, lambda _: height(at)), measure)

    return build


def learn_by_heart(net: nn.Module, data: Batch, seed: int, steps: int = 500) -> None:
    optimizer, draw = torch.optim.Adam(net.parameters(), lr=3e-3), sampler(*data, 64, seed)
    for t in range(steps):
        x, y = draw(t)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


def unchanged(data: Batch) -> Batch:
    return data


def margin(seed: int) -> Training:
    """A hinge loss that is satisfied at first, until the harder half of the data comes."""
    train, _ = digits()
    net, draw = mlp(64, 64, 10), sampler(*train, 32, seed)

    def loss(drawn: tuple[float, Batch]) -> Tensor:
        needed, (x, y) = drawn
        scores = net(x)
        ahead = scores.gather(1, y[:, None]) - scores
        away = 1 - F.one_hot(y, 10)
        return ((needed - ahead).relu() * away).sum(1).mean()

    players = alone(net.parameters(), lambda t: (-5.0 if t < 40 else 1.0, draw(t)), loss)
    return Training(800, players, lambda: loss((1.0, train)).item())


def rare_labels(
    share: float,
    size: int,
    steps: int,
    none_until: int = 0,
    make: Callable[[], nn.Module] = lambda: mlp(64, 64, 10),
) -> Callable[[int], Training]:
    """Return what builds a training where most samples have no label.

    A batch without any has a loss of exactly zero; so have all of the first steps, if told.
    """

    def build(seed: int) -> Training:
        (x, y), _ = digits()
        net, stream, draw = make(), generator(seed), sampler(x, y, size, seed)

        def masked(t: int) -> tuple[Tensor, Tensor, Tensor]:
            a, b = draw(t)
            has = torch.rand(len(b), generator=stream) < (share if t >= none_until else 0.0)
            return a, b, has.float()

        def loss(drawn: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            a, b, has = drawn
            return (F.cross_entropy(net(a), b, reduction="none") * has).mean()

        return Training(steps, alone(net.parameters(), masked, loss), mean_loss(net, (x, y)))

    return build


def empty_batches(share: float, steps: int, make: Make = small_net) -> Callable[[int], Training]:
    """Return what builds a training where such a share of the batches has a loss of exactly zero."""

    def build(seed: int) -> Training:
        data, _ = digits()
        net, stream, draw = make(), generator(seed), sampler(*data, 32, seed)

        def weighted(t: int) -> tuple[Tensor, Tensor, float]:
            return *draw(t), float(torch.rand(1, generator=stream).item() >= share)

        def loss(drawn: tuple[Tensor, Tensor, float]) -> Tensor:
            x, y, weight = drawn
            return weight * F.cross_entropy(net(x), y)

        return Training(steps, alone(net.parameters(), weighted, loss), mean_loss(net, data))

    return build


def covariance(seed: int) -> Training:
    """The covariance of 200 points by maximum likelihood: it converges, and then goes on."""
    del seed  # it decides nothing but the initial weights
    stream, size = generator(5), 5
    mixing = torch.randn(size, size, generator=stream)
    points = torch.randn(200, size, generator=stream) @ mixing
    mean, root = nn.Parameter(torch.zeros(size)), nn.Parameter(0.01 * torch.randn(size, size))

    def loss(_: None = None) -> Tensor:
        spread = root @ root.T + 0.1 * torch.eye(size)
        normal = torch.distributions.MultivariateNormal(mean, spread)
        return -normal.log_prob(points).mean() / size

    return Training(1000, alone([mean, root], lambda _: None, loss), lambda: loss().item())


def gaussian_process(seed: int) -> Training:
    """Three hyperparameters by maximum likelihood; far off there is no Cholesky factor."""
    del seed  # it decides nothing but the start
    stream, size = generator(3), 60
    x = 6 * torch.rand(size, 1, generator=stream)
    y = torch.sin(2 * x) + 0.2 * torch.randn(size, 1, generator=stream)
    logs = nn.Parameter(torch.tensor([1.0, 1.0, 0.0]) + 0.3 * torch.randn(3))

    def loss(_: None = None) -> Tensor:
        width, height, noise = logs.exp()
        covariances = height * torch.exp(-(torch.cdist(x, x) ** 2) / (2 * width**2))
        factor = torch.linalg.cholesky(covariances + (noise + 1e-4) * torch.eye(size))
        fit = (y * torch.cholesky_solve(y, factor)).sum() / 2
        return (fit + factor.diagonal().log().sum()) / size + 1.5  # the constant: above zero

    return Training(600, alone([logs], lambda _: None, loss), lambda: loss().item())


FLAT: tuple[Hazard, ...] = (
    *pair(
        "plateau",
        Hazard("deep-sigmoid", on_digits(2500, lambda: deep(nn.Sigmoid, 4))),
        Hazard("deep-tanh-small", on_digits(1500, lambda: shrunk(deep(nn.Tanh, 6), 0.4))),
    ),
    *pair(
        "plateau",
        Hazard("post-norm-digits", on_digits(700, lambda: Encoder(pre_norm=False))),
        Hazard("pre-norm-digits", on_digits(700, lambda: Encoder(pre_norm=True))),
    ),
    *pair(
        "plateau",
        Hazard("post-norm-gpt", learning_language(lambda: GPT(SYMBOLS, pre_norm=False), 700)),
        Hazard("copying", copying),
    ),
    *pair(
        "plateau",
        Hazard(
            "deep-default-init-momentum",
            on_digits(1500, lambda: deep(nn.ReLU, 8)),
            "momentum",
            0.1,
        ),
        Hazard(
            "deep-linear-small",
            on_digits(1200, lambda: shrunk(deep(nn.Identity, 4), 0.3)),
            "momentum",
            0.1,
        ),
    ),
    *pair(
        "plateau",
        Hazard("parity-sgd", parity(bits=3, hidden=64, steps=1500), "sgd", 0.1),
        Hazard("parity-momentum", parity(bits=3, hidden=128, steps=1500), "momentum", 0.03),
    ),
    *pair(
        "plateau",
        Hazard("parity-narrow", parity(bits=3, hidden=96, steps=1500), "momentum", 0.03),
        Hazard("parity-of-4", parity(bits=4, hidden=128, steps=1500)),
    ),
    *pair(
        "valley",
        Hazard("rosenbrock-sgd", in_valley(rosenbrock, (-1.2, 1.0)), "sgd", 1e-3),
        Hazard("beale-sgd", in_valley(beale, (1.0, 1.0)), "sgd", 1e-3),
    ),
    *pair(
        "valley",
        Hazard("rosenbrock-below-sgd", in_valley(rosenbrock, (-0.5, -1.0)), "sgd", 1e-3),
        Hazard("wood-sgd", in_valley(wood, (-3.0, -1.0, -3.0, -1.0)), "sgd", 1e-4),
    ),
    *pair(
        "valley",
        Hazard("rosenbrock-momentum", in_valley(rosenbrock, (-1.1, 1.8)), "momentum", 1e-3),
        Hazard("beale-momentum", in_valley(beale, (2.0, -0.5)), "momentum", 1e-3),
    ),
    *pair(
        "no noise",
        Hazard(
            "whole-batch-momentum",
            whole_batch(lambda: mlp(1, 32, 32, 1, act=nn.Tanh)),
            "momentum",
            0.01,
        ),
        Hazard("whole-batch-sgd", whole_batch(lambda: mlp(1, 32, 32, 32, 1)), "sgd", 0.1),
    ),
    *pair(
        "no noise",
        Hazard(
            "whole-batch-relu-momentum",
            whole_batch(lambda: mlp(1, 32, 32, 1)),
            "momentum",
            0.01,
        ),
        Hazard(
            "whole-batch-deep-momentum",
            whole_batch(lambda: mlp(1, 64, 64, 64, 1, act=nn.Tanh)),
            "momentum",
            0.01,
        ),
    ),
    *pair(
        "deep without norm",
        Hazard("he-20-layers", on_digits(500, lambda: he_initialised(deep(nn.ReLU, 20)))),
        Hazard("residual-12-no-norm", on_digits(400, lambda: Residual(12))),
    ),
    *pair(
        "fine-tuning",
        Hazard("converged-goes-on", converged(unchanged, small_net), rate=1e-4),
        Hazard("converged-then-turned", converged(lambda d: rotated(d, 1), conv)),
    ),
    *pair(
        "fine-tuning",
        Hazard("converged-then-renamed", converged(lambda d: relabelled(d, 3), small_net)),
        Hazard(
            "new-head",
            converged(lambda d: relabelled(d, 3), lambda: mlp(64, 64, 64, 10), head=True),
        ),
    ),
    *pair(
        "loss is zero",
        Hazard("zero-for-30", reweighted(lambda t: float(t >= 30))),
        Hazard("weight-grows-from-zero", reweighted(lambda t: max(0, t - 10) / 790)),
    ),
    *pair(
        "loss is zero",
        Hazard("hinge-satisfied", margin),
        Hazard("labels-are-rare", rare_labels(0.1, 4, 2000, none_until=10)),
    ),
    *pair(
        "loss is zero",
        Hazard("labels-are-rare-momentum", rare_labels(0.05, 8, 1500), "momentum", 0.03),
        Hazard("labels-are-rare-conv", rare_labels(0.12, 6, 1200, make=conv)),
    ),
    *pair(
        "loss is zero",
        Hazard("nine-of-ten-zero-momentum", empty_batches(0.9, 1500), "momentum", 0.03),
        Hazard("four-of-five-zero-conv", empty_batches(0.8, 1000, conv), "momentum", 0.03),
    ),
    *pair(
        "goes on after convergence",
        Hazard("covariance", covariance, rate=0.01),
        Hazard("gaussian-process", gaussian_process, rate=0.01),
    ),
)
