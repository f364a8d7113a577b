"""Fixed against adapted: a small network on scikit-learn's digits from six initial rates.

    make demo                       # or: python examples/02_six_rates.py [FIGURE.png]

Needs the extra `bench` (scikit-learn, rich, matplotlib). Prints the table, writes the figure.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn

import probstep

mpl.use("Agg")
import matplotlib.pyplot as plt

RATES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
EPOCHS, BATCH, TRAIN = 30, 64, 1437


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]


def train(rate: float, *, adapted: bool, progress: Progress) -> tuple[list[float], float]:
    """Return the training loss after each epoch and the test accuracy at the end."""
    torch.manual_seed(0)
    x, y = digits()
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    opt = torch.optim.SGD(model.parameters(), lr=rate)
    if adapted:
        opt = probstep.ProbStep(opt, probstep.PaperRule())
    name = f"{'adapted' if adapted else 'fixed'} {rate:g}"
    curve = []
    for _ in progress.track(range(EPOCHS), description=f"{name:14}"):
        for rows in torch.randperm(TRAIN).split(BATCH):
            step(opt, lambda rows=rows: nn.functional.cross_entropy(model(x[rows]), y[rows]))
        with torch.no_grad():
            curve.append(nn.functional.cross_entropy(model(x[:TRAIN]), y[:TRAIN]).item())
    return curve, (model(x[TRAIN:]).argmax(1) == y[TRAIN:]).float().mean().item()


def step(opt: torch.optim.Optimizer, closure) -> None:
    if isinstance(opt, probstep.ProbStep):
        opt.step(closure)
    else:
        opt.zero_grad()
        closure().backward()
        opt.step()


def draw(curves: dict[tuple[float, bool], list[float]], path: Path) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    colours = plt.get_cmap("viridis")(torch.linspace(0, 0.95, len(RATES)).numpy())
    for panel, adapted in zip(panels, (False, True), strict=True):
        for rate, colour in zip(RATES, colours, strict=True):
            panel.plot(range(1, EPOCHS + 1), curves[rate, adapted], color=colour, label=f"{rate:g}")
        panel.set(
            title="adapted by probstep" if adapted else "fixed rate", xlabel="epoch", yscale="log"
        )
    panels[0].set_ylabel("training loss")
    panels[1].legend(title="initial rate", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    torch.set_num_threads(1)
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "demo/six_rates.png")
    curves, table = (
        {},
        Table("initial rate", "fixed: loss", "accuracy", "adapted: loss", "accuracy"),
    )
    with Progress() as progress:
        for rate in RATES:
            cells = [f"{rate:g}"]
            for adapted in (False, True):
                curves[rate, adapted], accuracy = train(rate, adapted=adapted, progress=progress)
                cells += [f"{curves[rate, adapted][-1]:.4f}", f"{accuracy:.1%}"]
            table.add_row(*cells)
    draw(curves, path)
    console = Console()
    console.print(table)
    console.print(f"SGD on 8x8 digits, {EPOCHS} epochs, the paper's rule. Figure: {path}")


if __name__ == "__main__":
    main()
