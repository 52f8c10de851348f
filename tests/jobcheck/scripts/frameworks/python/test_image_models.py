"""Models of torchvision and sizes of images that a Python program fixes."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.frameworks.python.image_models import find_image_side, list_image_models
from opsk_jobcheck.scripts.frameworks.python.statements import read_python


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("from torchvision import models\nnet = models.resnet50(weights=None)\n", ["resnet50"]),
        ("import torchvision\nnet = torchvision.models.resnet18()\n", ["resnet18"]),
        ("from torchvision.models import resnet101\nnet = resnet101()\n", ["resnet101"]),
        ("from mine import models\nnet = models.resnet50()\n", []),
        ("import torchvision\nnet = models.mine()\n", []),
    ],
)
def test_models_of_torchvision_are_found(text: str, models: list[str]) -> None:
    assert [call.function for call in list_image_models(read_python(text))] == models


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("t = [T.Resize(256), T.RandomResizedCrop(224)]\n", 224),
        ("d = datasets.CIFAR10('.')\n", 32),
        ("t = [T.RandomCrop(32, padding=4)]\nd = datasets.CIFAR100('.')\n", 32),
        ("t = [T.Resize(args.size)]\n", 0),
        ("t = [T.Resize(args.size)]\nd = datasets.CIFAR10('.', transform=t)\n", 0),  # it may enlarge them
        ("a = [T.RandomCrop(32)]\nb = [T.RandomResizedCrop(224)]\n", 0),  # of two data sets
        ("a = [T.RandomResizedCrop(args.size)]\nb = [T.CenterCrop(224)]\n", 0),
        ("a = CIFAR10()\nb = MNIST()\n", 0),
    ],
)
def test_the_side_of_images_is_what_they_are_cut_to(text: str, side: int) -> None:
    assert find_image_side(read_python(text)) == side
