"""The old name of `probstep.theory.covariance`, the paper's Table 1. It goes with version 0.3."""

from .renamed import attributes_of
from .theory import covariance

__getattr__ = attributes_of(covariance, old=__name__)
