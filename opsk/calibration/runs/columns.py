"""Defines the columns of a table of runs, and parses the cells of a row.

Every number of the table is parsed here once: a cell that holds no number, or one that is out of range, is reported and
not used. An empty cell means "unknown", and so does a column that the table does not have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from opsk.workload.defaults import Assumption


class Kind(Enum):
    """The type of the cells of a column."""

    TEXT = "text"
    WORDS = "words"
    """Words separated by blanks."""
    CHOICE = "choice"
    FLAG = "yes, no"
    SIZE = "number"
    """A whole number from 1 on; 0 means "none"."""
    COUNT = "number, or 0"
    """A whole number from 0 on; 0 is a value."""
    QUANTITY = "number"
    SHARE = "number from 0"
    MEASURED = "measured number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: ``values`` are those of a choice, ``group`` the heading under which the reference shows it."""

    name: str
    kind: Kind
    group: str
    meaning: str
    values: tuple[str, ...] = ()


_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "int4", "none")
ATTENTION_KERNELS = (
    "auto",
    "aiter",
    *("flash", "flash1", "flash2", "flash3", "flash4", "cudnn", "te", "sdpa", "flex", "xformers", "triton", "unfused"),
)
SHARDINGS = ("none", "zero1", "zero2", "zero3", "zero3/fsdp")
PRECISIONS = (
    *("fp32", "tf32", "fp16", "amp_fp16", "bf16", "amp_bf16", "bf16-mixed", "fp8", "amp_fp8", "fp8-ds", "fp8-cs"),
    *("fp8-sc", "fp8-mx", "mxfp8", "nvfp4", "int8"),
)


def _table(group: str, *entries: tuple[str, Kind, str] | tuple[str, Kind, str, tuple[str, ...]]) -> tuple[Column, ...]:
    """Return the columns of one group."""
    return tuple(
        Column(name=entry[0], kind=entry[1], group=group, meaning=entry[2], values=entry[3] if len(entry) > 3 else ())
        for entry in entries
    )


_T, _W, _C, _F, _S, _N, _Q, _P, _M = (
    Kind.TEXT,
    Kind.WORDS,
    Kind.CHOICE,
    Kind.FLAG,
    Kind.SIZE,
    Kind.COUNT,
    Kind.QUANTITY,
    Kind.SHARE,
    Kind.MEASURED,
)

COLUMNS: tuple[Column, ...] = (
    *_table(
        "The row",
        ("id", _T, "name of the row; what stands before its last `-` is its source in summaries"),
        ("source", _T, "where it was published; for people"),
        ("source_url_or_repo_path", _T, "the same, as an address; for people"),
        ("notes", _T, "for people; the tags `OOM`, `INCONSISTENT` and `SUSPECT` keep a row from being compared"),
        ("from_memory", _T, "names of measured columns that are recalled, not read: they are not compared"),
        ("toy", _F, "so small that launches take the time: only its memory is compared"),
    ),
    *_table(
        "Software",
        ("software", _T, "the framework, in small letters: `megatron-core`, `torchtitan`, `hf-trainer`; see below"),
        ("software_version", _T, "its release or commit"),
        ("torch_version", _T, "release of PyTorch"),
        ("cuda_version", _T, "release of CUDA"),
        ("container", _T, "image, as `name:tag`"),
        ("source_date", _T, "`YYYY`, `YYYY-MM` or `YYYY-MM-DD` of the run or its publication"),
        ("attention_kernel", _C, "who computes attention; `flash` is FlashAttention of no stated release",
         ATTENTION_KERNELS),
        ("layer_kernels", _C, "who computes norms, activation functions and rotary positions",
         ("te", "local", "liger", "fused", "torch", "thunder")),
        ("fused_norms", _F, "norms are one kernel, other modules are PyTorch's own"),
        ("torch_compile", _F, "`torch.compile` is used"),
        ("compiler", _C, "who compiles", ("eager", "torch", "thunder", "xla")),
        ("expandable_segments", _F, "PyTorch's allocator grows its segments"),
        ("cuda_graphs", _F, "CUDA graphs are used"),
        ("cuda_graph_scope", _W, "modules that they capture"),
        ("deterministic", _F, "deterministic kernels"),
    ),
    *_table(
        "Model",
        ("model", _T, "name; a public model fills in sizes that the row leaves out"),
        ("arch", _C, "kind", ("gpt", "llama", "moe")),
        ("params_b", _Q, "parameters [10⁹]"),
        ("layers", _S, "layers"),
        ("hidden", _S, "width"),
        ("heads", _S, "attention heads"),
        ("kv_heads", _S, "heads of keys and values"),
        ("head_dim", _S, "width of a head where it is not `hidden` / `heads`"),
        ("ffn_hidden", _S, "inner width of the MLP; of one routed expert for `moe`"),
        ("mlp_ratio", _T, "inner width over `hidden`, a number or a fraction (`8/3`)"),
        ("vocab", _S, "rows of the embedding"),
        ("seq_len", _S, "tokens of a sequence"),
        ("experts", _S, "routed experts of a layer"),
        ("topk", _S, "routed experts a token"),
        ("shared_experts", _N, "experts that every token passes"),
        ("shared_ffn", _S, "inner width of all of those together"),
        ("dense_layers", _N, "first layers that have no experts"),
        ("dense_ffn", _S, "inner width of their MLP"),
        ("q_lora_rank", _N, "latent attention: rank of queries, 0 for none"),
        ("kv_lora_rank", _S, "latent attention: rank of keys and values"),
        ("qk_nope_dim", _S, "latent attention: width of a head without positions"),
        ("qk_rope_dim", _S, "latent attention: width of a head with positions"),
        ("v_head_dim", _S, "width of a value head"),
        ("mtp_layers", _N, "layers of multi-token prediction, 0 for none"),
        ("window", _S, "sliding window [tokens]"),
        ("windowed_layers", _S, "layers that have it, where not all"),
        ("mixer", _C, "layers other than full attention; `mamba-hybrid` is `mamba2`",
         ("mamba-hybrid", "sliding-window", "mamba", "mamba2", "gated-deltanet", "kda", "lightning")),
        ("mixer_layers", _S, "layers with that mixer"),
        ("mixer_heads", _S, "heads of a mixer"),
        ("mixer_head_dim", _S, "width of one"),
        ("mixer_groups", _S, "groups of B and C (Mamba-2), or key heads (delta rules)"),
        ("mixer_state", _S, "length of the state, or width of a key"),
        ("mixer_conv", _S, "tokens of the causal convolution"),
        ("mixer_rank", _S, "rank of the step size (Mamba) or of the gates (KDA)"),
        ("mlp_layers", _S, "layers that are an MLP alone (Nemotron-H)"),
        ("parallel_block", _F, "attention and MLP side by side"),
        ("positions", _C, "positions", ("learned", "rope", "alibi", "none")),
        ("tied_embeddings", _F, "the head is the embedding"),
        ("gated_mlp", _F, "SwiGLU or the like"),
        ("linear_bias", _F, "linear layers have a bias"),
        ("norm", _C, "norm", ("layernorm", "rmsnorm")),
        ("qk_norm", _F, "norm of queries and keys"),
        ("dropout", _P, "rate, of attention and residual"),
    ),
    *_table(
        "Machine",
        ("gpu", _T, "name as in the catalogue; a row without it is compared in memory alone"),
        ("gpu_mem_gb", _Q, "labelled memory [GB]"),
        ("power_limit_w", _Q, "power limit of a GPU where it is not the product's [W]"),
        ("hbm_gb_per_s", _Q, "memory bandwidth of a GPU where it is not the product's [GB/s]"),
        ("gpus", _S, "GPUs of the run"),
        ("gpus_per_node", _S, "GPUs of a node"),
        ("intra_node_gbps", _Q, "NVLink of a GPU, one direction [Gbit/s]"),
        ("nic_gbps", _Q, "the node's fabric divided by its GPUs, one direction [Gbit/s]"),
        ("nics_per_node", _S, "network adapters of a node"),
        ("system", _T, "the node as its source names it (`dgx-h100`)"),
        ("fabric", _C, "kind of network", ("infiniband", "roce", "efa", "omnipath", "slingshot")),
        ("oversubscription", _Q, "1 is non-blocking, 7 is 1:7"),
    ),
    *_table(
        "Plan",
        ("tp", _S, "tensor parallelism"),
        ("pp", _S, "pipeline stages"),
        ("vpp", _S, "chunks of the model a stage"),
        ("cp", _S, "context parallelism"),
        ("ep", _S, "expert parallelism; overlaps `dp`"),
        ("etp", _S, "tensor parallelism of experts"),
        ("dp", _S, "replicas: `gpus` / (`tp` × `pp` × `cp`)"),
        ("model_parallel", _S, "`tp` × `pp` where the source does not say how it is split"),
        ("sharding", _C, "what replicas share", SHARDINGS),
        ("shard_group", _S, "GPUs over which states are divided where not all replicas"),
        ("hsdp", _F, "sharded inside groups, replicated between them"),
        ("dp_kind", _C, "how replicas work together", ("ddp", "fsdp")),
        ("reshard_after_forward", _F, "FSDP frees gathered weights after the forward pass"),
        ("fsdp_prefetch", _F, "the next gather is prefetched explicitly"),
        ("fsdp_mixed_precision", _C, "Composer's word", ("pure", "default", "full")),
        ("sequence_parallel", _F, "norms and dropout are split over `tp`"),
        ("keeps_gathered", _F, "inputs gathered over `tp` are stored for the backward"),
        ("gathers_fp32", _F, "FSDP gathers weights in fp32 and autocast casts them: no mixed-precision policy"),
        ("accumulates_unsharded", _F, "FSDP adds up the gradients of micro-batches whole (`no_sync`)"),
        ("flat_adapters", _F, "FSDP flattens adapters together with the frozen weights of their layer"),
        ("keeps_kv_cache", _F, "recomputed layers keep their keys and values: `use_cache` of Transformers' models"),
        ("gathers_logits", _F, "every rank of `tp` holds whole logits (PyTorch without `loss_parallel`)"),
        ("bare_loop", _F, "a program of its own: no trainer's collators, callbacks and logs between steps"),
        ("distributed_tensors", _F, "tensor parallelism by PyTorch's DTensor, not by layers of the program's own"),
        ("schedule", _C, "pipeline schedule",
         ("1f1b", "interleaved", "zero-bubble", "zbv", "v-half", "v-min", "dualpipe", "gpipe", "afab")),
        ("pp_layout", _T, "layers of the stages where they are not even: `embeddings as layers`, or Megatron's layout"),
        ("micro_batch", _S, "sequences of a micro-batch"),
        ("global_batch", _S, "sequences of a step"),
        ("grad_accum", _S, "micro-batches of a step and replica"),
        ("local_batch", _S, "sequences of a step and replica"),
        ("batch_tokens", _Q, "tokens of a step as rounded by the source"),
        ("recompute", _C, "what is computed again in the backward pass", ("none", "selective", "full")),
        ("recompute_modules", _W, "with `selective`: Megatron's names of modules"),
        ("recompute_layers", _S, "Megatron's `--recompute-num-layers`"),
        ("recompute_method", _C, "how those are counted", ("uniform", "block")),
        ("recompute_share", _P, "share of the layers that are recomputed"),
        ("reentrant", _F, "layers are recomputed by PyTorch's reentrant checkpoints"),
        ("recompute_policy", _C, "with `selective`: by which operations", ("op", "minimal_flash")),
        ("offload", _T, "what is in host memory: `none`, `optimizer`, `params`, `activations`, joined by `+`"),
        ("offload_layers", _S, "with `activations`: of how many layers of a stage; all where left out"),
        ("offload_modules", _W, "whose activations"),
        ("overlap_grad_reduce", _F, "gradients are reduced during the backward pass"),
        ("overlap_param_gather", _F, "weights are gathered during the forward pass"),
        ("tp_comm_overlap", _C, "tensor-parallel communication overlaps products", ("yes", "no", "async")),
        ("ep_comm_overlap", _F, "dispatch of experts overlaps other work"),
        ("grad_accum_fusion", _F, "weight gradients are added into the gradient buffer by the product itself"),
        ("delayed_wgrad", _F, "weight gradients are computed later than those of the input"),
        ("moe_dispatcher", _C, "who dispatches tokens", ("allgather", "alltoall", "deepep", "hybridep")),
        ("moe_balanced", _F, "routing is forced to be even"),
        ("moe_drop", _C, "tokens above an expert's capacity", ("dropless", "drop")),
        ("capacity_factor", _Q, "capacity of an expert over its even share"),
        ("moe_gemm", _C, "products of experts", ("grouped", "streams", "sequential", "torch_mm")),
        ("moe_permute_fusion", _F, "tokens are permuted by a fused kernel"),
    ),
    *_table(
        "Formats and training",
        ("precision", _C, "of the products", PRECISIONS),
        ("fp8_recipe", _C, "how FP8 and FP4 are scaled",
         ("delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4")),
        ("fp8_params", _F, "weights are gathered in FP8"),
        ("param_dtype", _C, "weights that layers compute with", _DTYPES),
        ("grad_dtype", _C, "format of stored gradients", _DTYPES),
        ("reduce_dtype", _C, "gradients as sent", _DTYPES),
        ("master_dtype", _C, "weights that the optimizer updates; `none`: those of `param_dtype`", _DTYPES),
        ("moment_dtype", _C, "moments of the optimizer", _DTYPES),
        ("optimizer", _C, "optimizer",
         ("adam", "adamw", "adam8bit", "adam4bit", "paged-adam8bit", "lamb", "lion", "adafactor", "muon", "sgd")),
        ("optimizer_impl", _C, "how it steps", ("fused", "foreach", "loop", "in-backward", "cpu")),
        ("loss_kernel", _C, "who computes logits and loss", 
         ("plain", "native", "fused", "kernel", "fp32-kernel", "chunked", "stored-chunks", "recomputed",
          "recomputed-fp32", "liger")),
        ("grad_clip", _F, "the norm of the gradients is clipped"),
        ("task", _C, "task", ("pretrain", "sft", "dpo", "grpo")),
        ("finetuning", _C, "what is trained", ("full", "lora", "qlora", "frozen")),
        ("lora_rank", _S, "rank of the adapters"),
        ("lora_targets", _C, "which linear layers have adapters", ("all", "attention", "query-value")),
        ("adapter_format", _C, "adapters: as the base, or in fp32 under autocast or without",
         ("base", "autocast", "fp32")),
        ("base_bits", _S, "bits of a frozen base weight where not 16, or 4 for `qlora`"),
        ("upcast_base", _F, "embedding, head and norms of a quantised base are made fp32"),
        ("tp_async", _F, "collectives of the backward overlap products of weight gradients (Megatron)"),
        ("quantised_head", _F, "the head is quantised with the base"),
        ("lora_dropout", _F, "inputs of adapters pass a dropout"),
        ("keeps_base_inputs", _F, "products with a 4-bit base keep their inputs (bitsandbytes before 0.43.2)"),
        ("qkv_layout", _C, "where queries, keys and values lie", ("separate", "packed", "permuted")),
        ("packed", _F, "several documents in one sequence; `no`: padded to the longest of a micro-batch"),
        ("data", _C, "data", ("mock", "real")),
    ),
    *_table(
        "Measured",
        ("iter_time_s", _M, "time of a step [s]"),
        ("tokens_per_s_per_gpu", _M, "tokens a second and GPU"),
        ("tflops_per_gpu", _M, "TFLOP/s a GPU"),
        ("flops_convention", _C, "of those: forward and backward, or recomputation too", ("model", "hardware")),
        ("attn_flops", _C, "attention in them: all of s × s, half of it, or none", ("full", "causal", "none")),
        ("mfu", _M, "model FLOP utilisation, a ratio"),
        ("hfu", _M, "hardware FLOP utilisation, a ratio"),
        ("peak_mem_gb", _M, "peak memory [10⁹ bytes]"),
        (
            "mem_definition",
            _C,
            "by which definition; empty: what the software prints of itself, else device",
            ("allocated", "reserved", "device"),
        ),
        ("mem_rank", _C, "on which rank of the pipeline", ("first", "last", "max")),
    ),
)  # fmt: skip
BY_NAME = {column.name: column for column in COLUMNS}


MAX_SIZE = 10**9
"""A size above this is a typo; products of such sizes exceed the range of floating point."""
MAX_SHOWN = 40
MAX_TEXT = 4000
"""Maximum characters of a cell that are read; notes of real tables have some hundred."""

NO_VALUE = frozenset({"nan", "na", "n/a", "null", "<na>", "-"})
"""Values that programs write into an empty cell (pandas, R, spreadsheets)."""
_YES, _NO = frozenset({"yes", "true", "1", "on"}), frozenset({"no", "false", "0", "off"})
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


class Cells:
    """One row while it is parsed.

    Attributes
    ----------
    assumed
        The assumptions, in the order in which they were made.
    wrong
        Errors in cells that the prediction needs: the row cannot be predicted.
    odd
        Errors in cells that the prediction does not need.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self.assumed: list[Assumption] = []
        self.wrong: list[str] = []
        self.odd: list[str] = []

    def with_assumed(self, column: str, text: str, assumption: Assumption) -> Cells:
        """Return the row, unread, with the text of an empty cell assumed."""
        cells = Cells({**self._columns, column: text})
        cells.assumed.append(assumption)
        return cells

    def text(self, column: str) -> str:
        """Return a cell's text without blanks around it; "" where there is none."""
        cell = (self._columns.get(column) or "").strip()[:MAX_TEXT]
        return "" if cell.lower() in NO_VALUE else cell

    def size(self, column: str) -> int | None:
        """Return a cell that counts something from 1 on; 0 means "none" and is the same as empty."""
        value = self._number(column, self.wrong)
        if value is None:
            return None
        if value != int(value) or not 0 <= value <= MAX_SIZE:
            self.wrong.append(f"{column} is {_quote(self.text(column))}, must be a whole number from 0 to {MAX_SIZE}")
            return None
        return int(value) or None

    def count(self, column: str) -> int | None:
        """Return a cell that counts something from 0 on, where 0 is a value."""
        return 0 if self._number(column, []) == 0 else self.size(column)

    def quantity(self, column: str) -> float | None:
        """Return a cell that measures an input; it must be positive."""
        return self._positive(column, self.wrong)

    def share(self, column: str) -> float | None:
        """Return a cell that holds a share, 0 to 1."""
        value = self._number(column, self.wrong)
        if value is not None and not 0 <= value <= 1:
            self.wrong.append(f"{column} is {_quote(self.text(column))}, must be between 0 and 1")
            return None
        return value

    def choice(self, column: str) -> str:
        """Return a cell that has one of its column's values, in lower case; "" where it is empty.

        Another value is reported, and the cell treated as empty.
        """
        text = self.text(column).lower()
        values = BY_NAME[column].values
        if not text or text in values:
            return text
        self._complain(
            f"{column} is {_quote(self.text(column))}, must be one of {', '.join(values)}: taken as not stated"
        )
        return ""

    def flag(self, column: str) -> bool | None:
        """Return a yes-or-no cell; ``None`` where it is empty, or has another value, which is reported."""
        text = self.text(column).lower()
        if text in _YES or text in _NO:
            return text in _YES
        if text:
            self._complain(f"{column} is {_quote(self.text(column))}, must be yes or no: taken as not stated")
        return None

    def _complain(self, text: str) -> None:
        if text not in self.odd:
            self.odd.append(text)

    def read_measurement(self, column: str) -> float | None:
        """Return a cell that holds a measurement; one that is not a positive number is reported and ignored."""
        return self._positive(column, self.odd)

    def _positive(self, column: str, complaints: list[str]) -> float | None:
        value = self._number(column, complaints)
        if value is not None and value <= 0:
            complaints.append(f"{column} is {_quote(self.text(column))}, must be positive")
            return None
        return value

    def _number(self, column: str, complaints: list[str]) -> float | None:
        """Return a cell as a number; ``None`` where it is empty, or wrong, which is reported."""
        text = self.text(column).replace(",", "")
        if not text:
            return None
        value = float(text) if len(text) <= MAX_SHOWN and _NUMBER.fullmatch(text) else math.nan
        if not math.isfinite(value):
            complaints.append(f"{column} is {_quote(text)}, must be a number")
            return None
        return value

    def assume(self, field: str, value: Any, why: str) -> Any:
        """Record an assumed value, and return it."""
        self.assumed.append(Assumption(field=field, value=value, why=why))
        return value


def _quote(text: str) -> str:
    """Quote untrusted text for an error message, truncated."""
    return repr(text[:MAX_SHOWN]) + ("…" if len(text) > MAX_SHOWN else "")
