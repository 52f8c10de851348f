"""What a training step of a user's own model saves for its backward pass.

``../programs/steps.toml`` has what PyTorch saves of the same programs; other numbers follow from the shapes by hand, by
what ``tools/autograd/derivatives.yaml`` of PyTorch says that each operation saves.
"""

from __future__ import annotations

import ast
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from opsk_jobcheck.scripts.frameworks.own_models.files import Files, parse_file
from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import make_tensor
from opsk_jobcheck.scripts.frameworks.own_models.training.forward import Forward
from opsk_jobcheck.scripts.frameworks.own_models.training.tensor_values import list_tensors
from opsk_jobcheck.scripts.frameworks.own_models.values import ABSENT, DATA, CannotCountError, Frame, Span

PROGRAMS = Path(__file__).parents[1] / "programs"
STEPS = tomllib.loads((PROGRAMS / "steps.toml").read_text(encoding="utf-8"))["step"]
KIB, MIB = 1 << 10, 1 << 20
HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
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


def follow_pass(machine: Forward, model: Any, inputs: list[Any], autocast: str) -> StepMemory:
    """Return the memory of one forward pass of a model, whose inputs and result are held."""
    machine.start_step(autocast=autocast)
    node = ast.Call(func=ast.Name(id="model", ctx=ast.Load()), args=[], keywords=[])
    frame = Frame(machine.files.rows[0], dict(enumerate(inputs)))
    machine.frames.append(frame)
    try:
        result = machine.call(model, list(inputs), {}, node, frame)
        for tensor in list_tensors([*inputs, result]):
            machine.notes.save(tensor)
    except CannotCountError as error:
        machine.notes.give_up(str(error))
    return machine.end_step()


def follow(text: str, inputs: list[tuple[tuple[int, ...], str]], autocast: str = "") -> StepMemory:
    file = parse_file("train.py", text)
    assert file is not None
    machine = Forward(Files([file]), NoSettings())
    file.is_run = True
    machine.run(file.digest.tree.body, Frame(file, file.names))
    tensors = [make_tensor(tuple(shape), dtype) for shape, dtype in inputs]
    return follow_pass(machine, file.names["step"], tensors, autocast)


def save(lines: str, *shapes: tuple[int, ...], head: str = "") -> StepMemory:
    """Return the memory of a step of lines that compute ``y`` of ``x`` (and ``z``), behind a layer that is trained."""
    body = "\n".join(f"    {line}" for line in lines.splitlines())
    names = ", ".join("xz"[: len(shapes)])
    text = f"{HEAD}\nlayer = nn.PReLU()\n{head}\ndef step({names}):\n    x = x + layer.weight\n{body}\n    return y\n"
    return follow(text, [(shape, "float32") for shape in shapes])


@pytest.mark.parametrize("row", STEPS, ids=[f"{row['program']} {row.get('autocast', 'float32')}" for row in STEPS])
def test_a_step_saves_what_pytorch_saves(row: dict[str, Any]) -> None:
    text = (PROGRAMS / f"{row['program']}.py").read_text(encoding="utf-8")
    memory = follow(text, row["inputs"], row.get("autocast", ""))
    assert memory.reason == ""
    assert memory.saved_bytes.low == pytest.approx(row["saved_bytes"], rel=0.03)
    assert memory.saved_bytes.high == pytest.approx(row["saved_bytes"], rel=0.03)


# x is (1024, 1024) in 32 bits: 4 MiB of the input, which is held, and 4 MiB for each other tensor that is saved
@pytest.mark.parametrize(
    ("lines", "saved"),
    [
        ("y = (x + 1).sum()", 4 * MIB + 4),
        ("y = torch.relu(x).sum()", 8 * MIB + 4),
        ("y = F.gelu(x).sum()", 8 * MIB + 4),
        ("y = F.relu(x, inplace=True).sum()", 8 * MIB + 4),
        ("y = (x * x).sum()", 8 * MIB + 4),
        ("y = (x * torch.ones_like(x)).sum()", 8 * MIB + 4),
        ("y = (x / 2 - 3).sum()", 4 * MIB + 4),
        ("y = x.softmax(-1).sum()", 8 * MIB + 4),
        ("y = F.dropout(x, 0.1).sum()", 5 * MIB + 4),
        ("y = F.dropout(x, 0.0).sum()", 4 * MIB + 4),
        ("y = F.dropout(x, 0.5, training=False).sum()", 4 * MIB + 4),
        ("y = (x @ x.T).sum()", 8 * MIB + 4),
        ("y = torch.einsum('ij,kj->ik', x, x).sum()", 8 * MIB + 4),
        ("y = x.view(2, 512, -1).transpose(1, 2).reshape(2, -1).relu().sum()", 8 * MIB + 4),
        ("y = x[:, :512].relu().sum()", 6 * MIB + 4),
        ("y = torch.cat([x, x]).relu().sum()", 12 * MIB + 4),
        ("y = x.max(dim=1)[0].sum()", 4 * MIB + 8 * KIB + 4),
        ("y = x.detach().relu().sum()", 4 * MIB + 4),
        ("y = sum([x.relu(), x.exp()]).sum()", 12 * MIB + 4),
        ("y = (x[: len(x) // 2] * abs(x[512:])).sum()", 10 * MIB + 4),
        ("with torch.no_grad():\n    x = x.relu()\ny = x.sum()", 4 * MIB + 4),
        ("for _ in range(3):\n    x = x.relu()\ny = x.sum()", 16 * MIB + 4),
        ("y = checkpoint(lambda t: t.relu().exp().sigmoid(), x, use_reentrant=False).sum()", 8 * MIB + 4),
        ("y = F.mse_loss(x, torch.zeros(1024, 1024))", 12 * MIB + 4),
        ("with torch.autocast('cuda', dtype=torch.bfloat16):\n    y = (x @ x.T).float().sum()", 8 * MIB + 4),
    ],
)
def test_an_operation_saves_what_its_gradient_needs(lines: str, saved: int) -> None:
    memory = save(lines, (1024, 1024))
    assert (memory.saved_bytes.low, memory.saved_bytes.high, memory.reason) == (saved, saved, "")


@pytest.mark.parametrize(
    "head",
    [
        "model = models.resnet50(weights=None)\nmodel.fc = nn.Linear(model.fc.in_features, 10)",
        "model = timm.create_model('resnet50', pretrained=True, num_classes=10)",
        "model = nn.Sequential(*list(models.resnet50().children())[:-1], nn.Flatten(), nn.Linear(2048, 10))",
    ],
)
def test_a_public_model_of_images_saves_what_was_measured(head: str) -> None:
    step = "def step(x, y):\n    return F.cross_entropy(model(x), y)\n"
    text = f"{HEAD}\nimport timm\nfrom torchvision import models\n{head}\n{step}"
    memory = follow(text, [((32, 3, 224, 224), "float32"), ((32,), "int64")])
    measured = next(row["saved_bytes"] for row in STEPS if row["program"] == "residual" and "autocast" not in row)
    assert memory.saved_bytes.low < measured < (memory.saved_bytes.high or 0) < 1.2 * measured


def test_a_recurrent_layer_saves_its_gates_at_least() -> None:
    text = f"{HEAD}\nmodel = nn.LSTM(64, 128, 2, batch_first=True)\ndef step(x):\n    return model(x)[0].sum()\n"
    memory = follow(text, [((16, 100, 64), "float32")])
    gates = 16 * 100 * 128 * 2 * 4 * 2  # of both layers, in 16 bits at least
    read_and_returned = 16 * 100 * (64 + 128) * 4
    assert read_and_returned + gates <= memory.saved_bytes.low < (memory.saved_bytes.high or 0) < 8 * gates


def test_a_backward_pass_from_a_loss_that_is_not_known_has_no_upper_limit() -> None:
    memory = save("out = layer.unknown(x.relu())\nout.loss.backward()\ny = x.sum()", (1024, 1024))
    assert memory.saved_bytes.high is None


def test_of_two_branches_either_may_be_taken() -> None:
    memory = save(
        "if layer.unknown_setting():\n    x = x.relu().exp()\nelse:\n    x = x.sigmoid()\ny = x.sum()", (1024, 1024)
    )
    assert (memory.saved_bytes.low, memory.saved_bytes.high) == (8 * MIB + 4, 12 * MIB + 4)


def test_a_value_that_may_be_a_tensor_is_taken_as_one() -> None:
    test = "z = x.relu() if layer.unknown_setting() else layer.other(x)\n"
    assert save(f"{test}y = (z * 0.5).sum()", (1024, 1024)).saved_bytes.high is None
    test = "z = x.relu() if layer.unknown_setting() else x.sigmoid()\n"
    assert save(f"{test}y = (z * 0.5).exp().sum()", (1024, 1024)).saved_bytes == Span(12 * MIB + 4, 12 * MIB + 4)


def test_of_autocast_that_may_be_off_either_counts() -> None:
    setting = "enabled=layer.unknown_setting()"
    memory = save(f"with torch.autocast('cuda', {setting}):\n    y = torch.sigmoid(x @ x.T).sum()", (1024, 1024))
    # the input that is held; x, its transpose and the result in 16 bits, or x and the result in 32
    assert memory.saved_bytes.low == pytest.approx(10 * MIB, abs=8)
    assert memory.saved_bytes.high == pytest.approx(12 * MIB, abs=8)


@pytest.mark.parametrize("made", ["torch.autocast('cuda')", "torch.amp.autocast('cuda', dtype=torch.bfloat16)"])
def test_autocast_that_is_made_before_is_entered(made: str) -> None:
    lines = "with ctx:\n    y = torch.sigmoid(x @ x.T).sum()"
    memory = save(lines, (1024, 1024), head=f"ctx = {made}")
    assert memory.saved_bytes.high == pytest.approx(10 * MIB, abs=8)


def test_a_context_that_is_not_known_may_be_autocast() -> None:
    lines = "with layer.ctx:\n    y = torch.sigmoid(x @ x.T).sum()"
    memory = save(lines, (1024, 1024))
    assert memory.saved_bytes.low == pytest.approx(10 * MIB, abs=8)
    assert memory.saved_bytes.high == pytest.approx(12 * MIB, abs=8)


def test_a_loop_of_unknown_length_that_saves_nothing_changes_nothing() -> None:
    memory = save("for p in layer.parameters():\n    print(p)\ny = x.relu().sum()", (1024, 1024))
    assert (memory.saved_bytes.high, memory.reason) == (8 * MIB + 4, "")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("from other import attend\ny = attend(x)", "other.attend is not followed"),
        ("y = torch.linalg.svd(x)[0].sum()", "torch.linalg.svd is not followed"),
        ("while layer.unknown_setting():\n    x = x.relu()\ny = x.sum()", "how often line 12 repeats is not known"),
    ],
)
def test_what_cannot_be_followed_has_no_upper_limit(lines: str, reason: str) -> None:
    memory = save(f"x = x.relu()\n{lines}", (1024, 1024))
    assert (memory.saved_bytes.high, memory.reason) == (None, reason)
    assert memory.saved_bytes.low >= 8 * MIB


@pytest.mark.parametrize(
    "head",
    [
        "for p in layer.parameters():\n    p.requires_grad = False",
        "def freeze(layer):\n    for p in layer.parameters():\n        p.requires_grad_(False)",
        "layer = nn.DataParallel(layer)",
        "layer = torch.compile(layer)",
        "from fairscale.nn import checkpoint_wrapper\nlayer = checkpoint_wrapper(layer)",
    ],
)
def test_what_may_save_less_has_no_lower_limit(head: str) -> None:
    memory = save("y = torch.relu(x).sum()", (1024, 1024), head=head)
    assert (memory.saved_bytes.low, memory.saved_bytes.high) == (0, 8 * MIB + 4)


def test_the_larger_of_two_backward_passes_counts() -> None:
    lines = "x.relu().exp().sum().backward()\ny = x.exp().sum()\ny.backward()"
    memory = save(lines, (1024, 1024))
    assert (memory.saved_bytes.low, memory.saved_bytes.high) == (16 * MIB, 16 * MIB)


def test_a_module_in_half_precision_computes_in_it() -> None:
    body = "def step(x):\n    return torch.relu(model(x)).sum()\n"
    text = f"{HEAD}\nmodel = nn.Linear(1024, 1024, bias=False).half()\n{body}"
    memory = follow(text, [((1024, 1024), "float16")])
    assert (memory.saved_bytes.low, memory.saved_bytes.high) == (4 * MIB + 2, 4 * MIB + 2)


def test_a_shape_that_is_not_known_gives_no_upper_limit() -> None:
    memory = save("x = x[x > 0]\ny = x.relu().sum()", (1024, 1024))
    assert (memory.saved_bytes.high, memory.reason) == (None, "the size of a tensor is not known")


@pytest.mark.parametrize(
    "lines",
    [
        "for i in range(500):\n    for j in range(500):\n        x = x.unsqueeze(0)",
        "for i in range(500):\n    for j in range(500):\n        parts = x.split(2, 0)",
        "for i in range(500):\n    for j in range(40):\n        x = torch.cat([x] * 500)",
        "x = x[None].expand(10 ** 60, -1, -1).relu()",
        "x = x.repeat(*[10 ** 9] * 500)",
        "n = 10\nfor i in range(40):\n    n = n * n\nx = x.repeat(n, 1)",
        f"x = torch.einsum('{'a' * 30_000}->', x)",
    ],
)
def test_shapes_without_end_are_given_up(lines: str) -> None:
    before = time.process_time()
    memory = save(f"{lines}\ny = x.relu().sum()", (1024, 1024))
    assert memory.saved_bytes.high is None
    assert time.process_time() - before < 2.0


def test_windows_that_are_added_up_are_an_image_again() -> None:
    memory = save("y = F.fold(F.unfold(x, 4, stride=4), (16, 16), kernel_size=4, stride=4) ** 2", (2, 3, 16, 16))
    assert memory.reason == ""
