"""Every test starts from the same random numbers and on one thread: results are the same everywhere."""

import random

import pytest
import torch
from hypothesis import HealthCheck, settings

# The same examples in every run, and no limit of time that a busy machine could miss.
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("same")


@pytest.fixture(autouse=True)
def same_start():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
