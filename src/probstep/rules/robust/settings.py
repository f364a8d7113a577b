"""What RobustRule says to its parts."""

from typing import Protocol


class Settings(Protocol):
    """The settings of RobustRule."""

    @property
    def target(self) -> float:
        """The bend that is aimed at."""
        ...

    @property
    def up(self) -> float:
        """The largest factor per probe, as a rule."""
        ...

    @property
    def doubt(self) -> float:
        """The variance of log scale at which a probe is due."""
        ...

    @property
    def budget(self) -> tuple[float, float]:
        """The forward passes allowed: so many at once, and so many per step."""
        ...

    @property
    def without(self) -> frozenset[str]:
        """The parts that are left out."""
        ...
