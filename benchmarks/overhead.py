"""What the default rule adds to a step: time without a probe, time with one, and the import.

    python benchmarks/overhead.py                # needs an idle machine; about four minutes
    python benchmarks/overhead.py --seconds 0.5 --to /tmp/overhead.md        # a quick look

All sides of a comparison step in turn, round after round, on the same new batch, so that a noisy
machine disturbs them alike; and in an order that is drawn anew for every round, because a step finds
the caches as the one before has left them. A figure is the median over the rounds of CPU time, or of
its difference to the bare optimizer's in the same round. The tables are printed and written to
benchmarks/records/overhead.md, and from there into docs/cost.md. A figure above its bar is bold.
"""

import argparse
import itertools
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn, optim

from probstep import EveryStep, ProbStep, RobustRule

RECORD = Path(__file__).parent / "records" / "overhead.md"
PAGE = Path(__file__).parents[1] / "docs" / "cost.md"
BEGIN, END = "<!-- record: begin -->\n\n", "\n<!-- record: end -->"  # its place on the page
UNPROBED = RobustRule(budget=(1.0, 0.0))  # the search of the first step, and no probe after it
WARM_UP = 10  # rounds that are not counted: the search, and what torch does only once
LEAST_ROUNDS = 20
MICRO = 1e6  # microseconds per second

Step = Callable[[], object]
Loss = Callable[[], Tensor]


# The nets


class Stack(nn.Module):
    """Linear layers, two tensors each; all but the first add to their input."""

    def __init__(self, tensors: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(tensors // 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return one number per class and sample."""
        first, *others = self.layers
        x = first(x)
        for layer in others:
            x = x + 0.1 * torch.relu(layer(x))  # the factor: 200 layers must not overflow
        return x


class Transformer(nn.Module):
    """A 2-layer transformer that reads tokens and says a token for each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(128, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return one number per token of the alphabet, at every position."""
        return self.out(self.layers(self.embed(tokens))).flatten(0, 1)


def make_mlp() -> nn.Module:
    sizes = (784, 1000, 500, 100, 10)
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def make_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


class Batch(NamedTuple):
    """Inputs and labels; `renew` writes new ones into the same memory."""

    x: Tensor
    y: Tensor
    classes: int

    def renew(self) -> None:
        """Draw another batch."""
        if self.x.is_floating_point():
            self.x.normal_()
        else:
            self.x.random_(self.classes)
        self.y.random_(self.classes)


def vectors(samples: int, *shape: int, classes: int) -> Batch:
    return Batch(torch.empty(samples, *shape), torch.empty(samples, dtype=torch.int64), classes)


def tokens(samples: int, length: int, classes: int) -> Batch:
    x, y = (torch.empty(n, dtype=torch.int64) for n in [samples * length] * 2)
    return Batch(x.view(samples, length), y, classes)


class Net(NamedTuple):
    """A kind of net, and the batches that it sees."""

    make: Callable[[], nn.Module]
    make_batch: Callable[[], Batch]


def stack(tensors: int, width: int, samples: int) -> Net:
    return Net(lambda: Stack(tensors, width), lambda: vectors(samples, width, classes=width))


SIZES = {"narrow": (64, 32), "wide": (160, 160)}  # width of the layers, samples in a batch
STACKS = {
    (tensors, size): stack(tensors, *SIZES[size]) for size in SIZES for tensors in (4, 44, 404)
}
NETS = {  # with the bar for a probe beyond its forward pass, as a share of a bare step
    "MLP": (Net(make_mlp, lambda: vectors(128, 784, classes=10)), 0.10),
    "CNN": (Net(make_cnn, lambda: vectors(64, 3, 32, 32, classes=10)), 0.05),
    "transformer": (Net(Transformer, lambda: tokens(16, 64, classes=256)), 0.05),
}
BASES: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD": lambda params: optim.SGD(params, lr=1e-3, momentum=0.9),
    "Adam": lambda params: optim.Adam(params, lr=1e-4),
}


# The ways in which a loss arrives


def bare(opt: optim.Optimizer, loss: Loss) -> Step:
    """The loop without ProbStep."""

    def step() -> None:
        opt.zero_grad()
        loss().backward()
        opt.step()

    return step


def bare_with_floor(opt: optim.Optimizer, loss: Loss) -> Step:
    """The loop without ProbStep, and what every probe must do with the parameters, at its cheapest.

    That is one copy of them, and after the step one pass for the slope and both norms. It is cheaper
    than a probe can be: its memory is kept from step to step, and the displacement takes the place of
    the copy, so that the step could not be taken back.
    """
    params = [p for group in opt.param_groups for p in group["params"]]
    before, after = [torch.empty_like(p) for p in params], [p.detach() for p in params]

    def step() -> None:
        opt.zero_grad()
        loss().backward()
        torch._foreach_copy_(before, after)
        opt.step()
        measure_step([p.grad for p in params], before, after)

    return step


def bare_with_look(opt: optim.Optimizer, loss: Loss) -> Step:
    """The loop without ProbStep, and what no unprobed step can do without, at its cheapest.

    That is to read the loss, and to look whether all gradients are finite before the step is taken.
    """
    params = [p for group in opt.param_groups for p in group["params"]]
    found, one = torch.zeros(()), torch.ones(())

    def step() -> None:
        opt.zero_grad()
        value = loss()
        value.backward()
        grads = [p.grad for p in params]
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, one)
        if math.isfinite(value.item()) and not found.item():
            opt.step()

    return step


def measure_step(
    grads: Sequence[Tensor], before: Sequence[Tensor], after: Sequence[Tensor]
) -> list[float]:
    """Return the gradient times the displacement, and the squares of both; `before` is lost."""
    products = []
    for grad, b, a in zip(grads, before, after, strict=True):
        g, v = grad.reshape(-1), b.sub_(a).view(-1)
        products += [torch.dot(g, v), torch.dot(g, g), torch.dot(v, v)]
    return torch.stack(products).view(-1, 3).sum(0, dtype=torch.float64).tolist()


def by_closure(opt: ProbStep, loss: Loss) -> Step:
    return lambda: opt.step(loss)


def by_closure_with_backward(opt: ProbStep, loss: Loss) -> Step:
    def closure() -> Tensor:
        opt.zero_grad()
        value = loss()
        value.backward()
        return value

    return lambda: opt.step(closure)


def by_loss(opt: ProbStep, loss: Loss) -> Step:
    def step() -> None:
        opt.zero_grad()
        value = loss()
        value.backward()
        opt.step(loss=value, reevaluate=loss)

    return step


def by_hand_over(opt: ProbStep, loss: Loss) -> Step:
    def step() -> None:
        opt.zero_grad()
        value = loss()
        value.backward()
        opt.reevaluate_with(loss, value)
        opt.step()

    return step


WAYS: dict[str, Callable[[ProbStep, Loss], Step]] = {
    "closure": by_closure,
    "closure with backward": by_closure_with_backward,
    "`loss=` and `reevaluate=`": by_loss,
    "`reevaluate_with`": by_hand_over,
}


# Measuring


def make_side(net: Net, base: str, batch: Batch) -> tuple[optim.Optimizer, Loss]:
    """An optimizer and the loss of its own net: the same net on every side."""
    torch.manual_seed(0)
    model = net.make()
    return (
        BASES[base](model.parameters()),
        lambda: nn.functional.cross_entropy(model(batch.x), batch.y),
    )


def rounds_of(
    steps: Mapping[str, Step], batch: Batch, seconds: float
) -> Iterable[dict[str, float]]:
    """Give the CPU seconds of each step, round after round, those of the warm-up left out."""
    names, order = list(steps), random.Random(0)
    ends = time.process_time() + seconds
    for k in itertools.count():
        if k >= WARM_UP + LEAST_ROUNDS and time.process_time() > ends:
            return
        batch.renew()
        times = {}
        for name in names:
            began = time.process_time()
            steps[name]()
            times[name] = time.process_time() - began
        order.shuffle(names)
        if k >= WARM_UP:
            yield times


def forwards_of(opt: ProbStep) -> float:
    return opt.metrics()["probe_forwards"]


def measure_unprobed(net: Net, base: str, seconds: float) -> tuple[float, dict[str, float]]:
    """Return the seconds of a bare step, and what the floor and each way add to it."""
    batch = net.make_batch()
    steps, wrapped = {"bare": bare(*make_side(net, base, batch))}, []
    steps["floor"] = bare_with_look(*make_side(net, base, batch))
    for way, make in WAYS.items():
        optimizer, loss = make_side(net, base, batch)
        wrapped.append(ProbStep(optimizer, UNPROBED))
        steps[way] = make(wrapped[-1], loss)
    rounds, searched = [], None
    for times in rounds_of(steps, batch, seconds):
        searched = searched or list(map(forwards_of, wrapped))
        rounds.append(times)
    if searched != list(map(forwards_of, wrapped)):
        raise RuntimeError("A step was probed that should not have been.")
    added = {side: statistics.median(r[side] - r["bare"] for r in rounds) for side in steps}
    del added["bare"]
    return statistics.median(r["bare"] for r in rounds), added


class Probed(NamedTuple):
    """Seconds of a bare step and of a forward pass, and what a probe takes beyond both.

    Args:
        bare: The bare step.
        forward: One forward pass.
        floor: What a probe must do with the parameters, at its cheapest.
        beyond: What it takes.
    """

    bare: float
    forward: float
    floor: float
    beyond: float


def measure_probed(net: Net, base: str, seconds: float) -> Probed:
    """Compare a probed step with an unprobed one and a forward pass; only probes of one length."""
    batch = net.make_batch()
    optimizer, loss = make_side(net, base, batch)
    forward = torch.no_grad()(loss)
    floor = bare_with_floor(*make_side(net, base, batch))
    unprobed, unprobed_loss = make_side(net, base, batch)
    base_of_probed, probed_loss = make_side(net, base, batch)
    probed = ProbStep(base_of_probed, probe=EveryStep())
    steps = {
        "bare": bare(optimizer, loss),
        "forward": forward,
        "floor": floor,
        "unprobed": by_closure(ProbStep(unprobed, UNPROBED), unprobed_loss),
        "probed": by_closure(probed, probed_loss),
    }
    rounds, before = [], 0.0
    for times in rounds_of(steps, batch, seconds):
        before, passes = forwards_of(probed), forwards_of(probed) - before
        if passes == 1:
            rounds.append(times)
    if not rounds:
        raise RuntimeError("No probe was of one length.")
    medians = {name: statistics.median(r[name] for r in rounds) for name in steps}
    floor_time = statistics.median(r["floor"] - r["bare"] for r in rounds)
    beyond = statistics.median(r["probed"] - r["unprobed"] - r["forward"] for r in rounds)
    return Probed(medians["bare"], medians["forward"], floor_time, beyond)


IMPORT = """
import time, torch
began = time.process_time()
import probstep
print(time.process_time() - began)
"""


def measure_import(times: int = 5) -> float:
    """Return the CPU seconds that the import of probstep takes after that of torch.

    Python keeps what it has compiled, unless it is told not to, so the first import is not counted.
    """
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _, *seconds = (
            float(subprocess.check_output([sys.executable, "-c", IMPORT], env=environment))
            for _ in range(times + 1)
        )
    return statistics.median(seconds)


# The tables


def bar_of(tensors: int, bare_step: float) -> float:
    """The most that an unprobed step may add, in seconds.

    40 microseconds and 1 per tensor; 2 % where a bare step takes over 100 microseconds per tensor.
    """
    least = (40 + tensors) / MICRO
    is_large = bare_step > 100 * tensors / MICRO
    return max(least, 0.02 * bare_step) if is_large else least


def marked(text: str, value: float, bar: float) -> str:
    return f"**{text}**" if value > bar else text


def tabulate(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tell_unprobed(seconds: float) -> str:
    rows = []
    for (tensors, size), net in STACKS.items():
        for base in BASES:
            bare_step, added = measure_unprobed(net, base, seconds)
            bar = bar_of(tensors, bare_step)
            floor = added.pop("floor")
            cells = [
                marked(f"{a * MICRO:+.0f} µs, {1 + a / bare_step:.3f}", a, bar)
                for a in added.values()
            ]
            start = [str(tensors), size, base, f"{bare_step * 1e3:.2f} ms", f"{bar * MICRO:.0f} µs"]
            rows.append([*start, f"{floor * MICRO:+.0f} µs", *cells])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ["tensors", "layers", "optimizer", "bare step", "bar", "floor", *WAYS]
    return f"A step without a probe, beyond a bare one:\n\n{tabulate(header, rows)}"


def tell_probed(seconds: float) -> str:
    rows = []
    for name, (net, bar) in NETS.items():
        for base in BASES:
            found = measure_probed(net, base, seconds)
            forward, floor, beyond = (part / found.bare for part in found[1:])
            cells = [f"{found.bare * 1e3:.1f} ms", f"{forward:.0%}", f"{bar:.0%}", f"{floor:.1%}"]
            rows.append([name, base, *cells, marked(f"{beyond:.1%}", beyond, bar)])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    header = [
        "net",
        "optimizer",
        "bare step",
        "one forward pass",
        "bar",
        "floor",
        "beyond that pass",
    ]
    title = "A probed step, beyond an unprobed one and one forward pass, in units of a bare step:"
    return f"{title}\n\n{tabulate(header, rows)}"


def tell_import() -> str:
    found, bar = measure_import(), 0.050
    text = marked(f"{found * 1e3:.0f} ms", found, bar)
    return (
        f"The import of probstep, beyond that of torch: {text}, with a bar of {bar * 1e3:.0f} ms."
    )


def put_on_page(record: str) -> None:
    """Replace the record that the page contains."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(before + BEGIN + record + END + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="of timed steps per row")
    parser.add_argument(
        "--to", type=Path, default=RECORD, help="another file leaves the page alone"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = [tell_unprobed(options.seconds), tell_probed(options.seconds), tell_import()]
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, one thread."
    text = "\n\n".join([*tables, versions]) + "\n"
    print(text, end="")
    options.to.write_text(text, encoding="utf-8")
    if options.to == RECORD:
        put_on_page(text)


if __name__ == "__main__":
    main()
