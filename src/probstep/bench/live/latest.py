"""The newest report of records that change: made by one thread, not more often than it is worth."""

import time
from collections.abc import Callable
from dataclasses import dataclass

PAUSE = 10.0  # seconds between reports; if one takes longer than a second, so many times as long
EMPTY = b"<!doctype html><title>report</title><p>There is no report yet.</p>"


@dataclass
class Latest:
    """The last report, and whether it is time for another.

    Args:
        make: Makes a report; ValueError or OSError if there is nothing to report on yet.
        clock: The time in seconds.

    Example:
        >>> reports = Latest(lambda: b"first", clock=lambda: 100.0)
        >>> reports.renew("records 1")
        >>> reports.page, reports.version
        (b'first', 1)
        >>> reports.renew("records 2")  # too soon
        >>> reports.version
        1
    """

    make: Callable[[], bytes]
    clock: Callable[[], float] = time.monotonic
    page: bytes = EMPTY
    version: int = 0
    _state: object = None
    _due: float = -1.0

    def renew(self, state: object) -> None:
        """Make a new report if the state is not that of the last one, and enough time has passed."""
        begun = self.clock()
        if state == self._state or begun < self._due:
            return
        try:
            self.page = self.make()
            self.version += 1
            self._state = state
        except (ValueError, OSError):  # no records yet, or one was being replaced
            self._state = None
        finally:
            self._due = self.clock() + PAUSE * max(1.0, self.clock() - begun)
