"""Trainings on batches that tell little, or the wrong thing: small, sorted, skewed, wrong, the first."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .data import Batch, Draw, blobs, digits, generator, regression, sampler, then
from .hazard import Hazard, Training, pair
from .nets import accuracy, conv, mean_loss, mlp, on_digits, small_net, supervised

Make = Callable[[], nn.Module]
Change = Callable[[Batch], Batch]


def regression_of_size(size: int, steps: int) -> Callable[[int], Training]:
    def build(seed: int) -> Training:
        data = regression(4)
        net = mlp(20, 64, 1)
        measure = mean_loss(net, data, F.mse_loss)
        return supervised(net, sampler(*data, size, seed), steps, measure, F.mse_loss)

    return build


def changed_first(
    change: Change, make: Make = small_net, batches: int = 1, steps: int = 800
) -> Callable[[int], Training]:
    """Return what builds a training on digits whose first batches are not like the others."""

    def build(seed: int) -> Training:
        train, _ = digits()
        net, draw = make(), sampler(*train, 32, seed)
        data = then(lambda t: change(draw(t)), draw, batches)
        return supervised(net, data, steps, mean_loss(net, train))

    return build


def one_huge_input(drawn: Batch) -> Batch:
    x = drawn[0].clone()
    x[0] *= 1e4
    return x, drawn[1]


def all_of_one_class(drawn: Batch) -> Batch:
    return drawn[0], torch.zeros_like(drawn[1])


def all_zeros(drawn: Batch) -> Batch:
    return torch.zeros_like(drawn[0]), drawn[1]


def nearly_zeros(drawn: Batch) -> Batch:
    return 1e-6 * drawn[0], drawn[1]


def huge_first_targets(
    count: int = 1,
    target: float = 1e4,
    size: int = 32,
    of: int = 5,
    make: Make = lambda: mlp(20, 64, 1),
) -> Callable[[int], Training]:
    """Return what builds a regression whose first batch holds some huge targets."""

    def build(seed: int) -> Training:
        x, y = regression(of)
        net, draw = make(), sampler(x, y, size, seed)

        def first(t: int) -> Batch:
            a, b = draw(t)
            return a, torch.cat([torch.full((count, 1), target), b[count:]])

        return supervised(
            net, then(first, draw, 1), 900, mean_loss(net, (x, y), F.mse_loss), F.mse_loss
        )

    return build


def by_class(run: int, seed: int, size: int = 16) -> Draw:
    """Return what draws from one class for a while, then from the next."""
    train, _ = digits()
    parts = [sampler(*(p[train[1] == k] for p in train), size, seed + k) for k in range(10)]
    return lambda t: parts[t // run % 10](t)


def sorted_by_class(run: int, steps: int, make: Make = small_net) -> Callable[[int], Training]:
    def build(seed: int) -> Training:
        train, _ = digits()
        net = make()
        return supervised(net, by_class(run, seed), steps, mean_loss(net, train))

    return build


def wandering(seed: int) -> Training:
    """A function learnt along a path that wanders through its inputs: neighbours are nearly equal."""
    net, stream = mlp(2, 64, 64, 1, act=nn.Tanh), generator(seed)
    angles = torch.cumsum(0.05 * torch.randn(1000 * 16, generator=stream), 0).view(1000, 16, 1)

    def pairs(a: Tensor) -> Batch:
        return torch.cat([a.cos(), a.sin()], 1), torch.sin(3 * a)

    held = pairs(torch.linspace(0, 2 * math.pi, 200).unsqueeze(1))
    return supervised(
        net, lambda t: pairs(angles[t]), 1000, mean_loss(net, held, F.mse_loss), F.mse_loss
    )


def wrong_labels(share: float, classes: int = 10) -> Callable[[Tensor], Tensor]:
    """Return what replaces a share of the labels, always the same ones."""

    def change(y: Tensor) -> Tensor:
        stream = generator(11)
        chosen = torch.rand(y.shape, generator=stream) < share
        return torch.where(chosen, torch.randint(classes, y.shape, generator=stream), y)

    return change


def noisy_labels(share: float, steps: int, make: Make = small_net) -> Callable[[int], Training]:
    def build(seed: int) -> Training:
        (x, y), test = digits()
        net = make()
        draw = sampler(x, wrong_labels(share)(y), 32, seed)
        return supervised(net, draw, steps, accuracy(net, test))

    return build


def noisy_clouds(seed: int) -> Training:
    """Clouds of points, three labels of ten wrong at every visit anew."""
    x, y = blobs(1)
    net, stream, draw = mlp(32, 64, 10), generator(seed), sampler(x[:1500], y[:1500], 32, seed)

    def change(drawn: Batch) -> Batch:
        wrong = torch.randint(10, drawn[1].shape, generator=stream)
        return drawn[0], torch.where(torch.rand(32, generator=stream) < 0.3, wrong, drawn[1])

    held = (x[1500:], y[1500:])
    return supervised(net, lambda t: change(draw(t)), 900, accuracy(net, held))


def heavy_tails(
    loss: Callable[[Tensor, Tensor], Tensor], degrees: float
) -> Callable[[int], Training]:
    """Return what builds a regression with noise of Student's t, judged on targets without noise."""

    def build(seed: int) -> Training:
        x, y = regression(6, noise=0.0)
        stream, draw, net = generator(seed), sampler(x, y, 32, seed), mlp(20, 64, 1)

        def noisy(t: int) -> Batch:
            a, b = draw(t)
            normal = torch.randn(b.shape, generator=stream)
            chi = torch.randn((int(degrees), *b.shape), generator=stream).square().mean(0)
            return a, b + 0.3 * normal / chi.sqrt()

        return supervised(net, noisy, 1000, mean_loss(net, (x, y), F.mse_loss), loss)

    return build


def bad_batches(
    change: Change, at: int = 300, make: Make = small_net, count: int = 1
) -> Callable[[int], Training]:
    """Return what builds a training with so many bad batches in a row on the way."""

    def build(seed: int) -> Training:
        train, _ = digits()
        net, draw = make(), sampler(*train, 32, seed)
        return supervised(
            net,
            lambda t: change(draw(t)) if at <= t < at + count else draw(t),
            900,
            mean_loss(net, train),
        )

    return build


def stretch_of_regression(factor: float, make: Make) -> Callable[[int], Training]:
    """Return what builds a regression with 15 batches in a row whose inputs are far too large."""

    def build(seed: int) -> Training:
        x, y = regression(35)
        x = x / x.std(0)
        net, draw = make(), sampler(x, y, 16, seed)

        def batch(t: int) -> Batch:
            a, b = draw(t)
            return (factor * a, b) if 300 <= t < 315 else (a, b)

        return supervised(net, batch, 900, mean_loss(net, (x, y), F.mse_loss), F.mse_loss)

    return build


def rare_and_hard(every: int, make: Make) -> Callable[[int], Training]:
    """Return what builds a regression of which one batch in so many is of another kind, and hard."""

    def build(seed: int) -> Training:
        easy, _ = regression(36)
        easy = easy / easy.std(0)
        hard = easy.clone()
        hard[:, 0] = 3.0
        slope = torch.randn(20, 1, generator=generator(36)) / 20**0.5
        kinds = [(x, 0.3 * torch.tanh(x @ slope) + bias) for x, bias in ((easy, 0.0), (hard, 3.0))]
        net, draws = make(), [sampler(*kind, 16, seed) for kind in kinds]
        both = torch.cat([x for x, _ in kinds]), torch.cat([y for _, y in kinds])
        measure = mean_loss(net, both, F.mse_loss)
        return supervised(
            net, lambda t: draws[t % every == every - 1](t), 60 * every, measure, F.mse_loss
        )

    return build


def mixed_up(seed: int) -> Training:
    """Mixup: every input and label is a mixture of two."""
    train, test = digits()
    net, stream, draw = conv(), generator(seed), sampler(*train, 32, seed)

    def mix(t: int) -> Batch:
        x, y = draw(t)
        share, order = torch.rand(32, 1, generator=stream), torch.randperm(32, generator=stream)
        z = F.one_hot(y, 10).float()
        return share * x + (1 - share) * x[order], share * z + (1 - share) * z[order]

    return supervised(net, mix, 700, accuracy(net, test))


def dropped(seed: int) -> Training:
    """Dropout of one half, twice."""
    train, test = digits()
    net = nn.Sequential(
        nn.Linear(64, 96), nn.ReLU(), nn.Dropout(), nn.Linear(96, 96), nn.ReLU(), nn.Dropout(),
        nn.Linear(96, 10),
    )  # fmt: skip
    return supervised(net, sampler(*train, 32, seed), 800, accuracy(net, test))


def logistic() -> nn.Module:
    return mlp(64, 10)


BATCHES: tuple[Hazard, ...] = (
    *pair(
        "batch 1, 2, 4",
        Hazard("batch-1-adam", on_digits(3000, size=1)),
        Hazard("batch-1-momentum", on_digits(3000, size=1), "momentum", 1e-2),
    ),
    *pair(
        "batch 1, 2, 4",
        Hazard("batch-2-momentum", on_digits(2500, size=2), "momentum", 1e-2),
        Hazard("batch-2-conv", on_digits(2000, conv, size=2)),
    ),
    *pair(
        "batch 1, 2, 4",
        Hazard("batch-4-conv", on_digits(1500, conv, size=4)),
        Hazard("batch-4-sgd", on_digits(2500, size=4), "sgd", 0.1),
    ),
    *pair(
        "batch 1, 2, 4",
        Hazard("batch-1-regression", regression_of_size(1, 3000)),
        Hazard("batch-4-logistic", on_digits(2500, logistic, size=4), "momentum", 0.1),
    ),
    *pair(
        "first batch",
        Hazard("first-has-outlier", changed_first(one_huge_input)),
        Hazard("first-has-huge-target", huge_first_targets()),
    ),
    *pair(
        "first batch",
        Hazard(
            "first-has-huge-targets-tanh",
            huge_first_targets(3, 1e3, 16, 6, lambda: mlp(20, 48, 48, 1, act=nn.Tanh)),
        ),
        Hazard(
            "first-has-huge-targets-adamw",
            huge_first_targets(8, -100.0, 24, 7, lambda: mlp(20, 40, 40, 1)),
            "adamw",
        ),
    ),
    *pair(
        "first batch",
        Hazard("first-of-one-class", changed_first(all_of_one_class), "momentum", 0.1),
        Hazard("first-ten-of-one-class", changed_first(all_of_one_class, conv, 10)),
    ),
    *pair(
        "first batch",
        Hazard("first-is-zero", changed_first(all_zeros)),
        Hazard("first-nearly-zero", changed_first(nearly_zeros, conv), "momentum", 0.1),
    ),
    *pair(
        "sorted batches",
        Hazard("sorted-10", sorted_by_class(10, 1200)),
        Hazard("wandering-inputs", wandering),
    ),
    *pair(
        "sorted batches",
        Hazard("sorted-40-momentum", sorted_by_class(40, 1200), "momentum", 0.01),
        Hazard("sorted-1-conv", sorted_by_class(1, 900, conv)),
    ),
    *pair(
        "label noise",
        Hazard("labels-40-wrong", noisy_labels(0.4, 1200), measured="score"),
        Hazard("labels-60-wrong-momentum", noisy_labels(0.6, 1200, conv), "momentum", 0.1, "score"),
    ),
    *pair(
        "label noise",
        Hazard("labels-20-wrong-conv", noisy_labels(0.2, 900, conv), measured="score"),
        Hazard("labels-wrong-anew", noisy_clouds, measured="score"),
    ),
    *pair(
        "heavy tails",
        Hazard("cauchy-huber", heavy_tails(F.huber_loss, 1)),
        Hazard("student-2-squares", heavy_tails(F.mse_loss, 2)),
    ),
    *pair(
        "one bad batch",
        Hazard("spike-1e10", bad_batches(lambda b: (1e5 * b[0], b[1]))),
        Hazard(
            "spike-momentum",
            bad_batches(lambda b: (100 * b[0], b[1]), make=conv),
            "momentum",
            0.03,
        ),
    ),
    *pair(
        "bad batches",
        Hazard(
            "stretch-x30-momentum",
            bad_batches(lambda b: (30 * b[0], b[1]), count=15),
            "momentum",
            0.03,
        ),
        Hazard(
            "stretch-of-noise-conv",
            bad_batches(lambda b: (10 * torch.randn_like(b[0]), b[1]), make=conv, count=25),
            "momentum",
            0.03,
        ),
    ),
    *pair(
        "bad batches",
        Hazard(
            "stretch-x1000-sgd", bad_batches(lambda b: (1000 * b[0], b[1]), count=15), "sgd", 0.1
        ),
        Hazard(
            "stretch-x100-sgd-conv",
            bad_batches(lambda b: (100 * b[0], b[1]), 200, conv, 10),
            "sgd",
            0.1,
        ),
    ),
    *pair(
        "bad batches",
        Hazard(
            "stretch-x30-regression",
            stretch_of_regression(30.0, lambda: mlp(20, 48, 1)),
            "momentum",
            0.01,
        ),
        Hazard(
            "stretch-x100-deep-regression",
            stretch_of_regression(100.0, lambda: mlp(20, 32, 32, 1, act=nn.Tanh)),
            "momentum",
            0.01,
        ),
    ),
    *pair(
        "rare and hard batches",
        Hazard("one-in-30-is-hard", rare_and_hard(30, lambda: mlp(20, 32, 1)), "sgd", 0.05),
        Hazard(
            "one-in-20-is-hard-momentum",
            rare_and_hard(20, lambda: mlp(20, 32, 32, 1, act=nn.Tanh)),
            "momentum",
            0.01,
        ),
    ),
    *pair(
        "dropout, mixup",
        Hazard("dropout-half", dropped, measured="score"),
        Hazard("mixup", mixed_up, measured="score"),
    ),
)
