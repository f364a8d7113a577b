"""Fully connected networks."""

from itertools import pairwise

from torch import nn

from .layers import initialise, truncated_normal


def make_logreg(inputs: int = 784, outputs: int = 10) -> nn.Module:
    """Logistic regression that starts at zero.

    >>> sum(p.numel() for p in make_logreg().parameters())
    7850
    """
    net = nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))
    return initialise(net, {nn.Linear: nn.init.zeros_})


def make_perceptron(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    """Dense layers of these widths with an activation between them, in torch's initialisation.

    >>> [type(layer).__name__ for layer in make_perceptron(4, 3, 2)]
    ['Flatten', 'Linear', 'ReLU', 'Linear']
    """
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), activation())]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


def make_mlp() -> nn.Module:
    """DeepOBS's multilayer perceptron for (Fashion-)MNIST.

    >>> sum(p.numel() for p in make_mlp().parameters())
    1336610
    """
    net = make_perceptron(784, 1000, 500, 100, 10)
    return initialise(net, {nn.Linear: truncated_normal(0.03)})


def make_autoencoder(pixels: int = 64, code: int = 8) -> nn.Module:
    """A perceptron from an image to a short code and back to the flat image.

    >>> import torch
    >>> make_autoencoder()(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 64])
    """
    return make_perceptron(pixels, 32, code, 32, pixels, activation=nn.Tanh)
