"""Wrap any torch optimizer, start from any learning rate, train once.

    opt = probstep.ProbStep(torch.optim.Adam(model.parameters()))
    loss = opt.step(lambda: loss_fn(model(x), y))

`RobustRule` is the default, `PaperRule` the paper's rule. The paper's Algorithm 1 is
`probstep.step.adapt.adapt`; its inference is `probstep.theory.inference`, its Table 1
`probstep.theory.covariance`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .estimators import Interpolation as Interpolation
from .estimators import RunningMinimum as RunningMinimum
from .estimators import SampleNoise as SampleNoise
from .history import Event as Event
from .history import History as History
from .memory import Probe as Probe
from .optimizer import ProbStep as ProbStep
from .rules import RobustRule as RobustRule
from .step.same import NotTheSameLoss as NotTheSameLoss
from .step.stateful import Stateful as Stateful
from .step.stateful import stateful as stateful

if TYPE_CHECKING:  # what few trainings use; `__getattr__` imports it
    from .averages import polynomial_average as polynomial_average
    from .classes import SGD as SGD
    from .classes import Adagrad as Adagrad
    from .classes import Adam as Adam
    from .classes import AdamW as AdamW
    from .classes import Muon as Muon  # torch has it from 2.9 on
    from .classes import RMSprop as RMSprop
    from .classes import wrap as wrap
    from .plotting.plot import Plot as Plot
    from .plotting.plot import plot as plot
    from .rules import Gauge as Gauge
    from .rules import PaperRule as PaperRule
    from .rules import WatchRule as WatchRule
    from .schedule import DoublingEpochs as DoublingEpochs
    from .schedule import Every as Every
    from .schedule import EveryStep as EveryStep
    from .suggesting import suggest as suggest
    from .suggestion import Suggestion as Suggestion
    from .watching import watch as watch

__version__ = "0.14.0"  # the one place: pyproject.toml reads it here

CLASSES = ("SGD", "Adagrad", "Adam", "AdamW", "Muon", "RMSprop", "wrap")
LATER = {
    "polynomial_average": ".averages",
    **dict.fromkeys(CLASSES, ".classes"),
    **dict.fromkeys(("Plot", "plot"), ".plotting.plot"),
    **dict.fromkeys(("Gauge", "PaperRule", "WatchRule"), ".rules"),
    **dict.fromkeys(("DoublingEpochs", "Every", "EveryStep"), ".schedule"),
    "suggest": ".suggesting",
    "Suggestion": ".suggestion",
    "watch": ".watching",
}


def __getattr__(name: str) -> Any:
    """Import what a name stands for when it is first used: `import probstep` shall be fast."""
    if name in LATER:
        value = getattr(importlib.import_module(LATER[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})
