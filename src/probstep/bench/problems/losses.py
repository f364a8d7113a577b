"""Losses and hits of each sample, from a model's outputs and the targets; no means over samples."""

import torch
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each sample.

    >>> cross_entropy(torch.zeros(2, 10), torch.tensor([3, 5])).exp()
    tensor([10., 10.])
    """
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def class_hits(logits: Tensor, labels: Tensor) -> Tensor:
    """1 where the largest logit is the label's, else 0.

    >>> class_hits(torch.eye(2), torch.tensor([0, 0])).tolist()
    [1.0, 0.0]
    """
    return (logits.argmax(dim=-1) == labels).float()


def sequence_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each sequence: the mean over its times.

    >>> sequence_cross_entropy(torch.zeros(2, 7, 4), torch.zeros(2, 7, dtype=torch.long)).exp()
    tensor([4., 4.])
    """
    flat = cross_entropy(logits.flatten(0, 1), labels.flatten())
    return flat.view_as(labels).mean(dim=1)


def sequence_hits(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of the times of each sequence at which the largest logit is the label's.

    >>> sequence_hits(torch.eye(2)[None], torch.tensor([[0, 0]])).tolist()
    [0.5]
    """
    return class_hits(logits, labels).mean(dim=1)


def summed_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared distance of each flat output from its target.

    >>> summed_squares(torch.zeros(1, 4), torch.ones(1, 2, 2)).item()
    4.0
    """
    return (outputs - targets.flatten(1)).square().sum(dim=1)


def mean_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean squared difference of each flat output from its target.

    >>> mean_squares(torch.zeros(1, 4), torch.ones(1, 4)).item()
    1.0
    """
    return (outputs - targets.flatten(1)).square().mean(dim=1)


def evidence_bound(outputs: tuple[Tensor, Tensor, Tensor], targets: Tensor) -> Tensor:
    """The negative evidence bound of each image: squared error plus divergence from the prior.

    >>> evidence_bound((torch.zeros(1, 4), torch.zeros(1, 8), torch.zeros(1, 8)), torch.ones(1, 4))
    tensor([4.])
    """
    images, mean, log_std = outputs
    divergence = 0.5 * (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).sum(dim=1)
    return summed_squares(images, targets) + divergence


def half_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the squared norm of each output; the targets are not used.

    >>> half_squares(torch.ones(1, 4), torch.zeros(1)).item()
    2.0
    """
    del targets
    return 0.5 * outputs.square().sum(dim=1)


def mean_square_norm(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean square over the dimensions of each output; the targets are not used.

    >>> mean_square_norm(torch.ones(1, 4), torch.zeros(1)).item()
    1.0
    """
    del targets
    return outputs.square().mean(dim=1)


def as_returned(outputs: Tensor, targets: Tensor) -> Tensor:
    """The outputs, where the model's output is the loss itself.

    >>> as_returned(torch.ones(2), torch.zeros(2))
    tensor([1., 1.])
    """
    del targets
    return outputs
