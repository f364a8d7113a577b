"""Wrap any torch optimizer, start from any learning rate, train once.

    opt = probstep.ProbStep(torch.optim.Adam(model.parameters()))
    loss = opt.step(lambda: loss_fn(model(x), y))

`RobustRule` is the default, `PaperRule` the paper's rule. The paper's Algorithm 1 is
`probstep.step.adapt.adapt`; its inference is `probstep.inference`, its Table 1 `probstep.covariance`.
"""

import importlib
from types import ModuleType

from .estimators import Interpolation as Interpolation
from .estimators import RunningMinimum as RunningMinimum
from .estimators import SampleNoise as SampleNoise
from .memory import Probe as Probe
from .optimizer import ProbStep as ProbStep
from .rules import PaperRule as PaperRule
from .rules import RobustRule as RobustRule
from .schedule import DoublingEpochs as DoublingEpochs
from .schedule import Every as Every
from .schedule import EveryStep as EveryStep
from .step.prove import NotTheSameLoss as NotTheSameLoss
from .theory import inference as inference

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    """Import `probstep.covariance` when it is first used: no step needs it."""
    if name == "covariance":
        return importlib.import_module(".theory.covariance", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
