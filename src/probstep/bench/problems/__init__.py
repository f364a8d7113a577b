"""What methods are measured on: a table of problems, each with data, model, loss and budget."""

from .evaluation import Evaluation as Evaluation
from .losses import as_returned as as_returned
from .losses import class_hits as class_hits
from .losses import cross_entropy as cross_entropy
from .losses import half_squares as half_squares
from .losses import mean_squares as mean_squares
from .losses import sequence_cross_entropy as sequence_cross_entropy
from .losses import sequence_hits as sequence_hits
from .losses import summed_squares as summed_squares
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
