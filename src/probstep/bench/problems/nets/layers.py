"""What several networks share: TensorFlow's "same" padding and initialisation by kind of layer."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

Initialiser = Callable[[Tensor], Tensor]


def truncated_normal(std: float) -> Initialiser:
    """Draw from a normal distribution that is cut at two standard deviations.

    >>> import torch
    >>> truncated_normal(0.1)(torch.empty(1000)).abs().max() <= 0.2
    tensor(True)
    """
    return lambda weight: nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def initialise(
    net: nn.Module, weights: Mapping[type[nn.Module], Initialiser], bias: float = 0.0
) -> nn.Module:
    """Initialise, in place, the weights by the kind of their layer and the biases to a constant.

    >>> net = initialise(nn.Linear(2, 1), {nn.Linear: nn.init.ones_}, bias=0.5)
    >>> [p.tolist() for p in net.parameters()]
    [[[1.0, 1.0]], [0.5]]
    """
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
            weights[type(module)](module.weight)
            if module.bias is not None:
                nn.init.constant_(module.bias, bias)
    return net


def halving_conv(inputs: int, outputs: int, *, bias: bool = True) -> nn.Module:
    """A 3x3 convolution of stride 2 with "same" padding for even sizes.

    TensorFlow then pads only at the right and at the bottom; torch's own padding is symmetric.

    >>> import torch
    >>> halving_conv(1, 4)(torch.zeros(1, 1, 32, 32)).shape
    torch.Size([1, 4, 16, 16])
    """
    conv = nn.Conv2d(inputs, outputs, 3, stride=2, bias=bias)
    return nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), conv)


def halving_pool() -> nn.Module:
    """A 3x3 max-pooling of stride 2 with "same" padding for even sizes, to follow a ReLU.

    DeepOBS pads with zeros at the right and at the bottom. After a ReLU, leaving the window
    incomplete there gives the same maximum and the same gradient, without a copy.

    >>> import torch
    >>> halving_pool()(torch.zeros(1, 1, 28, 28)).shape
    torch.Size([1, 1, 14, 14])
    """
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)
