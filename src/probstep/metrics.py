"""What a user and his loggers read of a step: rates under names, and plain numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from .memory import NO_PROBE, Memory
from .rules import Rule


class Rates(list[float]):
    """The rates of several members, one number per group, each also under its name.

    >>> rates = Rates([0.02, 0.001], ["Muon", "AdamW"])
    >>> rates["AdamW"], rates[0], rates
    (0.001, 0.02, {'Muon': 0.02, 'AdamW': 0.001})
    """

    def __init__(self, rates: Sequence[float], names: Sequence[str]) -> None:
        super().__init__(rates)
        self.names = list(names)

    def named(self) -> Iterator[tuple[str, float]]:
        """Give the names and their rates."""
        return zip(self.names, self, strict=True)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise ValueError(
                    f"No rate has the name {key!r}. There are {', '.join(self.names)}."
                )
            key = self.names.index(key)
        return super().__getitem__(key)

    def __repr__(self) -> str:
        return repr(dict(self.named()))


def metrics_of(memory: Memory, rule: Rule, scale: float, rates: list[float]) -> dict[str, float]:
    """Return plain numbers for a logger.

    Args:
        memory: What was counted, and the last probe.
        rule: It adds numbers of its own.
        scale: Of the next step.
        rates: Of the next step, one number per group.
    """
    numbers = {"scale": scale}
    if isinstance(rates, Rates):
        numbers |= {f"effective_lr/{name}": rate for name, rate in rates.named()}
    elif len(rates) == 1:
        numbers["effective_lr"] = rates[0]
    else:
        numbers |= {f"effective_lr/{k}": rate for k, rate in enumerate(rates)}
    numbers |= {"steps": memory.steps, "probe_forwards": memory.forwards}
    numbers |= {f"probes/{word}": count for word, count in memory.decisions.items()}
    numbers |= {"slope_factor": memory.proof.slope_factor}
    numbers |= {"blind_probes": memory.health.blind, "taken_back": memory.health.taken_back}
    numbers |= rule.metrics(memory.rule)
    last = asdict(memory.last or NO_PROBE)
    return numbers | {k: v for k, v in last.items() if k not in ("scale", "decision")}
