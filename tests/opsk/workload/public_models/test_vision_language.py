"""Models of images and text: the language model's shape, and a tower of known size beside it."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from opsk.costmodel.predict import predict_one
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.hardware.catalog import cluster
from opsk.workload.completion import complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import StatedPlan
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.vision_language import (
    TABLE,
    build_frozen_shape,
    find_tower,
    find_vision_language,
)
from opsk.workload.workload import Workload


def complete_named(name: str, **options: str) -> Workload:
    return Workload(
        framework="llama-factory",
        model=StatedModel(name=name, seq=2048),
        plan=StatedPlan(nodes=1, gpus_per_node=8, gpus=8, micro_batch=1),
        options=tuple(sorted(options.items())),
    )


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # parameters of the safetensors files, as the hub prints them
        ("Qwen/Qwen2-VL-2B-Instruct", 2.21),
        ("openvla/openvla-7b", 7.54),
        ("Salesforce/blip2-opt-2.7b", 3.74),
        ("Qwen/Qwen2.5-VL-3B-Instruct", 3.75),
        ("Qwen2.5-VL-7B", 8.29),
        ("Qwen/Qwen2.5-VL-72B-Instruct", 73.4),
        ("Qwen/Qwen3-VL-8B-Instruct", 8.77),
        ("llava-hf/llava-1.5-7b-hf", 7.06),
        ("OpenGVLab/InternVL3-8B", 7.94),
    ],
)
def test_tower_and_language_model_are_as_large_as_the_files_of_the_model(name: str, billions: float) -> None:
    model = find_vision_language(name)
    assert model is not None
    parameters = total_parameters(build_frozen_shape(model)) + model.tower_parameters
    assert parameters / 1e9 == pytest.approx(billions, rel=0.02)


def test_every_row_names_a_public_language_model() -> None:
    table = tomllib.loads(files("opsk.workload.public_models").joinpath(TABLE).read_text(encoding="utf-8"))
    names = [name for row in table["models"] for name in row["names"]]
    assert len(names) == len(set(names)) > 40
    for name in names:
        model = find_vision_language(name)
        assert model is not None, name
        assert build_frozen_shape(model).frozen_parameters == model.tower_parameters
        assert public_model(name) is None, name


def test_a_frozen_tower_takes_two_bytes_a_parameter() -> None:
    text, both = (
        complete(complete_named("Qwen/Qwen2.5-7B")),
        complete(complete_named("Qwen/Qwen2.5-VL-7B-Instruct", tower="frozen")),
    )
    weights = []
    for completion in (text, both):
        assert completion.model is not None
        assert completion.plan is not None
        prediction = predict_one(completion.model, completion.plan, cluster("superpod-a100"))
        weights.append(float(prediction.memory.components["weights"]))
    assert weights[1] - weights[0] == pytest.approx(2 * 676e6, rel=0.01)


@pytest.mark.parametrize("name", ["", "Qwen/Qwen2.5-7B", "my/llava", "openai/clip-vit-large-patch14"])
def test_a_model_of_text_has_no_tower(name: str) -> None:
    assert find_vision_language(name) is None


def test_towers_are_known_by_their_names() -> None:
    assert find_tower("openai/clip-vit-large-patch14-336") == 303_507_456
    assert find_tower("mine") is None


def test_a_tower_of_more_than_a_billion_parameters_is_predicted() -> None:
    completion = complete(complete_named("Salesforce/blip2-opt-2.7b", tower="frozen"))
    assert completion.model is not None
    assert completion.plan is not None
    prediction = predict_one(completion.model, completion.plan, cluster("superpod-a100"))
    assert float(prediction.memory.total_bytes.expected) > 2 * 1.09e9
