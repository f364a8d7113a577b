"""What loggers are told of an optimizer's events: each one once."""

from collections import Counter

from ..history import Event
from ..optimizer import ProbStep


class News:
    """The events of an optimizer since somebody last asked; those before it was made are old.

    >>> import torch
    >>> opt = ProbStep(torch.optim.SGD([w := torch.nn.Parameter(torch.ones(1))], lr=1e-6))
    >>> news = News(opt)
    >>> _ = opt.step(lambda: w.square().sum())
    >>> news.counts(), news.counts()
    ({'event/search': 1}, {})
    """

    def __init__(self, optimizer: ProbStep) -> None:
        self._optimizer = optimizer
        self._told = 0
        self.read()

    def read(self) -> list[Event]:
        """Return the events that are new."""
        events = self._optimizer.events
        new = [event for event in events if event.number > self._told]
        self._told = events[-1].number if events else 0  # fewer after an older checkpoint is loaded
        return new

    def counts(self) -> dict[str, int]:
        """Return how many new events there are of each kind, under the names that loggers get."""
        names = Counter(event.name.replace(" ", "_") for event in self.read())
        return {f"event/{name}": count for name, count in names.items()}
