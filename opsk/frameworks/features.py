"""Defines the features of frameworks that plans rest on: since which release, and which are slow or untested.

What a framework can run at all is in its `Limits` and refusals. This table lists what of that needs a recent release,
and what its own code or documentation warns of. The first release is the one whose argument parser has the flag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from opsk.frameworks.limits import is_partly_sharded
from opsk.frameworks.settings.megatron_layout import has_uneven_chunks
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Offload, Optimizer, Plan, Precision, Schedule, Sharding

_SHARES_WEIGHTS = (Sharding.ZERO2, Sharding.ZERO3)


class Standing(StrEnum):
    """What a framework says of a feature: nothing, that it is slow, or that it is experimental or not tested."""

    USUAL = "usual"
    SLOW = "slow"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature of one framework.

    Parameters
    ----------
    framework, name
        Name of the framework, and what users call the feature.
    since
        First release that has it.
    source
        Where its parser or checks have it, or where it is warned of.
    is_used
        Whether a plan on a cluster uses it.
    why
        Why it is slow or untested.
    """

    framework: str
    name: str
    since: str
    source: str
    is_used: Callable[[Plan, ClusterSpec], bool]
    standing: Standing = Standing.USUAL
    why: str = ""


def _is_fsdp(plan: Plan, _: ClusterSpec) -> bool:
    return plan.sharding in _SHARES_WEIGHTS and plan.dp * plan.cp > 1


def _needs_one_connection(plan: Plan, cluster: ClusterSpec) -> bool:
    is_before_blackwell = not cluster.node.gpu.architecture.startswith("blackwell")
    return _is_fsdp(plan, cluster) and plan.tp * plan.cp > 1 and is_before_blackwell


def _is_uneven(plan: Plan, _: ClusterSpec) -> bool:
    return bool(plan.first_stage_layers or plan.last_stage_layers)


def _counts_ends_as_layers(plan: Plan, cluster: ClusterSpec) -> bool:
    return has_uneven_chunks(plan) and not _has_layout(plan, cluster)


def _has_layout(plan: Plan, _: ClusterSpec) -> bool:
    """Return whether a chunk lacks more than the layer whose place embedding or loss takes."""
    ends = [layers for layers in (plan.first_stage_layers, plan.last_stage_layers) if layers]
    return has_uneven_chunks(plan) and (len(set(ends)) > 1 or any(-layers % plan.vpp > 1 for layers in ends))


FEATURES: tuple[Feature, ...] = (
    Feature(
        framework="megatron",
        name="Megatron FSDP",
        since="Core 0.14 (0.12 as --use-custom-fsdp)",
        source="megatron/training/arguments.py: --use-megatron-fsdp",
        is_used=_is_fsdp,
    ),
    Feature(
        framework="megatron",
        name="tp or cp beside FSDP",
        since="Core 0.12",
        source="megatron/training/arguments.py warns of CUDA_DEVICE_MAX_CONNECTIONS before Blackwell",
        is_used=_needs_one_connection,
        standing=Standing.SLOW,
        why="tp and cp want CUDA_DEVICE_MAX_CONNECTIONS=1, FSDP wants more",
    ),
    Feature(
        framework="megatron",
        name="several instances of the distributed optimizer",
        since="Core 0.10",
        source="megatron/training/arguments.py: --num-distributed-optimizer-instances",
        is_used=lambda plan, _: is_partly_sharded(plan),
    ),
    Feature(
        framework="megatron",
        name="uneven stages",
        since="Core 0.9",
        source="megatron/training/arguments.py: --decoder-first-pipeline-num-layers",
        is_used=lambda plan, cluster: _is_uneven(plan, cluster) and not has_uneven_chunks(plan),
    ),
    Feature(
        framework="megatron",
        name="embedding and loss as layers of interleaved stages",
        since="Core 0.11",
        source="megatron/core/transformer/transformer_config.py: account_for_embedding_in_pipeline_split",
        is_used=_counts_ends_as_layers,
    ),
    Feature(
        framework="megatron",
        name="layers of every chunk as a layout",
        since="Core 0.13",
        source="megatron/training/arguments.py: --pipeline-model-parallel-layout",
        is_used=_has_layout,
    ),
    Feature(
        framework="megatron",
        name="experts over other ranks than tp",
        since="Core 0.10",
        source="megatron/training/arguments.py: --expert-tensor-parallel-size",
        is_used=lambda plan, _: plan.etp > 0 and plan.etp != plan.tp,
    ),
    Feature(
        framework="megatron",
        name="optimizer states in host memory",
        since="Core 0.12",
        source="megatron/training/arguments.py: --optimizer-cpu-offload",
        is_used=lambda plan, _: plan.offload is Offload.OPTIMIZER,
    ),
    Feature(
        framework="megatron",
        name="Lion",
        since="Core 0.17",
        source="megatron/training/arguments.py: --optimizer",
        is_used=lambda plan, _: plan.optimizer is Optimizer.LION,
    ),
    Feature(
        framework="megatron",
        name="fp16 beside expert parallelism",
        since="Core 0.16",
        source="megatron/training/arguments.py: validate_args of 0.15 refuses it",
        is_used=lambda plan, _: plan.precision is Precision.FP16 and plan.ep > 1,
    ),
    Feature(
        framework="megatron",
        name="activations of layers in host memory",
        since="Core 0.16",
        source="megatron/training/arguments.py: cpu_offloading_num_layers",
        is_used=lambda plan, _: plan.offload is Offload.ACTIVATIONS,
    ),
    Feature(
        framework="torchtitan",
        name="experts",
        since="v0.2.0",
        source="torchtitan/config/job_config.py: expert_parallel_degree",
        is_used=lambda plan, _: plan.ep > 1,
    ),
    Feature(
        framework="torchtitan",
        name="stages of fewer layers at the ends",
        since="v0.2.0",
        source="torchtitan/config/job_config.py: pipeline_parallel_first_stage_less_layers",
        is_used=_is_uneven,
    ),
    Feature(
        framework="torchtitan",
        name="experts split over tp",
        since="v0.2.0 to v0.2.2",
        source="torchtitan/config/job_config.py: expert_tensor_parallel_degree, absent from later releases",
        is_used=lambda plan, _: plan.ep > 1 and plan.etp > 1,
        standing=Standing.UNTESTED,
        why="later releases do not have it",
    ),
    Feature(
        framework="torchtitan",
        name="zero-bubble schedules",
        since="v0.1.0",
        source="torch/distributed/pipelining/schedules.py: ScheduleZBVZeroBubble, not with torch.compile",
        is_used=lambda plan, _: plan.pp > 1 and plan.schedule is Schedule.ZERO_BUBBLE_V,
        standing=Standing.SLOW,
        why="layers cannot be compiled beside it",
    ),
    Feature(
        framework="fsdp",
        name="context parallelism",
        since="accelerate 1.10",
        source="accelerate/utils/dataclasses.py: ParallelismConfig.cp_size",
        is_used=lambda plan, _: plan.cp > 1,
    ),
    Feature(
        framework="deepspeed",
        name="Ulysses",
        since="DeepSpeed 0.10.2",
        source="deepspeed/sequence/layer.py",
        is_used=lambda plan, _: plan.cp > 1,
    ),
)
"""Features that not every release has, or that are warned of; what is not listed is old and usual."""


def list_features(framework: str, plan: Plan, cluster: ClusterSpec) -> tuple[Feature, ...]:
    """Return the features of a framework that a plan uses, in the order of the table."""
    return tuple(item for item in FEATURES if item.framework == framework and item.is_used(plan, cluster))
