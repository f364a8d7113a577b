"""What an epoch's probes saw: gathered after each step, told as a few plain numbers."""

import math
from dataclasses import dataclass, field
from typing import Any

from torch.optim import Optimizer

from probstep import ProbStep
from probstep.bench.means import quantile

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class EpochProbes:
    """The probes of an optimizer since this was made."""

    optimizer: ProbStep
    before: dict[str, float]
    ratios: dict[float, float] = field(default_factory=dict)  # by the count of forward passes

    def observe(self) -> None:
        """Look at the optimizer after a step; a step without a probe adds nothing."""
        metrics = self.optimizer.metrics()
        if metrics["probe_forwards"] > self.before["probe_forwards"]:
            self.ratios[metrics["probe_forwards"]] = metrics["ratio"]

    def summary(self) -> dict[str, Any]:
        """How often each decision was made, and how the ratios were spread."""
        after = self.optimizer.metrics()
        counts = {name: after[name] - self.before.get(name, 0) for name in after if _is_count(name)}
        ratios = [ratio for ratio in self.ratios.values() if math.isfinite(ratio)]
        spread = {f"ratio_q{100 * q:02.0f}": quantile(ratios, q) for q in QUANTILES}
        return {**counts, **spread}


def watch_probes(optimizer: Optimizer) -> EpochProbes | None:
    """A watcher for the coming epoch, or None for an optimizer that does not probe."""
    return EpochProbes(optimizer, optimizer.metrics()) if isinstance(optimizer, ProbStep) else None


def _is_count(name: str) -> bool:
    return name == "probe_forwards" or name.startswith("probes/")
