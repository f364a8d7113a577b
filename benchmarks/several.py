"""Two optimizers under one loss: `ProbStep([a, b])` against a grid over both rates.

    python benchmarks/several.py --data DIR        # does the runs that the records lack

DIR holds Fashion-MNIST, CIFAR-10 and text/war_and_peace.txt in their usual layout. A run takes a few
seconds on one core. `probstep page several` makes the page of the documentation from the records.

A record is a line of JSON: the problem, the pair of optimizers, `way` (grid, or ours), the two rates
that were given, the seed, the steps, `loss` (of held-out data, after the last step), `rates` (the two
effective rates at the end) and `forwards` (beyond one per step).
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import probstep
from probstep.bench.data import read_cifar, read_idx_images, read_idx_labels, read_text

RECORDS = Path(__file__).parent / "records" / "several.jsonl"
HELD_OUT = 1024
FACTORS = tuple(10 ** (k / 2) for k in (-1, 0, 1, 2, 3))
STARTS = ("defaults", (1e-8, 1.0), (1.0, 1e-8))

Batch = tuple[Tensor, Tensor]
Pair = list[torch.optim.Optimizer]


# Data


@cache
def letters(data: Path) -> Tensor:
    """Return the first 300,000 characters of War and Peace as numbers."""
    return read_text(data / "text" / "war_and_peace.txt")[:300_000]


def windows(data: Path, length: int) -> tuple[Batch, Batch]:
    """Return windows of the text and the characters that follow each place; the last are held out."""
    text = letters(data)
    cut = text[: (len(text) - 1) // length * length].view(-1, length)
    following = text[1 : cut.numel() + 1].view(-1, length)
    return (cut[:-128], following[:-128]), (cut[-128:], following[-128:])


def contexts(data: Path, length: int) -> tuple[Batch, Batch]:
    """Return windows of the text and the one character that follows."""
    text = letters(data)
    x, y = text.unfold(0, length + 1, 1)[:, :length], text[length:]
    return (x[:-HELD_OUT], y[:-HELD_OUT]), (x[-HELD_OUT:], y[-HELD_OUT:])


@cache
def cifar(data: Path) -> tuple[Batch, Batch]:
    """Return two batches of CIFAR-10 for training, and images that are held out."""
    folder = data / "cifar-10-batches-py"
    parts = [read_cifar(folder / name) for name in ("data_batch_1", "data_batch_2", "test_batch")]
    x, y, test = (
        torch.cat([parts[0][0], parts[1][0]]),
        torch.cat([parts[0][1], parts[1][1]]),
        parts[2],
    )
    return (scaled(x), y), (scaled(test[0][:HELD_OUT]), test[1][:HELD_OUT])


@cache
def fashion(data: Path) -> tuple[Batch, Batch]:
    """Return Fashion-MNIST, and images that are held out."""
    folder = data / "FashionMNIST" / "raw"
    read = [
        (read_idx_images(folder / f"{part}-images-idx3-ubyte.gz"),
         read_idx_labels(folder / f"{part}-labels-idx1-ubyte.gz"))
        for part in ("train", "t10k")
    ]  # fmt: skip
    (x, y), (test_x, test_y) = read
    return (scaled(x).flatten(1), y), (scaled(test_x[:HELD_OUT]).flatten(1), test_y[:HELD_OUT])


def scaled(images: Tensor) -> Tensor:
    return images.float() / 127.5 - 1 if images.dtype == torch.uint8 else 2 * images - 1


# Models


class Block(nn.Module):
    """A block of a transformer, normalised before."""

    def __init__(self, width: int, heads: int, *, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.query(self.before(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=self.is_causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    """A small transformer over characters."""

    def __init__(self, symbols: int, length: int, width: int = 32) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(symbols, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, 2, is_causal=True))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, x: Tensor) -> Tensor:
        places = self.places(torch.arange(x.shape[1]))
        return self.head(self.last(self.blocks(self.symbols(x) + places))).transpose(1, 2)


class ViT(nn.Module):
    """A small vision transformer: patches of 8 x 8."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, width, 8, 8), nn.Embedding(16, width)
        self.blocks = nn.Sequential(Block(width, 2, is_causal=False))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places.weight
        return self.head(self.last(self.blocks(tokens)).mean(1))


class Lookup(nn.Module):
    """Sparse embeddings of the last characters, then two dense layers."""

    def __init__(self, symbols: int, length: int, width: int = 16) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, width, sparse=True)
        self.body = nn.Sequential(nn.Linear(length * width, 64), nn.ReLU(), nn.Linear(64, symbols))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.symbols(x).flatten(1))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10)
    )


# Pairs of optimizers


def muon_adamw(model: nn.Module, rates: tuple[float, float]) -> Pair:
    """Muon for the matrices between the first and the last layer, AdamW for the rest."""
    params = dict(model.named_parameters())
    is_inner = {
        name: p.ndim == 2 and not OUTER & set(name.split(".")) for name, p in params.items()
    }
    return [
        torch.optim.Muon([p for n, p in params.items() if is_inner[n]], lr=rates[0]),
        torch.optim.AdamW([p for n, p in params.items() if not is_inner[n]], lr=rates[1]),
    ]


OUTER = {"symbols", "places", "patches", "head"}  # names of what is neither matrix nor hidden


def sgd_adam(model: nn.Module, rates: tuple[float, float]) -> Pair:
    """SGD with momentum for the first layer, Adam for the rest."""
    first, *rest = model.children()
    own = [p for layer in rest for p in layer.parameters()]
    return [
        torch.optim.SGD(first.parameters(), lr=rates[0], momentum=0.9),
        torch.optim.Adam(own, lr=rates[1]),
    ]


def sparse_adam(model: Lookup, rates: tuple[float, float]) -> Pair:
    """SparseAdam for the embeddings, Adam for the rest."""
    return [
        torch.optim.SparseAdam(model.symbols.parameters(), lr=rates[0]),
        torch.optim.Adam(model.body.parameters(), lr=rates[1]),
    ]


# Problems


@dataclass(frozen=True)
class Problem:
    """What is trained, and by which pair.

    Args:
        name: What to call it.
        pair: What to call the optimizers.
        load: Reads the data: for training, and held out.
        make: The model.
        build: The optimizers, at two rates.
        centre: The middle of the grid: the rates that people begin with.
        size: Of a batch.
        steps: Of a run.
    """

    name: str
    pair: str
    load: Callable[[Path], tuple[Batch, Batch]]
    make: Callable[[], nn.Module]
    build: Callable[[nn.Module, tuple[float, float]], Pair]
    centre: tuple[float, float]
    size: int
    steps: int


SYMBOLS = 83  # of the text, and more than the first part of it has

PROBLEMS = (
    Problem("char GPT", "Muon + AdamW", partial(windows, length=32),
            partial(GPT, SYMBOLS, 32), muon_adamw, (1e-2, 3e-3), 16, 250),
    Problem("ViT, CIFAR-10", "Muon + AdamW", cifar, ViT, muon_adamw, (1e-2, 1e-3), 32, 250),
    Problem("MLP, Fashion-MNIST", "Muon + AdamW", fashion, mlp, muon_adamw, (1e-2, 3e-3), 64, 250),
    Problem("MLP, Fashion-MNIST", "SGD + Adam", fashion, mlp, sgd_adam, (1e-2, 1e-3), 64, 300),
    Problem("embeddings of characters", "SparseAdam + Adam", partial(contexts, length=8),
            partial(Lookup, SYMBOLS, 8), sparse_adam, (1e-2, 3e-3), 64, 400),
)  # fmt: skip


def train(problem: Problem, data: Path, way: str, rates: tuple[float, float], seed: int) -> dict:
    """Train once; return the record."""
    (x, y), test = problem.load(data)
    torch.manual_seed(seed)
    model = problem.make()
    pair = problem.build(model, rates)
    draw = torch.Generator().manual_seed(1000 + seed)
    opt = probstep.ProbStep(pair) if way == "ours" else None
    began = time.process_time()
    for _ in range(problem.steps):
        chosen = torch.randint(len(x), (problem.size,), generator=draw)
        forward = partial(loss_of, model, (x[chosen], y[chosen]))
        if opt is not None:
            opt.step(forward)
            continue
        model.zero_grad()
        forward().backward()
        for one in pair:
            one.step()
    with torch.no_grad():
        loss = loss_of(model, test).item()
    effective = rates if opt is None else (opt.effective_lr[0], opt.effective_lr[1])
    return {
        "problem": problem.name,
        "pair": problem.pair,
        "way": way,
        "given": list(rates),
        "seed": seed,
        "steps": problem.steps,
        "loss": loss if math.isfinite(loss) else None,
        "rates": list(effective),
        "forwards": 0 if opt is None else opt.metrics()["probe_forwards"],
        "seconds": round(time.process_time() - began, 2),
    }


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def runs(seeds: int) -> Iterator[tuple[Problem, str, tuple[float, float], int]]:
    """Give what is to be run: ours from three starts, then the grid."""
    for seed, problem in itertools.product(range(seeds), PROBLEMS):
        one, other = problem.centre
        for start in STARTS:
            yield problem, "ours", (problem.centre if start == "defaults" else start), seed
        for a, b in itertools.product(FACTORS, FACTORS):
            yield problem, "grid", (one * a, other * b), seed


def key(record: dict) -> tuple:
    given = tuple(f"{rate:.6g}" for rate in record["given"])
    return (record["problem"], record["pair"], record["way"], given, record["seed"])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--only", default="", help="ours or grid")
    arguments.add_argument("--problem", type=int, choices=range(len(PROBLEMS)), help="one of them")
    arguments.add_argument("--out", type=Path, default=RECORDS)
    args = arguments.parse_args()
    torch.set_num_threads(1)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    done = {key(json.loads(line)) for line in lines}
    for problem, way, rates, seed in runs(args.seeds):
        if args.problem is not None and problem is not PROBLEMS[args.problem]:
            continue
        told = {"problem": problem.name, "pair": problem.pair, "way": way}
        if key(told | {"given": rates, "seed": seed}) in done or args.only not in ("", way):
            continue
        record = train(problem, args.data, way, rates, seed)
        with args.out.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)


if __name__ == "__main__":
    main()
