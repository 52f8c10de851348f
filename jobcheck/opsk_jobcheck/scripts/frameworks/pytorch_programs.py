"""Reads launch scripts of plain PyTorch programs, whose ranks hold a replica of the model, or a shard of one.

Sources: AWS's FSDP example (``awsome-distributed-training/3.test_cases/pytorch/FSDP/src``, 2023 to 2026,
``model_utils/arguments.py`` and ``train_utils.py``) and the SageMaker model-parallel v2 examples, which add
``--tensor_parallel_degree`` and others; IBM's fms-fsdp (``fms_fsdp/config/training.py`` and ``utils/config_utils.py``,
2024 to 2026); Meta's llama-cookbook, formerly llama-recipes (``llama_recipes/configs/training.py``,
``configs/fsdp.py`` and ``finetuning.py``, 2023 to 2025). ``fire`` parses the flags of the last two: ``--key value``,
``--key=value``, a bare ``--key`` for yes. The first two have no gradient accumulation: a step is one batch on every
rank. The model of any other program is unknown, but its name (``train_ddp.py``, those of PyTorch's DDP tutorial) or a
flag (``--strategy ddp``, ``--multiprocessing-distributed``) may state what a rank holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from opsk.frameworks.settings.pytorch_programs import (
    COOKBOOK_BATCH,
    FMS_NUMBERS,
    FMS_PART,
    FMS_SHARDING,
    FSDP_RECOMPUTE,
    FSDP_SECTION,
    STEPS,
    STRATEGY,
)
from opsk.frameworks.settings.usual_settings import FSDP_WORDS, PRECISION_WORDS, STRATEGY_WORDS
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import name_model
from opsk_jobcheck.scripts.launchers.programs import (
    RECOMPUTE_WORDS,
    SHAPE,
    SURE,
    collect_flags,
    find_program,
    list_flag_names,
    name_shape,
    parse_program_flags,
    parse_settings,
    state_flags,
)
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    mark_all_unknown,
    parse_boolean,
    parse_integer,
    state_data_parallel_only,
    state_derived,
    state_number,
    state_word,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

DDP, FSDP = "pytorch-ddp", "pytorch-fsdp"
_AWS_FLAGS = frozenset(
    {
        *("--max-context-width", "--hidden-width", "--num-heads", "--model-type", "--train-batch-size"),
        *("--val-batch-size", "--sharding-strategy", "--offload-activations", "--activation-checkpointing"),
        *("--num-key-value-heads", "--intermediate-size", "--llama-intermediate-size", "--limit-all-gathers"),
        *("--embd-pdrop", "--resid-pdrop", "--summary-first-pdrop", "--rotary-pct"),
    }
)
_AWS_NEEDED = ("--max-context-width", "--hidden-width")
_MIN_AWS_FLAGS = 4
_AWS_NUMBERS = MappingProxyType(
    {
        "max_context_width": "model.seq",
        "hidden_width": "model.hidden",
        "num_layers": "model.layers",
        "num_heads": "model.heads",
        "num_key_value_heads": "model.kv_heads",
        "llama_intermediate_size": "model.ffn",
        "intermediate_size": "model.ffn",
        "vocab_size": "model.vocab",
        "num_experts": "model.experts",
        "train_batch_size": "plan.micro_batch",
        "tensor_parallel_degree": "plan.tp",
        "expert_parallel_degree": "plan.ep",
        "context_parallel_degree": "plan.cp",
    }
)
_SMP_FLAGS = (
    *("tensor_parallel_degree", "hybrid_shard_degree", "expert_parallel_degree", "context_parallel_degree"),
    *("use_smp_implementation", "use_smp_flash_attn", "smp_config", "moe", "smp_v2"),
)
"""With one of these it is SageMaker's model parallelism, which has no pipelines, but tensors to split."""
_LLAMA_LIKE = ("llama", "mistral", "mixtral", "qwen")
COOKBOOK = "llama-cookbook"
_COOKBOOK_MODULE = re.compile(r"(llama_recipes|llama_cookbook)\.finetuning")
_COOKBOOK_FLAGS = frozenset(
    {
        *("--enable-fsdp", "--batch-size-training", "--use-peft", "--peft-method", "--low-cpu-fsdp"),
        *("--batching-strategy", "--dist-checkpoint-root-folder", "--dist-checkpoint-folder", "--pure-bf16"),
        *("--use-fast-kernels", "--fsdp-config.pure-bf16", "--fsdp-config.sharding-strategy", "--val-batch-size"),
        *("--fsdp-config.fsdp-activation-checkpointing", "--save-optimizer", "--freeze-layers", "--context-length"),
    }
)
_MIN_COOKBOOK_FLAGS = 2
_COOKBOOK_FORMATS = (("pure_bf16", "bf16"), ("use_fp16", "fp16"))
FMS = "fms-fsdp"
_FMS_PROGRAM = re.compile(r"main_training(_llama|_mamba)?(\.py)?")
_FMS_PLAIN = "main_training.py"
_FMS_FLAGS = frozenset({"--model-variant", "--sharding-strategy", "--fsdp-activation-checkpointing", "--low-cpu-fsdp"})
_FMS_VARIANT = re.compile(r"llama([23])_(7b|8b|13b|70b)(_4k)?")
_NAMES = MappingProxyType(
    {
        DDP: re.compile(r"(.*[_-])?ddp([_-].*)?\.py|multi(gpu|node)_torchrun\.py", re.IGNORECASE),
        FSDP: re.compile(r"T5_training\.py"),
    }
)
_STRATEGIES = MappingProxyType(
    {
        **dict.fromkeys(("ddp", "ddp_find_unused_parameters_true", "ddp_spawn"), DDP),
        **dict.fromkeys(("fsdp", "fsdp2"), FSDP),
    }
)
_STRATEGY_FLAGS = ("strategy", "trainer.strategy", "distributed_strategy")
_IMAGENET = "multiprocessing_distributed"
_OTHERS = ("tensor", "pipeline", "deepspeed", "model_parallel", "context_parallel", "tp_", "pp_")
"""Prefixes of flags of other kinds of parallelism: with one of them nothing is stated."""


def recognise_aws_fsdp(invocation: Invocation) -> Match | None:
    """Return a command with the flags of the example, whatever its program is called."""
    arguments = get_arguments(invocation)
    matched = len(_AWS_FLAGS & arguments.flags.keys())
    if matched < _MIN_AWS_FLAGS or not any(flag in arguments.flags for flag in _AWS_NEEDED):
        return None
    return Match(framework=FSDP, weight=matched, invocation=invocation, arguments=arguments)


def read_fsdp_example(match: Match, reading: Reading) -> None:
    """State the values of the flags."""
    findings, given = reading.findings, collect_flags(match.arguments)
    state_flags(findings, given, _AWS_NUMBERS)
    _state_kind(given, findings)
    _state_plan(given, findings)
    findings.options[STEPS_OPTION] = "1"
    if any(flag in given for flag in _SMP_FLAGS):
        if "plan.tp" in findings.values:
            findings.state("plan.pp", 1, match.invocation.line, "SageMaker model parallelism v2 has no pipelines")
        return
    state_data_parallel_only(findings, "the FSDP example has data parallelism only", _find_line(given))


AWS_FSDP = Reader(frameworks=(FSDP,), recognise=recognise_aws_fsdp, read=read_fsdp_example)


def _state_kind(given: Mapping[str, Entry], findings: Findings) -> None:
    """State the values that the kind of model fixes."""
    entry = given.get("model_type")
    kind = str(entry.value).lower() if entry is not None and not entry.why else ""
    if entry is None or not kind:
        return
    line, text = entry.line, entry.text
    if "gpt_neox" in kind:
        # this kind takes no width: --intermediate_size is read for the others only
        findings.values.pop("model.ffn", None)
        findings.evidence.pop("model.ffn", None)
        findings.state("model.gated_mlp", False, line, text)
        if hidden := findings.get("model.hidden"):
            state_derived(findings, "model.ffn", 4 * hidden, f"{text}: 4 × hidden {hidden}", "model.hidden")
    elif any(name in kind for name in _LLAMA_LIKE):
        findings.state("model.gated_mlp", True, line, text)
    if "mixtral" in kind and "num_experts" not in given:
        findings.state("model.experts", 8, line, text)
        findings.state("model.top_k", 2, line, text)
        if width := findings.get("model.ffn"):
            state_derived(findings, "model.expert_ffn", width, f"{text}: every expert is {width} wide", "model.ffn")


def _state_plan(given: Mapping[str, Entry], findings: Findings) -> None:
    """State sharding, recomputation and number format."""
    state_word(findings, "plan.sharding", given.get("sharding_strategy"), FSDP_WORDS)
    state_word(findings, "plan.recompute", given.get("activation_checkpointing"), RECOMPUTE_WORDS)
    for name, precision in (("bf16", "bf16"), ("fp16", "fp16"), ("fp8", "fp8")):
        entry = given.get(name)
        if entry is None:
            continue
        switch = None if entry.why else parse_boolean(entry.value)
        if switch is None:
            findings.mark_unknown("plan.precision", entry.why or f"{entry.text[:80]} is neither 0 nor 1", entry.line)
        elif switch:
            findings.state("plan.precision", precision, entry.line, entry.text)
        elif name == "bf16" and "fp16" not in given:
            findings.state("plan.precision", "fp32", entry.line, entry.text)
    state_word(findings, "plan.precision", given.get("mixed_precision"), PRECISION_WORDS)
    offload_activations = given.get("offload_activations")
    if offload_activations is not None and not offload_activations.why and parse_boolean(offload_activations.value):
        findings.options["activations.offload"] = "cpu"
    offload = given.get("cpu_offload")
    if offload is not None and not offload.why and parse_boolean(offload.value):
        findings.options["optimizer.offload"] = "cpu"


def _find_line(given: Mapping[str, Entry]) -> int:
    """Return the line of the flag that says most about the plan."""
    entry = given.get("sharding_strategy") or given.get("train_batch_size") or next(iter(given.values()))
    return entry.line


def recognise_llama_cookbook(invocation: Invocation) -> Match | None:
    """Return a command that trains with the cookbook: by its module, or by flags that only it has."""
    program = find_program(invocation)
    if program is None:
        return None
    arguments = get_arguments(invocation)
    matched = len(_COOKBOOK_FLAGS & arguments.flags.keys())
    is_sure = program.is_module and _COOKBOOK_MODULE.fullmatch(program.name)
    if not is_sure and (matched < _MIN_COOKBOOK_FLAGS or "finetun" not in program.file):
        return None
    return Match(
        framework=COOKBOOK, weight=matched + (SURE if is_sure else 0), invocation=invocation, arguments=arguments
    )


def read_llama_cookbook(match: Match, reading: Reading) -> None:
    """State the values of the flags."""
    findings, given = reading.findings, collect_flags(match.arguments)
    _state_batch(given, findings)
    state_number(findings, "model.seq", given.get("context_length"))
    state_word(findings, "plan.sharding", _find_fsdp_setting(given, STRATEGY), STRATEGY_WORDS)
    recompute = _find_fsdp_setting(given, FSDP_RECOMPUTE)
    state_word(findings, "plan.recompute", recompute, RECOMPUTE_WORDS)
    for name, precision in _COOKBOOK_FORMATS:
        entry = _find_fsdp_setting(given, name)
        if entry is not None and entry.why:
            findings.mark_unknown("plan.precision", entry.why, entry.line)
        elif entry is not None and parse_boolean(entry.value):
            findings.state("plan.precision", precision, entry.line, entry.text)
    fsdp = given.get("enable_fsdp")
    if fsdp is not None and not fsdp.why and parse_boolean(fsdp.value):
        state_data_parallel_only(findings, f"{fsdp.text}: data parallelism only", fsdp.line)
    model = given.get("model_name")
    if model is not None and model.value:
        name_model(model, match.invocation, reading)
    else:
        why = "the model's shape is in its checkpoint, which opsk has not read"
        name_shape(reading, None, why=why, line=match.invocation.line)


LLAMA_COOKBOOK = Reader(frameworks=(COOKBOOK,), recognise=recognise_llama_cookbook, read=read_llama_cookbook)


def _find_fsdp_setting(given: Mapping[str, Entry], name: str) -> Entry | None:
    """Return a setting of the FSDP part, which is also taken without its name before it."""
    return given.get(f"{FSDP_SECTION}.{name}") or given.get(name)


def _state_batch(given: Mapping[str, Entry], findings: Findings) -> None:
    """State the micro-batch and the steps; releases of 2023 divide the batch into micro-batches themselves."""
    micro, steps = given.get("micro_batch_size"), given.get(STEPS)
    batch = state_number(findings, "plan.micro_batch", given.get(COOKBOOK_BATCH))
    if micro is not None:
        size = state_number(findings, "plan.micro_batch", micro)
        if size and batch and batch % size == 0:
            findings.options[STEPS_OPTION] = str(batch // size)
    elif steps is not None and not steps.why and (count := parse_integer(steps.value)):
        findings.options[STEPS_OPTION] = str(count)
    elif steps is not None:
        findings.mark_unknown("plan.global_batch", steps.why or f"{steps.text[:80]} is no number", steps.line)


def recognise_fms_fsdp(invocation: Invocation) -> Match | None:
    """Return a command that trains with fms-fsdp."""
    program = find_program(invocation)
    if program is None or not _FMS_PROGRAM.fullmatch(program.file):
        return None
    arguments = get_arguments(invocation)
    matched = len(_FMS_FLAGS & arguments.flags.keys())
    if program.file == _FMS_PLAIN and not matched and "fms" not in program.name:
        return None
    return Match(framework=FMS, weight=SURE + matched, invocation=invocation, arguments=arguments)


def read_fms_fsdp(match: Match, reading: Reading) -> None:
    """State the values of the flags."""
    program, findings = find_program(match.invocation), reading.findings
    given = parse_settings(program.words if program else ())
    state_flags(findings, given, FMS_NUMBERS)
    state_word(findings, "plan.sharding", given.get(STRATEGY), FMS_SHARDING)
    _state_copies(given, findings)
    _state_recompute(given, findings)
    state_data_parallel_only(findings, "fms-fsdp has data parallelism only", match.invocation.line)
    findings.options[STEPS_OPTION] = "1"
    name, variant = None, given.get("model_variant")
    if variant is not None and not variant.why and (known := _FMS_VARIANT.fullmatch(str(variant.value))):
        name = f"llama-{known[1]}-{known[2]}"
    why = "fms-fsdp takes the shape from --model_variant, in Python"
    name_shape(reading, name, why=why, line=match.invocation.line)


FMS_FSDP = Reader(frameworks=(FMS,), recognise=recognise_fms_fsdp, read=read_fms_fsdp)


def _state_copies(given: Mapping[str, Entry], findings: Findings) -> None:
    """Take over that HSDP shards within nodes."""
    entry, nodes = given.get("sharding_strategy"), findings.get("plan.nodes")
    if entry is not None and entry.value == "hsdp" and nodes and nodes > 1:
        findings.options["optimizer.instances"] = str(nodes)


def _state_recompute(given: Mapping[str, Entry], findings: Findings) -> None:
    """State recomputation, where it is of all layers or of none."""
    entry, part = given.get(FSDP_RECOMPUTE), given.get(FMS_PART)
    switch = parse_boolean(entry.value) if entry is not None and not entry.why else None
    if entry is None or (switch is None and not entry.why):
        return
    if switch is None or (switch and part is not None and part.value not in ("1", "1.0")):
        why = entry.why or "a part of the layers is recomputed"
        findings.mark_unknown("plan.recompute", why, entry.line)
    else:
        findings.state("plan.recompute", "full" if switch else "none", entry.line, entry.text)


def recognise_pytorch(invocation: Invocation) -> Match | None:
    """Return a command whose program or flags state that ranks are data-parallel only."""
    program = find_program(invocation)
    if program is None or program.is_module:
        return None
    names = list_flag_names(program)
    if any(name.rpartition(".")[2].startswith(_OTHERS) or name in ("tp", "pp", "cp") for name in names):
        return None
    given = parse_program_flags(program) if not names.isdisjoint((*_STRATEGY_FLAGS, _IMAGENET)) else {}
    by_name = next((name for name, pattern in _NAMES.items() if pattern.fullmatch(program.file)), None)
    chosen = next((given[name] for name in _STRATEGY_FLAGS if name in given), None)
    by_flag = _STRATEGIES.get(str(chosen.value).lower()) if chosen is not None and not chosen.why else None
    switch = given.get(_IMAGENET)
    if switch is not None and not switch.why and parse_boolean(switch.value):
        by_flag = by_flag or DDP
    if chosen is not None and by_flag is None:
        return None
    framework = by_flag or by_name
    if framework is None:
        return None
    return Match(framework=framework, weight=1, invocation=invocation, arguments=get_arguments(invocation))


def read_pytorch(match: Match, reading: Reading) -> None:
    """State that ranks share only data."""
    findings, line = reading.findings, match.invocation.line
    program = find_program(match.invocation)
    text = f"{program.file[:60] if program else 'the program'}: {match.framework}"
    state_data_parallel_only(findings, text, line)
    if match.framework == DDP:
        findings.state("plan.sharding", "none", line, text)
    why = "the program and its model are in Python"
    mark_all_unknown(findings, (*SHAPE, "model.seq", "plan.micro_batch"), why, line)


PYTORCH = Reader(frameworks=(DDP, FSDP), recognise=recognise_pytorch, read=read_pytorch)
