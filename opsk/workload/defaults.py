"""Fills in the values that a training framework uses where its user gives none.

Source: ``megatron/training/arguments.py`` of Megatron-LM and ``megatron/arguments.py`` of Megatron-DeepSpeed;
``TrainingArguments`` of transformers 4.6 to 5.0 (batch 8, no accumulation), ``SFTConfig`` of TRL 0.7 to 1.7
(at most 1,024 tokens), ``DataArguments`` of LLaMA-Factory 0.9 (2,048 tokens; checkpointing is on) and the schemas of
axolotl 0.4 to 0.13 (one sequence of 512 tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from opsk.workload.model import MODEL_FIELDS, ModelShape
from opsk.workload.plan import (
    PLAN_FIELDS,
    Loss,
    Offload,
    Optimizer,
    OptimizerStep,
    Plan,
    Precision,
    Recompute,
    Sharding,
    Software,
    States,
)
from opsk.workload.workload import Workload

MEGATRON_LM, MEGATRON_DEEPSPEED, MEGATRON_BRIDGE = "megatron-lm", "megatron-deepspeed", "megatron-bridge"
VOCAB_DIVISOR = 128
"""``--make-vocab-size-divisible-by``: rows of the embedding are padded to a multiple of this times tp."""
GPT2_VOCAB, LLAMA2_VOCAB, LLAMA3_VOCAB = 50257, 32000, 128256
_MODEL_NAMES = tuple((name, f"model.{name}") for name in MODEL_FIELDS if name != "name")
_PLAN_NAMES = tuple((name, f"plan.{name}") for name in PLAN_FIELDS)
_FULLY_SHARDED = frozenset({"pytorch-fsdp", "fms-fsdp", "torchtitan", "llama-cookbook", "torchtune", "litgpt", "olmo"})
_TOKENIZERS = {
    **{"gpt2bpetokenizer": GPT2_VOCAB, "llama2tokenizer": LLAMA2_VOCAB, "gpt2": GPT2_VOCAB},
    "esm-2's tokenizer": 128,  # 33 amino acids and signs, padded
}
_HARMLESS_UNKNOWNS = frozenset(
    {"model.vocab", "model.flash_attention", "model.learned_positions", "model.tied_embeddings"}
)
"""Fields that are assumed even where a script sets them to an unknown value: they change a prediction little."""
_NO_FUSED_ATTENTION = ("v100", "p100", "t4", "mi100", "mi60")
LLAMA_FACTORY, AXOLOTL = "llama-factory", "axolotl"
_TRL = frozenset({"trl", "trl + accelerate"})
_TRAINERS = frozenset({"hf-trainer", "hf-trainer+deepspeed", LLAMA_FACTORY, AXOLOTL}) | _TRL
ON_DEEPSPEED = frozenset({"hf-trainer+deepspeed", "deepspeed", "openrlhf"})
"""Frameworks that run on DeepSpeed's engine whatever their options say."""
ROLE_PREFIXES = ("roles.", "rollout.")
"""What the names of options begin with that state several models on one set of GPUs; see `roles`."""
_BATCH, _AXOLOTL_BATCH = 8, 1
_USUAL: Mapping[str, tuple[tuple[str, Any, str], ...]] = MappingProxyType(
    {
        "verl": (
            ("plan.sharding", Sharding.ZERO3, "verl shards weights, gradients and optimizer states with FSDP"),
            ("plan.recompute", Recompute.FULL, "verl recomputes all layers unless told otherwise, since 0.4"),
        ),
        "ms-swift": (
            ("plan.micro_batch", 1, "ms-swift takes one sequence a GPU unless told otherwise"),
            ("plan.recompute", Recompute.FULL, "ms-swift recomputes all layers unless told otherwise"),
        ),
        **dict.fromkeys(
            _TRL, (("plan.recompute", Recompute.FULL, "TRL recomputes all layers unless told otherwise, since 0.21"),)
        ),
    }
)
"""Sources: verl/trainer/config/ppo_trainer.yaml of verl; swift/arguments and swift/trainers of ms-swift 3;
trl/trainer/base_config.py of TRL and its pull request 3510."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """An assumed value: dotted ``field``, the ``value`` used, and ``why``."""

    field: str
    value: object
    why: str


def average_layers(model: ModelShape | None, plan: Plan | None) -> tuple[Assumption, ...]:
    """Return the assumption on the stages of a hybrid, whose layers are of several kinds; empty for others."""
    if model is None or plan is None or plan.pp == 1 or not (model.mixer_layers or model.mlp_layers):
        return ()
    why = "every stage has the average layer: which stage holds which kinds of layers is not known"
    return (Assumption(field="model.mixer_layers", value=model.mixer_layers, why=why),)


class Filling:
    """A workload that is being completed: all values by dotted field, the assumptions, and the missing fields."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.options = dict(workload.options)
        model, plan = workload.model, workload.plan
        self.values: dict[str, Any] = {
            dotted: value for name, dotted in _MODEL_NAMES if (value := getattr(model, name)) is not None
        } | {dotted: value for name, dotted in _PLAN_NAMES if (value := getattr(plan, name)) is not None}
        self.unknown = {entry.field for entry in workload.unknown} - _HARMLESS_UNKNOWNS
        self.assumed: list[Assumption] = []
        self.missing: list[str] = []

    @property
    def is_megatron(self) -> bool:
        """True for the frameworks whose command line is Megatron's, defaults included."""
        return self.workload.framework in (MEGATRON_LM, MEGATRON_DEEPSPEED)

    def get(self, name: str) -> Any:
        """Return a value, ``None`` where there is none."""
        return self.values.get(name)

    def has(self, *names: str) -> bool:
        """Return whether all these fields have values."""
        return all(name in self.values for name in names)

    def lacks(self, prefix: str) -> bool:
        """Return whether a field under the prefix is missing."""
        return any(name.startswith(prefix) for name in self.missing)

    def need(self, name: str) -> None:
        """Mark a field as missing unless it has a value."""
        if name not in self.values and name not in self.missing:
            self.missing.append(name)

    def assume(self, name: str, rule: Callable[[], tuple[Any, str] | None]) -> None:
        """Assume a default for a field without a value; one that is set to an unknown value is missing.

        The rule returns the value and why; ``None`` where the default depends on a value that is missing itself.
        """
        if name in self.values:
            return
        if name in self.unknown:
            self.need(name)
        elif default := rule():
            self.values[name] = default[0]
            self.assumed.append(Assumption(field=name, value=default[0], why=default[1]))

    def compute(self, name: str, value: int) -> None:
        """Set a value that follows from others by arithmetic: nothing is assumed."""
        self.values.setdefault(name, value)

    def under(self, prefix: str) -> dict[str, Any]:
        """Return the values under a prefix, by their own names."""
        start = len(prefix)
        return {name[start:]: value for name, value in self.values.items() if name.startswith(prefix)}


def fill_plan(filling: Filling) -> None:
    """Fill in the plan."""
    framework = filling.workload.framework or "the framework"
    _chunks(filling)
    for name, what in (
        ("plan.tp", "tensor parallelism"),
        ("plan.pp", "pipeline parallelism"),
        ("plan.cp", "context parallelism"),
        ("plan.ep", "expert parallelism"),
        ("plan.vpp", "interleaving of stages"),
    ):
        filling.assume(name, _make_off_rule(what))
    _gpus_and_dp(filling)
    filling.need("plan.micro_batch")
    filling.need("plan.gpus")
    filling.assume("plan.global_batch", lambda: _global_batch(filling))
    filling.assume("plan.sharding", lambda: _sharding(filling))
    filling.assume("plan.recompute", lambda: (Recompute.NONE, "nothing is recomputed unless asked for"))
    filling.assume("plan.sequence_parallel", lambda: (False, f"{framework} needs a flag for it"))
    filling.assume("plan.precision", lambda: _precision(filling))


def _make_off_rule(what: str) -> Callable[[], tuple[int, str]]:
    """Return the rule of an axis that has size 1 unless asked for."""
    return lambda: (1, f"{what} is off unless asked for")


def _chunks(filling: Filling) -> None:
    """Compute the chunks of a stage from the layers of each, where the named model has the layers."""
    per_chunk = filling.options.get("pipeline.layers_per_chunk", "")
    layers, pp = filling.get("model.layers"), filling.get("plan.pp")
    if len(per_chunk) < 6 and per_chunk.isdecimal() and int(per_chunk) and layers and pp:
        chunks, remaining = divmod(layers, pp * int(per_chunk))
        if chunks and not remaining:
            filling.compute("plan.vpp", chunks)


def _gpus_and_dp(filling: Filling) -> None:
    """Compute the GPU count and the data-parallel size from what is stated."""
    plan = filling.values
    if filling.has("plan.nodes", "plan.gpus_per_node"):
        filling.compute("plan.gpus", plan["plan.nodes"] * plan["plan.gpus_per_node"])
    if not filling.has("plan.tp", "plan.pp", "plan.cp"):
        return
    ranks = plan["plan.tp"] * plan["plan.pp"] * plan["plan.cp"]
    if "plan.dp" in plan:
        filling.compute("plan.gpus", ranks * plan["plan.dp"])
    gpus = filling.get("plan.gpus")
    if gpus and ranks > 0 and gpus % ranks == 0:
        filling.compute("plan.dp", gpus // ranks)


def _global_batch(filling: Filling) -> tuple[int, str] | None:
    """Return one micro-batch a replica, or as many as are accumulated."""
    if not filling.has("plan.micro_batch", "plan.dp"):
        return None
    micro, dp = filling.get("plan.micro_batch"), filling.get("plan.dp")
    steps = filling.options.get("deepspeed.accumulation_steps", "")
    if steps.isascii() and steps.isdigit() and 0 < len(steps) < 7 and int(steps):
        return micro * int(steps) * dp, f"micro batch {micro} × {int(steps)} accumulation steps × dp {dp}"
    return micro * dp, f"no accumulation unless asked for: micro batch {micro} × dp {dp}"


def _sharding(filling: Filling) -> tuple[Sharding, str]:
    """Return the default sharding of the framework."""
    framework = filling.workload.framework
    if framework in _FULLY_SHARDED:
        return Sharding.ZERO3, f"{framework} shards weights, gradients and optimizer states unless told otherwise"
    return Sharding.NONE, "every replica keeps all states unless sharding is asked for"


def _precision(filling: Filling) -> tuple[Precision, str]:
    """Return the number format."""
    if filling.is_megatron:
        return Precision.FP32, f"{filling.workload.framework} trains in fp32 without --bf16, --fp16 or FP8 flags"
    weights = filling.options.get("weights.dtype")
    if weights in (Precision.BF16.value, Precision.FP16.value):
        return Precision(weights), f"the weights are loaded in {weights}"
    if filling.workload.framework == "hf-trainer":
        return Precision.FP32, "HuggingFace's Trainer computes in fp32 unless bf16 or fp16 is set"
    return Precision.BF16, "no number format is stated; bf16 is what large models are trained in"


def fill_model(filling: Filling) -> None:
    """Fill in the shape of the model."""
    for name in ("model.layers", "model.hidden", "model.heads", "model.seq"):
        filling.need(name)
    filling.assume("model.gated_mlp", lambda: _is_gated(filling))
    filling.assume("model.ffn", lambda: _ffn(filling))
    filling.assume("model.kv_heads", lambda: _kv_heads(filling))
    filling.assume("model.head_dim", lambda: _head_dim(filling))
    filling.assume("model.vocab", lambda: _vocab(filling))
    filling.assume("model.tied_embeddings", lambda: _is_tied(filling))
    filling.assume("model.learned_positions", lambda: _has_learned_positions(filling))
    filling.assume("model.flash_attention", lambda: _flash_attention(filling))
    _experts(filling)


def _is_gated(filling: Filling) -> tuple[bool, str]:
    """Return whether the MLP is gated."""
    if filling.is_megatron:
        return False, f"{filling.workload.framework} uses GELU without --swiglu"
    ffn, hidden = filling.get("model.ffn"), filling.get("model.hidden")
    if ffn and ffn == 4 * (hidden or 0):
        return False, "the MLP is four times as wide as the model, as plain ones are"
    return True, "nothing is stated, and most models of today have one"


def _ffn(filling: Filling) -> tuple[int, str] | None:
    """Return the inner width of the MLP."""
    hidden, gated = filling.get("model.hidden"), filling.get("model.gated_mlp")
    if hidden is None or gated is None:
        return None
    # Megatron-DeepSpeed's --glu-activation doubles the first product and leaves the width alone
    if not gated or _is_stated_by(filling, "model.gated_mlp", "glu-activation"):
        return 4 * hidden, f"4 × hidden {hidden}"
    # exactly Megatron's int((4 * h * 2 / 3) / 64) * 64, without its rounding errors
    return 8 * hidden // 192 * 64 or 64, f"a gated MLP has 8/3 × hidden {hidden}, down to a multiple of 64"


def _is_stated_by(filling: Filling, name: str, words: str) -> bool:
    """Return whether the evidence of a value contains these words."""
    return any(entry.field == name and words in entry.text for entry in filling.workload.evidence)


def _kv_heads(filling: Filling) -> tuple[int, str] | None:
    """Return the number of key and value heads."""
    if filling.options.get("attention.head_type", "").lower() == "multiquery":
        return 1, "multi-query attention has one key and value head"
    heads = filling.get("model.heads")
    return (heads, "every head has its own key and value unless groups are asked for") if heads else None


def _head_dim(filling: Filling) -> tuple[int, str] | None:
    """Return the width of a head, where it divides."""
    hidden, heads = filling.get("model.hidden"), filling.get("model.heads")
    if not hidden or not heads or hidden % heads:
        return None
    return hidden // heads, f"hidden {hidden} / heads {heads}"


def _vocab(filling: Filling) -> tuple[int, str]:
    """Return the rows of the embedding, padded as Megatron pads them."""
    kind = filling.options.get("tokenizer.type", "")
    size = _TOKENIZERS.get(kind.lower())
    if size is not None:
        why = f"{kind} has {size} tokens"
    elif filling.workload.framework == MEGATRON_DEEPSPEED or not filling.get("model.gated_mlp"):
        size, why = GPT2_VOCAB, f"the tokenizer is not known; GPT-2's has {GPT2_VOCAB} tokens"
    else:
        size, why = LLAMA3_VOCAB, f"the tokenizer is not known; Llama 3's has {LLAMA3_VOCAB} tokens"
    if not filling.is_megatron:
        return size, why
    divisor = filling.options.get("vocab.divisor", "")
    given = int(divisor) if divisor.isascii() and divisor.isdigit() and 0 < len(divisor) < 7 else 0
    multiple = (given or VOCAB_DIVISOR) * (filling.get("plan.tp") or 1)
    return -(-size // multiple) * multiple, f"{why}, padded to a multiple of {multiple}"


def _is_tied(filling: Filling) -> tuple[bool, str]:
    """Return whether the output head reuses the embedding."""
    if filling.is_megatron:
        return True, f"{filling.workload.framework} ties them without --untie-embeddings-and-output-weights"
    return False, "not stated; a head of its own needs more memory"


def _has_learned_positions(filling: Filling) -> tuple[bool, str]:
    """Return whether positions are a trained table."""
    kind = filling.options.get("position_embedding_type", "").lower()
    if kind:
        return kind in ("learned_absolute", "absolute"), f"position embedding type {kind}"
    if filling.is_megatron:
        return True, f"{filling.workload.framework} learns absolute positions unless told otherwise"
    return False, "not stated; models of today rotate positions"


def _flash_attention(filling: Filling) -> tuple[bool, str]:
    """Return whether attention scores are never stored."""
    framework, options = filling.workload.framework, filling.options
    gpu = (filling.workload.gpu or "").lower()
    if any(name in gpu for name in _NO_FUSED_ATTENTION):
        return False, f"fused attention does not run on {gpu}"
    if options.get("transformer_impl", "").lower() == "local":
        return False, "the local transformer implementation stores the scores without --use-flash-attn"
    if framework == MEGATRON_DEEPSPEED:
        return False, f"{framework} stores the scores without --use-flash-attn"
    if "attention.head_type" in options:
        return False, "this fork of Megatron-LM is older than Transformer Engine, and needs --use-flash-attn"
    if framework == MEGATRON_LM:
        return True, "Transformer Engine, the default implementation, fuses attention"
    return True, "PyTorch and today's frameworks fuse attention by default"


def _experts(filling: Filling) -> None:
    """Fill in the mixture of experts."""
    if filling.workload.framework == MEGATRON_BRIDGE:
        # a recipe in Python decides, and the model that it builds is unknown
        filling.need("model.experts")
    else:
        filling.assume("model.experts", lambda: (0, "no experts are asked for: a dense model"))
    if not filling.get("model.experts"):
        for name in ("model.top_k", "model.shared_experts", "model.expert_ffn"):
            filling.values.pop(name, None)
        return
    filling.assume("model.top_k", lambda: (min(2, filling.get("model.experts")), "two experts a token"))
    filling.assume("model.shared_experts", lambda: (0, "no shared experts are asked for"))
    width = filling.get("model.ffn")
    filling.assume("model.expert_ffn", lambda: (width, "an expert is as wide as the dense MLP") if width else None)


def find_usual_length(framework: str | None) -> int:
    """Return at how many tokens a framework cuts texts unless told otherwise; 0 for one without such a length."""
    return _LENGTHS.get(framework or "", 0) if framework in _TRAINERS else 0


def _has_roles(filling: Filling) -> bool:
    """Return whether more models than the trained one are at work: a preference loss, a rollout engine."""
    return any(name.startswith(ROLE_PREFIXES) for name in filling.options)


def fill_trainer(filling: Filling) -> None:
    """Fill in the defaults of a program of the Trainer's family."""
    framework = filling.workload.framework or ""
    is_deepspeed = filling.options.get("deepspeed") == "true" or framework in ON_DEEPSPEED
    if framework in _TRAINERS:
        batch = _AXOLOTL_BATCH if framework == AXOLOTL else _BATCH
        filling.assume("plan.micro_batch", lambda: (batch, f"{framework} takes {batch} a GPU unless told otherwise"))
        if length := find_usual_length(framework):
            filling.assume("model.seq", lambda: (length, f"{framework} cuts at {length} tokens unless told otherwise"))
    if framework == LLAMA_FACTORY:
        why = "llama-factory recomputes all layers unless told otherwise"
        filling.assume("plan.recompute", lambda: (Recompute.FULL, why))
    for field, value, why in _USUAL.get(framework, ()):
        filling.assume(field, _make_usual_rule(value, why))
    if framework in _TRL and not _has_roles(filling) and not filling.options.get("loss.kernel"):
        why = "TRL computes the loss of supervised fine-tuning in chunks of tokens since 1.7"
        filling.assume("plan.loss", lambda: (Loss.RECOMPUTED_FP32, why))
    if filling.options.get("fsdp") == "true":
        why = "FSDP shards weights, gradients and optimizer states unless told otherwise"
        filling.assume("plan.sharding", lambda: (Sharding.ZERO3, why))
    if is_deepspeed:
        filling.values["plan.software"] = Software.DEEPSPEED
    if not framework.startswith("megatron"):
        _optimizer(filling, is_deepspeed=is_deepspeed)
    if filling.get("plan.precision") not in (Precision.FP32, Precision.TF32):
        _states(filling, is_deepspeed=is_deepspeed)
    if filling.options.get("weights.offload") == "cpu":
        filling.values["plan.offload"] = Offload.OPTIMIZER_AND_WEIGHTS


def _make_usual_rule(value: Any, why: str) -> Callable[[], tuple[Any, str]]:
    """Return the rule of a setting that has the framework's default."""
    return lambda: (value, why)


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
