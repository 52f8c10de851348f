"""Defines how a training run is distributed over GPUs.

``Plan`` is complete and consistent; ``StatedPlan`` holds what a script states. The axes are those of Megatron-LM:
``gpus = tp * pp * cp * dp``, and ``ep`` overlaps ``dp``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from opsk.errors import PlanInfeasibleError


class RecomputeModule(StrEnum):
    """A module that selective recomputation discards and recomputes (``--recompute-modules``)."""

    CORE_ATTN = "core_attn"
    MLP = "mlp"
    LAYERNORM = "layernorm"
    MOE_ACT = "moe_act"
    MOE = "moe"
    MLA_UP_PROJ = "mla_up_proj"
    SHARED_EXPERTS = "shared_experts"


class OffloadModule(StrEnum):
    """A module whose stored activations are offloaded to host memory (``--offload-modules``)."""

    ATTN_NORM = "attn_norm"
    QKV_LINEAR = "qkv_linear"
    CORE_ATTN = "core_attn"
    ATTN_PROJ = "attn_proj"
    MLP_NORM = "mlp_norm"
    EXPERT_FC1 = "expert_fc1"
    MOE_ACT = "moe_act"
    FUSED_GROUP_MLP = "fused_group_mlp"


def sorted_words(kind: type[StrEnum], text: str) -> tuple[str, tuple[str, ...]]:
    """Return the known words of a list once each, in the order of ``kind``, and the unknown ones.

    Blanks, commas, brackets and quotes separate words, as in command lines, YAML and tables.
    """
    words = text.translate(_SEPARATORS).split()
    names = [member.value for member in kind]
    known = " ".join(name for name in names if name in words)
    return known, tuple(word for word in words if word not in names)


_SEPARATORS = str.maketrans(dict.fromkeys(",;+[]()'\"", " "))


class Sharding(StrEnum):
    """The states that data-parallel ranks shard (ZeRO stages; FSDP full shard is ``zero3``)."""

    NONE = "none"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"


class Recompute(StrEnum):
    """Which activations are discarded and recomputed in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Precision(StrEnum):
    """The number format of the matrix products; states are in fp32 unless a recipe says otherwise."""

    FP32 = "fp32"
    TF32 = "tf32"
    """All in fp32, whose products run on tensor cores with ten bits of the mantissa (``allow_tf32``)."""
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP8_CURRENT = "fp8-current"
    FP8_ROWWISE = "fp8-rowwise"
    FP8_BLOCK = "fp8-block"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"

    @property
    def peak_format(self) -> str:
        """Key of the hardware catalogue's peak that applies."""
        if self.value.startswith(("fp8", "mxfp8")):
            return "fp8"
        return "fp4" if self is Precision.NVFP4 else self.value

    @property
    def is_wide(self) -> bool:
        """Whether all tensors are in fp32."""
        return self in (Precision.FP32, Precision.TF32)

    @property
    def is_low(self) -> bool:
        """Whether products run in less than 16 bits."""
        return self.peak_format in ("fp8", "fp4")


class States(StrEnum):
    """The formats of weights, gradients and optimizer states (bytes a parameter with Adam)."""

    MIXED = "mixed"
    """16-bit weights, fp32 gradients, fp32 master weights and moments: 2 + 4 + 12 (Megatron-LM)."""
    MIXED_16BIT_GRADIENTS = "mixed-16bit-gradients"
    """The same with 16-bit gradients: 2 + 2 + 12 (ZeRO, DeepSpeed)."""
    AUTOCAST = "autocast"
    """All states in fp32, 4 + 4 + 8, with 16-bit copies for computation (PyTorch FSDP mixed precision, autocast)."""
    PURE_16BIT = "pure-16bit"
    """All states in 16 bits: 2 + 2 + 4 (torchtune's bf16 recipes)."""


class StateFormat(StrEnum):
    """The format of one of the states where it differs from `States`."""

    AS_STATES = "as-states"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"


class Optimizer(StrEnum):
    """The optimizer; SGD is the one with momentum."""

    ADAM = "adam"
    ADAM_8BIT = "adam-8bit"
    ADAM_4BIT = "adam-4bit"
    PAGED_ADAM = "paged-adam"
    PAGED_ADAM_8BIT = "paged-adam-8bit"
    SGD = "sgd"
    ADAFACTOR = "adafactor"
    LION = "lion"
    MUON = "muon"


class OptimizerStep(StrEnum):
    """How the optimizer steps through the parameters, which decides its temporary memory."""

    FUSED = "fused"
    """One kernel for many parameters, nothing copied (Apex, Transformer Engine, DeepSpeed, ``fused=True``)."""
    FOREACH = "foreach"
    """An operation on all parameters at a time, each with a result as large as a moment (PyTorch's default)."""
    IN_BACKWARD = "in-backward"
    """Each parameter as soon as it has its gradient, which is then freed (torchtune's ``optimizer_in_bwd``)."""


class Attention(StrEnum):
    """Which kernel computes fused attention (`opsk.costmodel.time.layer_time`)."""

    AUTO = "auto"
    """The software's default on the GPU."""
    FLASH1 = "flash1"
    """FlashAttention of 2022, and xFormers' kernel."""
    FLASH2 = "flash2"
    FLASH3 = "flash3"
    FLASH4 = "flash4"
    CUDNN = "cudnn"
    """cuDNN's, which Transformer Engine uses on Hopper and later."""
    TRITON = "triton"
    """Kernels written in Triton: flex attention, AOTriton."""
    AITER = "aiter"
    """AMD's, and the composable kernels before it."""


class Schedule(StrEnum):
    """The order in which a pipeline stage processes micro-batches (formulas: `opsk.costmodel.sizes.pipeline`)."""

    ONE_F_ONE_B = "1f1b"
    """One forward, one backward; interleaved where ``vpp`` > 1."""
    GPIPE = "gpipe"
    """All forwards, then all backwards: stores the activations of all micro-batches."""
    ZERO_BUBBLE = "zero-bubble"
    """ZB-H1: gradients of weights wait until nothing else can run; a third of 1F1B's bubble at its memory."""
    ZERO_BUBBLE_2 = "zero-bubble-2"
    """ZB-H2: nearly twice the micro-batches in flight; no bubble where the optimizer step need not wait either."""
    ZERO_BUBBLE_V = "zero-bubble-v"
    """ZB-V: two chunks a stage, the first stage holding both ends (``vpp`` 2); no bubble at 1F1B's memory."""
    DUALPIPE = "dualpipe"
    """DeepSeek-V3's: micro-batches enter at both ends, each GPU holds two stages, and so twice the weights."""


class Offload(StrEnum):
    """What is offloaded to host memory and loaded for its use."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    OPTIMIZER_AND_WEIGHTS = "optimizer-and-weights"
    ACTIVATIONS = "activations"


class Loss(StrEnum):
    """How logits and cross entropy are computed."""

    PLAIN = "plain"
    """All logits of a micro-batch at once, with fp32 copies, as the software does unless asked otherwise."""
    NATIVE = "native"
    """The same on the 16-bit logits of a model without autocast, which nobody copies to fp32 (PyTorch's own loss)."""
    CHUNKED = "chunked"
    """The loss in chunks, each in fp32 (torchtune's chunked cross entropy)."""
    KERNEL = "kernel"
    """16-bit logits, and one kernel for loss and gradient (FlashAttention's, torchtitan's compiled)."""
    FP32_KERNEL = "fp32-kernel"
    """The same on fp32 logits that the model copied before (Unsloth's kernel in HuggingFace's models)."""
    FUSED = "fused"
    """Head and loss together, in chunks: the logits are never stored (Liger kernels, cut cross entropy)."""
    RECOMPUTED = "recomputed"
    """Head and loss in chunks of tokens, each under a checkpoint: the backward computes its logits again."""
    RECOMPUTED_FP32 = "recomputed-fp32"
    """The same with products in fp32, outside of tensor cores (TRL's ``chunked_nll``)."""
    MEGATRON_FUSED = "megatron-fused"
    """Megatron's compiled cross entropy (``--cross-entropy-loss-fusion``): fewer kernels, and not in place."""


class MoeDispatcher(StrEnum):
    """The implementation that sends tokens to the ranks of their experts and back."""

    ALLTOALL = "alltoall"
    """NCCL's all-to-all of a copy for each expert of a token (Megatron's ``alltoall``, torchtitan)."""
    ALLGATHER = "allgather"
    """All tokens of the group go to every rank; a reduce-scatter brings them back (Megatron's ``allgather``)."""
    DEEPEP = "deepep"
    """DeepEP: a token goes once to each node, and there once to each rank."""
    HYBRIDEP = "hybridep"
    """The same by TMA and few SMs, with the permutation inside and no wait for the host (DeepEP's HybridEP)."""


class MoeGemm(StrEnum):
    """How the products of a rank's experts run."""

    GROUPED = "grouped"
    """One kernel for all experts (``torch._grouped_mm``, DeepGEMM, CUTLASS, Transformer Engine's of 2026)."""
    STREAMS = "streams"
    """A product for each expert, four at a time (Transformer Engine's GroupedLinear until 2026)."""
    SEQUENTIAL = "sequential"
    """A product for each expert, one after the other (Megatron's SequentialMLP, the loop of Hugging Face's models)."""


class LoraTargets(StrEnum):
    """Which linear layers have LoRA adapters."""

    ALL = "all"
    """Those of attention and of MLPs, experts included."""
    ATTENTION = "attention"
    """The projections of queries, keys, values and of the output."""
    QUERY_VALUE = "query-value"
    """The projections of queries and values (PEFT's choice for most models)."""


class QkvLayout(StrEnum):
    """Where queries, keys and values are stored, which decides what is stored beyond what attention reads."""

    SEPARATE = "separate"
    """In separate tensors, or read from the output of one product (most)."""
    PACKED = "packed"
    """Values in the one product of all three, next to rotated queries and keys (litgpt)."""
    PERMUTED = "permuted"
    """Queries in a permuted copy of it, next to copies of keys and values; and a copy of the output (nanotron)."""


class AdapterFormat(StrEnum):
    """The format of LoRA adapters, which decides what is stored of their inputs."""

    BASE = "base"
    """As the states of the base: adapters that read one tensor share it (torchtune, litgpt, Unsloth)."""
    AUTOCAST = "autocast"
    """fp32 under autocast: every adapter stores a 16-bit copy of its input (PEFT in HuggingFace's Trainer)."""
    FP32 = "fp32"
    """fp32 without autocast: every adapter stores an fp32 copy of its input (PEFT in a plain loop)."""


class Software(StrEnum):
    """The family of training software; families differ in what they fuse, buffer and overlap."""

    MEGATRON = "megatron"
    """Megatron-LM before Megatron Core (2019 to 2022): its own fused kernels, unfused attention, no overlap."""
    MEGATRON_CORE = "megatron-core"
    """Megatron Core with Transformer Engine: Megatron-LM since 2023, NeMo, Megatron-Bridge."""
    DEEPSPEED = "deepspeed"
    """DeepSpeed's engine, Megatron-DeepSpeed included."""
    PYTORCH = "pytorch"
    """PyTorch's own modules with FSDP, DDP or a ZeRO-like optimizer: llm-foundry, torchtitan, torchtune, HF Trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPlan:
    """The part of a plan that a script states or fixes by arithmetic; ``None`` means "unknown".

    ``vpp`` is the number of model chunks a pipeline stage holds; ``micro_batch`` and ``global_batch`` count sequences.
    """

    nodes: int | None = None
    gpus_per_node: int | None = None
    gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    dp: int | None = None
    sharding: Sharding | None = None
    sequence_parallel: bool | None = None
    recompute: Recompute | None = None
    precision: Precision | None = None
    micro_batch: int | None = None
    global_batch: int | None = None


_MAY_BE_ZERO = (
    *("etp", "shard_gpus", "recompute_layers", "first_stage_layers", "last_stage_layers", "lora_rank"),
    "offload_layers",
)
_MODULES = {"recompute_modules": RecomputeModule, "offload_modules": OffloadModule}
_SHARES = ("frozen_fraction", "offload_fraction")
_BASE_BITS = (4, 8, 16, 32)
MAX_SIZE = 10**9
"""No size of a plan comes near this; a larger one is a typo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A complete plan.

    Parameters
    ----------
    etp
        Tensor parallelism of routed experts; 0 is Megatron Core's default: ``tp`` where ``ep`` divides the other ranks
        of a stage (``dp`` x ``cp``), else 1.
    shard_gpus
        GPUs over which states are sharded, repeated over the rest (HSDP, MiCS); 0 is all replicas.
    recompute_layers
        With full recomputation: layers of a stage that are recomputed; 0 is all of them.
    first_stage_layers, last_stage_layers
        Layers of the first and last pipeline stage where they are set explicitly; 0 is even.
    overlap
        Whether communication overlaps computation as far as the software can; False exposes all of it.
    tp_overlap
        Whether the software pipelines tensor-parallel communication with its products (user buffers, async TP).
    tp_async
        Whether the backward's tensor-parallel collectives overlap products of weight gradients. Megatron only, where
        it is the default since April 2022 (``--no-async-tensor-model-parallel-allreduce``).
    frozen_fraction
        Share of the parameters that have no gradient and no optimizer state [ratio].
    compiled
        Whether norms and activation functions are fused where the software's own modules are not (torch.compile,
        Liger kernels).
    fused_moe
        Whether routing, permutation and dispatch of experts are fused and need no host (HybridEP or DeepEP with
        CUDA graphs: Megatron-Bridge's containers from 26.06): a token goes once to each node, nothing waits.
    moe_dispatcher
        The implementation that sends tokens to their experts and back.
    moe_gemm
        How the products of a rank's experts run.
    moe_permute_fusion
        Whether tokens are permuted by fused kernels (``--moe-permute-fusion``).
    ep_overlap
        Whether dispatch and combine overlap the computation of another micro-batch
        (``--overlap-moe-expert-parallel-comm``, DualPipe).
    cuda_graphs
        Whether layers are launched as CUDA graphs, so that the host delays nothing.
    loss
        How logits and cross entropy are computed.
    attention
        Which kernel computes attention where the model's is fused.
    lora_rank, base_bits
        Rank of LoRA adapters, the base being frozen; 0 trains the base. Bits of a frozen base weight: 16, 8, or 4
        (QLoRA).
    recompute_modules
        With selective recomputation: the modules that are recomputed, as words of `RecomputeModule`; empty is the
        software's default, the attention core in Megatron Core.
    offload_modules
        Modules whose stored activations are offloaded to host memory, as words of `OffloadModule`, whatever
        ``offload`` is.
    offload_layers
        With ``offload`` activations: layers of a stage whose activations leave the GPU; 0 is all of them.
    offload_fraction
        With ``offload`` optimizer: share of the optimizer's states that is in host memory [ratio].
    gradient_format, master_format, moment_format, second_moment_format
        Formats that are not those of ``states``: of gradients, of the weights that the optimizer updates (16 bits
        with a 16-bit weight are the rest of an fp32 one), of all moments, and of Adam's second where it differs.
    fp8_weights
        Whether weights of FP8 products are stored and gathered in FP8 (``--fp8-param-gather``), or in 16 bits with
        additional FP8 copies. Megatron Core only.
    lora_targets, adapter_format
        Which linear layers have adapters, and the format of these.
    upcast_base
        Whether what is not quantised of a frozen base is made fp32: embedding, head and norms, and the stream between
        layers with them (PEFT's ``prepare_model_for_kbit_training``).
    quantised_head
        Whether the head is quantised with the base (litgpt, which quantises every linear layer).
    lora_dropout
        Whether inputs of adapters pass a dropout: each adapter then stores its own, and a mask.
    keeps_base_inputs
        Whether products with a 4-bit base store their inputs, which nothing reads (bitsandbytes before 0.43.2).
    qkv_layout
        Where queries, keys and values are stored. Packed, values retain the whole product; where heads share keys and
        values, these are repeated for each head instead. Permuted, queries retain it where every head has own keys.
    reentrant
        Whether layers are recomputed by PyTorch's reentrant checkpoints (transformers before 5). FSDP of frozen weights
        then holds inputs of layers and their gradients to the end of the backward.
    keeps_gathered
        Whether sequence-parallel inputs of products, gathered over ``tp``, are stored gathered for the backward
        (PyTorch's tensor parallelism, nanotron before August 2024) and not gathered again (Megatron-LM).
    gathers_fp32
        Whether FSDP has no mixed-precision policy and autocast casts what it gathers: weights are gathered in fp32, a
        frozen base is stored in fp32, and the stream between layers is in fp32.
    accumulates_unsharded
        Whether FSDP adds up gradients of micro-batches whole, and reduces them after the last (``no_sync``).
    flat_adapters
        Whether FSDP flattens adapters together with the frozen weights of their layer, whose gradients are then
        computed and stored as if they were trained (documentation of ``use_orig_params``).
    keeps_kv_cache
        Whether recomputed layers keep their keys and values to the end of a step: Transformers' models return them
        (``use_cache``) unless its own checkpoints switch that off.
    gathers_logits
        Whether every rank of ``tp`` holds whole logits, and computes the whole loss: PyTorch's tensor parallelism
        without ``loss_parallel``. Other software leaves them split.
    bare_loop
        Whether a step is a few calls of a program of its own, on tensors that nothing shards, without a trainer's
        collators, callbacks and logs between the steps.
    distributed_tensors
        Whether tensor parallelism is PyTorch's own, whose operations on distributed tensors (DTensor) take the host
        long unless they are compiled. Programs with layers of their own (Megatron, nanotron, picotron) have none.
    reduces_16bit
        Whether gradients are sent in 16 bits whatever format they are stored in (accelerate's FSDP, Composer's PURE).
    reduces_fp32
        Whether gradients of 16 bits are sent, and added up before that, in fp32 (``reduce_dtype`` of FSDP2's policy).
    fused_norms
        Whether norms are one kernel where other modules are PyTorch's own.
    varied_lengths
        Whether micro-batches have different lengths, padded to the longest sample of each: memory is that of the
        longest (``seq``), but the allocator can reuse less of what shorter ones left.
    expandable_segments
        Whether PyTorch's allocator grows its segments (``PYTORCH_CUDA_ALLOC_CONF``), so that no gaps remain.

    Raises
    ------
    PlanInfeasibleError
        Names every rule that the plan breaks, with its numbers.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    sharding: Sharding = Sharding.NONE
    sequence_parallel: bool = False
    recompute: Recompute = Recompute.NONE
    precision: Precision = Precision.BF16
    micro_batch: int = 1
    global_batch: int
    etp: int = 0
    shard_gpus: int = 0
    recompute_layers: int = 0
    first_stage_layers: int = 0
    last_stage_layers: int = 0
    schedule: Schedule = Schedule.ONE_F_ONE_B
    states: States = States.MIXED
    optimizer: Optimizer = Optimizer.ADAM
    optimizer_step: OptimizerStep = OptimizerStep.FUSED
    offload: Offload = Offload.NONE
    software: Software = Software.MEGATRON_CORE
    overlap: bool = True
    tp_overlap: bool = False
    tp_async: bool = True
    compiled: bool = False
    fused_moe: bool = False
    cuda_graphs: bool = False
    moe_dispatcher: MoeDispatcher = MoeDispatcher.ALLTOALL
    moe_gemm: MoeGemm = MoeGemm.GROUPED
    moe_permute_fusion: bool = True
    ep_overlap: bool = False
    loss: Loss = Loss.PLAIN
    attention: Attention = Attention.AUTO
    frozen_fraction: float = 0.0
    lora_rank: int = 0
    base_bits: int = 16
    recompute_modules: str = ""
    offload_modules: str = ""
    offload_layers: int = 0
    offload_fraction: float = 1.0
    gradient_format: StateFormat = StateFormat.AS_STATES
    master_format: StateFormat = StateFormat.AS_STATES
    moment_format: StateFormat = StateFormat.AS_STATES
    second_moment_format: StateFormat = StateFormat.AS_STATES
    fp8_weights: bool = True
    lora_targets: LoraTargets = LoraTargets.ALL
    adapter_format: AdapterFormat = AdapterFormat.BASE
    upcast_base: bool = False
    quantised_head: bool = False
    lora_dropout: bool = False
    keeps_base_inputs: bool = False
    qkv_layout: QkvLayout = QkvLayout.SEPARATE
    reentrant: bool = False
    keeps_gathered: bool = False
    gathers_fp32: bool = False
    accumulates_unsharded: bool = False
    flat_adapters: bool = False
    keeps_kv_cache: bool = False
    gathers_logits: bool = False
    bare_loop: bool = False
    distributed_tensors: bool = False
    reduces_16bit: bool = False
    reduces_fp32: bool = False
    fused_norms: bool = False
    varied_lengths: bool = False
    expandable_segments: bool = False

    def __post_init__(self) -> None:
        """Validate the arithmetic of the plan; the error lists all that is wrong."""
        sizes = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "global_batch")
        # "not at least" and not "less than": NaN fails both comparisons
        wrong = [f"{name} is {value}, must be at least 1" for name in sizes if not (value := getattr(self, name)) >= 1]
        wrong += [
            f"{name} is {value}, must not be negative"
            for name in _MAY_BE_ZERO
            if not (value := getattr(self, name)) >= 0
        ]
        wrong += [
            f"{name} is {value:.3g}, at most {MAX_SIZE:.0e}"
            for name in (*sizes, *_MAY_BE_ZERO)
            if (value := getattr(self, name)) > MAX_SIZE
        ]
        wrong += [
            f"{name} is {value}, must be between 0 and 1"
            for name in _SHARES
            if not 0 <= (value := getattr(self, name)) <= 1
        ]
        if self.recompute_modules or self.offload_modules:
            wrong += self._sort_modules()
        if self.base_bits not in _BASE_BITS:
            wrong.append(f"base_bits is {self.base_bits}, must be one of {', '.join(map(str, _BASE_BITS))}")
        if not wrong and self.global_batch % (self.micro_batch * self.dp):
            wrong.append(
                f"global batch {self.global_batch} is not a multiple of micro batch {self.micro_batch} x dp {self.dp}"
            )
        if wrong:
            raise PlanInfeasibleError(tuple(wrong))

    def _sort_modules(self) -> list[str]:
        """Sort the lists of modules, so that equal plans compare equal; return the errors."""
        wrong = []
        for name, kind in _MODULES.items():
            known, unknown = sorted_words(kind, getattr(self, name))
            object.__setattr__(self, name, known)
            if unknown:
                words = ", ".join(unknown)[:60]
                wrong.append(f"{name}: no module {words}; there are {', '.join(member.value for member in kind)}")
        return wrong

    @property
    def gpus(self) -> int:
        """Number of GPUs that the plan uses: tp x pp x cp x dp."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches that one data-parallel rank runs in a step."""
        return self.global_batch // (self.micro_batch * self.dp)


PLAN_FIELDS = tuple(field.name for field in fields(StatedPlan))
