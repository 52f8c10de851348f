"""Jobs of which a size is stated nowhere: they fit where they do over its whole range, and never run out by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk.workload.unstated.open_sizes import BATCH, INPUT, SEQ, state_sizes
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document, record, render_stored_document
from opsk_jobcheck.advice.rendering.terminal import Detail, lines
from opsk_jobcheck.advice.worst_case import fits_for_sure, predict_limit
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-a100"))
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py {flags}\n"
LANGUAGE = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('{model}')\n"
    "a = TrainingArguments('out', {batch}bf16=True)\n"
    "Trainer(model=model, args=a, train_dataset=data).train()\n"
)
IMAGES = (
    "import argparse\nimport timm\nimport torch\nfrom torch.utils.data import DataLoader\n"
    "p = argparse.ArgumentParser()\np.add_argument('--dataset', default='mine')\n"
    "p.add_argument('--batch_size', type=int, default={batch})\nargs = p.parse_args()\n"
    "model = timm.create_model('{model}').cuda()\n{more}"
    "for x, y in DataLoader(load(args), batch_size=args.batch_size):\n"
    "    loss = torch.nn.functional.cross_entropy(model(x), y)\n    loss.backward()\n"
)


def advise(source: str, flags: str = "", adviser: Adviser = ADVISER) -> Advice:
    return adviser.advise(read_script(SCRIPT.format(flags=flags), file="job.sh", files={"train.py": source}))


def advise_language(model: str, micro_batch: int | None) -> Advice:
    batch = f"per_device_train_batch_size={micro_batch}, " if micro_batch is not None else "**more, "
    return advise(LANGUAGE.format(model=model, batch=batch))


def advise_images(model: str, batch: int, more: str = "", flags: str = "") -> Advice:
    return advise(IMAGES.format(model=model, batch=batch, more=more), flags)


def test_a_job_fits_where_it_does_with_texts_longer_than_nearly_all_are() -> None:
    advice = advise_language("HuggingFaceTB/SmolLM2-360M", 2)
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    said = "\n".join(lines(advice))
    assert "fits for texts of up to 8,192 tokens" in said
    assert "stated" in said
    assert "TFLOP/s" not in said


def test_a_job_that_may_not_fit_with_long_texts_gets_no_verdict_but_a_limit() -> None:
    advice = advise_language("Qwen/Qwen2.5-0.5B", 8)
    assert (advice.verdict, advice.over_range) == (Verdict.UNKNOWN, None)
    assert advice.room is not None
    assert advice.room.field == SEQ


def test_a_small_job_that_fits_over_the_range_is_printed_in_the_long_form_only() -> None:
    advice = advise_images("resnet18", 64)
    assert advice.verdict is Verdict.FITS
    assert lines(advice) == lines(advice, Detail.SHORT) == ()
    assert any("fits for images" in line for line in lines(advice, Detail.LONG))
    assert document(advice)["verdict"] == "fits"


def test_a_batch_that_is_not_stated_is_as_large_as_nearly_all_are() -> None:
    advice = advise_language("bert-base-uncased", None)
    assert advice.verdict is Verdict.FITS
    assert advice.over_range is not None
    assert {row.field for row in advice.over_range.sizes} == {SEQ, BATCH}


def test_the_document_has_the_range_and_no_prediction_is_stored() -> None:
    advice = advise_language("HuggingFaceTB/SmolLM2-360M", 2)
    answer = document(advice)
    assert answer["memory"]["is_limit"] is True
    span = answer["memory"]["over_range"]
    assert span.low_bytes < span.high_bytes == pytest.approx(float(answer["memory"]["total_bytes"]["high"]))
    assert [entry.value for entry in answer["assumed"] if entry.field == SEQ] == [8192]
    assert answer["time"]["step_s"] is None
    assert '"memory"' not in render_stored_document(advice)
    assert record(advice).mem_bytes is None


@pytest.mark.parametrize("batch", [2048, 4096])
def test_no_job_runs_out_by_a_size_of_images_that_was_assumed(batch: int) -> None:
    """With images of 224 × 224 it would; those of CIFAR have 32 × 32."""
    advice = advise_images("resnet50", batch)
    assert advice.verdict is Verdict.UNKNOWN
    assert advice.room is not None
    assert advice.room.field == INPUT
    assert any(f"fits up to images of {advice.room.value} × {advice.room.value}" in row for row in lines(advice))


def test_a_model_of_images_fits_where_it_does_with_large_ones() -> None:
    advice = advise_images("resnet18", 64)
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    assert any("images of up to 480 × 480" in row for row in lines(advice, Detail.LONG))


def test_a_size_that_is_stated_gets_the_verdict_that_it_has() -> None:
    crop = "t = transforms.RandomResizedCrop(224)\n"
    assert advise_images("resnet50", 2048, crop).verdict is Verdict.OOM
    assert advise_images("resnet50", 64, crop).is_limit is False


def test_a_public_data_set_narrows_the_range() -> None:
    assert advise_images("resnet50", 192).verdict is Verdict.UNKNOWN
    advice = advise_images("resnet50", 192, flags="--dataset cifar10")
    assert advice.verdict is Verdict.FITS
    assert any("images of up to 224 × 224" in row for row in lines(advice, Detail.LONG))


@given(
    model=st.sampled_from(["resnet18", "resnet50", "efficientnet_b0", "convnext_tiny", "densenet121"]),
    batch=st.sampled_from([8, 64, 256, 1024]),
    sides=st.tuples(st.integers(32, 1024), st.integers(32, 1024)),
)
def test_larger_images_never_make_a_job_fit(model: str, batch: int, sides: tuple[int, int]) -> None:
    advice = advise_images(model, batch)
    fits = []
    for side in sorted(sides):
        stated = ADVISER.advise(state_sizes(advice.workload, {INPUT: side}))
        assert stated.prediction is not None
        fits.append(fits_for_sure(stated.prediction, stated))
    assert fits[0] or not fits[1]
    if advice.verdict is Verdict.FITS and advice.over_range is not None:
        assert all(fit for side, fit in zip(sorted(sides), fits, strict=True) if side <= 480)


@given(
    model=st.sampled_from(["HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.2-1B"]),
    micro_batch=st.sampled_from([1, 2, 4, 8]),
    length=st.integers(16, 8192),
)
def test_every_shorter_text_fits_where_the_range_does(model: str, micro_batch: int, length: int) -> None:
    advice = advise_language(model, micro_batch)
    assert advice.verdict in (Verdict.FITS, Verdict.UNKNOWN)
    if advice.over_range is not None:
        limit = predict_limit(state_sizes(advice.workload, {SEQ: length}), advice, DEFAULT)
        assert limit is not None
        assert fits_for_sure(limit.prediction, advice)


OWN = (
    "import torch\nimport torch.nn as nn\nfrom loading import make_loaders\n"
    "class Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
    "        self.body = nn.Sequential(\n            nn.Conv2d(3, width, 3), nn.ReLU(), nn.MaxPool2d(2),"
    " nn.Conv2d(width, width, 3))\n"
    "        self.head = nn.Linear(width, 10)\n"
    "    def forward(self, x):\n        return self.head(self.body(x).mean((2, 3)))\n"
    "batch_size = {batch}\nnet = Net({width}).cuda()\nopt = torch.optim.Adam(net.parameters())\n"
    "for x, y in make_loaders(batch_size):\n"
    "    loss = nn.functional.cross_entropy(net(x), y)\n    loss.backward()\n    opt.step()\n"
)


def test_a_small_model_of_ones_own_fits_by_its_layers() -> None:
    """Its data set is in a module that is not at hand; the largest usual images count."""
    advice = advise(OWN.format(batch=16, width=32))
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    assert [entry.value for entry in advice.assumed if entry.field == INPUT] == ["images of 1024 × 1024"]
    assert lines(advice) == ()
    assert any("each layer" in line for line in lines(advice, Detail.LONG))


def test_a_model_near_the_limit_gets_no_verdict_by_its_layers() -> None:
    assert advise(OWN.format(batch=4096, width=512)).verdict is Verdict.UNKNOWN
