"""Trainings of models that are not plain classifiers: tables, codes, equations, adapters, pictures."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .changing import relabelled
from .data import SYMBOLS, Batch, blobs, corpus, digits, generator, sampler, windows
from .flat import learn_by_heart
from .hazard import Hazard, Training, pair
from .nets import (
    Encoder,
    Reader,
    accuracy,
    alone,
    conv,
    mean_loss,
    mlp,
    of_symbols,
    small_net,
    supervised,
)


def zipf(symbols: int, shape: tuple[int, ...], stream: torch.Generator) -> Tensor:
    """Return symbols of which few are common and most are rare."""
    uniform = torch.rand(shape, generator=stream)
    return (symbols**uniform - 1).long().clamp(max=symbols - 1)


class Bag(nn.Module):
    """A wide table of words; the mean of a text's words says what the text is about."""

    def __init__(self, words: int, sparse: bool, width: int = 16) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(words, width, mode="mean", sparse=sparse)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.table(x))


def bag_of_words(sparse: bool, words: int = 5000) -> Callable[[int], Training]:
    """Return what builds the training of a wide table, most of whose rows are rarely seen."""

    def build(seed: int) -> Training:
        topics = torch.randn(words, 4, generator=generator(21))
        x = zipf(words, (3000, 20), generator(22))
        data = (x, topics[x].mean(1).argmax(1))
        net = Bag(words, sparse)
        params = net.table.parameters() if sparse else net.parameters()
        draw = sampler(*data, 32, seed)
        loss = lambda drawn: F.cross_entropy(net(drawn[0]), drawn[1])  # noqa: E731
        return Training(1500, alone(params, draw, loss), mean_loss(net, data))

    return build


class Factors(nn.Module):
    """Two tables of factors; a rating is a product of one row from each."""

    def __init__(self, users: int, items: int, width: int, sparse: bool, init: float) -> None:
        super().__init__()
        self.user = nn.Embedding(users, width, sparse=sparse)
        self.item = nn.Embedding(items, width, sparse=sparse)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=init)

    def forward(self, cells: Tensor) -> Tensor:
        return (self.user(cells[:, 0]) * self.item(cells[:, 1])).sum(1)


def factorisation(
    sparse: bool, init: float = 0.1, size: int = 64, steps: int = 1500
) -> Callable[[int], Training]:
    """Return what builds the completion of a matrix of rank four from a third of its cells."""

    def build(seed: int) -> Training:
        stream = generator(23)
        a, b = torch.randn(200, 4, generator=stream), torch.randn(150, 4, generator=stream)
        cells = (torch.rand(200, 150, generator=stream) < 0.33).nonzero()
        data = (cells, (a @ b.T)[cells[:, 0], cells[:, 1]])
        net = Factors(200, 150, 6, sparse, init)
        measure = mean_loss(net, data, F.mse_loss)
        return supervised(net, sampler(*data, size, seed), steps, measure, F.mse_loss)

    return build


def ranking(seed: int) -> Training:
    """A recommender that ranks what was liked above what was not (Rendle et al., 2009)."""
    stream, tastes = generator(seed), torch.randn(120, 5, generator=generator(24))
    offers = torch.randn(200, 5, generator=generator(25))
    likes = (tastes @ offers.T > 2.5).nonzero()
    table = (tastes @ offers.T > 2.5).float()
    net = Factors(120, 200, 8, sparse=False, init=0.1)

    def draw(_: int) -> Batch:
        good = likes[torch.randint(len(likes), (128,), generator=stream)]
        other = torch.randint(200, (128,), generator=stream)
        return good, torch.stack([good[:, 0], other], 1)

    def loss(drawn: Batch) -> Tensor:
        return F.softplus(net(drawn[1]) - net(drawn[0])).mean()

    def measure() -> float:
        scores = net.user.weight @ net.item.weight.T
        best = scores.topk(10, dim=1).indices
        return 100 * table.gather(1, best).mean().item()

    return Training(1200, alone(net.parameters(), draw, loss), measure)


def two_towers(seed: int) -> Training:
    """A recommender of two nets over tables, trained against the other items of the batch."""
    tastes, offers = (torch.randn(n, 5, generator=generator(n)) for n in (300, 400))
    likes = (tastes @ offers.T).topk(8, dim=1).indices
    users, items = nn.Embedding(300, 16), nn.Embedding(400, 16)
    user, item, stream = mlp(16, 32, 16), mlp(16, 32, 16), generator(seed)
    net = nn.ModuleList([users, items, user, item])

    def draw(_: int) -> Batch:
        who = torch.randint(300, (64,), generator=stream)
        return who, likes[who, torch.randint(8, (64,), generator=stream)]

    def loss(drawn: Batch) -> Tensor:
        scores = user(users(drawn[0])) @ item(items(drawn[1])).T
        return F.cross_entropy(scores, torch.arange(64))

    def measure() -> float:
        scores = user(users.weight) @ item(items.weight).T
        found = scores.topk(8, dim=1).indices
        return 100 * (found[:, :, None] == likes[:, None, :]).any(2).float().mean().item()

    return Training(900, alone(net.parameters(), draw, loss), measure)


class LowRank(nn.Module):
    """A frozen linear layer and a product of two narrow matrices beside it (Hu et al., 2021)."""

    def __init__(self, inner: nn.Linear, rank: int) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inner.in_features) / inner.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(inner.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + x @ self.down.T @ self.up.T


def with_adapters(net: nn.Module, rank: int) -> nn.Module:
    """Return the net, frozen, with an adapter in every linear layer."""
    net.requires_grad_(False)
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, LowRank):
                setattr(module, name, LowRank(child, rank))
    return net


def adapted(make: Callable[[], nn.Module], rank: int, steps: int) -> Callable[[int], Training]:
    """Return what builds the adaptation of a trained net to new names by low-rank adapters."""

    def build(seed: int) -> Training:
        train, _ = digits()
        net = make()
        learn_by_heart(net, train, seed, 150)
        with_adapters(net, rank)
        later = relabelled(train, 3)
        training = supervised(net, sampler(*later, 32, seed), steps, mean_loss(net, later))
        (player,) = training.players
        params = [p for p in player.params if p.requires_grad]
        return Training(steps, alone(params, player.batch, player.loss), training.measure)

    return build


def frozen_backbone(make: Callable[[], nn.Sequential], steps: int) -> Callable[[int], Training]:
    """Return what builds a new last layer on a trained net that does not move."""

    def build(seed: int) -> Training:
        train, _ = digits()
        net = make()
        learn_by_heart(net, train, seed, 300)
        body, head = net[:-1].requires_grad_(False), nn.Linear(net[-1].in_features, 10)
        later = relabelled(train, 3)
        both = nn.Sequential(body, head)
        loss = lambda drawn: F.cross_entropy(both(drawn[0]), drawn[1])  # noqa: E731
        players = alone(head.parameters(), sampler(*later, 32, seed), loss)
        return Training(steps, players, mean_loss(both, later))

    return build


def adding(seed: int) -> Training:
    """The adding problem: two numbers of a sequence are marked; their sum is asked for."""
    stream = generator(seed)
    cell, head = nn.LSTM(2, 32, batch_first=True), nn.Linear(32, 1)

    def make(count: int, source: torch.Generator) -> Batch:
        numbers = torch.rand(count, 20, generator=source)
        marked = torch.zeros(count, 20)
        marked.scatter_(1, torch.randint(10, (count, 1), generator=source), 1.0)
        marked.scatter_(1, torch.randint(10, 20, (count, 1), generator=source), 1.0)
        return torch.stack([numbers, marked], 2), (numbers * marked).sum(1, keepdim=True)

    class Net(nn.Module):
        """The cell, and a layer on its last output."""

        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = cell, head

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(x)[0][:, -1])

    net = Net()
    measure = mean_loss(net, make(500, generator(93)), F.mse_loss)
    return supervised(net, lambda _: make(32, stream), 900, measure, F.mse_loss)


def reading(cell: Any, layers: int, steps: int) -> Callable[[int], Training]:
    """Return what builds a recurrent net that reads a random language."""

    def build(seed: int) -> Training:
        text = corpus(4)
        net, held = Reader(SYMBOLS, 48, cell, layers), windows(text, 16, 64, 92)(0)
        measure = mean_loss(net, held, of_symbols)
        return supervised(net, windows(text, 16, 16, seed), steps, measure, of_symbols)

    return build


def variational(weight: Callable[[int], float], steps: int = 800) -> Callable[[int], Training]:
    """Return what builds a VAE whose KL term is weighted by the step, judged with weight one."""

    def build(seed: int) -> Training:
        (x, _), _ = digits()
        encode, decode, stream = mlp(64, 64, 16), mlp(8, 64, 64), generator(seed)
        net = nn.ModuleList([encode, decode])

        def bound(a: Tensor, noise: Tensor, factor: float) -> Tensor:
            mean, log_scale = encode(a).chunk(2, 1)
            picture = decode(mean + log_scale.exp() * noise)
            fit = F.binary_cross_entropy_with_logits(picture, a, reduction="none").sum(1)
            kl = 0.5 * (mean.square() + (2 * log_scale).exp() - 1 - 2 * log_scale).sum(1)
            return (fit + factor * kl).mean()

        def draw(t: int) -> tuple[Tensor, Tensor, float]:
            a = x[torch.randint(len(x), (32,), generator=stream)]
            return a, torch.randn(32, 8, generator=stream), weight(t)

        held = torch.randn(len(x), 8, generator=generator(91))
        players = alone(net.parameters(), draw, lambda drawn: bound(*drawn))
        return Training(steps, players, lambda: bound(x, held, 1.0).item())

    return build


def oscillator(seed: int) -> Training:
    """A net that obeys u'' = -4 u, u(0) = 1, u'(0) = 0, judged by its distance to cos 2t."""
    net, stream = mlp(1, 32, 32, 1, act=nn.Tanh), generator(seed)

    def draw(_: int) -> Tensor:
        return 3 * torch.rand(64, 1, generator=stream)

    def loss(points: Tensor) -> Tensor:
        with torch.enable_grad():  # the equation is made of derivatives, whoever evaluates it
            t = torch.cat([torch.zeros(1, 1), points]).requires_grad_(True)
            u = net(t)
            first = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
            second = torch.autograd.grad(first.sum(), t, create_graph=True)[0]
            return (second + 4 * u)[1:].square().mean() + 10 * (
                (u[0] - 1) ** 2 + first[0] ** 2
            ).sum()

    t = torch.linspace(0, 3, 100).unsqueeze(1)
    measure = lambda: F.mse_loss(net(t), (2 * t).cos()).item()  # noqa: E731
    return Training(900, alone(net.parameters(), draw, loss), measure)


def poisson(seed: int) -> Training:
    """A net that obeys -u'' = 4 pi^2 sin(2 pi x) with zeros at both ends, judged by its distance."""
    net, stream = mlp(1, 32, 32, 1, act=nn.Tanh), generator(seed)

    def draw(_: int) -> Tensor:
        return torch.rand(64, 1, generator=stream)

    def loss(points: Tensor) -> Tensor:
        with torch.enable_grad():
            x = points.clone().requires_grad_(True)
            u = net(x)
            first = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
            second = torch.autograd.grad(first.sum(), x, create_graph=True)[0]
            force = 4 * math.pi**2 * torch.sin(2 * math.pi * x)
            ends = net(torch.tensor([[0.0], [1.0]]))
            return (second + force).square().mean() + 100 * ends.square().mean()

    x = torch.linspace(0, 1, 100).unsqueeze(1)
    measure = lambda: F.mse_loss(net(x), torch.sin(2 * math.pi * x)).item()  # noqa: E731
    return Training(1000, alone(net.parameters(), draw, loss), measure)


def neighbours(code: Tensor, labels: Tensor) -> float:
    """Return for how many, in points, the nearest code has the same label."""
    code = F.normalize(code - code.mean(0), dim=1)
    near = (code[1000:] @ code[:1000].T).argmax(1)
    return 100 * (labels[:1000][near] == labels[1000:]).float().mean().item()


def two_views(seed: int) -> Training:
    """Contrastive: two noisy views of a digit are to be told from all others (after SimCLR)."""
    (x, y), _ = digits()
    net, stream = mlp(64, 64, 32), generator(seed)

    def view(a: Tensor) -> Tensor:
        kept = torch.rand(a.shape, generator=stream) > 0.25
        return a * kept + 0.1 * torch.randn(a.shape, generator=stream)

    def draw(_: int) -> Batch:
        a = x[torch.randint(len(x), (64,), generator=stream)]
        return view(a), view(a)

    def loss(drawn: Batch) -> Tensor:
        first, second = (F.normalize(net(a), dim=1) for a in drawn)
        return F.cross_entropy(first @ second.T / 0.1, torch.arange(64))

    return Training(700, alone(net.parameters(), draw, loss), lambda: neighbours(net(x), y))


def triplets(seed: int) -> Training:
    """Contrastive: a digit nearer to its like than to another, by a margin; many losses are zero."""
    (x, y), _ = digits()
    net, stream = mlp(64, 64, 32), generator(seed)
    alike = [(y == k).nonzero().squeeze(1) for k in range(10)]

    def draw(_: int) -> tuple[Tensor, Tensor, Tensor]:
        anchor = torch.randint(len(x), (48,), generator=stream)
        like = torch.stack(
            [alike[k][torch.randint(len(alike[k]), (1,), generator=stream)[0]] for k in y[anchor]]
        )
        return x[anchor], x[like], x[torch.randint(len(x), (48,), generator=stream)]

    def loss(drawn: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return F.triplet_margin_loss(*(net(a) for a in drawn))

    return Training(700, alone(net.parameters(), draw, loss), lambda: neighbours(net(x), y))


def pictures(count: int, stream: torch.Generator) -> Batch:
    """Return noisy 16 x 16 pictures of a disc, and where the disc is."""
    rows = torch.arange(16.0)
    place = 4 + 8 * torch.rand(count, 2, 1, 1, generator=stream)
    radius = 1.5 + 2.5 * torch.rand(count, 1, 1, generator=stream)
    away = (rows[:, None] - place[:, 0]).square() + (rows[None, :] - place[:, 1]).square()
    mask = (away < radius.square()).float().unsqueeze(1)
    return mask + 0.5 * torch.randn(mask.shape, generator=stream), mask


def dice(logits: Tensor, mask: Tensor) -> Tensor:
    inside = logits.sigmoid()
    both = (inside * mask).sum((1, 2, 3))
    return (1 - (2 * both + 1) / (inside.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean()


def segmentation(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[int], Training]:
    """Return what builds a small net that finds the disc."""

    def build(seed: int) -> Training:
        stream, held = generator(seed), pictures(200, generator(90))
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 1, 3, padding=1),
        )  # fmt: skip
        return supervised(
            net, lambda _: pictures(16, stream), 500, mean_loss(net, held, loss), loss
        )

    return build


def distilled(
    loss: Callable[[Tensor, Tensor], Tensor], make: Callable[[], nn.Module]
) -> Callable[[int], Training]:
    """Return what builds a small net that imitates a large one."""

    def build(seed: int) -> Training:
        (x, y), _ = digits()
        teacher, net = mlp(64, 128, 10), make()
        learn_by_heart(teacher, (x, y), seed, 300)
        with torch.no_grad():
            answers = teacher(x)
        measure = mean_loss(net, (x, answers), loss)
        return supervised(net, sampler(x, answers, 32, seed), 900, measure, loss)

    return build


def softened(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the divergence of softened answers (Hinton et al., 2015), at temperature 4."""
    return 16 * F.kl_div(
        F.log_softmax(logits / 4, 1),
        F.log_softmax(answers / 4, 1),
        log_target=True,
        reduction="batchmean",
    )


def diffusion(data: Callable[[], Tensor], width: int, steps: int) -> Callable[[int], Training]:
    """Return what builds a net that tells the noise in a noisy point (Ho et al., 2020)."""

    def build(seed: int) -> Training:
        x = data()
        size = x.shape[1]
        net, stream = mlp(size + 2, width, width, size, act=nn.SiLU), generator(seed)

        def make(count: int, source: torch.Generator) -> Batch:
            clean = x[torch.randint(len(x), (count,), generator=source)]
            time = torch.rand(count, 1, generator=source)
            noise = torch.randn(clean.shape, generator=source)
            angle = time * math.pi / 2
            noisy = angle.cos() * clean + angle.sin() * noise
            return torch.cat([noisy, angle.cos(), angle.sin()], 1), noise

        measure = mean_loss(net, make(1000, generator(89)), F.mse_loss)
        return supervised(net, lambda _: make(64, stream), steps, measure, F.mse_loss)

    return build


def two_moons() -> Tensor:
    stream = generator(26)
    angle = math.pi * torch.rand(1000, generator=stream)
    upper = torch.stack([angle.cos(), angle.sin()], 1)
    moons = torch.where(torch.arange(1000)[:, None] < 500, upper, torch.tensor([1.0, 0.5]) - upper)
    return moons + 0.05 * torch.randn(1000, 2, generator=stream)


def pixels() -> Tensor:
    return 2 * digits()[0][0] - 1


def small_clouds(seed: int) -> Training:
    """A Gaussian for each cloud of points; its log density rises above zero, the loss falls below."""
    x, y = blobs(2, classes=4, features=6)
    x = 0.05 * x
    means, logs = nn.Parameter(torch.zeros(4, 6)), nn.Parameter(torch.zeros(4, 6))

    def loss(drawn: Batch) -> Tensor:
        a, k = drawn
        away = ((a - means[k]) / logs[k].exp()).square()
        return (0.5 * away + logs[k]).sum(1).mean()

    with torch.no_grad():
        best = torch.stack([x[y == k].std(0).log() + 0.5 for k in range(4)])[y].sum(1).mean().item()
    measure = lambda: loss((x, y)).item() - best  # noqa: E731
    return Training(1200, alone([means, logs], sampler(x, y, 32, seed), loss), measure)


def below_zero(seed: int) -> Training:
    """Cross-entropy minus five."""
    train, _ = digits()
    net = small_net()
    loss = lambda logits, y: F.cross_entropy(logits, y) - 5  # noqa: E731
    return supervised(net, sampler(*train, 32, seed), 800, mean_loss(net, train), loss)


def small_bag(seed: int) -> Training:
    """Accuracy of the bag of words on texts that were not seen."""
    topics = torch.randn(2000, 4, generator=generator(21))
    x = zipf(2000, (2500, 20), generator(27))
    y, net = topics[x].mean(1).argmax(1), Bag(2000, sparse=False)
    return supervised(
        net, sampler(x[:2000], y[:2000], 8, seed), 1500, accuracy(net, (x[2000:], y[2000:]))
    )


# Weights of few levels


def four_bits(weight: Tensor) -> Tensor:
    """Return a weight on fifteen levels."""
    unit = weight.abs().max() / 7
    return (weight / unit).round() * unit


def one_bit(weight: Tensor) -> Tensor:
    """Return a weight on two levels, as in Rastegari et al., 2016."""
    return weight.sign() * weight.abs().mean()


class FewLevels(nn.Linear):
    """A layer whose weight is rounded, with the gradient of the weight itself (Bengio et al., 2013)."""

    def __init__(self, inputs: int, outputs: int, rounded: Callable[[Tensor], Tensor]) -> None:
        super().__init__(inputs, outputs)
        self.rounded = rounded

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + (self.rounded(self.weight) - self.weight).detach()
        return F.linear(x, weight, self.bias)


def of_few_levels(rounded: Callable[[Tensor], Tensor]) -> Callable[[int], Training]:
    """Return what builds a net whose loss is a staircase: short steps change it by leaps, or not."""

    def build(seed: int) -> Training:
        train, _ = digits()
        net = nn.Sequential(FewLevels(64, 64, rounded), nn.ReLU(), FewLevels(64, 10, rounded))
        return supervised(net, sampler(*train, 32, seed), 700, mean_loss(net, train))

    return build


MODELS: tuple[Hazard, ...] = (
    *pair(
        "sparse embeddings",
        Hazard("bag-sparse-adam", bag_of_words(True), "sparse_adam"),
        Hazard("bag-adam", bag_of_words(False, 2000)),
    ),
    *pair(
        "sparse embeddings",
        Hazard("bag-batch-8", small_bag, rate=1e-2, measured="score"),
        Hazard("bag-adagrad", bag_of_words(True, 2000), "adagrad", 1e-2),
    ),
    *pair(
        "matrix factorisation",
        Hazard("factors-sparse-adam", factorisation(True), "sparse_adam", 1e-2),
        Hazard("factors-adam", factorisation(False), "adam", 1e-2),
    ),
    *pair(
        "matrix factorisation",
        Hazard("factors-batch-4", factorisation(False, 0.3, 4, 2500), "adam", 3e-3),
        Hazard("factors-sgd-small", factorisation(False, 0.3, 256, 1500), "sgd", 1.0),
    ),
    *pair(
        "recommender",
        Hazard("ranking", ranking, measured="score"),
        Hazard("two-towers", two_towers, measured="score"),
    ),
    *pair(
        "adapters",
        Hazard("lora-mlp", adapted(lambda: mlp(64, 64, 64, 10), 2, 700)),
        Hazard("lora-attention", adapted(Encoder, 4, 500)),
    ),
    *pair(
        "frozen backbone",
        Hazard("frozen-mlp", frozen_backbone(lambda: mlp(64, 64, 64, 10), 800)),
        Hazard("frozen-conv-momentum", frozen_backbone(conv, 700), "momentum", 0.03),
    ),
    *pair(
        "recurrent",
        Hazard("lstm-adding", adding, rate=3e-3),
        Hazard("rnn-two-layers", reading(nn.RNN, 2, 700)),
    ),
    *pair(
        "VAE with annealing",
        Hazard("vae-annealed", variational(lambda t: min(1.0, t / 500))),
        Hazard("vae-cycles", variational(lambda t: min(1.0, t % 200 / 100))),
    ),
    *pair("PINN", Hazard("pinn-oscillator", oscillator), Hazard("pinn-poisson", poisson)),
    *pair(
        "contrastive",
        Hazard("two-views", two_views, measured="score"),
        Hazard("triplets", triplets, measured="score"),
    ),
    *pair(
        "segmentation",
        Hazard("discs-pixels", segmentation(F.binary_cross_entropy_with_logits)),
        Hazard("discs-dice", segmentation(dice)),
    ),
    *pair(
        "distillation",
        Hazard("soft-answers", distilled(softened, lambda: mlp(64, 24, 10))),
        Hazard("same-logits", distilled(F.mse_loss, lambda: mlp(64, 24, 10)), "momentum", 0.03),
    ),
    *pair(
        "diffusion",
        Hazard("diffusion-moons", diffusion(two_moons, 64, 1000)),
        Hazard("diffusion-digits", diffusion(pixels, 128, 800)),
    ),
    *pair(
        "losses below zero",
        Hazard("cross-entropy-minus-5", below_zero),
        Hazard("log-density", small_clouds, rate=1e-2),
    ),
    *pair(
        "few levels",
        Hazard("four-bits", of_few_levels(four_bits)),
        Hazard("one-bit", of_few_levels(one_bit)),
    ),
)
