"""The rules: what a probe says about a step, turned into a factor for the scale. No tensors.

`protocol` says what any rule sees and answers, `paper` is the paper's rule, `robust` the default one,
`watch` one that moves nothing and says what the rate is like, as a `gauge`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .protocol import Decision as Decision
from .protocol import Norms as Norms
from .protocol import Observation as Observation
from .protocol import Proposal as Proposal
from .protocol import Rule as Rule
from .protocol import Setting as Setting
from .robust.rule import RobustRule as RobustRule

if TYPE_CHECKING:  # rules that are not the default; `__getattr__` imports them
    from .gauge import Gauge as Gauge
    from .gauge import Reading as Reading
    from .paper import PaperRule as PaperRule
    from .watch import WatchRule as WatchRule

LATER = {"Gauge": ".gauge", "Reading": ".gauge", "PaperRule": ".paper", "WatchRule": ".watch"}


def __getattr__(name: str) -> Any:
    """Import what a name stands for when it is first used: `import probstep` shall be fast."""
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(LATER[name], __name__), name)
