"""nnU-Net's plans choose their memory: what is read of its commands, and what they take."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.scripts.script import read_script


def read(command: str, *, gpus: int = 1) -> Workload:
    """Read a script of one command."""
    return read_script(f"#!/bin/bash\n#SBATCH -N 1 --gpus-per-node={gpus}\n{command}\n", file="job.sh")


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ("nnUNetv2_train 7 3d_fullres 0", "nnunet-plans"),
        ("srun nnUNetv2_train 7 2d all -p nnUNetResEncUNetLPlans --npz", "nnunet-resenc-l"),
        ("nnUNetv2_train 7 3d_fullres 1 -tr nnUNetTrainer_250epochs -p nnUNetResEncUNetMPlans", "nnunet-resenc-m"),
        ("nnUNet_train 3d_fullres nnUNetTrainerV2 Task004_Hippocampus 0", "nnunet-plans"),
    ],
)
def test_the_plans_are_known_by_their_names(command: str, model: str) -> None:
    workload = read(command)
    assert workload.is_training
    assert (workload.framework, workload.model.name) == ("nnunet", model)


@pytest.mark.parametrize(
    ("plans", "published_gb"),
    [("nnUNetPlans", 7.7), ("nnUNetResEncUNetMPlans", 9.1), ("nnUNetResEncUNetXLPlans", 36.6)],
)
def test_a_training_takes_what_is_published(plans: str, published_gb: float) -> None:
    # documentation/resenc_presets.md of nnU-Net, column VRAM
    advice = Adviser(cluster=cluster("superpod-a100")).advise(read(f"nnUNetv2_train 7 3d_fullres 0 -p {plans}"))
    assert advice.prediction is not None
    assert float(advice.prediction.memory.total_bytes.expected) / 1e9 == pytest.approx(published_gb, rel=0.02)


@pytest.mark.parametrize(
    "command",
    [
        "nnUNetv2_train 7 3d_fullres 0 -tr nnUNetTrainerUMambaBot",
        "nnUNetv2_train 7 3d_fullres 0 -p mine",
        "nnUNetv2_train 7 3d_fullres 0 -p $PLANS",
    ],
)
def test_other_networks_and_plans_are_not_known(command: str) -> None:
    workload = read(command)
    assert workload.is_training
    assert workload.model.name is None
    assert any(entry.field == "model.layers" for entry in workload.unknown)


def test_it_trains_on_one_gpu_unless_told_otherwise() -> None:
    command = "nnUNetv2_train 7 3d_fullres 0"
    adviser = Adviser(cluster=cluster("superpod-a100"))
    assert [entry.kind for entry in adviser.advise(read(command, gpus=4)).waste] == ["idle-gpus"]
    assert not adviser.advise(read(f"{command} -num_gpus 4", gpus=4)).waste
