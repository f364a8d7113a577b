"""Ordinary digits under what practice does to a training: schedules, clipping, pieces, bf16, scales."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import Optimizer
from torch.optim import lr_scheduler as schedules

from .batches import wrong_labels
from .data import SYMBOLS, Batch, corpus, digits, generator, sampler, windows
from .hazard import Hazard, Training, pair
from .nets import (
    GPT,
    accuracy,
    alone,
    conv,
    mean_loss,
    mlp,
    of_symbols,
    on_digits,
    small_net,
    supervised,
)

Schedule = Callable[[Optimizer], Any]
STEPS = 700


def under(
    schedule: Schedule, make: Callable[[], nn.Module] = small_net
) -> Callable[[int], Training]:
    return on_digits(STEPS, make, schedule=schedule)


def warm_up(start: float, length: int) -> Schedule:
    """Return a schedule that grows linearly from a tiny factor."""
    return lambda optimizer: schedules.LambdaLR(
        optimizer, lambda t: min(1.0, start + (1 - start) * t / length)
    )


def warm_up_exponential(start: float, length: int) -> Schedule:
    return lambda optimizer: schedules.LambdaLR(
        optimizer, lambda t: start ** max(0.0, 1 - t / length)
    )


def warm_up_cosine(optimizer: Optimizer) -> Any:
    first = schedules.LinearLR(optimizer, 1e-3, total_iters=70)
    second = schedules.CosineAnnealingLR(optimizer, STEPS - 70)
    return schedules.SequentialLR(optimizer, [first, second], milestones=[70])


def stable_then_decay(optimizer: Optimizer) -> Any:
    return schedules.LambdaLR(
        optimizer, lambda t: min(1.0, (t + 1) / 50, (STEPS - t) / (0.2 * STEPS))
    )


def one_cycle(optimizer: Optimizer) -> Any:
    rate = optimizer.param_groups[0]["lr"]
    return schedules.OneCycleLR(optimizer, max_lr=rate, total_steps=STEPS + 1, cycle_momentum=False)


def cyclic(optimizer: Optimizer) -> Any:
    rate = optimizer.param_groups[0]["lr"]
    return schedules.CyclicLR(optimizer, rate / 10, rate, step_size_up=50, cycle_momentum=False)


def in_pieces(count: int, size: int, make: Callable[[], nn.Module]) -> Callable[[int], Training]:
    """Return what builds a training whose batch comes in micro-batches."""

    def build(seed: int) -> Training:
        training = on_digits(STEPS, make, size)(seed)
        (player,) = training.players
        draw = player.batch
        parts = replace(player, batch=lambda t: tuple(draw(t) for _ in range(count)))
        return replace(training, players=(parts,), pieces=count)

    return build


def clipped_reader(norm: float) -> Callable[[int], Training]:
    """Return what builds a small GPT whose gradients are clipped."""

    def build(seed: int) -> Training:
        text = corpus(5)
        net, held = GPT(SYMBOLS), windows(text, 16, 64, 88)(0)
        measure = mean_loss(net, held, of_symbols)
        draw = windows(text, 16, 16, seed)
        return supervised(net, draw, 500, measure, of_symbols, clip=norm)

    return build


def sixteen_bits(seed: int) -> Training:
    """Weights, activations and loss in bfloat16."""
    train, test = digits()
    net = mlp(64, 64, 10).bfloat16()
    draw = sampler(train[0].bfloat16(), train[1], 32, seed)
    return supervised(net, draw, STEPS, accuracy(net, (test[0].bfloat16(), test[1])))


def autocast(seed: int) -> Training:
    """Weights in float32, the forward pass in bfloat16."""
    train, _ = digits()
    net, draw = conv(), sampler(*train, 32, seed)

    def loss(drawn: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(net(drawn[0]), drawn[1])

    return Training(STEPS, alone(net.parameters(), draw, loss), mean_loss(net, train))


def times(factor: float, make: Callable[[], nn.Module] = small_net) -> Callable[[int], Training]:
    """Return what builds a training whose loss is multiplied by a constant."""
    return on_digits(STEPS, make, loss=lambda logits, y: factor * F.cross_entropy(logits, y))


def units(inputs: float, targets: float) -> Callable[[int], Training]:
    """Return what builds a regression in unusual units, judged in those of the targets."""

    def build(seed: int) -> Training:
        stream = generator(28)
        x = torch.randn(1500, 8, generator=stream)
        y = torch.sin(2 * x[:, :2]).sum(1, keepdim=True)
        net = mlp(8, 64, 1)
        measure = mean_loss(net, (inputs * x, y), lambda a, b: F.mse_loss(a / targets, b))
        draw = sampler(inputs * x, targets * y, 32, seed)
        return supervised(net, draw, 1000, measure, F.mse_loss)

    return build


def some_wrong(seed: int) -> Training:
    """Digits of which a fifth has a wrong label, judged by the loss with these."""
    (x, y), _ = digits()
    train, net = (x, wrong_labels(0.2)(y)), small_net()
    return supervised(net, sampler(*train, 32, seed), 2 * STEPS, mean_loss(net, train))


PRACTICE: tuple[Hazard, ...] = (
    *pair(
        "warm-up",
        Hazard("warm-up-from-1e-4", under(warm_up(1e-4, 100))),
        Hazard("warm-up-from-1e-8", under(warm_up(1e-8, 70), conv)),
    ),
    *pair(
        "warm-up",
        Hazard(
            "warm-up-exponential-momentum", under(warm_up_exponential(1e-6, 100)), "momentum", 0.1
        ),
        Hazard("warm-up-cosine", under(warm_up_cosine)),
    ),
    *pair(
        "schedule",
        Hazard("schedule-cosine", under(lambda o: schedules.CosineAnnealingLR(o, STEPS))),
        Hazard(
            "schedule-linear-momentum",
            under(lambda o: schedules.LinearLR(o, 1.0, 0.0, STEPS)),
            "momentum",
            0.1,
        ),
    ),
    *pair(
        "schedule",
        Hazard("schedule-one-cycle", under(one_cycle), rate=1e-2),
        Hazard("schedule-stable-then-decay", under(stable_then_decay)),
    ),
    *pair(
        "schedule",
        Hazard("schedule-steps", under(lambda o: schedules.StepLR(o, 250))),
        Hazard(
            "schedule-milestones",
            under(lambda o: schedules.MultiStepLR(o, [200, 450])),
            "momentum",
            0.1,
        ),
    ),
    *pair(
        "schedule",
        Hazard(
            "schedule-restarts-momentum",
            under(lambda o: schedules.CosineAnnealingWarmRestarts(o, 100, 2)),
            "momentum",
            0.1,
        ),
        Hazard("schedule-cyclic", under(cyclic), rate=3e-3),
    ),
    *pair(
        "schedule",
        Hazard("schedule-plateau", under(lambda o: schedules.ReduceLROnPlateau(o, patience=60))),
        Hazard("schedule-exponential", under(lambda o: schedules.ExponentialLR(o, 0.995), conv)),
    ),
    *pair(
        "clipping",
        Hazard("clip-1-gpt", clipped_reader(1.0)),
        Hazard("clip-0.1-momentum", on_digits(STEPS, clip=0.1), "momentum", 0.1),
    ),
    *pair(
        "accumulation",
        Hazard("four-pieces", in_pieces(4, 8, small_net)),
        Hazard("eight-pieces-momentum", in_pieces(8, 2, conv), "momentum", 0.1),
    ),
    *pair(
        "16 bits",
        Hazard("all-bf16", sixteen_bits, measured="score"),
        Hazard("autocast-bf16", autocast),
    ),
    *pair(
        "scale",
        Hazard("loss-1e-12", times(1e-12), settings=(("eps", 1e-20),)),
        Hazard("loss-1e16", times(1e16, conv)),
    ),
    *pair(
        "scale",
        Hazard("loss-1e16-momentum", times(1e16), "momentum", 1e-17),
        Hazard("loss-1e-12-sgd", times(1e-12), "sgd", 1e11),
    ),
    *pair(
        "scale",
        Hazard("targets-1e4", units(1.0, 1e4), rate=1e-2),
        Hazard("inputs-1e3", units(1e3, 1.0)),
    ),
    *pair(
        "other optimizers",
        Hazard("rmsprop", on_digits(STEPS), "rmsprop", 1e-2),
        Hazard("adagrad", on_digits(STEPS), "adagrad", 1e-2),
    ),
    *pair(
        "other optimizers",
        Hazard("nadam-labels", some_wrong, "nadam", 2e-3),
        Hazard("nesterov-labels", some_wrong, "nesterov", 0.03),
    ),
)
