"""Every row is what DeepOBS or the paper defines: sizes, initialisation, penalty, budget."""

import math
from itertools import islice

import pytest
import torch
from torch import nn

from probstep.bench.problems import PROBLEMS, Task, get_problem, noisy_quadratic

from ..standard_files import write_everything


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return write_everything(tmp_path_factory.mktemp("data"))


def ready(name, data_dir) -> Task:
    subset = 2000 if name == "tolstoi_char_rnn" else 24
    return get_problem(name).ready(
        seed=0, data_dir=data_dir, batch_size=2, subset=subset, evaluation="paper"
    )


SIZES = {
    "quadratic_deep": 100,
    "mnist_logreg": 7_850,
    "mnist_mlp": 1_336_610,
    "mnist_2c2d": 3_274_634,
    "mnist_vae": 10_151_489,
    "fmnist_logreg": 7_850,
    "fmnist_mlp": 1_336_610,
    "fmnist_2c2d": 3_274_634,
    "fmnist_vae": 10_151_489,
    "cifar10_3c3d": 895_210,
    "svhn_3c3d": 895_210,
    "svhn_wrn164": 2_748_890,
    "svhn_wrn164_bn01": 2_748_890,
    "cifar100_allcnnc": 1_387_108,
    "cifar100_3c3d": 895_210 + 90 * 257,
    "cifar100_wrn164": 2_748_890 + 90 * 257,
    "cifar100_wrn164_bn01": 2_748_890 + 90 * 257,
    "cifar100_resnet18": 11_220_132,
    "svhn_wrn164_narrow": 45_210,
    "cifar100_resnet18_narrow": 182_252,
    "tolstoi_char_rnn": 284_499,  # TensorFlow's: one bias per gate
    "rosenbrock": 2,
}


@pytest.mark.parametrize("name", SIZES)
def test_the_number_of_trained_parameters(name):
    model = PROBLEMS[name].make_model()
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == SIZES[name]


BATCH_EPOCHS_PAPER_L2 = {
    "quadratic_deep": (128, 100, None, 0.0),
    "mnist_logreg": (128, 50, None, 0.0),
    "mnist_mlp": (128, 100, None, 0.0),
    "mnist_2c2d": (128, 100, None, 0.0),
    "mnist_vae": (64, 50, None, 0.0),
    "fmnist_logreg": (128, 50, 50, 0.0),
    "fmnist_mlp": (128, 100, 50, 0.0),
    "fmnist_2c2d": (128, 100, 50, 0.0),
    "fmnist_vae": (64, 100, None, 0.0),
    "cifar10_3c3d": (128, 100, 100, 0.002),
    "svhn_3c3d": (128, 100, None, 0.002),
    "svhn_wrn164": (128, 160, 50, 5e-4),
    "cifar100_allcnnc": (256, 350, None, 5e-4),
    "cifar100_3c3d": (128, 100, None, 0.002),
    "cifar100_wrn164": (128, 160, None, 5e-4),
    "cifar100_resnet18": (128, 50, 50, 5e-4),
    "svhn_wrn164_narrow": (128, 160, None, 5e-4),
    "cifar100_resnet18_narrow": (128, 50, None, 5e-4),
    "tolstoi_char_rnn": (50, 200, None, 0.0),
}


@pytest.mark.parametrize("name", BATCH_EPOCHS_PAPER_L2)
def test_batch_size_budgets_and_penalty(name):
    row = PROBLEMS[name]
    found = row.batch_size, row.epochs, row.paper_epochs, row.l2
    assert found == BATCH_EPOCHS_PAPER_L2[name]


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_trains_and_evaluates(name, data_dir):
    task = ready(name, data_dir)
    optimizer = torch.optim.SGD(task.params, lr=1e-3)
    batch = next(task.batches())
    losses = task.losses(batch)
    assert losses.shape == (2,)
    task.loss(batch).backward()
    optimizer.step()
    assert all(p.grad is not None for p in task.params)
    for split in ("train", "valid", "test"):
        found = task.evaluate(split)
        assert math.isfinite(found.loss)
        assert (found.accuracy is None) == (task.problem.hits is None)


@pytest.mark.parametrize("name", [name for name, row in PROBLEMS.items() if row.l2])
def test_the_penalty_is_on_kernels_and_matrices_and_on_nothing_else(name, data_dir):
    task = ready(name, data_dir)
    layers = [m for m in task.model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert {id(p) for p in task.regularised} == {id(layer.weight) for layer in layers}


@pytest.mark.parametrize("name", ["cifar10_3c3d", "svhn_wrn164"])
def test_the_loss_is_the_mean_of_the_losses_plus_half_the_penalised_squares(name, data_dir):
    task = ready(name, data_dir)
    batch = next(task.batches())
    squares = sum(p.double().square().sum() for p in task.regularised).item()
    penalty = 0.5 * task.problem.l2 * squares
    assert task.loss(batch).item() - task.losses(batch).mean().item() == pytest.approx(
        penalty, rel=1e-4
    )
    loss = task.evaluate("test").loss
    task.regularised.clear()
    assert loss - task.evaluate("test").loss == pytest.approx(penalty, rel=1e-4)


def layers_of(name, kind) -> list[nn.Module]:
    torch.manual_seed(0)
    return [m for m in PROBLEMS[name].make_model().modules() if isinstance(m, kind)]


def test_logistic_regression_starts_at_zero():
    assert all((p == 0).all() for p in PROBLEMS["fmnist_logreg"].make_model().parameters())


@pytest.mark.parametrize(
    ("name", "std", "bias"), [("fmnist_mlp", 0.03, 0.0), ("fmnist_2c2d", 0.05, 0.05)]
)
def test_weights_are_drawn_from_a_normal_cut_at_two_deviations(name, std, bias):
    for layer in layers_of(name, (nn.Linear, nn.Conv2d)):
        assert layer.weight.abs().max() <= 2 * std
        if layer.weight.numel() > 10_000:
            assert layer.weight.std().item() == pytest.approx(0.8796 * std, rel=0.02)
        assert (layer.bias == bias).all()


def fans(weight) -> int:
    field = weight[0, 0].numel()
    return (weight.shape[0] + weight.shape[1]) * field


def is_xavier_uniform(weight) -> bool:
    bound = math.sqrt(6 / fans(weight))
    return 0.97 * bound < weight.abs().max() <= bound


def is_xavier_normal(weight) -> bool:
    std = math.sqrt(2 / fans(weight))
    return weight.abs().max() > 2.2 * std and abs(weight.std() / std - 1) < 0.03


@pytest.mark.parametrize(
    ("name", "conv", "bias"),
    [
        ("cifar10_3c3d", is_xavier_normal, 0.0),
        ("cifar100_allcnnc", is_xavier_normal, 0.1),
        ("svhn_wrn164", is_xavier_uniform, None),
        ("fmnist_vae", is_xavier_uniform, 0.0),
    ],
)
def test_convolutions_and_dense_layers_are_drawn_as_by_xavier(name, conv, bias):
    for layer in layers_of(name, (nn.Conv2d, nn.ConvTranspose2d)):
        assert conv(layer.weight) or layer.weight.numel() < 2000
        assert layer.bias is None if bias is None else (layer.bias == bias).all()
    for layer in layers_of(name, nn.Linear):
        assert is_xavier_uniform(layer.weight) or layer.weight.numel() < 2000
        assert (layer.bias == 0).all()


@pytest.mark.parametrize(
    ("name", "momentum"),
    [
        ("svhn_wrn164", 0.9),
        ("svhn_wrn164_bn01", 0.1),
        ("cifar100_wrn164", 0.9),
        ("cifar100_wrn164_bn01", 0.1),
        ("cifar100_resnet18", 0.1),
        ("svhn_wrn164_narrow", 0.9),
        ("cifar100_resnet18_narrow", 0.1),
    ],
)
def test_the_momentum_of_batch_norm(name, momentum):
    norms = layers_of(name, nn.BatchNorm2d)
    assert {norm.momentum for norm in norms} == {momentum}
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)


def test_the_momentum_of_batch_norm_changes_evaluations_but_not_training(data_dir):
    def measure(name):
        task = ready(name, data_dir)
        losses = [task.loss(batch).item() for batch in islice(task.batches(), 2)]
        return losses, task.evaluate("test").loss

    deepobs, torchs = measure("svhn_wrn164"), measure("svhn_wrn164_bn01")
    assert deepobs[0] == torchs[0]
    assert deepobs[1] != torchs[1]


def test_the_quadratic_of_deepobs_has_its_hessian_and_its_data():
    """The numbers are those of DeepOBS's own functions (develop, 9782c0b)."""
    task = PROBLEMS["quadratic_deep"].ready(seed=3)
    hessian = task.model.factor @ task.model.factor.T
    entries = torch.stack((hessian[0, 0], hessian[0, 1], hessian[99, 99], hessian.trace()))
    expected = torch.tensor([6.2214293, 1.1270199, 6.3056636, 477.6122742])
    torch.testing.assert_close(entries, expected, rtol=1e-5, atol=0)
    eigenvalues = torch.linalg.eigvalsh(hessian)
    assert ((eigenvalues > 0) & (eigenvalues < 1)).sum() == 90
    assert ((eigenvalues > 30) & (eigenvalues < 60)).sum() == 10
    assert (task.model.theta == 1).all()
    assert task.evaluate("train").loss == pytest.approx(7.0741286, rel=1e-5)


@pytest.mark.parametrize("condition", [1.0, 37.0, 1e8])
def test_a_noisy_quadratic_has_the_conditioning_it_was_asked_for(condition):
    model = noisy_quadratic(condition, dimensions=5).make_model()
    values = torch.linalg.svdvals(model.factor.double()) ** 2
    assert (values.max() / values.min()).item() == pytest.approx(condition, rel=1e-2)


def test_the_loss_of_a_noisy_quadratic_is_half_the_quadratic_form():
    task = noisy_quadratic(10.0, dimensions=3, noise=0.0).ready(seed=0)
    gap = torch.ones(3)
    hessian = task.model.factor @ task.model.factor.T
    assert task.evaluate("test").loss == pytest.approx((0.5 * gap @ hessian @ gap).item(), rel=1e-5)


@pytest.mark.parametrize("setting", [{"condition": 0.5}, {"condition": 2.0, "dimensions": 1}])
def test_an_impossible_quadratic_is_refused(setting):
    with pytest.raises(ValueError, match="is not possible"):
        noisy_quadratic(**setting)


def test_rosenbrock_starts_at_the_classical_point_and_ends_at_zero():
    task = PROBLEMS["rosenbrock"].ready(seed=0)
    assert task.evaluate("test").loss == pytest.approx(24.2, rel=1e-5)
    with torch.no_grad():
        task.model.theta.copy_(torch.ones(2))
    assert task.evaluate("test").loss == 0


LEARNABLE = ["quadratic_deep", "quadratic_100", "rosenbrock", "regression"]
LEARNABLE += [name for name in PROBLEMS if name.startswith("digits")]


@pytest.mark.parametrize("name", LEARNABLE)
def test_the_loss_of_a_problem_without_files_falls(name):
    task = PROBLEMS[name].ready(seed=0)
    optimizer = torch.optim.Adam(task.params, lr=3e-3)
    before = task.evaluate("valid").loss
    for _ in range(3):
        for batch in task.batches():
            optimizer.zero_grad()
            task.loss(batch).backward()
            optimizer.step()
    assert task.evaluate("valid").loss < 0.95 * before


def test_an_unknown_name_gives_the_nearest_ones():
    with pytest.raises(ValueError, match="Did you mean 'cifar10_3c3d' or 'cifar100_3c3d'"):
        get_problem("cifar10-3c3d")
    with pytest.raises(ValueError, match="quadratic_deep, mnist_logreg"):
        get_problem("?")
