"""The page that judges the paper's claims and draws its figures, from records alone.

evidence    which run is of which of the paper's ways to set a rate
claims      what the paper says, and what the records say of it
figures     the paper's figures, narrow enough for a phone
failures    where the algorithm fails if it is taken literally
extremes    where it fails as it is meant
since       what came after the paper, on the same nets
differences in what the runs differ from the paper's, and the commands
effort      what is on record, and how long it trained
forecast    what the plan at full size would take, by arithmetic
page        the text around them
"""

from .evidence import RECORDS as RECORDS
from .evidence import Evidence as Evidence
from .evidence import read_evidence as read_evidence
from .page import draw_study as draw_study
from .page import write_study as write_study
