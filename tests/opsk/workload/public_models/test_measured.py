"""Models that were measured layer by layer: parameters are those that their authors publish."""

from __future__ import annotations

from importlib.resources import files

import pytest

from opsk.workload.completion import Completion, complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import Precision, StatedPlan
from opsk.workload.public_models.measured import TABLES, Unit, find_measured
from opsk.workload.workload import Workload


def completed(name: str, **options: str) -> Completion:
    """Complete a workload on one GPU that names a model."""
    plan = StatedPlan(gpus=1, micro_batch=8, precision=Precision.FP16)
    rows = tuple((key.replace("__", "."), value) for key, value in options.items())
    return complete(Workload(framework="timm", model=StatedModel(name=name), plan=plan, options=rows))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # docs.pytorch.org/vision/stable/models.html, table of weights
        ("resnet18", 11_689_512),
        ("microsoft/resnet-50", 25_557_032),
        ("resnet50.a1_in1k", 25_557_032),
        ("resnet152", 60_192_808),
        ("convnext_base", 88_591_464),
        ("vgg16", 138_357_544),
        ("efficientnet_b0", 5_288_548),
        ("densenet121", 7_978_856),
        # the safetensors of huggingface.co
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", 859_520_964),
        ("stabilityai/stable-diffusion-xl-base-1.0", 2_567_463_684),
        ("openai/whisper-large-v3", 1_543_490_560),
        ("facebook/wav2vec2-base-960h", 94_395_552),
        # open_clip/docs/model_profile.csv: 151.28 M and 427.62 M
        ("openai/clip-vit-base-patch32", 151_277_313),
        ("openclip-ViT-L-14", 427_616_513),
    ],
)
def test_parameters_are_those_that_are_published(name: str, parameters: int) -> None:
    model = find_measured(name)
    assert model is not None
    assert model.parameters == parameters


@pytest.mark.parametrize(("name", "millions"), [("DiT-S/2", 33), ("DiT-B/4", 130), ("DiT-L-2", 458), ("DiT-XL/2", 675)])
def test_diffusion_transformers_are_as_large_as_their_paper_says(name: str, millions: int) -> None:
    # arXiv 2212.09748, tables 1 and 4
    model = find_measured(name)
    assert model is not None
    assert model.parameters / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("yolov8n", 3.2),
        ("yolov8x", 68.2),
        ("yolo11m", 20.1),
        ("yolo11l-seg", 27.6),
        ("yolov5su", 9.1),
        ("rtdetr-l", 33),
    ],
)
def test_detectors_are_as_large_as_their_documentation_says(name: str, millions: float) -> None:
    # docs.ultralytics.com/models: the tables of YOLOv8, YOLO11, YOLOv5 and RT-DETR
    model = find_measured(name)
    assert model is not None
    assert model.parameters / 1e6 == pytest.approx(millions, rel=0.03)


@pytest.mark.parametrize("name", ["", "resnet", "resnet51", "llama-3-8b", "my/model"])
def test_a_name_that_was_not_measured_is_none(name: str) -> None:
    assert find_measured(name) is None


def test_every_row_is_whole() -> None:
    folder = files("opsk.workload.public_models").joinpath("catalogue")
    table = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in TABLES)
    names = [line.rpartition("\t")[2].split()[0] for line in table.splitlines() if not line.startswith("#")]
    assert len(names) > 200
    for name in names:
        model = find_measured(name)
        assert model is not None, name
        assert 0 < model.sample_bytes < 2 * model.sample_fp32_bytes, model.name
        assert model.checkpointed_bytes < model.sample_bytes, model.name
        assert bool(model.checkpointed_bytes) == bool(model.part_bytes), model.name
        assert 0 < model.tensor_bytes < model.sample_bytes, model.name
        assert model.build_shape().measured is not None, model.name


def test_an_image_stores_as_much_as_it_has_pixels() -> None:
    model = find_measured("resnet50")
    assert model is not None
    assert (model.unit, model.scale(448), model.scale(None)) == (Unit.PIXELS, 4.0, 1.0)
    small, large = completed("resnet50").model, completed("resnet50", input__size="448").model
    assert small is not None
    assert large is not None
    assert small.measured is not None
    assert large.measured is not None
    assert large.measured.sample_bytes == 4 * small.measured.sample_bytes


def test_what_is_taken_is_named_with_its_source() -> None:
    done = completed("resnet50")
    assert not done.missing
    assert not done.problems
    entry = next(entry for entry in done.assumed if entry.field == "model.activations")
    assert entry.value == "42 MiB a sample of 224 pixels in 16 bits"
    assert "the range is wide" in entry.why


def test_adapters_train_little_and_hold_the_frozen_model() -> None:
    whole = completed("stable-diffusion-v1-5/stable-diffusion-v1-5").model
    adapted = completed("stable-diffusion-v1-5/stable-diffusion-v1-5", adapters="lora", adapters__rank="4").model
    assert whole is not None
    assert adapted is not None
    assert whole.measured is not None
    assert adapted.measured is not None
    # diffusers' example saves 797,184 parameters at rank 4
    assert adapted.measured.parameters == pytest.approx(797_184, rel=0.001)
    assert adapted.measured.frozen_parameters == whole.measured.frozen_parameters + whole.measured.parameters
    assert adapted.measured.sample_bytes < whole.measured.sample_bytes


def test_an_encoder_decoder_takes_the_lengths_of_both_parts() -> None:
    done = completed("google-t5/t5-large", encoder__seq="1024", decoder__seq="128")
    assert done.model is not None
    assert (done.model.encoder_layers, done.model.encoder_seq, done.model.seq) == (24, 1024, 128)
    assert done.model.flash_attention is False
