"""The old name of `probstep.theory.inference`, the paper's inference. It goes with version 0.3."""

from .renamed import attributes_of
from .theory import inference

__getattr__ = attributes_of(inference, old=__name__)
