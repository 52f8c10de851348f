"""Fills in the defaults of HuggingFace's Trainer, and of the programs built on it.

Source: ``TrainingArguments`` of transformers 4.6 to 5.0 (batch 8, no accumulation), ``SFTConfig`` of TRL 0.7 to 0.25
(at most 1,024 tokens), ``DataArguments`` of LLaMA-Factory 0.9 (2,048 tokens; checkpointing is on) and the schemas of
axolotl 0.4 to 0.13 (one sequence of 512 tokens).
"""

from __future__ import annotations

from types import MappingProxyType

from opsk.workload.defaults import Filling
from opsk.workload.plan import Offload, Optimizer, OptimizerStep, Precision, Recompute, Sharding, Software, States

LLAMA_FACTORY, AXOLOTL = "llama-factory", "axolotl"
_TRL = frozenset({"trl", "trl + accelerate"})
_TRAINERS = frozenset({"hf-trainer", "hf-trainer+deepspeed", LLAMA_FACTORY, AXOLOTL}) | _TRL
ON_DEEPSPEED = frozenset({"hf-trainer+deepspeed", "deepspeed", "openrlhf"})
"""Frameworks that run on DeepSpeed's engine whatever their options say."""
_BATCH, _AXOLOTL_BATCH = 8, 1
_LENGTHS = MappingProxyType({**dict.fromkeys(_TRL, 1024), LLAMA_FACTORY: 2048, AXOLOTL: 512})
_OPTIMIZERS = MappingProxyType(
    {
        **dict.fromkeys(
            ("adamw_hf", "adamw_torch", "adamw_torch_fused", "adamw_apex_fused", "adamw_anyprecision", "adamw"),
            Optimizer.ADAM,
        ),
        **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "adamw_torch_8bit"), Optimizer.ADAM_8BIT),
        **dict.fromkeys(("paged_adamw", "paged_adamw_32bit"), Optimizer.PAGED_ADAM),
        "paged_adamw_8bit": Optimizer.PAGED_ADAM_8BIT,
        "adafactor": Optimizer.ADAFACTOR,
        "sgd": Optimizer.SGD,
        **dict.fromkeys(("lion", "lion_32bit"), Optimizer.LION),
        "muon": Optimizer.MUON,
    }
)
"""``--optim``; what is not here (GaLore, LOMO, APOLLO, ...) keeps states that opsk cannot count."""

_FOREACH = "adamw_torch"
"""PyTorch's AdamW as it is; the Trainer's own default is the fused one since transformers 4.57."""


def fill_trainer(filling: Filling) -> None:
    """Fill in the defaults of a program of the Trainer's family."""
    framework = filling.workload.framework or ""
    is_deepspeed = filling.options.get("deepspeed") == "true" or framework in ON_DEEPSPEED
    if framework in _TRAINERS:
        batch = _AXOLOTL_BATCH if framework == AXOLOTL else _BATCH
        filling.assume("plan.micro_batch", lambda: (batch, f"{framework} takes {batch} a GPU unless told otherwise"))
        if framework in _LENGTHS:
            length = _LENGTHS[framework]
            filling.assume("model.seq", lambda: (length, f"{framework} cuts at {length} tokens unless told otherwise"))
    if framework == LLAMA_FACTORY:
        why = "llama-factory recomputes all layers unless told otherwise"
        filling.assume("plan.recompute", lambda: (Recompute.FULL, why))
    if filling.options.get("fsdp") == "true":
        why = "FSDP shards weights, gradients and optimizer states unless told otherwise"
        filling.assume("plan.sharding", lambda: (Sharding.ZERO3, why))
    if is_deepspeed:
        filling.values["plan.software"] = Software.DEEPSPEED
    if framework in _TRAINERS:
        _optimizer(filling, is_deepspeed=is_deepspeed)
    if filling.get("plan.precision") is not Precision.FP32:
        _states(filling, is_deepspeed=is_deepspeed)
    if filling.options.get("weights.offload") == "cpu":
        filling.values["plan.offload"] = Offload.OPTIMIZER_AND_WEIGHTS


def _optimizer(filling: Filling, *, is_deepspeed: bool) -> None:
    """Set the optimizer; one whose states opsk cannot count is missing."""
    name = filling.options.get("optimizer.name")
    if name is not None and name in _OPTIMIZERS:
        filling.values["plan.optimizer"] = _OPTIMIZERS[name]
        if name == _FOREACH and not is_deepspeed:
            filling.values["plan.optimizer_step"] = OptimizerStep.FOREACH
    elif name:
        filling.need("plan.optimizer")


def _states(filling: Filling, *, is_deepspeed: bool) -> None:
    """Set the formats of weights, gradients and optimizer states that follow from engine and weights."""
    if is_deepspeed:
        why = "DeepSpeed's engine keeps 16-bit gradients"
        filling.assume("plan.states", lambda: (States.MIXED_16BIT_GRADIENTS, why))
    elif dtype := filling.options.get("weights.dtype"):
        why = f"the weights are loaded in {dtype}, and the optimizer keeps its states as they are"
        filling.assume("plan.states", lambda: (States.PURE_16BIT, why))
