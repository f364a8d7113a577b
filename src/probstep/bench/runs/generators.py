"""The process's random numbers (torch, numpy, Python): seeded together, kept together.

The bench itself draws from torch only. A user's own problem or method may draw from any.
"""

# ruff: noqa: NPY002  # numpy's global generator is the subject

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed all global generators.

    >>> seed_all(0)
    >>> first = random.random(), np.random.random(), torch.rand(()).item()
    >>> seed_all(0)
    >>> first == (random.random(), np.random.random(), torch.rand(()).item())
    True
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # numpy takes 32 bits
    torch.manual_seed(seed)


def save_random() -> dict[str, Any]:
    """The state of all global generators, as tensors and plain data."""
    name, words, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (str(name), np.asarray(words).tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def load_random(state: Mapping[str, Any]) -> None:
    """Continue from a saved state.

    >>> state = save_random()
    >>> first = random.random(), np.random.random(), torch.rand(()).item()
    >>> load_random(state)
    >>> first == (random.random(), np.random.random(), torch.rand(()).item())
    True

    Raises:
        ValueError: It is the state of no generator.
    """
    name, words, position, *rest = state["numpy"]
    if type(position) is not int or not 0 <= position <= len(words):
        raise ValueError(f"The position {position!r} is not in the state.")  # numpy does not look
    np.random.set_state((name, words, position, *rest))
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state_all(state["cuda"])
