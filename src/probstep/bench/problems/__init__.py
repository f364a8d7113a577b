"""What methods are measured on: a table of problems, each with data, model, loss and budget."""

from .evaluation import Evaluation as Evaluation
from .losses import mean_squares as mean_squares
from .problem import Batch as Batch
from .problem import Problem as Problem
from .problem import Task as Task
from .sources import Source as Source
from .splits import Dataset as Dataset
from .splits import Samples as Samples
from .splits import keep_validation as keep_validation
from .table import PROBLEMS as PROBLEMS
from .table import get_problem as get_problem
from .table import noisy_quadratic as noisy_quadratic
