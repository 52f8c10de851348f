"""Reads the training settings from a launch script of Composer with LLM Foundry, or of OLMo, and from their YAML.

Source: ``llmfoundry`` 0.1 to 0.22 (``utils/config_utils.py``, ``models/mpt/configuration_mpt.py``, the YAMLs under
``scripts/train``). In ``composer train.py x.yaml key=value ...``, the pairs override the file. Ranks shard
data-parallel replicas (``fsdp_config``); only a ``tp_config`` splits tensors, and there is no pipeline parallelism.
``olmo/config.py`` and ``configs/official*`` of OLMo (2024 and 2025), whose settings come from Composer's:
``scripts/train.py x.yaml --key=value``. Replicas are sharded (``fsdp``) or whole (``distributed_strategy: ddp``).
OLMo-core, its successor, takes its settings from Python: only those on the command line are read.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from opsk.frameworks.settings.pytorch_programs import (
    COMPOSER_NUMBERS,
    COMPOSER_RECOMPUTE,
    DEVICE_MICRO_BATCH,
    FSDP_SECTION,
    OLMO_ALL_LAYERS,
    OLMO_NUMBERS,
    OLMO_RECOMPUTE,
    OLMO_STRATEGY,
    STRATEGY,
)
from opsk.frameworks.settings.usual_settings import FSDP_WORDS, PRECISION_WORDS
from opsk_jobcheck.scripts.bash.values import Invocation, Text
from opsk_jobcheck.scripts.frameworks.huggingface.model import name_model
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import read_trainable
from opsk_jobcheck.scripts.launchers.programs import (
    RECOMPUTE_WORDS,
    SHAPE,
    SURE,
    Program,
    collect_flags,
    find_command,
    find_program,
    parse_assignments,
    parse_program_arguments,
)
from opsk_jobcheck.scripts.settings.arguments import get_arguments, iterate_settings, parse_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    mark_all_unknown,
    parse_boolean,
    parse_integer,
    state_data_parallel_only,
    state_derived,
    state_number,
    state_numbers,
    state_truth,
    state_word,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

OLMO, OLMO_CORE = "olmo", "olmo-core"
_OLMO_GATED = MappingProxyType({"swiglu": True, "gelu": False, "relu": False})
_OLMO_FLAGS = frozenset(
    {
        *("--save-overwrite", "--device-train-microbatch-size", "--fsdp.sharding-strategy", "--fsdp.precision"),
        *("--fsdp.wrapping-strategy", "--model.flash-attention", "--save-num-checkpoints-to-keep"),
    }
)
"""Flags of OLMo's configuration, by which its program is known in any folder."""
_CORE = re.compile(r"olmo_core|OLMo-core|src/scripts/(train|official)/")
COMPOSER = "composer"
_YAML = (".yaml", ".yml")
_GATED = MappingProxyType(
    {"mptmlp": False, "te_ln_mlp": False, "mptgeglu": True, "mptglu": True, "mb_moe": False, "mb_dmoe": False}
)
_FUSED = MappingProxyType({"flash": True, "triton": True, "torch": False})
_HF = ("hf_causal_lm", "hf_prefix_lm", "hf_t5")


def recognise_olmo(invocation: Invocation) -> Match | None:
    """Return a command that trains with OLMo, or with OLMo-core."""
    program = find_program(invocation)
    if program is None:
        return None
    arguments = get_arguments(invocation)
    if _CORE.search(program.name):
        return Match(framework=OLMO_CORE, weight=SURE, invocation=invocation, arguments=arguments)
    if program.name.endswith("scripts/train.py") and _is_olmo(program, invocation):
        return Match(framework=OLMO, weight=SURE, invocation=invocation, arguments=arguments)
    return None


def read_olmo(match: Match, reading: Reading) -> None:
    """State the values of the file and of the flags that override it."""
    findings, program = reading.findings, find_program(match.invocation)
    if match.framework == OLMO_CORE or program is None or not program.words:
        why = "OLMo-core takes its settings from Python"
        mark_all_unknown(findings, (*SHAPE, "model.seq", "plan.micro_batch"), why, match.invocation.line)
        return
    config = reading.config(program.words[0], match.invocation, form="yaml")
    config.overrides = collect_flags(parse_arguments(program.words[1:]))
    state_numbers(findings, config, OLMO_NUMBERS)
    _state_olmo_feed_forward(config, findings)
    if config.entry("model.multi_query_attention") is not None and not findings.get("model.kv_heads"):
        _state_single_kv_head(config, findings)
    state_truth(findings, "model.tied_embeddings", config.entry("model.weight_tying"))
    state_truth(findings, "model.flash_attention", config.entry("model.flash_attention"))
    state_word(findings, "plan.precision", config.entry("precision"), PRECISION_WORDS)
    _state_sharding(config, findings)
    if not config.why:
        state_data_parallel_only(findings, "OLMo shards or copies replicas, nothing else", match.invocation.line)


OLMO_READER = Reader(frameworks=(OLMO, OLMO_CORE), recognise=recognise_olmo, read=read_olmo)


def _is_olmo(program: Program, invocation: Invocation) -> bool:
    """Return whether a ``scripts/train.py`` is OLMo's: it has a YAML file, and OLMo in its paths."""
    first = program.words[0].shown if program.words else ""
    around = (program.name, first, invocation.directory.shown)
    flags = parse_program_arguments(program).flags
    return first.endswith((".yaml", ".yml")) and (
        any("olmo" in name.lower() for name in around) or not _OLMO_FLAGS.isdisjoint(flags)
    )


def _state_olmo_feed_forward(config: ConfigFile, findings: Findings) -> None:
    """State the width of the MLP: OLMo counts both halves of a gated one."""
    kind, width = config.entry("model.activation_type"), config.entry("model.mlp_hidden_size")
    is_gated = state_word(findings, "model.gated_mlp", kind, _OLMO_GATED)
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
        state_word(findings, "plan.sharding", config.entry(OLMO_STRATEGY), FSDP_WORDS)
    recompute = config.entry(OLMO_RECOMPUTE)
    if recompute is not None and recompute.value == OLMO_ALL_LAYERS:
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


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with Composer: by its launcher, or LLM Foundry's ``train.py`` with a YAML."""
    words = _find_program_words(invocation)
    if words is None:
        return None
    arguments = get_arguments(invocation)
    weight = SURE if _find_yaml(words) is not None else 1
    return Match(framework=COMPOSER, weight=weight, invocation=invocation, arguments=arguments)


def read_composer(match: Match, reading: Reading) -> None:
    """State the values of the file and of the settings that override it."""
    findings, invocation = reading.findings, match.invocation
    words = _find_program_words(invocation) or ()
    named = _find_yaml(words)
    if named is None:
        why = "this program's settings are in Python"
        mark_all_unknown(findings, (*SHAPE, "model.seq", "plan.micro_batch"), why, invocation.line)
        return
    config = reading.config(named, invocation, form="yaml")
    config.overrides = parse_assignments(words)
    state_numbers(findings, config, COMPOSER_NUMBERS)
    _state_feed_forward(config, findings)
    _state_details(config, findings)
    _state_parallelism(config, findings, invocation.line)
    _state_micro_batch(config, findings)
    state_word(findings, "plan.precision", config.entry("precision"), PRECISION_WORDS)
    name = config.entry("model.pretrained_model_name_or_path")
    if name is not None and name.value is not None and not name.why:
        name_model(name, invocation, reading)
    read_trainable(invocation, findings, settings=iterate_settings(config))


COMPOSER_READER = Reader(frameworks=(COMPOSER,), recognise=recognise, read=read_composer)


def _find_program_words(invocation: Invocation) -> tuple[Text, ...] | None:
    """Return the words after the training program, ``None`` where this is no such command."""
    launcher, program = find_command(invocation, "composer"), find_program(invocation)
    if launcher is not None:
        return _find_words_after_program(launcher)
    if (command := find_command(invocation, "llmfoundry")) is not None:
        first = command.words[0].known if command.words else None
        return command.words[1:] if first == "train" else None
    if program is None or program.file != "train.py" or _find_yaml(program.words[:1]) is None:
        return None
    is_ours = "foundry" in program.name or "/yamls/" in program.words[0].shown or "foundry" in program.words[0].shown
    return program.words if is_ours else None


def _find_words_after_program(launcher: Program) -> tuple[Text, ...] | None:
    """Return the words after the Python program that the launcher starts."""
    for index, word in enumerate(launcher.words):
        if word.shown.endswith(".py"):
            return launcher.words[index + 1 :]
    return None


def _find_yaml(words: tuple[Text, ...]) -> Text | None:
    """Return the first word where it names a YAML file, or may: it is the one before all settings."""
    if not words or words[0].shown.startswith("-"):
        return None
    first = words[0]
    is_named = first.shown.endswith(_YAML) or (first.known is None and "=" not in first.shown)
    return first if is_named else None


def _state_feed_forward(config: ConfigFile, findings: Findings) -> None:
    """State the width of the MLP and of experts."""
    kind = config.entry("model.ffn_config.ffn_type")
    name = config.entry("model.name")
    if kind is not None and str(kind.value).lower() in _GATED:
        state_word(findings, "model.gated_mlp", kind, _GATED)
    elif kind is None and name is not None and name.value == "mpt_causal_lm":
        findings.state("model.gated_mlp", False, name.line, name.text, file=name.file)
    width, ratio = config.entry("model.ffn_config.ffn_hidden_size"), config.entry("model.expansion_ratio")
    hidden = findings.get("model.hidden")
    if width is not None and width.value is not None:
        state_number(findings, "model.ffn", width)
    elif ratio is not None and ratio.why:
        findings.mark_unknown("model.ffn", ratio.why, ratio.line, file=ratio.file)
    elif ratio is not None and hidden and (product := _compute_product(hidden, ratio.value)):
        findings.state("model.ffn", product, ratio.line, f"{ratio.text} × {hidden}"[:200], file=ratio.file)
    if (findings.get("model.experts") or 1) < 2:
        for field in ("model.experts", "model.top_k", "plan.ep"):
            findings.values.pop(field, None)
            findings.evidence.pop(field, None)
    elif ffn := findings.get("model.ffn"):
        state_derived(findings, "model.expert_ffn", ffn, f"every expert is {ffn} wide", "model.ffn")


def _compute_product(hidden: int, ratio: object) -> int | None:
    """Return hidden × ratio where that is a whole number."""
    try:
        product = hidden * float(str(ratio))
    except ValueError:
        return None
    return int(product) if 0 < product < 10**9 and product == int(product) else None


def _state_details(config: ConfigFile, findings: Findings) -> None:
    """State the other settings of the model."""
    kind = config.entry("model.attn_config.attn_type")
    if kind is not None and kind.value == "multiquery_attention":
        findings.state("model.kv_heads", 1, kind.line, kind.text, file=kind.file)
    fused = config.entry("model.attn_config.attn_impl")
    if fused is not None and not fused.why:
        state_word(findings, "model.flash_attention", fused, _FUSED)
    state_truth(findings, "model.tied_embeddings", config.entry("model.tie_word_embeddings"))
    state_truth(findings, "model.learned_positions", config.entry("model.learned_pos_emb"))
    for key in ("model.attn_config.alibi", "model.attn_config.rope"):
        entry = config.entry(key)
        if entry is not None and not entry.why and parse_boolean(entry.value):
            findings.state("model.learned_positions", False, entry.line, entry.text, file=entry.file)
    if config.why:
        mark_all_unknown(findings, (*SHAPE, "model.seq"), config.why, 0)


def _state_parallelism(config: ConfigFile, findings: Findings, line: int) -> None:
    """State how states are sharded, and data parallelism only where nothing else is requested."""
    section = next((name for name in ("parallelism_config.fsdp", FSDP_SECTION) if config.has(name)), FSDP_SECTION)
    strategy = config.entry(section, STRATEGY)
    state_word(findings, "plan.sharding", strategy, FSDP_WORDS)
    if strategy is None and config.names(section):
        entry = config.entry(section)
        if entry is not None:
            text = f"{section}: shards all unless told otherwise"
            findings.state("plan.sharding", "zero3", entry.line, text, file=entry.file)
    state_word(findings, "plan.recompute", config.entry(section, COMPOSER_RECOMPUTE), RECOMPUTE_WORDS)
    nodes = findings.get("plan.nodes")
    if strategy is not None and "hybrid" in str(strategy.value).lower() and nodes and nodes > 1:
        findings.options["optimizer.instances"] = str(nodes)
    if config.why:
        return
    if config.names("tp_config") or config.names("parallelism_config.tp"):
        findings.state("plan.pp", 1, line, "composer has no pipelines")
    else:
        state_data_parallel_only(findings, "no tp_config: replicas are sharded, tensors are not split", line)


def _state_micro_batch(config: ConfigFile, findings: Findings) -> None:
    """State the micro-batch; ``auto`` finds it when the job runs, and one above a GPU's batch is lowered to that."""
    entry, old = config.entry(DEVICE_MICRO_BATCH), config.entry("device_train_grad_accum")
    batch, gpus = findings.get("plan.global_batch"), findings.get("plan.gpus")
    is_divided = findings.get("plan.tp") == 1 and batch and gpus and batch % gpus == 0
    share = batch // gpus if is_divided else None
    if entry is not None and not entry.why and str(entry.value).lower() == "auto":
        why = f"{entry.text[:80]}: composer finds it when the job runs"
        findings.mark_unknown("plan.micro_batch", why, entry.line, file=entry.file)
    elif entry is not None:
        micro = state_number(findings, "plan.micro_batch", entry)
        if micro and share and micro > share:
            text = f"{entry.text}; lowered to {batch} / {gpus} GPUs"
            findings.state("plan.micro_batch", share, entry.line, text, file=entry.file)
    elif old is not None:
        _state_micro_batch_from_steps(old, share, findings)


def _state_micro_batch_from_steps(entry: Entry, share: int | None, findings: Findings) -> None:
    """State the micro-batch from the number of steps, as releases of 2023 have it."""
    steps = None if entry.why else parse_integer(entry.value)
    if share and steps and steps <= share:  # ``Tensor.chunk``: the last piece is the remainder
        text = f"{share} a GPU / {entry.text}"
        findings.state("plan.micro_batch", -(-share // steps), entry.line, text, file=entry.file)
    else:
        why = entry.why or f"{entry.text[:80]}: what a step takes is not known"
        findings.mark_unknown("plan.micro_batch", why, entry.line, file=entry.file)
