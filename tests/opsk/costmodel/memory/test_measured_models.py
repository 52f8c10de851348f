"""Memory of measured models against timm's benchmarks, which lower the batch until it fits into a GPU of 24 GB.

Numbers are those of ``results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv`` of pytorch-image-models: the largest
batch of 512, 384, 256, 192, 128, 96, 64, ... that ran.
"""

from __future__ import annotations

import numpy as np
import pytest

from opsk.costmodel.efficiency.cases import MEASURED, Case
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.predict import predict_one
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.costmodel.uncertainty.chance import fit_probability
from opsk.costmodel.uncertainty.verdict import Verdict, compute_verdict
from opsk.hardware import catalog
from opsk.workload.completion import complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import Precision, StatedPlan
from opsk.workload.workload import Workload

H100 = catalog.cluster("superpod-h100")
CAPACITY_BYTES = 23.6 * 2**30
"""What an RTX 3090 has."""
RUNS = (
    # model, side, largest batch that ran, next one, which did not
    ("resnet101", 224, 256, 384),
    ("resnext50_32x4d", 224, 384, 512),
    ("densenet121", 224, 256, 384),
    ("densenet201", 224, 192, 256),
    ("inception_v3", 299, 384, 512),
    ("wide_resnet101_2", 224, 192, 256),
    ("vgg16_bn", 224, 256, 384),
    ("convnext_base", 224, 128, 192),
    ("efficientnet_b3", 288, 128, 192),
    ("efficientnet_b7", 600, 8, 12),
)


def predict_bytes(name: str, side: int, batch: int, *, dp: int = 1, **options: str) -> float:
    """Return what one GPU needs."""
    rows = (("input.size", str(side)), ("optimizer.name", "sgd"), *options.items())
    plan = StatedPlan(gpus=dp, micro_batch=batch, precision=Precision.FP16)
    done = complete(Workload(framework="timm", model=StatedModel(name=name), plan=plan, options=rows))
    assert done.model is not None
    assert done.plan is not None
    prediction = predict_one(done.model, done.plan, H100)
    return float(prediction.memory.needed_bytes.expected)


@pytest.mark.parametrize(("name", "side", "ran", "failed"), RUNS)
def test_the_batch_that_ran_fits_and_the_next_does_not(name: str, side: int, ran: int, failed: int) -> None:
    # a batch may be a third smaller than the largest that would have run
    assert 0.65 < predict_bytes(name, side, ran) / CAPACITY_BYTES < 1.15
    assert predict_bytes(name, side, failed) / CAPACITY_BYTES > 1.0


@pytest.mark.parametrize(("name", "side", "ran", "failed"), RUNS)
def test_no_batch_that_ran_is_called_out_of_memory(name: str, side: int, ran: int, failed: int) -> None:
    spread = DEFAULT.spread
    case = Case(architecture="hopper", software="pytorch", kind=MEASURED, precision="16-bit")
    wide = apply_case_spread(DEFAULT, (), case).spread
    assert wide.memory_log_sigma**2 > spread.memory_log_sigma**2 + 0.15**2
    chance = fit_probability(np.asarray(predict_bytes(name, side, ran)), np.asarray(CAPACITY_BYTES), wide)
    assert compute_verdict(float(chance)) is not Verdict.OOM, failed


def test_a_contrastive_loss_grows_with_the_square_of_all_samples() -> None:
    # ClipLoss: each rank compares all samples with all, or with --local-loss its own with all
    local = predict_bytes("openclip-ViT-B-32", 224, 256, dp=64, **{"loss.local": "true"})
    whole = predict_bytes("openclip-ViT-B-32", 224, 256, dp=64)
    samples = 64 * 256
    assert whole - local > 0.8 * 20 * samples * (samples - 256)


def test_checkpoints_store_less() -> None:
    plan = StatedPlan(gpus=1, micro_batch=4, precision=Precision.FP16)
    model = StatedModel(name="stabilityai/stable-diffusion-xl-base-1.0")
    done = complete(Workload(framework="diffusers", model=model, plan=plan))
    with_checkpoints = complete(
        Workload(
            framework="diffusers",
            model=model,
            plan=StatedPlan(gpus=1, micro_batch=4, precision=Precision.FP16, recompute="full"),  # type: ignore[arg-type]
        )
    )
    sizes = []
    for entry in (done, with_checkpoints):
        assert entry.model is not None
        assert entry.plan is not None
        prediction = predict_one(entry.model, entry.plan, H100)
        sizes.append(float(prediction.memory.components["activations"]))
    assert sizes[1] < 0.2 * sizes[0]
