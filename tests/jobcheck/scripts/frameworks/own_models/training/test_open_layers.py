"""Sums over the layers of models of which some sizes only the data tell."""

from __future__ import annotations

from typing import Any

import pytest

from opsk.workload.unstated.layer_limit import LayerSums
from opsk.workload.unstated.sample_limit import KnownSizes, Sample, find_kind, limit_samples
from opsk_jobcheck.scripts.frameworks.own_models.training.layer_sums import (
    REPEATS,
    find_calls,
    repeat_no_layer,
    sum_layers,
)
from opsk_jobcheck.scripts.frameworks.own_models.training.model_classes import list_calls, list_classes
from opsk_jobcheck.scripts.frameworks.own_models.training.open_layers import CHANNELS, SQUARE, sum_open_layers
from opsk_jobcheck.scripts.frameworks.own_models.values import Choice, File
from tests.jobcheck.scripts.frameworks.own_models.training.test_forward import PROGRAMS, STEPS
from tests.jobcheck.scripts.frameworks.own_models.training.test_layer_sums import HEAD, make_models

CLASS = (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        {layers}\n"
    "    def forward(self, x):\n        return {forward}\nnet = Net()\n"
)


def sum_one(models: list[Any], files: list[File], features: int) -> LayerSums | None:
    rows = sum_open_layers(models, files, (features,))
    return rows[0] if rows else None


def read_layers(layers: str, *, head: str = "", features: int = 1024, forward: str = "x") -> LayerSums | None:
    models, file = make_models(HEAD + head + CLASS.format(layers=layers, forward=forward))
    return sum_one(models[-1:], [file], features)


def test_a_size_that_only_the_data_tell_is_taken_to_be_one_number() -> None:
    head = "import numpy as np\nrows = np.load('rows.npy')\n"
    sums = read_layers("self.first = nn.Linear(rows.shape[1], 32)", head=head)
    assert sums is not None
    assert (sums.open_features, sums.parameters) == (1024, 1024 * 32 + 32)
    assert sums.row_features == 1024 + 3 * 32


@pytest.mark.parametrize(
    ("layer", "parameters"),
    [
        ("nn.Conv1d(rows.shape[1], 8, 3)", CHANNELS * 8 * 3 + 8),
        ("nn.Linear(rows.shape[1], rows.shape[1])", SQUARE * SQUARE + SQUARE),
        ("nn.Linear(in_features=32, out_features=rows.shape[1])", (1 << 18) * 33),
        ("nn.LSTM(rows.shape[1], 4, batch_first=True)", 4 * (4 * ((1 << 18) + 4) + 8)),
    ],
)
def test_channels_and_squares_are_not_as_large_as_columns(layer: str, parameters: int) -> None:
    head = "import numpy as np\nrows = np.load('rows.npy')\n"
    sums = read_layers(f"self.first = {layer}", head=head, features=1 << 18)
    assert sums is not None
    assert sums.parameters == parameters


@pytest.mark.parametrize("layer", ["nn.Conv1d(4, 8, rows.shape[1])", "make_it(rows)", "nn.Embedding(9, rows.shape[1])"])
def test_a_size_that_no_data_tell_leaves_no_limit(layer: str) -> None:
    head = "import numpy as np\nfrom package import make_it\nrows = np.load('rows.npy')\n"
    assert read_layers(f"self.first = {layer}", head=head) is None


def test_of_a_model_that_is_one_of_several_the_largest_counts() -> None:
    models, file = make_models(f"{HEAD}small, large = nn.Linear(4, 8), nn.Linear(4, 80)\n")
    sums = sum_one([Choice(tuple(models))], [file], 64)
    both = sum_one(models, [file], 64)
    assert sums is not None
    assert both is not None
    assert (sums.parameters, both.parameters) == (4 * 80 + 80, 4 * 80 + 80 + 4 * 8 + 8)


def test_a_public_model_counts_by_what_was_measured_of_it() -> None:
    layers = "self.body = models.resnet50()\n        self.head = nn.Linear(1000, 7)"
    sums = read_layers(layers, head="from torchvision import models\n")
    assert sums is not None
    assert sums.pixel_bytes > 1000
    assert sums.parameters >= 25_557_032 + 7007
    assert find_kind(sums, is_graph=False) is Sample.IMAGE


def test_a_public_transformer_counts_by_its_shape() -> None:
    layers = "self.body = AutoModel.from_pretrained('bert-base-uncased')\n        self.head = nn.Linear(768, 2)"
    sums = read_layers(layers, head="from transformers import AutoModel\n")
    assert sums is not None
    assert sums.parameters > 100_000_000
    assert sums.row_features > 12 * 20 * 768
    assert find_kind(sums, is_graph=False) is Sample.TOKENS


def test_a_public_model_has_no_layers_that_are_known() -> None:
    text = f"{HEAD}from torchvision import models\n" + CLASS.format(
        layers="self.body = models.resnet50()\n        self.head = nn.Conv2d(3, 4, 1)", forward="x"
    )
    models, file = make_models(text)
    assert sum_layers(models, [file]) is None


def test_a_weight_in_no_layer_counts_with_what_it_is_multiplied_with() -> None:
    plain = read_layers("self.first = nn.Linear(4, 8)")
    more = read_layers("self.first = nn.Linear(4, 8)\n        self.own = nn.Parameter(torch.zeros(64, 128))")
    assert plain is not None
    assert more is not None
    assert more.parameters - plain.parameters == 64 * 128
    assert more.row_features - plain.row_features == 4 * (64 + 128)


def test_a_number_of_a_package_is_no_module() -> None:
    head = "import package\n"
    assert read_layers("self.first = nn.Linear(4, 8)\n        self.hidden_dim = package.count()", head=head) is not None
    assert read_layers("self.first = nn.Linear(4, 8)\n        self.encoder = package.count()", head=head) is None


BUILDERS = """
class Unused(nn.Module):
    def forward(self, x):
        for step in range(9):
            x = self.first(x)
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = self.stack(4)
    def stack(self, count):
        rows = []
        for place in range(count):
            rows.append(nn.Linear(8, 8))
        return nn.Sequential(*rows)
    def forward(self, x):
        return self.rows(x)
net = Net()
"""


def test_only_the_classes_of_the_models_and_their_passes_repeat_layers() -> None:
    models, file = make_models(HEAD + BUILDERS)
    assert [node.name for node in list_classes(models, [file])] == ["Net"]
    assert repeat_no_layer(list_classes(models, [file]))
    models, file = make_models(HEAD + BUILDERS.replace("return self.rows(x)", "return self.stack(3)(x)"))
    assert not repeat_no_layer(list_classes(models, [file]))


def test_what_other_classes_call_is_no_call_of_a_model() -> None:
    models, file = make_models(HEAD + BUILDERS.replace("x = self.first(x)", "x = F.interpolate(x)"))
    calls, of_classes = list_calls(list_classes(models, [file]), [file])
    assert "append" in calls & of_classes
    assert "interpolate" not in calls


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step['program']}-{step.get('autocast', 'fp32')}")
def test_what_pytorch_saves_is_below_the_limit_of_samples_of_that_size(step: dict[str, Any]) -> None:
    """The programs were measured, see ``steps.toml``; the limit knows their layers, and how large a sample is."""
    models, file = make_models((PROGRAMS / f"{step['program']}.py").read_text(encoding="utf-8"))
    sums, shape = sum_one(models, [file], 64), step["inputs"][0][0]
    if sums is None or "saved_bytes" not in step or find_calls([file], REPEATS):
        return
    if not repeat_no_layer(list_classes(models, [file])):
        return
    is_graph = "torch_geometric" in str(file.imports)
    side = max(shape[2:]) if len(shape) > 3 else 0
    known = KnownSizes(side=side, length=max(shape[1:], default=1), batch=shape[0], parts=1)
    limits = limit_samples([sums], known, is_graph=is_graph)
    assert limits is None or step["saved_bytes"] <= limits.largest.saved_bytes
