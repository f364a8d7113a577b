"""Vectorised augmentation does to each image what a slow loop over images does."""

import pytest
import torch

from probstep.bench.problems.augment import LUMINANCE, crop, flip, jitter
from probstep.bench.problems.sources import CIFAR10, CIFAR100, FASHION_MNIST, MNIST, SVHN


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=200, size=32):
    return torch.randint(256, (count, 3, size, size), generator=generator(1), dtype=torch.uint8)


def test_a_crop_is_one_of_the_25_windows_and_all_of_them_occur():
    source = images()
    padded = torch.nn.functional.pad(source, (2, 2, 2, 2))
    places = set()
    for image, wide in zip(crop(source, generator()), padded, strict=True):
        found = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.equal(image, wide[:, top : top + 32, left : left + 32])
        ]
        places.update(found)
        assert len(found) == 1
    assert len(places) == 25


def test_a_flip_mirrors_about_half_of_the_images_and_leaves_the_others():
    source = images()
    flipped = flip(source, generator())
    mirrored = (flipped == source.flip(3)).flatten(1).all(dim=1)
    same = (flipped == source).flatten(1).all(dim=1)
    assert torch.equal(mirrored, ~same)
    assert 70 < mirrored.sum() < 130


def jitter_slowly(image, order, factors):
    """Brightness, contrast and saturation one after the other, for one image."""
    weights = torch.tensor(LUMINANCE)
    for change in order:
        grey = torch.einsum("c,chw->hw", weights, image)
        references = torch.zeros(()), grey.mean(), grey
        factor = factors[change]
        image = (factor * image + (1 - factor) * references[change]).clamp(0, 1)
    return image


def test_jitter_equals_a_slow_loop_over_images():
    source = images(50) / 255
    draws = generator()
    orders = torch.rand(50, 3, generator=draws).argsort(dim=1)
    uniform = torch.rand(50, 3, generator=draws)
    low, high = torch.tensor([[1 - 63 / 255, 0.2, 0.5], [1 + 63 / 255, 1.8, 1.5]])
    factors = low + (high - low) * uniform
    slow = [jitter_slowly(*case) for case in zip(source, orders.tolist(), factors, strict=True)]
    torch.testing.assert_close(jitter(source, generator()), torch.stack(slow))
    assert len({tuple(order) for order in orders.tolist()}) == 6


def test_augmentation_draws_only_from_its_generator():
    source, before = images(8), torch.get_rng_state()
    one, two = (CIFAR10.augmented(source, generator()) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, CIFAR10.augmented(source, generator(5)))
    assert torch.equal(torch.get_rng_state(), before)


def test_augmentation_leaves_the_stored_images_alone():
    source = images(8)
    CIFAR10.augmented(source, generator())
    CIFAR10.plain(source, generator())
    assert torch.equal(source, images(8))


@pytest.mark.parametrize(
    ("source", "is_mirrored"), [(CIFAR10, True), (CIFAR100, True), (SVHN, False)]
)
def test_images_are_mirrored_but_for_house_numbers(source, is_mirrored):
    half = torch.zeros(100, 3, 32, 32, dtype=torch.uint8)
    half[..., 16:] = 255
    shown = source.augmented(half, generator())
    is_left_brighter = shown[..., :14].mean(dim=(1, 2, 3)) > shown[..., 18:].mean(dim=(1, 2, 3))
    assert is_left_brighter.any() == is_mirrored


MEAN_STD = [
    (CIFAR10, (0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)),
    (CIFAR100, (0.50707516, 0.48654887, 0.44091784), (0.26733429, 0.25643846, 0.27615047)),
    (SVHN, (0.4376821, 0.4437697, 0.47280442), (0.19803012, 0.20101562, 0.19703614)),
]


@pytest.mark.parametrize(("source", "mean", "std"), MEAN_STD)
def test_colour_images_are_normalised_with_deepobs_constants(source, mean, std):
    shown = source.plain(images(4), generator())
    back = shown * torch.tensor(std).view(3, 1, 1) + torch.tensor(mean).view(3, 1, 1)
    torch.testing.assert_close(255 * back, images(4).float(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("source", [MNIST, FASHION_MNIST])
def test_grey_images_are_neither_normalised_nor_augmented(source):
    stored = torch.rand(4, 1, 28, 28)
    assert source.plain(stored, generator()) is stored
    assert source.augmented(stored, generator()) is stored
