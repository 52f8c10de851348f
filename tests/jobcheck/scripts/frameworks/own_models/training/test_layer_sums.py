"""Sums over the layers of a program's models, for a limit where the forward pass is not followed."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from opsk.workload.unstated.layer_limit import limit_images, limit_tokens
from opsk_jobcheck.scripts.frameworks.own_models.counting import count_parameters
from opsk_jobcheck.scripts.frameworks.own_models.files import Files, parse_file
from opsk_jobcheck.scripts.frameworks.own_models.training.forward import Forward
from opsk_jobcheck.scripts.frameworks.own_models.training.layer_sums import (
    repeat_no_layer,
    runs_layers_once,
    sum_layers,
)
from opsk_jobcheck.scripts.frameworks.own_models.values import File, Frame, Module
from tests.jobcheck.scripts.frameworks.own_models.training.test_forward import PROGRAMS, STEPS, NoSettings

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
NET = (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.first = nn.Conv2d(3, 8, 3)\n"
    "        self.pool = nn.MaxPool2d(2)\n        self.last = nn.Linear(8, {classes})\n"
    "    def forward(self, x):\n        {forward}\nnet = Net()\n"
)


def make_models(text: str) -> tuple[list[Any], File]:
    file = parse_file("train.py", text)
    assert file is not None
    machine = Forward(Files([file]), NoSettings())
    file.is_run = True
    machine.run(file.digest.tree.body, Frame(file, file.names))
    return [value for value in file.names.values() if isinstance(value, Module) and value.is_model], file


def make_net(forward: str = "return self.last(self.pool(self.first(x)).mean((2, 3)))", classes: str = "10") -> str:
    return HEAD + NET.format(forward=forward, classes=classes)


def test_a_layer_saves_its_input_and_what_follows_its_output() -> None:
    models, file = make_models(make_net())
    sums = sum_layers(models, [file])
    assert sums is not None
    assert (sums.first, sums.channels, sums.shrinks, sums.grows) == ("Conv2d", 3, True, False)
    assert sums.map_features == 3 + 3 * 8
    assert sums.row_features == 8 + 3 * 10


@pytest.mark.parametrize(
    "forward",
    [
        "t = x\n        while len(t.shape) < len(x.shape):\n            t = t[..., None]\n        return self.first(x)",
        "q = x.view(x.size(0) * self.heads, -1, 8)\n        return self.first(x)",
    ],
)
def test_axes_and_heads_repeat_no_layer(forward: str) -> None:
    _, file = make_models(make_net(forward))
    assert runs_layers_once([file])


def test_the_parts_of_a_sample_may_be_joined_with_the_samples_of_a_batch() -> None:
    _, file = make_models(make_net("return self.first(x.view(x.size(0) * x.size(1), 3, 64, 64))"))
    classes = [node for node in file.digest.tree.body if isinstance(node, ast.ClassDef)]
    assert not repeat_no_layer(classes)
    assert repeat_no_layer(classes, may_join=True)


def test_operators_of_a_class_are_no_pass() -> None:
    more = "    def __pow__(self, n):\n        for i in range(n):\n            x = self.first(x)\n        return x\n"
    assert runs_layers_once([make_models(make_net().replace("net = Net()\n", f"{more}net = Net()\n"))[1]])


def test_a_loop_without_gradients_repeats_no_layer() -> None:
    body = "        for i in range(3):\n            q = q / q.sum()\n        return q\n"
    more = f"    @torch.no_grad()\n    def balance(self, q):\n{body}"
    text = make_net().replace("net = Net()\n", f"{more}net = Net()\n")
    assert runs_layers_once([make_models(text)[1]])
    assert not runs_layers_once([make_models(text.replace("@torch.no_grad()", "@torch.jit.ignore"))[1]])


def test_a_size_that_is_not_known_leaves_no_limit() -> None:
    models, file = make_models(make_net(classes="count()"))
    assert sum_layers(models, [file]) is None


@pytest.mark.parametrize(
    "forward",
    [
        "for step in range(12):\n            x = self.first(x)\n        return x",
        "return self.first(x.view(x.size(0) * x.size(1), 3, 64, 64))",  # the frames of a video
        "return self.first(x.flatten(0, 1))",
        "while x.mean() > 0:\n            x = self.first(x)\n        return x",
        "return torch.autograd.grad(self.first(x).sum(), x, create_graph=True)",
    ],
)
def test_layers_that_may_run_several_times_are_seen(forward: str) -> None:
    _, file = make_models(make_net(forward))
    assert not runs_layers_once([file])


def test_a_loop_of_what_uses_the_model_afterwards_repeats_no_layer_of_a_step() -> None:
    text = make_net().replace(
        "net = Net()\n",
        "class Trainer:\n    def run(self):\n        for epoch in range(9):\n            self.epoch()\nnet = Net()\n",
    )
    sampling = (
        "\n    def generate(self, x):\n        for step in range(9):\n            x = self(x)\n        return x\n"
    )
    _, file = make_models(text.replace("class Trainer", f"{sampling}class Trainer"))
    assert runs_layers_once([file])


def test_a_loop_over_the_layers_runs_each_once() -> None:
    _, file = make_models(make_net("for i in range(4):\n            x = self.rows[i](x)\n        return x"))
    assert runs_layers_once([file])


@pytest.mark.parametrize(
    ("positions", "count"),
    [
        ("self.pos_emb = nn.Embedding(256, 32)", 256),
        ("self.wpe = nn.Embedding(1024, 32)", 1024),
        ("self.position_embeddings = nn.Parameter(torch.zeros(1, 197, 32))", 197),
        ("self.segments = nn.Embedding(2, 32)", 0),
        ("self.possible = nn.Embedding(9, 32)", 0),
    ],
)
def test_learned_positions_limit_the_tokens(positions: str, count: int) -> None:
    models, file = make_models(make_net().replace("self.first =", f"{positions}\n        self.first ="))
    sums = sum_layers(models, [file])
    assert sums is not None
    assert sums.positions == count


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step['program']}-{step.get('autocast', 'fp32')}")
def test_what_pytorch_saves_is_below_the_limit(step: dict[str, Any]) -> None:
    """The programs were measured, see ``steps.toml``; the limit knows their layers alone."""
    models, file = make_models((PROGRAMS / f"{step['program']}.py").read_text(encoding="utf-8"))
    sums, shape = sum_layers(models, [file]), step["inputs"][0][0]
    if sums is None or "saved_bytes" not in step or not runs_layers_once([file]):
        return
    limit = None
    if len(shape) == 4:
        side = max(shape[2:])
        limit = limit_images(sums, parameters=count_parameters(models).high or 0, side=side)
    elif step["inputs"][0][1] == "int64":
        limit = limit_tokens(sums, length=shape[1])
    assert limit is None or step["saved_bytes"] <= shape[0] * limit
