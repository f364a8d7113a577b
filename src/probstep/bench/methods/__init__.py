"""How to train: one table of methods, what makes each, and how a training loop uses any of them."""

from .method import LIMITS as LIMITS
from .method import RATES as RATES
from .method import Build as Build
from .method import Method as Method
from .method import Needs as Needs
from .method import read_group as read_group
from .method import read_nothing as read_nothing
from .rate_schedules import SCHEDULES as SCHEDULES
from .settings import Fault as Fault
from .settings import find_fault as find_fault
from .table import METHODS as METHODS
from .table import get_method as get_method
from .use import effective_rate as effective_rate
from .use import evaluating as evaluating
from .use import prepare as prepare
from .use import take_step as take_step
