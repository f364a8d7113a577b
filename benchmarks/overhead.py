"""What ProbStep adds to a training step, side by side in one run: time and peak memory.

    python benchmarks/overhead.py [ROUNDS]

For an MLP, a small CNN and a 2-layer transformer, with SGD (momentum) and Adam: the time of a bare step
(forward, backward, optimizer), of an unprobed and of a probed one, and of the forward pass that a probe
repeats. The four are measured in turn, round after round, so that a noisy machine disturbs them alike;
figures are medians of the rounds' ratios. Memory is the peak of live tensors during a probed step beyond
that of a bare one, in units of the parameters.
"""

import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import probstep


class Attention(nn.Module):
    """A 2-layer transformer that reads tokens and predicts the next."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(128, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of every position."""
        return self.out(self.layers(self.embed(tokens))).flatten(0, 1)


def mlp() -> nn.Module:
    sizes = (784, 1000, 500, 100, 10)
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


PROBLEMS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int]] = {
    "mlp": (mlp, lambda: torch.randn(128, 784), 10),
    "cnn": (cnn, lambda: torch.randn(64, 3, 32, 32), 10),
    "transformer": (Attention, lambda: torch.randint(256, (16, 64)), 256),
}
OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-4),
}
FROZEN = probstep.PaperRule(up=1, down=1)


def steps_of(problem: str, optimizer: str) -> dict[str, Callable[[], object]]:
    """The four things to be timed, each with a model of its own."""
    make_model, make_input, classes = PROBLEMS[problem]
    x = make_input()
    y = torch.randint(classes, (x.numel() if problem == "transformer" else len(x),))

    def parts(probe: probstep.Every | None):
        torch.manual_seed(0)
        model = make_model()
        base = OPTIMIZERS[optimizer](model.parameters())
        opt = base if probe is None else probstep.ProbStep(base, FROZEN, probe=probe)
        return opt, lambda: nn.functional.cross_entropy(model(x), y)

    bare_opt, bare_loss = parts(None)
    unprobed, unprobed_loss = parts(probstep.Every(10**9))
    probed, probed_loss = parts(probstep.Every(1))
    unprobed.step(unprobed_loss)  # the first step is probed

    def bare() -> None:
        bare_opt.zero_grad()
        bare_loss().backward()
        bare_opt.step()

    def forward() -> None:
        with torch.no_grad():
            bare_loss()

    return {
        "bare": bare,
        "forward": forward,
        "unprobed": lambda: unprobed.step(unprobed_loss),
        "probed": lambda: probed.step(probed_loss),
    }


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(problem: str, optimizer: str, rounds: int) -> tuple[float, float, float, float]:
    """Time of a bare step (ms), and the extra of unprobed, forward and probed in units of it."""
    steps = steps_of(problem, optimizer)
    for function in steps.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, function in steps.items():
            times[name].append(seconds(function))
    bare = times["bare"]
    ratios = {
        name: statistics.median(t / b for t, b in zip(times[name], bare, strict=True))
        for name in times
    }
    beyond = statistics.median(
        (p - b - f) / b for p, b, f in zip(times["probed"], bare, times["forward"], strict=True)
    )
    return statistics.median(bare) * 1e3, ratios["unprobed"] - 1, ratios["forward"], beyond


def peak(function: Callable[[], object]) -> int:
    """Peak bytes of tensors that a call allocates, by the profiler's allocation events."""
    gc.collect()
    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as p:
        function()
    live = highest = 0
    for event in p.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            highest = max(highest, live)
    return highest


def extra_memory(problem: str, optimizer: str) -> float:
    steps = steps_of(problem, optimizer)
    for function in steps.values():
        function()
    size = sum(p.numel() * p.element_size() for p in PROBLEMS[problem][0]().parameters())
    return (peak(steps["probed"]) - peak(steps["bare"])) / size


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    torch.set_num_threads(1)
    print(
        "| problem | optimizer | bare step | unprobed | one forward | probed beyond a forward | memory |"
    )
    print("|---|---|---|---|---|---|---|")
    for problem in PROBLEMS:
        for optimizer in OPTIMIZERS:
            bare, unprobed, forward, beyond = measure(problem, optimizer, rounds)
            memory = extra_memory(problem, optimizer)
            print(
                f"| {problem} | {optimizer} | {bare:.1f} ms | {unprobed:+.1%} | {forward:+.1%} "
                f"| {beyond:+.1%} | {memory:+.2f} x params |"
            )


if __name__ == "__main__":
    main()
