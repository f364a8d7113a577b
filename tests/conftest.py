"""Every test starts from the same random numbers and on one thread: results are the same everywhere."""

import random

import pytest
import torch


@pytest.fixture(autouse=True)
def same_start():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
