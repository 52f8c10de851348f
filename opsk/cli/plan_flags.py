"""Turns the keys of a plan file into flags of a command, grouped into sections.

Every field of the values behind the tables has a flag, so that file and flags cannot differ. The value of a flag stays
text until the plan file's validation reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, TypeVar

import click

from opsk.app.inputs.plan_validation import KINDS, LIKE, VALUES, parse_flag

Command = TypeVar("Command", bound=Callable[..., Any])

SECTIONS: dict[str, str] = {
    "": "Cluster",
    "model": "Model",
    "plan": "Plan",
    "run": "Whole run",
    "checkpoint": "Checkpoints",
}
"""Tables of a plan file to the titles of their sections in the help."""
DETAILS = {"model": "q_lora_rank", "plan": "etp"}
"""First key of each table that is rarely needed: it and those after it are shown last, as details."""
_PREFIXES = {"": "", "model": "model-", "plan": "", "run": "", "checkpoint": "checkpoint-"}
_WORDS: Mapping[str, Mapping[str, str]] = {
    "": {
        "cluster": "Catalogue name of the cluster, or a cluster TOML.",
        "gpus": "GPUs of the job; sets --dp where that is not given.",
        "nodes": "Nodes of the job, in place of --gpus.",
        "gpus_per_node": "GPUs of one node that the job uses. Default: all.",
    },
    "model": {
        LIKE: "A public model (llama-3-8b), or a HuggingFace config.json; --model-... change it.",
        "name": "What to call the model.",
        "layers": "Transformer layers.",
        "hidden": "Width of the residual stream.",
        "ffn": "Inner width of the dense MLP.",
        "heads": "Attention heads of one layer.",
        "kv_heads": "Key and value heads. Default: as many as heads.",
        "head_dim": "Width of one head. Default: hidden / heads.",
        "vocab": "Rows of the embedding.",
        "seq": "Tokens of one training sequence.",
        "gated_mlp": "Three matrices (SwiGLU), or two.",
        "experts": "Routed experts a layer; 0 is a dense model.",
        "top_k": "Routed experts that a token passes.",
        "shared_experts": "Experts that every token passes.",
        "expert_ffn": "Inner width of one expert.",
        "tied_embeddings": "The head reuses the embedding, or has its own.",
        "learned_positions": "A trained table of positions, or none.",
        "flash_attention": "Fused attention, or stored scores.",
        "q_lora_rank": "Latent attention: rank of queries; 0 is none.",
        "kv_lora_rank": "Latent attention: rank of keys and values; 0 is ordinary attention.",
        "qk_rope_dim": "Latent attention: rotary part of a head.",
        "v_head_dim": "Latent attention: width of a value head.",
        "dense_layers": "Layers with the dense MLP in a model with experts.",
        "dense_interleaved": "These lie between the others, or before them.",
        "shared_ffn": "Inner width of all shared experts; 0 is expert_ffn each.",
        "shared_gate": "A gate weighs the shared experts, or none.",
        "router_bias": "The router has a bias, or none.",
        "capacity_factor": "Tokens an expert takes over the mean; 0 drops none.",
        "expert_imbalance": "Tokens of the busiest expert rank over the mean.",
        "mtp_layers": "Multi-token-prediction layers.",
        "encoder_layers": "Layers of an encoder; 0 is a decoder alone.",
        "encoder_seq": "Tokens of the encoder's sequence.",
        "position_rows": "Rows of the table of positions; 0 is seq.",
        "relative_positions": "Rows of the table of relative positions (T5).",
        "attention_sinks": "A learned sink a head, or none.",
        "attention_window": "Tokens that windowed layers look back.",
        "windowed_layers": "Layers with a sliding window.",
        "qkv_bias": "Biases into attention, or none. Default: by the MLP's style.",
        "output_bias": "Biases out of attention, or none; likewise.",
        "mlp_bias": "Biases in the MLP, or none; likewise.",
        "norm_bias": "Biases in norms, or none; likewise.",
        "dropout": "Dropout is applied, or not; likewise.",
        "head_bias": "A bias of the output head, or none.",
        "qk_norm": "Queries and keys are normalised, or not.",
        "qk_norm_whole": "Their norm is as wide as all heads, or as one.",
        "norms_per_layer": "Norms of one layer.",
        "embedding_norm": "The embedding is normalised, or not.",
        "mixer": "What mixes tokens in place of attention.",
        "mixer_layers": "Layers with that mixer.",
        "mixer_heads": "Heads of a mixer.",
        "mixer_head_dim": "Width of a mixer's head.",
        "mixer_groups": "Groups of B and C (Mamba-2), or key heads (delta rule).",
        "mixer_state": "Length of a mixer's state, or width of its keys.",
        "mixer_conv": "Tokens of a mixer's convolution; 0 is none.",
        "mixer_chunk": "Tokens of a mixer's chunk; 0 is usual.",
        "mixer_rank": "Rank of a mixer's step size (Mamba) or gates (KDA).",
        "mixer_norm": "The mixer's output is normalised, or not.",
        "mixer_beside": "Attention lies beside the mixer (Falcon-H1), or not.",
        "frozen_parameters": "Parameters of frozen models beside it (a vision tower), held whole in 16 bits.",
        "mlp_layers": "Layers that are an MLP alone (Nemotron-H); 0 is an MLP in each.",
        "attention_gate": "A gate weighs the output of attention, or none.",
        "chunked_windows": "Windows are chunks of the sequence (Llama 4), or slide.",
        "index_heads": "Sparse attention: heads of the indexer.",
        "index_head_dim": "Sparse attention: width of an indexer's head.",
        "index_top_k": "Sparse attention: tokens that a token attends to.",
    },
    "plan": {
        "tp": "Tensor-parallel size.",
        "pp": "Pipeline stages.",
        "vpp": "Model chunks that a stage holds.",
        "cp": "Context-parallel size.",
        "ep": "Expert-parallel size, inside dp.",
        "dp": "Data-parallel size.",
        "sharding": "What data-parallel ranks keep a share of (FSDP: zero3).",
        "sequence_parallel": "Split norms and dropout over tp, or not.",
        "recompute": "Which activations are computed again.",
        "precision": "Number format of the matrix products.",
        "micro_batch": "Sequences of one micro-batch.",
        "global_batch": "Sequences of one step.",
        "etp": "Tensor-parallel size of experts; 0 is the software's choice.",
        "shard_gpus": "GPUs that share states (HSDP); 0 is all replicas.",
        "recompute_layers": "Layers of a stage that full recomputes; 0 is all.",
        "first_stage_layers": "Layers of the first stage, laid out by hand.",
        "last_stage_layers": "Layers of the last stage, laid out by hand.",
        "schedule": "Order of a stage's micro-batches.",
        "states": "Formats of weights, gradients and optimizer states.",
        "optimizer": "Which optimizer keeps states.",
        "optimizer_step": "How the optimizer goes through the parameters.",
        "offload": "What is kept in host memory.",
        "software": "Family of the training software.",
        "overlap": "Communication hides as the software can, or never.",
        "tp_async": "The backward's collectives run beside weight gradients, or not (Megatron).",
        "tp_overlap": "Tensor-parallel communication is pipelined, or not.",
        "frozen_fraction": "Share of the parameters that are not trained.",
        "fused_moe": "Routing and dispatch of experts are fused, or not.",
        "moe_dispatcher": "Who brings tokens to their experts.",
        "moe_gemm": "How the products of experts run.",
        "moe_permute_fusion": "Tokens are permuted by fused kernels, or not.",
        "ep_overlap": "Dispatch runs beside another micro-batch, or not.",
        "compiled": "Norms and activations are fused by a compiler, or not.",
        "cuda_graphs": "Layers are launched as CUDA graphs.",
        "loss": "How logits and loss are computed.",
        "attention": "Kernel of fused attention.",
        "lora_rank": "Rank of LoRA adapters; 0 trains the base.",
        "base_bits": "Bits of a frozen base weight (QLoRA: 4).",
        "recompute_modules": "Modules that selective repeats: core_attn, mlp, layernorm, moe_act, ...",
        "offload_modules": "Modules whose activations wait in host memory: core_attn, expert_fc1, ...",
        "offload_layers": "Layers of a stage whose activations leave the GPU; 0 is all.",
        "offload_fraction": "Share of the optimizer's states in host memory.",
        "gradient_format": "Gradients, where not as --states says.",
        "master_format": "Weights that the optimizer updates, likewise.",
        "moment_format": "Moments of the optimizer, likewise.",
        "second_moment_format": "Adam's second moment, where it differs.",
        "fp8_weights": "Weights of FP8 products are kept in FP8, or in 16 bits.",
        "lora_targets": "Which linear layers have adapters.",
        "adapter_format": "Format of the adapters, and of their inputs.",
        "upcast_base": "Embedding, head and norms of a quantised base are in fp32, or not.",
        "quantised_head": "The head is quantised with the base, or not.",
        "lora_dropout": "Inputs of adapters pass a dropout, or not.",
        "keeps_base_inputs": "Products with a 4-bit base keep their inputs, or not.",
        "qkv_layout": "Where queries, keys and values lie.",
        "reentrant": "Layers are recomputed by reentrant checkpoints, or not.",
        "keeps_gathered": "Inputs gathered over tp are kept for the backward, or not.",
        "gathers_fp32": "FSDP gathers weights in fp32 under autocast, or not.",
        "accumulates_unsharded": "FSDP adds up micro-batches' gradients whole, or not.",
        "flat_adapters": "FSDP flattens adapters with their frozen layer, or not.",
        "keeps_kv_cache": "Recomputed layers keep their keys and values, or not.",
        "gathers_logits": "Every rank of tp holds whole logits, or its part.",
        "bare_loop": "Nothing but a few calls between steps, or a trainer.",
        "distributed_tensors": "Tensor parallelism by PyTorch's DTensor, or by layers made for it.",
        "reduces_16bit": "Gradients are sent in 16 bits, or as they are kept.",
        "reduces_fp32": "Gradients of 16 bits are sent in fp32, or as they are.",
        "fused_norms": "Norms are one kernel beside PyTorch's own modules, or not.",
        "expandable_segments": "PyTorch's allocator grows its segments, or not.",
        "varied_lengths": "Micro-batches are padded to different lengths, or not.",
    },
    "run": {
        "tokens": "Tokens to train on in all.",
        "steps": "Steps to train in all.",
        "pue": "Power of the building over that of what computes.",
    },
    "checkpoint": {
        "write_bytes_per_s": "What the file system takes from all nodes [bytes/s].",
        "node_write_bytes_per_s": "What one node writes [bytes/s]. Default: by its NICs.",
        "asynchronous": "Train on while it is written, or wait.",
        "interval_s": "Time between checkpoints [s]. Default: the best one.",
        "mtbf_s": "Mean time between failures of the job [s]. Default: by its GPUs.",
        "restart_s": "Time from a failure until training goes on [s].",
    },
}


class TableOption(click.Option):
    """A flag for one key of one table of a plan file."""

    def __init__(self, *declarations: Any, table: str = "", key: str = "", **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.table, self.key = table, key

    @property
    def title(self) -> str:
        """Title of the section in which the help shows it."""
        title, keys = SECTIONS[self.table], list(KINDS[self.table])
        is_detail = self.table in DETAILS and keys.index(self.key) >= keys.index(DETAILS[self.table])
        return f"{title} in detail" if is_detail else title

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return name and help; a flag and its opposite share a name: ``--model-[no-]qk-norm``."""
        record = super().get_help_record(ctx)
        if record is None or not self.secondary_opts:
            return record
        prefix, words = _PREFIXES[self.table], self.key.replace("_", "-")
        return f"--{prefix}[no-]{words}", record[1]


class SectionedCommand(click.Command):
    """A command whose help shows the flags of each table in a separate section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command first, then those of every table."""
        sections: dict[str, list[click.Option]] = {title: [] for title in ("Options", *SECTIONS.values())}
        for option in self.get_params(ctx):
            if isinstance(option, TableOption):
                sections.setdefault(option.title, []).append(option)
            elif isinstance(option, click.Option):
                sections["Options"].append(option)
        for title, options in sections.items():
            rows = [record for option in options if (record := option.get_help_record(ctx)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=36)


def table_flags(command: Command) -> Command:
    """Give a command a flag for every key of every table; they arrive as ``TABLE.KEY``."""
    for table in reversed(SECTIONS):
        for key in reversed(list(KINDS[table])):
            command = click.option(
                *_build_declarations(table, key), cls=TableOption, table=table, key=key, **_build_attributes(table, key)
            )(command)
    return command


def build_tables(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given flags as the tables of a plan file."""
    tables: dict[str, Any] = {}
    for table in SECTIONS:
        for key in KINDS[table]:
            value = flags.get(_format_parameter_name(table, key))
            if value is None:
                continue
            content = tables.setdefault(table, {}) if table else tables
            content[key] = parse_flag(table, key, value) if isinstance(value, str) else value
    return tables


def _format_parameter_name(table: str, key: str) -> str:
    """Return the parameter name of a flag."""
    return f"{table or 'top'}_{key}"


def _build_declarations(table: str, key: str) -> list[str]:
    """Return the declarations of a flag."""
    prefix, words = _PREFIXES[table], key.replace("_", "-")
    if (table, key) == ("model", LIKE):
        return ["--model", _format_parameter_name(table, key)]
    if KINDS[table][key] is bool:
        return [f"--{prefix}{words}/--{prefix}no-{words}", _format_parameter_name(table, key)]
    return [f"--{prefix}{words}", _format_parameter_name(table, key)]


def _build_attributes(table: str, key: str) -> dict[str, Any]:
    """Return the metavar, default and help of a flag."""
    kind, words = KINDS[table][key], _WORDS[table].get(key, "")
    form: dict[str, Any] = {"default": None, "help": f"{words}{_format_default(table, key)}"}
    if kind is bool:
        return form
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = [str(member.value) for member in kind]
        return {**form, "metavar": "WORD", "help": f"{form['help'].rstrip('.')}: {', '.join(members)}."}
    metavars = {int: "N", float: "X", str: "TEXT"}
    return {**form, "metavar": "NAME|FILE" if key in (LIKE, "cluster") else metavars[kind]}


def _format_default(table: str, key: str) -> str:
    """Return the text on the default of a number; empty for 0 and 1."""
    if table not in VALUES:
        return ""
    defaults = {item.name: item.default for item in fields(VALUES[table])}
    default = defaults.get(key, MISSING)
    plain = (int, float)
    return f" Default: {default:g}." if type(default) in plain and default not in (0, 1) else ""
