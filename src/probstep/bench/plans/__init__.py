"""What is to be run: the plans that come along, what reads a plan, and files with own problems."""

from .imports import Source as Source
from .imports import add_source as add_source
from .imports import imported_hash as imported_hash
from .imports import read_source as read_source
from .plan import Plan as Plan
from .plan import list_plans as list_plans
from .plan import list_runs as list_runs
from .plan import parse_plan as parse_plan
from .plan import read_plan as read_plan
