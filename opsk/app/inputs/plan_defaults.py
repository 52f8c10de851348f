"""What is taken for an input of ``opsk predict`` that nobody gave, and why?

What is off unless somebody asks for it (parallelism, adapters, offload) and what others fix by arithmetic is no
assumption: it is not listed and does not widen the range.
"""

from __future__ import annotations

from typing import Any

from opsk.workload.defaults import GPT2_VOCAB, LLAMA3_VOCAB, Assumption
from opsk.workload.plan import Precision, Recompute, Sharding, Software, States

USUAL_SEQ = 4096
USUAL_MICRO_BATCH = 1
_STATES = {
    Software.DEEPSPEED: (States.MIXED_16BIT_GRADIENTS, "DeepSpeed keeps gradients in 16 bits"),
    Software.PYTORCH: (States.AUTOCAST, "PyTorch keeps states in fp32 and computes in 16 bits"),
}


class Defaults:
    """The tables of a plan file while they are filled in; ``assumed`` says what was taken and why."""

    def __init__(self, model: dict[str, Any], plan: dict[str, Any]) -> None:
        self.model, self.plan = dict(model), dict(plan)
        self.assumed: list[Assumption] = []
        self.wrong: list[str] = []

    def assume(self, table: str, key: str, value: Any, why: str) -> None:
        """Take a value where none is given."""
        values = self.model if table == "model" else self.plan
        if key not in values:
            values[key] = value
            self.assumed.append(Assumption(field=f"{table}.{key}", value=value, why=why))


def fill_model(defaults: Defaults) -> None:
    """Fill in the shape of a model of which layers, hidden and heads are known."""
    model = defaults.model
    hidden, heads = model.get("hidden", 0), model.get("heads", 0)
    if model.get("ffn") == 4 * hidden:
        defaults.assume("model", "gated_mlp", False, "the MLP is four times as wide as the model, as plain ones are")
    defaults.assume("model", "gated_mlp", True, "most models of today have a gated MLP")
    gated = model["gated_mlp"]
    if model.get("experts") and "expert_ffn" in model:
        # no layer has a dense MLP: its width is never used
        model.setdefault("ffn", model["expert_ffn"])
    if gated:
        width = -(-8 * hidden // 3 // 256) * 256 or 256
        defaults.assume("model", "ffn", width, f"8/3 x hidden {hidden}, up to a multiple of 256, as Llama's")
        defaults.assume("model", "vocab", LLAMA3_VOCAB, "the tokenizer is not known; Llama 3's has so many tokens")
        defaults.assume("model", "tied_embeddings", False, "a head of its own needs more memory")
    else:
        defaults.assume("model", "ffn", 4 * hidden or 4, f"4 x hidden {hidden}")
        defaults.assume("model", "vocab", GPT2_VOCAB, "the tokenizer is not known; GPT-2's has so many tokens")
        defaults.assume("model", "tied_embeddings", True, "GPT-2 and GPT-3 reuse the embedding")
    defaults.assume("model", "seq", USUAL_SEQ, "a usual length of training sequences")
    defaults.assume("model", "flash_attention", True, "the software of today fuses attention")
    model.setdefault("kv_heads", heads)
    _fill_head_dim(defaults, hidden, heads)


def _fill_head_dim(defaults: Defaults, hidden: int, heads: int) -> None:
    """Fill in the width of a head where it is left out, or say what stands in the way."""
    if "head_dim" in defaults.model:
        return
    if heads > 0 and hidden % heads:
        defaults.wrong.append(f"model.head_dim is left out and hidden {hidden} is not a multiple of heads {heads}")
    defaults.model["head_dim"] = max(hidden // heads, 1) if heads > 0 else 1


def fill_plan(defaults: Defaults, gpus: int | None) -> None:
    """Fill in the plan; ``gpus`` are those of the job where they are known, and fix ``dp``."""
    plan = defaults.plan
    _fill_dp(defaults, gpus)
    defaults.assume("plan", "software", Software.MEGATRON_CORE, "the framework is not known; it is the usual one")
    defaults.assume("plan", "precision", Precision.BF16, "what large models are trained in")
    defaults.assume("plan", "micro_batch", USUAL_MICRO_BATCH, "the least memory that a plan can do with")
    micro_batch, dp = max(plan["micro_batch"], 1), max(plan["dp"], 1)  # what is below 1 is told by itself
    defaults.assume("plan", "global_batch", micro_batch * dp, f"no accumulation: micro batch {micro_batch} x dp {dp}")
    defaults.assume("plan", "recompute", Recompute.NONE, "nothing is recomputed unless asked for")
    if plan["precision"] is not Precision.FP32:
        states, why = _STATES.get(
            plan["software"], (States.MIXED, "Megatron keeps gradients and master weights in fp32")
        )
        defaults.assume("plan", "states", states, why)
    if dp * plan.get("cp", 1) > 1:
        _assume_sharding(defaults)
    if plan.get("tp", 1) > 1:
        defaults.assume("plan", "sequence_parallel", False, "it needs a flag of its own")


def _assume_sharding(defaults: Defaults) -> None:
    """Take what the software shards by itself."""
    if defaults.plan["software"] is Software.PYTORCH:
        defaults.assume("plan", "sharding", Sharding.ZERO3, "FSDP shards weights, gradients and optimizer states")
    else:
        defaults.assume(
            "plan", "sharding", Sharding.NONE, "every replica keeps all states unless sharding is asked for"
        )


def _fill_dp(defaults: Defaults, gpus: int | None) -> None:
    """Fill in ``dp`` from the GPU count where it is left out, or say what stands in the way."""
    plan = defaults.plan
    if "dp" in plan:
        return
    per_replica = plan.get("tp", 1) * plan.get("pp", 1) * plan.get("cp", 1)
    if gpus is None or per_replica < 1:
        plan["dp"] = 1
    elif gpus % per_replica:
        defaults.wrong.append(f"plan.dp is left out and {gpus} GPUs are not a multiple of tp x pp x cp = {per_replica}")
        plan["dp"] = 1
    else:
        plan["dp"] = gpus // per_replica
