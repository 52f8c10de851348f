"""Batches of a program's data loader, by its data set, transforms and batch size.

The shapes are those of torch.utils.data and torchvision 0.24 for the same lines.
"""

from __future__ import annotations

from typing import Any

import pytest

from opsk_jobcheck.scripts.frameworks.own_models.files import Files, parse_file
from opsk_jobcheck.scripts.frameworks.own_models.training.data_sets import DataSets
from opsk_jobcheck.scripts.frameworks.own_models.values import ABSENT, DATA, Frame, Tensor

HEAD = """
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split
from torchvision import datasets, transforms
from tqdm import tqdm
"""


class NoSettings:
    def find(self, path: tuple[str, ...], *, of_file: bool) -> Any:
        return DATA

    def find_given(self, name: str) -> Any:
        return ABSENT

    def list_names(self, path: tuple[str, ...]) -> list[str]:
        return []

    def find_words(self) -> list[Any] | None:
        return None

    def find_variable(self, name: str) -> Any:
        return ABSENT

    def find_file(self, path: str) -> Any:
        return DATA


def show(value: Any) -> Any:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape or ())}"
    if isinstance(value, list | tuple):
        return [show(part) for part in value]
    return {key: show(part) for key, part in value.items()} if isinstance(value, dict) else "?"


def make_batch(text: str) -> Any:
    file = parse_file("train.py", HEAD + text)
    assert file is not None
    machine = DataSets(Files([file]), NoSettings())
    frame = Frame(file, file.names)
    machine.run(file.digest.tree.body, frame)
    return show(machine.make_batch(file.names["loader"], frame))


@pytest.mark.parametrize(
    ("transform", "image"),
    [
        ("transforms.ToTensor()", "float32[8, 3, 32, 32]"),
        ("transforms.Compose([transforms.Resize(64), transforms.ToTensor()])", "float32[8, 3, 64, 64]"),
        ("transforms.Compose([transforms.ToTensor(), transforms.Resize((40, 48))])", "float32[8, 3, 40, 48]"),
        ("transforms.Compose([transforms.Pad(4), transforms.ToTensor()])", "float32[8, 3, 40, 40]"),
        ("transforms.Compose([transforms.Grayscale(), transforms.ToTensor()])", "float32[8, 1, 32, 32]"),
        ("transforms.Compose([transforms.ToTensor(), OwnTransform()])", "?"),
        ("None", "?"),
    ],
)
def test_an_image_has_the_size_that_its_transforms_give_it(transform: str, image: str) -> None:
    data = f"datasets.CIFAR10('data', train=True, transform={transform})"
    assert make_batch(f"loader = DataLoader({data}, batch_size=8)") == [image, "int64[8]"]


@pytest.mark.parametrize(
    ("transform", "sides"),
    [("transforms.Resize(256), transforms.CenterCrop(224)", "224, 224"), ("transforms.Resize(256)", "None, None")],
)
def test_images_of_a_folder_have_a_size_only_where_they_are_cut(transform: str, sides: str) -> None:
    data = f"datasets.ImageFolder('train', transforms.Compose([{transform}, transforms.ToTensor()]))"
    batch = make_batch(f"loader = tqdm(enumerate(DataLoader({data}, 16)))")
    assert batch == ["?", [f"float32[16, 3, {sides}]", "int64[16]"]]


OWN = """
class Own(Dataset):
    def __init__(self, size, transform=None):
        self.size = size
        self.transform = transform
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        {}
loader = DataLoader(Own(32, transforms.Compose([transforms.RandomCrop(96), transforms.ToTensor()])), batch_size=4{})
"""


@pytest.mark.parametrize(
    ("body", "more", "batch"),
    [
        ("return torch.randn(3, self.size)", "", "float32[4, 3, 32]"),
        ("return torch.from_numpy(np.zeros((self.size, 2))), 1", "", ["float64[4, 32, 2]", "int64[4]"]),
        ("return {'x': torch.zeros(5), 'y': 0.5}", "", {"x": "float32[4, 5]", "y": "float64[4]"}),
        ("return self.transform(Image.open(self.names[index]).convert('RGB'))", "", "float32[4, 3, 96, 96]"),
        ("return load(index)", "", "?"),
        ("return torch.randn(7)", ", batch_sampler=Own2()", "?"),
    ],
)
def test_a_data_set_of_the_program_yields_what_its_getitem_returns(body: str, more: str, batch: Any) -> None:
    assert make_batch(OWN.format(body, more)) == batch


@pytest.mark.parametrize(
    "data",
    [
        "TensorDataset(torch.zeros(100, 3, 8), torch.zeros(100))",
        "Subset(TensorDataset(torch.zeros(100, 3, 8), torch.zeros(100)), [1, 2])",
        "random_split(TensorDataset(torch.zeros(100, 3, 8), torch.zeros(100)), [90, 10])[0]",
    ],
)
def test_parts_of_a_data_set_have_its_samples(data: str) -> None:
    assert make_batch(f"loader = DataLoader({data}, batch_size=5)") == ["float32[5, 3, 8]", "float32[5]"]
