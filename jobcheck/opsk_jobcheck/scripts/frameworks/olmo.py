"""Reads the training settings from a launch script of OLMo, and from its YAML file.

Source: ``olmo/config.py`` and ``configs/official*`` of OLMo (2024 and 2025): ``scripts/train.py x.yaml --key=value``.
Replicas are sharded (``fsdp``) or whole (``distributed_strategy: ddp``), nothing else is split. OLMo-core, its
successor, takes its settings from Python: only the settings on the command line are read, the others are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import (
    SHAPE,
    SURE,
    Program,
    collect_flags,
    parse_program_arguments,
    program_of,
)
from opsk_jobcheck.scripts.settings.arguments import arguments_of, parse_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.statements import (
    mark_all_unknown,
    parse_integer,
    state_data_parallel_only,
    state_numbers,
    state_truth,
    state_word,
)

OLMO, OLMO_CORE = "olmo", "olmo-core"
_TABLE: Mapping[str, str] = MappingProxyType(
    {
        "model.d_model": "model.hidden",
        "model.n_layers": "model.layers",
        "model.n_heads": "model.heads",
        "model.n_kv_heads": "model.kv_heads",
        "model.max_sequence_length": "model.seq",
        "model.vocab_size": "model.vocab",
        "model.embedding_size": "model.vocab",
        "device_train_microbatch_size": "plan.micro_batch",
        "global_train_batch_size": "plan.global_batch",
    }
)
_FORMATS = MappingProxyType({"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"})
_SHARDING = MappingProxyType(
    {
        **dict.fromkeys(("full_shard", "hybrid_shard"), "zero3"),
        **dict.fromkeys(("shard_grad_op", "_hybrid_shard_zero2"), "zero2"),
        "no_shard": "none",
    }
)
_GATED = MappingProxyType({"swiglu": True, "gelu": False, "relu": False})
_CORE = re.compile(r"olmo_core|OLMo-core|src/scripts/(train|official)/")


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with OLMo, or with OLMo-core."""
    program = program_of(invocation)
    if program is None:
        return None
    arguments = arguments_of(invocation)
    if _CORE.search(program.name):
        return Match(framework=OLMO_CORE, weight=SURE, invocation=invocation, arguments=arguments)
    if program.name.endswith("scripts/train.py") and _is_olmo(program, invocation):
        return Match(framework=OLMO, weight=SURE, invocation=invocation, arguments=arguments)
    return None


def read_olmo(match: Match, reading: Reading) -> None:
    """State the values of the file and of the flags that override it."""
    findings, program = reading.findings, program_of(match.invocation)
    if match.framework == OLMO_CORE or program is None or not program.words:
        why = "OLMo-core takes its settings from Python"
        mark_all_unknown(findings, (*SHAPE, "model.seq", "plan.micro_batch"), why, match.invocation.line)
        return
    config = reading.config(program.words[0], match.invocation, form="yaml")
    config.overrides = collect_flags(parse_arguments(program.words[1:]))
    state_numbers(findings, config, _TABLE)
    _state_feed_forward(config, findings)
    if config.entry("model.multi_query_attention") is not None and not findings.get("model.kv_heads"):
        _state_single_kv_head(config, findings)
    state_truth(findings, "model.tied_embeddings", config.entry("model.weight_tying"))
    state_truth(findings, "model.flash_attention", config.entry("model.flash_attention"))
    state_word(findings, "plan.precision", config.entry("precision"), _FORMATS)
    _state_sharding(config, findings)
    if not config.why:
        state_data_parallel_only(findings, "OLMo shards or copies replicas, nothing else", match.invocation.line)


OLMO_READER = Reader(frameworks=(OLMO, OLMO_CORE), recognise=recognise, read=read_olmo)


def _is_olmo(program: Program, invocation: Invocation) -> bool:
    """Return whether a ``scripts/train.py`` is OLMo's: it has a YAML file, and OLMo in its paths."""
    first = program.words[0].shown if program.words else ""
    around = (program.name, first, invocation.directory.shown)
    flags = parse_program_arguments(program).flags
    return first.endswith((".yaml", ".yml")) and (
        any("olmo" in name.lower() for name in around) or "--save-overwrite" in flags
    )


def _state_feed_forward(config: ConfigFile, findings: Findings) -> None:
    """State the width of the MLP: OLMo counts both halves of a gated one."""
    kind, width = config.entry("model.activation_type"), config.entry("model.mlp_hidden_size")
    is_gated = state_word(findings, "model.gated_mlp", kind, _GATED)
    ratio, hidden = config.entry("model.mlp_ratio"), findings.get("model.hidden")
    if is_gated is None:
        return
    if width is not None and width.value is not None:
        entry, total = width, parse_integer(width.value)
    elif ratio is not None and not ratio.why and hidden and (factor := parse_integer(ratio.value)):
        entry, total = ratio, factor * hidden
    else:
        return
    if total and total % 2 == 0:
        value = total // 2 if is_gated else total
        text = f"{entry.text}, both halves of a gated MLP" if is_gated else entry.text
        findings.state("model.ffn", value, entry.line, text, file=entry.file)
    elif entry.why:
        findings.mark_unknown("model.ffn", entry.why, entry.line, file=entry.file)


def _state_single_kv_head(config: ConfigFile, findings: Findings) -> None:
    """State multi-query attention."""
    entry = config.entry("model.multi_query_attention")
    if entry is not None and str(entry.value).lower() == "true":
        findings.state("model.kv_heads", 1, entry.line, entry.text, file=entry.file)


def _state_sharding(config: ConfigFile, findings: Findings) -> None:
    """State what is sharded, and recomputation where it is of all layers."""
    strategy = config.entry("distributed_strategy")
    if strategy is not None and str(strategy.value).lower() == "ddp":
        findings.state("plan.sharding", "none", strategy.line, strategy.text, file=strategy.file)
    else:
        state_word(findings, "plan.sharding", config.entry("fsdp.sharding_strategy"), _SHARDING)
    recompute = config.entry("activation_checkpointing")
    if recompute is not None and recompute.value == "whole_layer":
        findings.state("plan.recompute", "full", recompute.line, recompute.text, file=recompute.file)
    elif recompute is not None and (recompute.why or recompute.value is not None):
        why = recompute.why or f"{recompute.text[:80]}: a part of the layers"
        findings.mark_unknown("plan.recompute", why, recompute.line, file=recompute.file)
    replicas = config.entry("fsdp.hybrid_sharding_num_model_replicas")
    count = (
        parse_integer(replicas.value)
        if replicas is not None and not replicas.why and replicas.value is not None
        else None
    )
    if count and count > 1:
        findings.options["optimizer.instances"] = str(count)
