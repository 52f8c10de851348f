"""What do a launch script of Composer with LLM Foundry, and the YAML that it names, say about the training run?

Source: ``llmfoundry`` 0.1 to 0.22 (``utils/config_utils.py``, ``models/mpt/configuration_mpt.py``, the YAMLs under
``scripts/train``). ``composer train.py x.yaml key=value ...``: what stands behind the file beats it. Ranks shard
data-parallel replicas (``fsdp_config``); tensors are split with a ``tp_config`` only, and there are no pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation, Text
from opsk_jobcheck.scripts.frameworks.huggingface.model import name_model
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import read_trainable
from opsk_jobcheck.scripts.launchers.programs import (
    RECOMPUTE_WORDS,
    SHAPE,
    SURE,
    Program,
    assigned,
    command_of,
    program_of,
)
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.given_settings import settings_in
from opsk_jobcheck.scripts.settings.reading import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.stating import (
    cannot_tell_all,
    data_parallel_only,
    follows,
    state_number,
    state_numbers,
    state_truth,
    state_word,
    truth,
    whole,
)

COMPOSER = "composer"
_YAML = (".yaml", ".yml")
_TABLE: Mapping[str, str] = MappingProxyType(
    {
        "model.max_seq_len": "model.seq",
        "max_seq_len": "model.seq",
        "model.d_model": "model.hidden",
        "model.n_heads": "model.heads",
        "model.n_layers": "model.layers",
        "model.head_dim": "model.head_dim",
        "model.vocab_size": "model.vocab",
        "model.attn_config.kv_n_heads": "model.kv_heads",
        "model.ffn_config.moe_num_experts": "model.experts",
        "model.ffn_config.moe_top_k": "model.top_k",
        "model.ffn_config.moe_world_size": "plan.ep",
        "tp_config.tensor_parallel_degree": "plan.tp",
        "parallelism_config.tp.tensor_parallel_degree": "plan.tp",
        "global_train_batch_size": "plan.global_batch",
    }
)
_FORMATS = MappingProxyType(
    {
        **dict.fromkeys(("amp_bf16", "bf16"), "bf16"),
        **dict.fromkeys(("amp_fp16", "amp", "fp16"), "fp16"),
        **dict.fromkeys(("amp_fp8", "fp8"), "fp8"),
        "fp32": "fp32",
    }
)
_SHARDING = MappingProxyType(
    {
        **dict.fromkeys(("full_shard", "hybrid_shard"), "zero3"),
        **dict.fromkeys(("shard_grad_op", "_hybrid_shard_zero2"), "zero2"),
        "no_shard": "none",
    }
)
_GATED = MappingProxyType(
    {"mptmlp": False, "te_ln_mlp": False, "mptgeglu": True, "mptglu": True, "mb_moe": False, "mb_dmoe": False}
)
_FUSED = MappingProxyType({"flash": True, "triton": True, "torch": False})
_HF = ("hf_causal_lm", "hf_prefix_lm", "hf_t5")


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with Composer: by its launcher, or LLM Foundry's ``train.py`` with a YAML."""
    found = _words(invocation)
    if found is None:
        return None
    arguments = arguments_of(invocation)
    weight = SURE if _yaml(found) is not None else 1
    return Match(framework=COMPOSER, weight=weight, invocation=invocation, arguments=arguments)


def read_composer(match: Match, reading: Reading) -> None:
    """State what the file and the settings that beat it say."""
    findings, invocation = reading.findings, match.invocation
    words = _words(invocation) or ()
    named = _yaml(words)
    if named is None:
        why = "this program's settings are in Python"
        cannot_tell_all(findings, (*SHAPE, "model.seq", "plan.micro_batch"), why, invocation.line)
        return
    config = reading.config(named, invocation, form="yaml")
    config.overrides = assigned(words)
    state_numbers(findings, config, _TABLE)
    _feed_forward(config, findings)
    _details(config, findings)
    _parallel(config, findings, invocation.line)
    _micro_batch(config, findings)
    state_word(findings, "plan.precision", config.entry("precision"), _FORMATS)
    name = config.entry("model.pretrained_model_name_or_path")
    if name is not None and name.value is not None and not name.why:
        name_model(name, invocation, reading)
    read_trainable(invocation, findings, settings=settings_in(config))


COMPOSER_READER = Reader(frameworks=(COMPOSER,), recognise=recognise, read=read_composer)


def _words(invocation: Invocation) -> tuple[Text, ...] | None:
    """Return the words behind the training program, ``None`` where this is no such command."""
    launcher, program = command_of(invocation, "composer"), program_of(invocation)
    if launcher is not None:
        return _inside(launcher)
    if (command := command_of(invocation, "llmfoundry")) is not None:
        first = command.words[0].known if command.words else None
        return command.words[1:] if first == "train" else None
    if program is None or program.file != "train.py" or _yaml(program.words[:1]) is None:
        return None
    is_ours = "foundry" in program.name or "/yamls/" in program.words[0].shown or "foundry" in program.words[0].shown
    return program.words if is_ours else None


def _inside(launcher: Program) -> tuple[Text, ...] | None:
    """Return the words behind the Python program that the launcher starts."""
    for index, word in enumerate(launcher.words):
        if word.shown.endswith(".py"):
            return launcher.words[index + 1 :]
    return None


def _yaml(words: tuple[Text, ...]) -> Text | None:
    """Return the first word where it names a YAML file, or may: it is the one before all settings."""
    if not words or words[0].shown.startswith("-"):
        return None
    first = words[0]
    is_named = first.shown.endswith(_YAML) or (first.known is None and "=" not in first.shown)
    return first if is_named else None


def _feed_forward(config: ConfigFile, findings: Findings) -> None:
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
        findings.cannot_tell("model.ffn", ratio.why, ratio.line, file=ratio.file)
    elif ratio is not None and hidden and (product := _product(hidden, ratio.value)):
        findings.state("model.ffn", product, ratio.line, f"{ratio.text} × {hidden}"[:200], file=ratio.file)
    if (findings.get("model.experts") or 1) < 2:
        for field in ("model.experts", "model.top_k", "plan.ep"):
            findings.values.pop(field, None)
            findings.evidence.pop(field, None)
    elif ffn := findings.get("model.ffn"):
        follows(findings, "model.expert_ffn", ffn, f"every expert is {ffn} wide", "model.ffn")


def _product(hidden: int, ratio: object) -> int | None:
    """Return hidden × ratio where that is a whole number."""
    try:
        product = hidden * float(str(ratio))
    except ValueError:
        return None
    return int(product) if 0 < product < 10**9 and product == int(product) else None


def _details(config: ConfigFile, findings: Findings) -> None:
    """State what else of the model is said."""
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
        if entry is not None and not entry.why and truth(entry.value):
            findings.state("model.learned_positions", False, entry.line, entry.text, file=entry.file)
    if config.why:
        cannot_tell_all(findings, (*SHAPE, "model.seq"), config.why, 0)


def _parallel(config: ConfigFile, findings: Findings, line: int) -> None:
    """State how states are shared, and that nothing but data is split where nothing else is asked for."""
    section = next((name for name in ("parallelism_config.fsdp", "fsdp_config") if config.has(name)), "fsdp_config")
    strategy = config.entry(section, "sharding_strategy")
    state_word(findings, "plan.sharding", strategy, _SHARDING)
    if strategy is None and config.names(section):
        entry = config.entry(section)
        if entry is not None:
            text = f"{section}: shards all unless told otherwise"
            findings.state("plan.sharding", "zero3", entry.line, text, file=entry.file)
    state_word(findings, "plan.recompute", config.entry(section, "activation_checkpointing"), RECOMPUTE_WORDS)
    nodes = findings.get("plan.nodes")
    if strategy is not None and "hybrid" in str(strategy.value).lower() and nodes and nodes > 1:
        findings.options["optimizer.instances"] = str(nodes)
    if config.why:
        return
    if config.names("tp_config") or config.names("parallelism_config.tp"):
        findings.state("plan.pp", 1, line, "composer has no pipelines")
    else:
        data_parallel_only(findings, "no tp_config: replicas are sharded, tensors are not split", line)


def _micro_batch(config: ConfigFile, findings: Findings) -> None:
    """State the micro-batch; ``auto`` finds it when the job runs, and one above a GPU's batch is lowered to that."""
    entry, old = config.entry("device_train_microbatch_size"), config.entry("device_train_grad_accum")
    batch, gpus = findings.get("plan.global_batch"), findings.get("plan.gpus")
    is_divided = findings.get("plan.tp") == 1 and batch and gpus and batch % gpus == 0
    share = batch // gpus if is_divided else None
    if entry is not None and not entry.why and str(entry.value).lower() == "auto":
        why = f"{entry.text[:80]}: composer finds it when the job runs"
        findings.cannot_tell("plan.micro_batch", why, entry.line, file=entry.file)
    elif entry is not None:
        micro = state_number(findings, "plan.micro_batch", entry)
        if micro and share and micro > share:
            text = f"{entry.text}; lowered to {batch} / {gpus} GPUs"
            findings.state("plan.micro_batch", share, entry.line, text, file=entry.file)
    elif old is not None:
        _by_steps(old, share, findings)


def _by_steps(entry: Entry, share: int | None, findings: Findings) -> None:
    """State the micro-batch from the number of steps, as releases of 2023 have it."""
    steps = None if entry.why else whole(entry.value)
    if share and steps and steps <= share:  # ``Tensor.chunk``: the last piece is what is left
        text = f"{share} a GPU / {entry.text}"
        findings.state("plan.micro_batch", -(-share // steps), entry.line, text, file=entry.file)
    else:
        why = entry.why or f"{entry.text[:80]}: what a step takes is not known"
        findings.cannot_tell("plan.micro_batch", why, entry.line, file=entry.file)
