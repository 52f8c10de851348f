"""Lists the flags of Megatron that change memory beyond the plan's axes, and those that no prediction counts.

Data only. Source: ``megatron/training/arguments.py`` and the configuration classes that it is made from, Megatron-LM
0.5 to 0.20, and ``training/mixed_precision.py`` of Megatron-Bridge.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SWITCHES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "--use-precision-aware-optimizer": {"option.optimizer.precision_aware": "true"},
        "--fp8-param-gather": {"option.fp8.params": "true"},
        "--fine-grained-activation-offloading": {"option.offload.fine_grained": "true"},
        "--cross-entropy-loss-fusion": {"option.loss.fusion": "true"},
        "--moe-layer-recompute": {"plan.recompute": "selective", "option.recompute.moe_layer": "true"},
    }
)
"""Flags without a value, as those of `opsk_jobcheck.scripts.frameworks.megatron.flags.CONSTANTS`."""

VALUES: Mapping[str, str] = MappingProxyType(
    {
        "--main-grads-dtype": "optimizer.main_grads",
        "--main-params-dtype": "optimizer.main_params",
        "--exp-avg-dtype": "optimizer.exp_avg",
        "--exp-avg-sq-dtype": "optimizer.exp_avg_sq",
        "--optimizer-offload-fraction": "optimizer.offload_fraction",
        "--cpu-offloading-num-layers": "offload.layers",
        "--moe-expert-capacity-factor": "moe.capacity_factor",
        "--mtp-num-layers": "mtp.layers",
        "--cross-entropy-fusion-impl": "loss.kernel",
    }
)
"""Flags of one value, and the option that it becomes."""

LISTS: Mapping[str, str] = MappingProxyType(
    {"--recompute-modules": "recompute.modules", "--offload-modules": "offload.modules"}
)
"""Flags of several words."""

_BUFFERS = "registered buffers that NCCL works on directly are not counted"
_TWICE = "a second buffer for what FSDP gathers is not counted"
UNMODELLED: Mapping[str, str] = MappingProxyType(
    {
        "--use-nccl-ub": _BUFFERS,
        "--gtp-remat-nccl-ub": _BUFFERS,
        "--gtp-expert-remat-nccl-ub": _BUFFERS,
        "--use-sharp": "what the switches' reduction keeps on a GPU is not counted",
        "--fsdp-double-buffer": _TWICE,
        "--megatron-fsdp-max-pool-double-buffer": _TWICE,
        "--keep-fp8-transpose-cache": "one more byte a weight is not counted",
        "--fp4-param-gather": "weights are counted in 16 bits beside their FP4 copies",
        "--distribute-saved-activations": "inputs of recomputed layers are counted whole on each rank",
        "--fp16-lm-cross-entropy": "logits are counted in fp32",
        "--activation-func-fp8-input-store": "the input of the activation function is counted in 16 bits",
        "--fp8-dot-product-attention": "query, key and value are counted in 16 bits",
        "--fp8-multi-head-attention": "query, key and value are counted in 16 bits",
        "--empty-unused-memory-level": "cached blocks are counted as if they were never given back",
        "--moe-router-padding-for-quantization": "tokens that fill up an expert's part are not counted",
        "--moe-router-padding-for-fp8": "tokens that fill up an expert's part are not counted",
        "--ddp-reduce-scatter-with-fp32-accumulation": "the copy of a bucket is not counted",
        "--ddp-pad-buckets-for-high-nccl-busbw": "what fills up buckets is not counted",
        "--use-layer-wise-distributed-optimizer": "states are counted as evenly sharded",
        "--megatron-fsdp-main-params-dtype": "master weights are counted in fp32",
        "--megatron-fsdp-main-grads-dtype": "gradients are counted as without it",
        "--outer-dp-sharding-strategy": "the outer groups' sharing of the optimizer is not counted",
        "--activation-offload-fraction": "all groups of the modules are counted as moved",
        "--delta-offload-bytes-across-pp-ranks": "each stage is counted as moving as much",
        "--cuda-graph-impl": "buffers of captured graphs are not counted",
        "--enable-cuda-graph": "buffers of captured graphs are not counted",
        "--external-cuda-graph": "buffers of captured graphs are not counted",
        "--check-weight-hash-across-dp-replicas-interval": "the buffer that it compares in is not counted",
        "--keep-ema": "a second copy of the weights is not counted",
        "--mhc-recompute-layer-num": "opsk does not count hyper-connections",
        "--fp32-residual-connection": "the stream between layers is counted in 16 bits",
    }
)
"""Flags that change memory and that no prediction counts, and what is taken instead."""
NO_CHANGE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "--empty-unused-memory-level": ("0",),
        "--cuda-graph-impl": ("none",),
        "--activation-offload-fraction": ("1", "1.0"),
        "--outer-dp-sharding-strategy": ("no_shard",),
    }
)
"""The values with which such a flag changes nothing."""

BRIDGE_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "optimizer.main_grads_dtype": "optimizer.main_grads",
        "optimizer.main_params_dtype": "optimizer.main_params",
        "optimizer.exp_avg_dtype": "optimizer.exp_avg",
        "optimizer.exp_avg_sq_dtype": "optimizer.exp_avg_sq",
        "optimizer.optimizer_offload_fraction": "optimizer.offload_fraction",
        "model.recompute_modules": "recompute.modules",
        "model.recompute_method": "recompute.method",
        "model.recompute_num_layers": "recompute.layers",
        "model.offload_modules": "offload.modules",
        "model.cpu_offloading_num_layers": "offload.layers",
        "model.moe_expert_capacity_factor": "moe.capacity_factor",
        "model.cross_entropy_fusion_impl": "loss.kernel",
        "model.mtp_num_layers": "mtp.layers",
        "model.fp8_recipe": "fp8.recipe",
        "ddp.num_distributed_optimizer_instances": "optimizer.instances",
    }
)
"""Overrides of Megatron-Bridge whose value becomes an option; what is null is left out."""

BRIDGE_SWITCHES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "optimizer.use_precision_aware_optimizer": ("optimizer.precision_aware", "true", "false"),
        "optimizer.optimizer_cpu_offload": ("optimizer.offload", "cpu", "false"),
        "model.fine_grained_activation_offloading": ("offload.fine_grained", "true", "false"),
        "ddp.grad_reduce_in_fp32": ("optimizer.main_grads", "fp32", "bf16"),
        "mixed_precision.grad_reduce_in_fp32": ("optimizer.main_grads", "fp32", "bf16"),
        "model.cross_entropy_loss_fusion": ("loss.fusion", "true", "false"),
        "ddp.fp8_param_gather": ("fp8.params", "true", "false"),
        "mixed_precision.fp8_param_gather": ("fp8.params", "true", "false"),
    }
)
"""Overrides that are true or false: the option, and its value for either."""

BRIDGE_PRECISIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "bf16_mixed": ("bf16", ""),
        "fp16_mixed": ("fp16", ""),
        "bf16_with_fp8_delayed_scaling_mixed": ("fp8", "true"),
        "bf16_with_fp8_current_scaling_mixed": ("fp8-current", "true"),
        "bf16_with_fp8_subchannel_scaling_mixed": ("fp8-block", "false"),
        "bf16_with_mxfp8_mixed": ("mxfp8", "true"),
        "bf16_with_nvfp4_mixed": ("nvfp4", ""),
    }
)
"""Recipes of ``mixed_precision=``: number format of products, and whether weights are gathered in FP8."""
