"""The ways in which a row can be trained: its usual rate, a grid, ours, and the peers' defaults.

A way makes an optimizer for a row, takes its steps and says what can be read of it. Nothing of a peer
is imported before it is asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer

import probstep

from .hazard import Hazard, Player, Training

Params = Sequence[nn.Parameter]
BASES: dict[str, Callable[..., Optimizer]] = {
    "sgd": optim.SGD,
    "momentum": partial(optim.SGD, momentum=0.9),
    "nesterov": partial(optim.SGD, momentum=0.9, nesterov=True),
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "nadam": optim.NAdam,
    "rmsprop": optim.RMSprop,
    "adagrad": optim.Adagrad,
    "sparse_adam": optim.SparseAdam,
}
PLAIN_GRADIENTS = ("sgd", "momentum", "nesterov")  # the bases whose peers are those of SGD


@dataclass(frozen=True)
class Reading:
    """What an optimizer says of itself.

    Args:
        rate: The rate of its next step; None where it has no single one.
        scale: What multiplies the rate that it was given.
        decision: What the last probe led to.
        counts: How often each decision was taken.
    """

    rate: float | None
    scale: float | None = None
    decision: str = ""
    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Way:
    """How to train a row.

    Args:
        make: The optimizer of a row's parameters; the rate is the row's own, or one of its grid.
        step: Takes one step of a player on a batch and returns the loss before it.
        read: What can be read of the optimizer.
        delivering: Lends the parameters the values that the method would deliver.
    """

    make: Callable[[Hazard, Params, float], Any]
    step: Callable[[Any, Training, Player, Any], Tensor]
    read: Callable[[Any], Reading]
    delivering: Callable[[Any, Params], Any]


def make_base(row: Hazard, params: Params, rate: float) -> Optimizer:
    return BASES[row.base](params, lr=rate, **dict(row.settings))


def mean_of_pieces(training: Training, player: Player, batch: Any) -> Tensor:
    """Return the loss of a batch, whether it comes whole or in pieces."""
    if training.pieces == 1:
        return player.loss(batch)
    return torch.stack([player.loss(piece) for piece in batch]).mean()


def backward(optimizer: Any, training: Training, player: Player, batch: Any) -> Tensor:
    """Put the gradients of a batch in place, piece by piece, and return its loss."""
    optimizer.zero_grad()
    pieces = batch if training.pieces > 1 else (batch,)
    total = torch.zeros(())
    for piece in pieces:
        loss = player.loss(piece) / len(pieces)
        loss.backward()
        total = total + loss.detach()
    return total


def step_on_gradients(optimizer: Any, training: Training, player: Player, batch: Any) -> Tensor:
    loss = backward(optimizer, training, player, batch)
    if training.clip is not None:
        nn.utils.clip_grad_norm_(player.params, training.clip)
    optimizer.step()
    return loss


def step_on_loss(optimizer: Any, training: Training, player: Player, batch: Any) -> Tensor:
    loss = backward(optimizer, training, player, batch)
    if training.clip is not None:
        nn.utils.clip_grad_norm_(player.params, training.clip)
    optimizer.step(loss=loss)
    return loss


def step_on_closure(optimizer: Any, training: Training, player: Player, batch: Any) -> Tensor:
    loss: Tensor = optimizer.step(lambda: mean_of_pieces(training, player, batch))
    return loss.detach()


def step_of_ours(
    optimizer: probstep.ProbStep, training: Training, player: Player, batch: Any
) -> Tensor:
    """Take a step as the documents say: with a closure, or by hand where gradients are clipped."""
    if training.clip is None and training.pieces == 1:
        return step_on_closure(optimizer, training, player, batch)
    loss = backward(optimizer, training, player, batch)
    if training.clip is not None:
        optimizer.clip_grad_norm_(training.clip)
    optimizer.step(loss=loss, reevaluate=lambda: mean_of_pieces(training, player, batch))
    return loss


def read_ours(optimizer: probstep.ProbStep) -> Reading:
    last, counted = optimizer.last_probe, optimizer.metrics()
    counts = {k.removeprefix("probes/"): int(v) for k, v in counted.items() if "probes/" in k}
    return Reading(
        optimizer.effective_lr[0],
        optimizer.scale,
        "" if last is None else str(last.decision),
        tuple((word, count) for word, count in counts.items() if count),
    )


def read_group(*keys: str) -> Callable[[Optimizer], Reading]:
    """Return what multiplies some numbers of the first group."""

    def read(optimizer: Optimizer) -> Reading:
        rate = 1.0
        for key in keys:
            rate *= float(optimizer.param_groups[0][key])
        return Reading(rate)

    return read


def read_nothing(_: Optimizer) -> Reading:
    return Reading(None)


@contextmanager
def as_it_is(_: Any, __: Params) -> Iterator[None]:
    yield


@contextmanager
def switched(optimizer: Any, _: Params) -> Iterator[None]:
    """Lend the averaged weights of Schedule-Free."""
    optimizer.eval()
    yield
    optimizer.train()


class Average:
    """The polynomial-decay average of an optimizer's iterates, as DoG's authors advise (gamma = 8)."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.seen = 0
        self.params = [p for group in optimizer.param_groups for p in group["params"]]
        self.values = [p.detach().clone() for p in self.params]
        optimizer.register_step_pre_hook(self.fill_gradients)
        optimizer.register_step_post_hook(self.update)

    def fill_gradients(self, *_: Any) -> None:
        for p in self.params:  # DoG takes no parameter without a gradient
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad

    @torch.no_grad()
    def update(self, *_: Any) -> None:
        self.seen += 1
        for value, p in zip(self.values, self.params, strict=True):
            value.lerp_(p, 9 / (8 + self.seen))


@contextmanager
def averaged(optimizer: Any, _: Params) -> Iterator[None]:
    """Lend the averaged weights of DoG."""
    average: Average = optimizer.average
    held = [p.detach().clone() for p in average.params]
    fill(average.params, average.values)
    yield
    fill(average.params, held)


@torch.no_grad()
def fill(params: Params, values: Sequence[Tensor]) -> None:
    for p, value in zip(params, values, strict=True):
        p.copy_(value)


def peer(module: str, of_sgd: str, of_adam: str, **settings: Any) -> Callable[..., Any]:
    """Return what makes a peer's optimizer at its published defaults: SGD's or Adam's variant."""

    def make(row: Hazard, params: Params, _: float) -> Any:
        is_plain = row.base in PLAIN_GRADIENTS
        chosen = settings.get("sgd" if is_plain else "adam", {})
        return vars(import_module(module))[of_sgd if is_plain else of_adam](list(params), **chosen)

    return make


def make_schedule_free(row: Hazard, params: Params, rate: float) -> Any:
    optimizer = peer("schedulefree", "SGDScheduleFree", "AdamWScheduleFree")(row, params, rate)
    optimizer.train()
    return optimizer


def make_dog(row: Hazard, params: Params, rate: float) -> Any:
    optimizer = peer("dog", "DoG", "DoG")(row, params, rate)
    optimizer.average = Average(optimizer)
    return optimizer


def make_ours(rule: Callable[[], Any] | None = None) -> Callable[..., probstep.ProbStep]:
    """Return what wraps the row's own optimizer, with the default rule or with another one."""

    def make(row: Hazard, params: Params, rate: float) -> probstep.ProbStep:
        base = make_base(row, params, rate)
        return probstep.ProbStep(base) if rule is None else probstep.ProbStep(base, rule=rule())

    return make


def read_factory(spec: str) -> Callable[[], Any]:
    """Return the function that `module:name` means.

    Raises:
        ValueError: It is not written like that.
    """
    module, _, name = spec.partition(":")
    if not (module and name):
        raise ValueError(f"A rule is given as module:factory, not as {spec!r}.")
    factory: Callable[[], Any] = getattr(import_module(module), name)
    return factory


FIXED = Way(make_base, step_on_gradients, read_group("lr"), as_it_is)
WAYS: dict[str, Way] = {
    "plain": FIXED,
    "grid": FIXED,
    "ours": Way(make_ours(), step_of_ours, read_ours, as_it_is),
    "prodigy": Way(
        peer("prodigyopt", "Prodigy", "Prodigy"), step_on_gradients, read_group("lr", "d"), as_it_is
    ),
    "dadapt": Way(
        peer("dadaptation", "DAdaptSGD", "DAdaptAdam", sgd={"momentum": 0.9}),
        step_on_gradients,
        read_group("lr", "d"),
        as_it_is,
    ),
    "schedulefree": Way(make_schedule_free, step_on_gradients, read_group("lr"), switched),
    "momo": Way(peer("momo", "Momo", "MomoAdam"), step_on_loss, read_nothing, as_it_is),
    "dog": Way(make_dog, step_on_gradients, read_nothing, averaged),
    "gen": Way(
        peer("probstep.baselines.bu2024gen", "GeN", "GeN", adam={"direction": "adamw"}),
        step_on_closure,  # it clips nothing
        read_group("lr", "scale"),
        as_it_is,
    ),
}


def find_way(name: str, rule: str | Callable[[], Any] | None = None) -> Way:
    """Return a way by its name; a rule, as its factory or as `module:factory`, goes with `ours`.

    Raises:
        ValueError: There is no such way.
    """
    if name not in WAYS:
        raise ValueError(f"No way is called {name!r}. There are: {', '.join(WAYS)}.")
    if rule is None:
        return WAYS[name]
    factory = read_factory(rule) if isinstance(rule, str) else rule
    return Way(make_ours(factory), step_of_ours, read_ours, as_it_is)
