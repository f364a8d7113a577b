"""Standard data sets as tensors: where their files lie, how they are fetched, how they are read.

No model and no split is made here; that is the part of `probstep.bench.problems`.
"""

from .catalog import CATALOG as CATALOG
from .catalog import Files as Files
from .catalog import data_directory as data_directory
from .catalog import find_folder as find_folder
from .catalog import get_files as get_files
from .download import download_files as download_files
from .formats import read_cifar as read_cifar
from .formats import read_idx as read_idx
from .formats import read_idx_images as read_idx_images
from .formats import read_idx_labels as read_idx_labels
from .formats import read_svhn as read_svhn
from .formats import read_text as read_text
