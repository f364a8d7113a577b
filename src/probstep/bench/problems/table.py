"""The table of problems. Adding one is adding a row."""

from functools import partial

from torch import nn

from probstep.bench.names import IMPORT, check_name
from probstep.bench.problems.losses import (
    as_returned,
    class_hits,
    cross_entropy,
    evidence_bound,
    half_squares,
    mean_square_norm,
    mean_squares,
    sequence_cross_entropy,
    sequence_hits,
    summed_squares,
)
from probstep.bench.problems.nets.attention import RowAttention
from probstep.bench.problems.nets.char_rnn import CharRNN, carry_state
from probstep.bench.problems.nets.conv import make_2c2d, make_3c3d, make_allcnnc, make_digits_conv
from probstep.bench.problems.nets.dense import (
    make_autoencoder,
    make_logreg,
    make_mlp,
    make_perceptron,
)
from probstep.bench.problems.nets.residual import make_resnet18, make_wide_resnet
from probstep.bench.problems.nets.toys import Rosenbrock, make_quadratic, make_quadratic_deep
from probstep.bench.problems.nets.vae import VariationalAutoencoder
from probstep.bench.problems.problem import Problem
from probstep.bench.problems.sources import (
    CIFAR10,
    CIFAR100,
    DIGITS,
    FASHION_MNIST,
    MNIST,
    SVHN,
    WAR_AND_PEACE,
    reconstructing,
)
from probstep.bench.problems.synthetic import gaussian_points, noisy_wave

DEEPOBS_BN = "BatchNorm's momentum is 0.9 in torch's sense, as in DeepOBS: evaluation is noisy."
TORCH_BN = "BatchNorm's momentum is 0.1, what DeepOBS's TensorFlow version means by 0.9."
_classify = partial(Problem, losses=cross_entropy, hits=class_hits)
_measure = partial(Problem, hits=None)


def noisy_quadratic(condition: float, *, dimensions: int = 20, noise: float = 0.1) -> Problem:
    """A quadratic of any conditioning whose minimum is at another place for each sample.

    The loss is 0.5 (theta - x)'Q(theta - x), the eigenvalues of Q are log-spaced from
    1/condition to 1, and x is Gaussian around zero with the deviation `noise`.

    >>> noisy_quadratic(1e3).name, noisy_quadratic(1e9).name
    ('quadratic_1000', 'quadratic_1e9')
    """
    if condition < 1 or dimensions < 2:
        raise ValueError(
            f"A quadratic of condition={condition} in dimensions={dimensions} is not possible. "
            "The condition is at least 1 and there are at least 2 dimensions."
        )
    digits = f"{condition:g}".replace("e+0", "e").replace("e+", "e")
    return _measure(
        f"quadratic_{digits}",
        gaussian_points(dimensions, noise),
        partial(make_quadratic, dimensions, condition),
        half_squares,
        batch_size=32,
        epochs=20,
    )


ROWS = (
    # DeepOBS
    _measure(
        "quadratic_deep",
        gaussian_points(100, noise=0.6),
        make_quadratic_deep,
        mean_square_norm,
        batch_size=128,
        epochs=100,
        note="A mean over the dimensions, as in DeepOBS's PyTorch version: 2/100 of TensorFlow's.",
    ),
    _classify("mnist_logreg", MNIST, make_logreg, batch_size=128, epochs=50),
    _classify("mnist_mlp", MNIST, make_mlp, batch_size=128, epochs=100),
    _classify("mnist_2c2d", MNIST, make_2c2d, batch_size=128, epochs=100),
    _measure(
        "mnist_vae",
        reconstructing(MNIST),
        VariationalAutoencoder,
        evidence_bound,
        batch_size=64,
        epochs=50,
    ),
    _classify(
        "fmnist_logreg", FASHION_MNIST, make_logreg, batch_size=128, epochs=50, paper_epochs=50
    ),
    _classify("fmnist_mlp", FASHION_MNIST, make_mlp, batch_size=128, epochs=100, paper_epochs=50),
    _classify("fmnist_2c2d", FASHION_MNIST, make_2c2d, batch_size=128, epochs=100, paper_epochs=50),
    _measure(
        "fmnist_vae",
        reconstructing(FASHION_MNIST),
        VariationalAutoencoder,
        evidence_bound,
        batch_size=64,
        epochs=100,
    ),
    _classify(
        "cifar10_3c3d", CIFAR10, make_3c3d, batch_size=128, epochs=100, paper_epochs=100, l2=0.002
    ),
    _classify("svhn_3c3d", SVHN, make_3c3d, batch_size=128, epochs=100, l2=0.002),
    _classify(
        "svhn_wrn164",
        SVHN,
        partial(make_wide_resnet, 10),
        batch_size=128,
        epochs=160,
        paper_epochs=50,
        l2=5e-4,
        note=DEEPOBS_BN,
    ),
    _classify(
        "svhn_wrn164_bn01",
        SVHN,
        partial(make_wide_resnet, 10, momentum=0.1),
        batch_size=128,
        epochs=160,
        l2=5e-4,
        note=TORCH_BN,
    ),
    _classify("cifar100_allcnnc", CIFAR100, make_allcnnc, batch_size=256, epochs=350, l2=5e-4),
    _classify(
        "cifar100_3c3d", CIFAR100, partial(make_3c3d, 100), batch_size=128, epochs=100, l2=0.002
    ),
    _classify(
        "cifar100_wrn164",
        CIFAR100,
        partial(make_wide_resnet, 100),
        batch_size=128,
        epochs=160,
        l2=5e-4,
        note=DEEPOBS_BN,
    ),
    _classify(
        "cifar100_wrn164_bn01",
        CIFAR100,
        partial(make_wide_resnet, 100, momentum=0.1),
        batch_size=128,
        epochs=160,
        l2=5e-4,
        note=TORCH_BN,
    ),
    Problem(
        "tolstoi_char_rnn",
        WAR_AND_PEACE,
        CharRNN,
        sequence_cross_entropy,
        sequence_hits,
        batch_size=50,
        epochs=200,
        carry=carry_state,
        note="The state passes from batch to batch and is zero at the start of each epoch.",
    ),
    # the paper's appendix
    _classify(
        "cifar100_resnet18",
        CIFAR100,
        make_resnet18,
        batch_size=128,
        epochs=50,
        paper_epochs=50,
        l2=5e-4,
        note="With a stem for images of 32x32; the paper does not say which it used.",
    ),
    # the paper's two largest, cut to what a machine without a GPU can do: other networks
    _classify(
        "svhn_wrn164_narrow",
        SVHN,
        partial(make_wide_resnet, 10, widening=0.5),
        batch_size=128,
        epochs=160,
        l2=5e-4,
        note=f"An eighth of WRN-16-4's width: 8, 16 and 32 channels. {DEEPOBS_BN}",
    ),
    _classify(
        "cifar100_resnet18_narrow",
        CIFAR100,
        partial(make_resnet18, width=8),
        batch_size=128,
        epochs=50,
        l2=5e-4,
        note="An eighth of ResNet-18's width: 8 to 64 channels.",
    ),
    _measure(
        "rosenbrock",
        gaussian_points(2, noise=0.0, count=100),
        Rosenbrock,
        as_returned,
        batch_size=1,
        epochs=20,
        note="Without noise: an epoch is 100 equal steps. The minimum is 0.",
    ),
    # small ones that need no files
    *(noisy_quadratic(condition) for condition in (1.0, 1e2, 1e4, 1e6)),
    _measure(
        "regression",
        noisy_wave(),
        partial(make_perceptron, 1, 64, 64, 1, activation=nn.Tanh),
        mean_squares,
        batch_size=32,
        epochs=20,
        note="The variance of the noise, 0.09, is the least that can be reached on new samples.",
    ),
    _classify("digits_logreg", DIGITS, partial(make_logreg, 64), batch_size=32, epochs=20),
    _classify(
        "digits_mlp", DIGITS, partial(make_perceptron, 64, 100, 50, 10), batch_size=32, epochs=20
    ),
    _classify("digits_conv", DIGITS, make_digits_conv, batch_size=32, epochs=20),
    _classify(
        "digits_batchnorm",
        DIGITS,
        partial(make_digits_conv, batch_norm=True),
        batch_size=32,
        epochs=20,
    ),
    _classify("digits_attention", DIGITS, RowAttention, batch_size=32, epochs=20),
    _measure(
        "digits_autoencoder",
        reconstructing(DIGITS),
        make_autoencoder,
        summed_squares,
        batch_size=32,
        epochs=20,
    ),
)
PROBLEMS: dict[str, Problem] = {row.name: row for row in ROWS}


def get_problem(name: str) -> Problem:
    """The problem with that name.

    >>> get_problem("fmnist_mpl")
    Traceback (most recent call last):
    ValueError: unknown problem 'fmnist_mpl'. Did you mean 'fmnist_mlp' or 'mnist_mlp' or ...
    """
    return PROBLEMS[check_name(name, PROBLEMS, kind="problem", hint=IMPORT)]
