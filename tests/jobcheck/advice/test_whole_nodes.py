"""Whole nodes come with all of their GPUs: ``--exclusive`` in sbatch(1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.hardware.catalog import cluster
from opsk.slurm.records import NodeRecord
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.cluster_state.node_constraints import parse_node_constraints
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-h100"), search=False)
COMMAND = "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node gpu --rdzv_endpoint $H:1 run_clm.py --bf16"


def count_gpus(options: str, adviser: Adviser = ADVISER) -> int | None:
    """Return the GPUs of a job on nodes of 8."""
    text = f"#!/bin/bash\n#SBATCH {options}\n{COMMAND}\n"
    return adviser.advise(read_script(text, file="job.sh"), parse_node_constraints(text)).workload.plan.gpus


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--nodes=2 --exclusive", 16),
        ("--nodes=1 --exclusive --ntasks-per-node=8", 8),
        ("--nodes=2 --exclusive=user", None),
        ("--nodes=2", None),
        ("--nodes=2-4 --exclusive", None),
        ("--nodes=2 --exclusive --gres=gpu:4", 8),
    ],
)
def test_whole_nodes_have_all_their_gpus(options: str, expected: int | None) -> None:
    assert count_gpus(options) == expected


def test_nodes_without_gpus_have_none() -> None:
    node = NodeRecord(name="c0", state="IDLE", partitions=("cpu",), gpus=0)
    live = LiveState(nodes=(node, replace(node, name="n0", partitions=("gpu",), gpus=8)), default_partition="gpu")
    adviser = replace(ADVISER, live=live)
    assert count_gpus("--nodes=2 --exclusive", adviser) == 16
    assert count_gpus("--nodes=2 --exclusive --partition=cpu", adviser) is None


def test_the_assumption_is_named() -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=2 --exclusive\n{COMMAND}\n"
    advice = ADVISER.advise(read_script(text, file="job.sh"), parse_node_constraints(text))
    assert [entry.why for entry in advice.assumed if entry.field == "plan.gpus"] == [
        "--exclusive gives the job all 8 GPUs of a node"
    ]
