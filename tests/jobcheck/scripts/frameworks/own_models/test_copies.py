"""Blocks that a program makes with the same arguments: they are followed twice, and copied from then on."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.frameworks.own_models.count import Followed, follow_program
from opsk_jobcheck.scripts.frameworks.own_models.counting import count_parameters
from opsk_jobcheck.scripts.frameworks.own_models.files import Files, parse_file
from opsk_jobcheck.scripts.frameworks.own_models.training.forward import Forward
from opsk_jobcheck.scripts.frameworks.own_models.values import Frame, Module
from tests.jobcheck.scripts.frameworks.own_models.training.test_data_sets import NoSettings

BLOCK = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width, drop_path=0.0, shared=None):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.layers = [self.inner]
        self.table = {"last": nn.Linear(width, 2)}
        self.last = self.table["last"]
        self.shared = shared
"""
PARAMETERS = 8 * 8 + 8 + 8 * 2 + 2


def make(text: str) -> tuple[dict[str, Module], int]:
    file = parse_file("net.py", BLOCK + text)
    assert file is not None
    machine = Forward(Files([file]), NoSettings())
    file.is_run = True
    machine.run(file.digest.tree.body, Frame(file, file.names))
    return {name: value for name, value in file.names.items() if isinstance(value, Module)}, machine.steps


def test_each_copy_has_weights_of_its_own() -> None:
    modules, _ = make("net = nn.ModuleList([Block(8) for _ in range(9)])\n")
    assert count_parameters([modules["net"]]).high == 9 * PARAMETERS
    last = modules["net"].parts[-1]
    assert last.attributes["layers"][0] is last.attributes["inner"]
    assert last.attributes["table"]["last"] is last.attributes["last"]


def test_copies_take_few_steps() -> None:
    _, few = make("net = nn.ModuleList([Block(8) for _ in range(3)])\n")
    _, many = make("net = nn.ModuleList([Block(8) for _ in range(40)])\n")
    assert many - few < 37 * 8  # that of the comprehension


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("net = nn.ModuleList([Block(8, drop_path=0.1 * (i + 1)) for i in range(6)])\n", 6 * PARAMETERS),
        ("net = nn.ModuleList([Block(w) for w in (8, 8, 8, 4)])\n", 3 * PARAMETERS + 4 * 4 + 4 + 4 * 2 + 2),
        # what is changed in one of them is changed in no other
        ("net = nn.ModuleList([Block(8) for _ in range(4)])\nnet[1].last = nn.Identity()\n", 4 * PARAMETERS - 18),
        # all have the same module of others
        ("one = nn.Linear(3, 3)\nnet = nn.ModuleList([Block(8, shared=one) for _ in range(5)])\n", 5 * PARAMETERS + 12),
    ],
)
def test_what_differs_is_told_apart(text: str, expected: int) -> None:
    modules, _ = make(text)
    assert count_parameters([modules["net"]]).high == expected


def follow(text: str) -> Followed:
    file = parse_file("train.py", text)
    assert file is not None
    return follow_program([file], NoSettings())


LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader
net = nn.Linear(4, 4)
{loaders}
for x in {loader}:
    net(x).sum().backward()
"""


@pytest.mark.parametrize(
    ("loaders", "loader", "is_known"),
    [
        ("loader = DataLoader(get_rows(), batch_size=32)", "loader", True),
        ("loader = DataLoader(get_rows(), batch_size=count())", "loader", False),
        ("loader = get_loader()", "loader", False),
    ],
)
def test_the_batch_is_known_where_each_loader_that_is_trained_with_tells_it(
    loaders: str, loader: str, is_known: bool
) -> None:
    followed = follow(LOOP.format(loaders=loaders, loader=loader))
    assert followed.is_batch_known is is_known
    assert followed.batch_size == (32 if is_known else 0)


def test_a_loader_of_graphs_tells_the_batch_alone() -> None:
    loaders = "from torch_geometric.loader import DataLoader\nloader = DataLoader(get_graphs(), **{'batch_size': 8})"
    followed = follow(LOOP.format(loaders=loaders, loader="loader"))
    assert (followed.is_batch_known, followed.batch_size) == (True, 8)
