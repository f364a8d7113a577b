"""The default rule beside the best fixed rate: docs/robust-benchmark.md, from benchmarks/hazards.

`study` has the records and the bars, `page` the text.
"""

from .page import draw_study as draw_study
from .page import write_study as write_study
from .study import RECORDS as RECORDS
from .study import Study as Study
from .study import read_study as read_study
