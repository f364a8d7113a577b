"""What an epoch's probes saw: gathered after each step, told as a few plain numbers."""

import math
from dataclasses import dataclass, field
from typing import Any

from torch.optim import Optimizer

from probstep import Probe, ProbStep
from probstep.bench.means import quantile

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass
class EpochProbes:
    """The probes of an optimizer since this was made."""

    optimizer: ProbStep
    before: dict[str, float]
    last: Probe | None
    ratios: list[float] = field(default_factory=list)

    def observe(self) -> None:
        """Look at the optimizer after a step; a step without a probe adds nothing."""
        # Not by `metrics()`: to make them after every step would count as time of training.
        probe = self.optimizer.last_probe
        if probe is not None and probe is not self.last:
            self.last = probe
            self.ratios.append(probe.ratio)

    def summary(self) -> dict[str, Any]:
        """How often each decision was made, and how the ratios were spread."""
        after = self.optimizer.metrics()
        counts = {name: after[name] - self.before.get(name, 0) for name in after if _is_count(name)}
        ratios = [ratio for ratio in self.ratios if math.isfinite(ratio)]
        spread = {f"ratio_q{100 * q:02.0f}": quantile(ratios, q) for q in QUANTILES}
        return {**counts, **spread}


def watch_probes(optimizer: Optimizer) -> EpochProbes | None:
    """A watcher for the coming epoch, or None for an optimizer that does not probe."""
    if not isinstance(optimizer, ProbStep):
        return None
    return EpochProbes(optimizer, optimizer.metrics(), optimizer.last_probe)


def _is_count(name: str) -> bool:
    return name == "probe_forwards" or name.startswith("probes/")
