"""Wrap any torch optimizer, start from any learning rate, train once.

    opt = probstep.ProbStep(torch.optim.Adam(model.parameters()))
    loss = opt.step(lambda: loss_fn(model(x), y))

`RobustRule` is the default, `PaperRule` the paper's rule. The paper's Algorithm 1 is
`probstep.step.adapt.adapt`; its inference is `probstep.inference`, its Table 1 `probstep.covariance`.
"""

from . import covariance as covariance
from . import inference as inference
from .estimators import Interpolation as Interpolation
from .estimators import RunningMinimum as RunningMinimum
from .estimators import SampleNoise as SampleNoise
from .memory import Probe as Probe
from .optimizer import ProbStep as ProbStep
from .robust import RobustRule as RobustRule
from .rules import PaperRule as PaperRule
from .schedule import DoublingEpochs as DoublingEpochs
from .schedule import Every as Every
from .schedule import EveryStep as EveryStep

__version__ = "0.1.0"
