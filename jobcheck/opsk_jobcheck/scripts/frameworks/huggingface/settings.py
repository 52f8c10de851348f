"""Reads the settings of HuggingFace's Trainer from flags, recipes and LLaMA-Factory's files.

Source: ``TrainingArguments`` of transformers 4.6 to 5.0 and ``SFTConfig`` and ``ModelConfig`` of TRL 0.7 to 0.25.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from opsk.frameworks.settings.huggingface import FSDP, MICRO, RECOMPUTE, STEPS
from opsk.workload.completion import DECODER_LENGTH, ENCODER_LENGTH
from opsk.workload.measured_model import INPUT_SIZE
from opsk_jobcheck.scripts.bash.values import Invocation, literal
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import WEIGHTS
from opsk_jobcheck.scripts.launchers.accelerate import FSDP_OPTION, HYBRID, HYBRID_OPTION
from opsk_jobcheck.scripts.launchers.programs import is_open
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import (
    DEEPSPEED_OPTION,
    OPTIMIZER_OFFLOAD,
    STEPS_OPTION,
    WEIGHTS_OFFLOAD,
    mark_conflicts_unknown,
    read_deepspeed,
    state_stage,
)
from opsk_jobcheck.scripts.settings.findings import (
    MAX_NUMBER,
    Findings,
    mark_all_unknown,
    parse_boolean,
    parse_integer,
    state_fsdp_checkpointing,
    state_number,
)
from opsk_jobcheck.scripts.settings.reader import Reading
from opsk_jobcheck.scripts.settings.uncounted_settings import UncountedSetting, is_on, report_uncounted_settings

_FUSED_LOSSES = (
    *("use_liger_kernel", "use_liger", "enable_liger_kernel", "liger_fused_linear_cross_entropy"),
    *("cut_cross_entropy",),
)
"""Switches under which head and loss are one kernel, so that the logits never exist."""
_ATTENTION = ("attn_implementation", "flash_attn")
_UNFUSED = frozenset({"eager", "disabled"})
_AUTO = frozenset({"auto", "none", "null", ""})
_SWITCHES = MappingProxyType({"flash_attention": True, "sdp_attention": True, "eager_attention": False})
"""axolotl's switches, and whether attention is then fused."""
_OFFLOADING = ("activation_offloading", "use_unsloth_gc")
_OPTIMIZER_STATES = "the optimizer's states are counted as they are without it"
_UNCOUNTED = "what it adds to memory is not counted"
LEFT_OUT: Mapping[str, UncountedSetting] = MappingProxyType(
    {
        "torch_empty_cache_steps": UncountedSetting(why="cached blocks are counted as if they were never given back"),
        "use_galore": UncountedSetting(why=_OPTIMIZER_STATES),
        "use_apollo": UncountedSetting(why=_OPTIMIZER_STATES),
        "use_badam": UncountedSetting(why="all layers are counted as trained at a time"),
        "galore_rank": UncountedSetting(why=_OPTIMIZER_STATES, harmless=(None,)),
        "upcast_layernorm": UncountedSetting(why="norms are counted in the format of the weights"),
        "upcast_lmhead_output": UncountedSetting(why="logits are counted as the framework keeps them"),
        "shift_attn": UncountedSetting(why="attention is counted over the whole length"),
        "mixture_of_depths": UncountedSetting(why=_UNCOUNTED, harmless=(None, False, "none")),
        "use_llama_pro": UncountedSetting(why="all layers are counted as trained"),
        "neat_packing": UncountedSetting(why="the block-diagonal mask is not counted"),
        "lora_mlp_kernel": UncountedSetting(why="layers are counted as keeping what they keep without the kernel"),
        "lora_qkv_kernel": UncountedSetting(why="layers are counted as keeping what they keep without the kernel"),
        "xformers_attention": UncountedSetting(why="attention is counted as PyTorch's own"),
        "fp16_full_eval": UncountedSetting(why="evaluation is not counted"),
        "bf16_full_eval": UncountedSetting(why="evaluation is not counted"),
        "fp8_enable_fsdp_float8_all_gather": UncountedSetting(why="weights are counted as gathered in 16 bits"),
        "tiled_mlp": UncountedSetting(why="MLPs are counted as computed at once"),
        "use_tiled_mlp": UncountedSetting(why="MLPs are counted as computed at once"),
    }
)
"""Settings that change memory and that no prediction counts, and what is taken instead."""
OPTIMIZER = "optimizer.name"
_SIZES = {
    "max_source_length": ENCODER_LENGTH,
    "max_target_length": DECODER_LENGTH,
    "max_duration_in_seconds": INPUT_SIZE,
    "max_length_seconds": INPUT_SIZE,
}
LENGTHS = ("block_size", "max_seq_length", "max_seq_len", "model_max_length", "max_sequence_length", "seq_length")
"""Settings for the tokens of one sequence; ``max_length`` is the last of them, and TRL's first."""
FIELDS = ("plan.micro_batch", "plan.global_batch", "plan.precision", "plan.recompute", "plan.sharding", "model.seq")
PARALLEL = re.compile(
    r"(?:.*_)?(?:tp|tensor|tensor_model|mp|model|pp|pipe|pipeline|pipeline_model|sp|seq|sequence|cp|context|ulysses|ring"
    r"|autotp)"
    r"_?(?:parallel|parallelism)?_?(?:size|degree|ways?|world_size)(?:_.*)?|tp_plan|parallelism_config.*"
)
"""Names of settings that split a model, a sequence or a pipeline: with one of them ranks are not data-parallel only."""
_SHARDS = MappingProxyType(
    {
        **dict.fromkeys(("full_shard", "hybrid_shard"), "zero3"),
        **dict.fromkeys(("shard_grad_op", "hybrid_shard_zero2"), "zero2"),
        "no_shard": "none",
    }
)
_DTYPES = MappingProxyType(
    {**dict.fromkeys(("bfloat16", "bf16"), "bf16"), **dict.fromkeys(("float16", "fp16", "half"), "fp16")}
)


def read_memory(config: ConfigFile, findings: Findings) -> None:
    """State the kernels of attention and loss and what is offloaded; report what is not counted."""
    if any(is_on(config.entry(name)) for name in _FUSED_LOSSES):
        findings.options["loss.kernel"] = "fused"
    if is_on(config.entry("torch_compile")):
        findings.options["compiled"] = "true"
    if any(is_on(config.entry(name)) for name in _OFFLOADING):
        findings.options["activations.offload"] = "cpu"
    _read_attention(config, findings)
    report_uncounted_settings(config, LEFT_OUT, findings)


def _read_attention(config: ConfigFile, findings: Findings) -> None:
    """State whether one kernel computes attention, where a setting states it."""
    for name in _ATTENTION:
        entry = config.entry(name)
        if entry is None or entry.why or not is_open(findings, "model.flash_attention"):
            continue
        word = str(entry.value).strip().lower()
        if word not in _AUTO:
            findings.state("model.flash_attention", word not in _UNFUSED, entry.line, entry.text, file=entry.file)
    for name, is_fused in _SWITCHES.items():
        entry = config.entry(name)
        if entry is not None and is_on(entry) and is_open(findings, "model.flash_attention"):
            findings.state("model.flash_attention", is_fused, entry.line, entry.text, file=entry.file)


def read_settings(config: ConfigFile, findings: Findings, *, lengths: tuple[str, ...] = LENGTHS) -> None:
    """State batch, length, precision and recomputation, as the Trainer takes them."""
    state_number(findings, "plan.micro_batch", find_first(config, *MICRO))
    lowers = config.entry("auto_find_batch_size")
    if lowers is not None and not lowers.why and parse_boolean(lowers.value):
        why = "auto_find_batch_size lowers it where memory runs out"
        findings.mark_unknown("plan.micro_batch", why, lowers.line, file=lowers.file)
    read_steps(config.entry(STEPS), findings)
    state_number(findings, "model.seq", find_first(config, *lengths))
    _read_sizes(config, findings)
    read_precision(config, findings)
    read_recompute(config.entry(RECOMPUTE), findings)
    without = config.entry("no_gradient_checkpointing")
    if without is not None and not without.why and parse_boolean(without.value):
        findings.state("plan.recompute", "none", without.line, without.text, file=without.file)
    optimizer = config.entry("optim")
    if optimizer is not None and isinstance(optimizer.value, str):
        findings.options[OPTIMIZER] = optimizer.value.rpartition(".")[2].lower()[:40]
    read_weights(find_first(config, "torch_dtype", "dtype"), findings)


def read_weights(entry: Entry | None, findings: Findings) -> None:
    """State the 16-bit format in which the model is loaded."""
    kind = _DTYPES.get(str(entry.value).rpartition(".")[2]) if entry is not None and not entry.why else None
    if kind:
        findings.options[WEIGHTS] = kind


def _read_sizes(config: ConfigFile, findings: Findings) -> None:
    """Keep the lengths of the two parts of an encoder-decoder, and the longest sound."""
    for name, option in _SIZES.items():
        entry = config.entry(name)
        number = parse_integer(entry.value) if entry is not None and not entry.why and entry.value is not None else None
        if number and 0 < number <= MAX_NUMBER:
            findings.options[option] = str(number)


def read_steps(entry: Entry | None, findings: Findings) -> None:
    """Keep the accumulation steps, from which the global batch follows once the ranks are known."""
    if entry is None or (entry.value in (None, "auto") and not entry.why):
        return
    steps = parse_integer(entry.value)
    if entry.why or not steps or steps > 10**6:
        why = entry.why or f"{entry.text[:80]} is no number of steps"
        findings.mark_unknown("plan.global_batch", why, entry.line, file=entry.file)
    else:
        findings.options[STEPS_OPTION] = str(steps)


def read_precision(config: ConfigFile, findings: Findings) -> None:
    """State the number format that one of the switches turns on; one that is on overrides a file that was not read."""
    unread: Entry | None = None
    for name, precision in (("fp8", "fp8"), ("bf16", "bf16"), ("fp16", "fp16")):
        entry = config.entry(name)
        if entry is None or not is_open(findings, "plan.precision"):
            continue
        if entry.why and config.why and name not in config.overrides:
            unread = entry
        elif entry.why:
            findings.mark_unknown("plan.precision", entry.why, entry.line, file=entry.file)
        elif parse_boolean(entry.value) or entry.value == "full":
            findings.state("plan.precision", precision, entry.line, entry.text, file=entry.file)
    if unread is not None and is_open(findings, "plan.precision"):
        findings.mark_unknown("plan.precision", unread.why, unread.line, file=unread.file)


def read_recompute(entry: Entry | None, findings: Findings) -> None:
    """State recomputation: of all layers, or of none."""
    if entry is None or (entry.value is None and not entry.why):
        return
    if entry.why:
        findings.mark_unknown("plan.recompute", entry.why, entry.line, file=entry.file)
    elif parse_boolean(entry.value) is not None or entry.value in ("unsloth", "offload", "offload_disk"):
        is_on = parse_boolean(entry.value) is not False
        findings.state("plan.recompute", "full" if is_on else "none", entry.line, entry.text, file=entry.file)
        if parse_boolean(entry.value) is None:
            findings.options["activations.offload"] = "cpu"


def read_deepspeed_settings(config: ConfigFile, invocation: Invocation, reading: Reading) -> bool | None:
    """Read the DeepSpeed configuration that settings name; return whether it was read, ``None`` where none is named."""
    findings = reading.findings
    if "deepspeed" not in config.overrides and (inline := config.under("deepspeed")).names():
        findings.options[DEEPSPEED_OPTION] = "true"
        read_deepspeed(inline, findings)
        return True
    entry = config.entry("deepspeed")
    if entry is None or parse_boolean(entry.value) is True:
        entry = find_first(config, "deepspeed_config", "deepspeed_config_file") or entry
    if entry is None or (entry.value in (None, "", "none", "None", "null", False) and not entry.why):
        return None
    findings.options[DEEPSPEED_OPTION] = "true"
    stage = config.entry("zero_stage")
    if not entry.why and parse_boolean(entry.value) is True and stage is not None:
        _state_stage_from_flags(config, stage, findings)
        return True
    if entry.why or parse_boolean(entry.value) is not None:
        why = entry.why or "the command names no DeepSpeed configuration"
        mark_all_unknown(findings, ("plan.sharding",), why, entry.line)
        return False
    path = literal(str(entry.value), entry.line)
    deepspeed = reading.config(path, invocation, form="json")
    mark_conflicts_unknown(deepspeed, findings)
    read_deepspeed(deepspeed, findings)
    if deepspeed.why:
        mark_all_unknown(findings, ("plan.sharding",), deepspeed.why, entry.line)
    return not deepspeed.why


def _state_stage_from_flags(config: ConfigFile, stage: Entry, findings: Findings) -> None:
    """State the settings that a program like DeepSpeed-Chat's derives from its flags."""
    state_stage(stage, findings)
    kind = config.entry("dtype")
    if kind is not None and str(kind.value) in _DTYPES and is_open(findings, "plan.precision"):
        findings.state("plan.precision", _DTYPES[str(kind.value)], kind.line, kind.text, file=kind.file)
    offload = config.entry("offload")
    if offload is not None and parse_boolean(offload.value):
        findings.options[OPTIMIZER_OFFLOAD] = "cpu"


def read_fsdp_settings(config: ConfigFile, invocation: Invocation, reading: Reading) -> bool:
    """State the sharding of the Trainer's FSDP settings; return whether there are any."""
    findings, entry = reading.findings, config.entry(FSDP)
    if entry is None or entry.why or entry.value in (None, "", False, ()):
        return False
    words = entry.value if isinstance(entry.value, tuple) else re.split(r"[\s,]+", str(entry.value))
    names = [str(word).lower() for word in words[:16]]
    if not names or names[0] in ("false", "none", ""):
        return False
    findings.options[FSDP_OPTION] = "true"
    stage = next((_SHARDS[name] for name in names if name in _SHARDS), None)
    if stage and is_open(findings, "plan.sharding"):
        findings.state("plan.sharding", stage, entry.line, entry.text, file=entry.file)
    if any(name in HYBRID for name in names):
        findings.options[HYBRID_OPTION] = "true"
    if "offload" in names:
        findings.options |= {OPTIMIZER_OFFLOAD: "cpu", WEIGHTS_OFFLOAD: "cpu"}
    read_fsdp_details(_find_fsdp_config(config, invocation, reading), findings)
    return True


def read_fsdp_details(details: ConfigFile, findings: Findings) -> None:
    """State sharding, recomputation and offloading of a ``fsdp_config``."""
    reshard = find_first(details, "reshard_after_forward", "fsdp_reshard_after_forward")
    strategy = find_first(details, "sharding_strategy", "fsdp_sharding_strategy")
    if strategy is not None and not strategy.why and is_open(findings, "plan.sharding"):
        if stage := _SHARDS.get(str(strategy.value).lower()):
            findings.state("plan.sharding", stage, strategy.line, strategy.text, file=strategy.file)
        if str(strategy.value).lower() in HYBRID:
            findings.options[HYBRID_OPTION] = "true"
    elif reshard is not None and is_open(findings, "plan.sharding") and parse_boolean(reshard.value) is not None:
        stage = "zero3" if parse_boolean(reshard.value) else "zero2"
        findings.state("plan.sharding", stage, reshard.line, reshard.text, file=reshard.file)
    again = find_first(details, "activation_checkpointing", "fsdp_activation_checkpointing")
    state_fsdp_checkpointing(findings, again)
    offload = find_first(details, "offload_params", "fsdp_offload_params")
    if offload is not None and parse_boolean(offload.value):
        findings.options |= {OPTIMIZER_OFFLOAD: "cpu", WEIGHTS_OFFLOAD: "cpu"}


def find_model_split(given: Mapping[str, object], config: ConfigFile) -> str:
    """Return the name of a setting that may split a model or a sequence, empty where there is none."""
    names = (*given, *config.names())
    return next((name for name in names[:1000] if PARALLEL.fullmatch(name.replace("-", "_")[:80])), "")


def find_first(config: ConfigFile, *names: str) -> Entry | None:
    """Return the first of several settings that is given and not null."""
    for name in names:
        entry = config.entry(name)
        if entry is not None and (entry.why or entry.value is not None):
            return entry
    return None


def _find_fsdp_config(config: ConfigFile, invocation: Invocation, reading: Reading) -> ConfigFile:
    """Return the details of FSDP: in the settings themselves, or in a JSON file that they name."""
    if config.under("fsdp_config").names():
        return config.under("fsdp_config")
    entry = config.entry("fsdp_config")
    if entry is None or entry.why or not isinstance(entry.value, str) or not entry.value.endswith(".json"):
        return ConfigFile(path="")
    return reading.config(literal(entry.value, entry.line), invocation, form="json")
