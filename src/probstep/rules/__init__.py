"""The rules: what a probe says about a step, turned into a factor for the scale. No tensors.

`protocol` says what any rule sees and answers, `paper` is the paper's rule, `robust` the default one,
`watch` one that moves nothing and says what the rate is like, as a `gauge`.
"""

from .gauge import Gauge as Gauge
from .gauge import Reading as Reading
from .paper import PaperRule as PaperRule
from .protocol import Decision as Decision
from .protocol import Norms as Norms
from .protocol import Observation as Observation
from .protocol import Proposal as Proposal
from .protocol import Rule as Rule
from .protocol import Setting as Setting
from .robust.rule import RobustRule as RobustRule
from .watch import WatchRule as WatchRule
