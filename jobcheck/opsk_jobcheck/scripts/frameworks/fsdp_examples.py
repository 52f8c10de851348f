"""Reads the training settings from a launch script of AWS's FSDP example, or of a program derived from it.

Source: ``awsome-distributed-training/3.test_cases/pytorch/FSDP/src`` (2023 to 2026, ``model_utils/arguments.py`` and
``train_utils.py``; FSDP1 first, FSDP2 from 2025 on) and the SageMaker model-parallel v2 examples, which add
``--tensor_parallel_degree`` and others. There is no gradient accumulation: a step is one batch on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import RECOMPUTE_WORDS, collect_flags, state_flags
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.statements import parse_boolean, state_data_parallel_only, state_derived, state_word

FSDP = "pytorch-fsdp"
_KNOWN_FLAGS = frozenset(
    {
        *("--max-context-width", "--hidden-width", "--num-heads", "--model-type", "--train-batch-size"),
        *("--val-batch-size", "--sharding-strategy", "--offload-activations", "--activation-checkpointing"),
        *("--num-key-value-heads", "--intermediate-size", "--llama-intermediate-size", "--limit-all-gathers"),
        *("--embd-pdrop", "--resid-pdrop", "--summary-first-pdrop", "--rotary-pct"),
    }
)
_NEEDED = ("--max-context-width", "--hidden-width")
_MIN_KNOWN_FLAGS = 4
_NUMBERS = MappingProxyType(
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
_SHARDING = MappingProxyType(
    {
        **dict.fromkeys(("full", "full_shard", "hybrid", "hybrid_shard"), "zero3"),
        **dict.fromkeys(("shard_grad_op", "hybrid_shard_zero2", "_hybrid_shard_zero2"), "zero2"),
        **dict.fromkeys(("no_shard", "no"), "none"),
    }
)
_MIXED = MappingProxyType({"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "fp8": "fp8"})
_LLAMA_LIKE = ("llama", "mistral", "mixtral", "qwen")


def recognise(invocation: Invocation) -> Match | None:
    """Return a command with the flags of the example, whatever its program is called."""
    arguments = arguments_of(invocation)
    matched = len(_KNOWN_FLAGS & arguments.flags.keys())
    if matched < _MIN_KNOWN_FLAGS or not any(flag in arguments.flags for flag in _NEEDED):
        return None
    return Match(framework=FSDP, weight=matched, invocation=invocation, arguments=arguments)


def read_fsdp_example(match: Match, reading: Reading) -> None:
    """State the values of the flags."""
    findings, given = reading.findings, collect_flags(match.arguments)
    state_flags(findings, given, _NUMBERS)
    _state_kind(given, findings)
    _state_plan(given, findings)
    findings.options[STEPS_OPTION] = "1"
    if any(flag in given for flag in _SMP_FLAGS):
        if "plan.tp" in findings.values:
            findings.state("plan.pp", 1, match.invocation.line, "SageMaker model parallelism v2 has no pipelines")
        return
    state_data_parallel_only(findings, "the FSDP example has data parallelism only", _find_line(given))


AWS_FSDP = Reader(frameworks=(FSDP,), recognise=recognise, read=read_fsdp_example)


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
    state_word(findings, "plan.sharding", given.get("sharding_strategy"), _SHARDING)
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
    state_word(findings, "plan.precision", given.get("mixed_precision"), _MIXED)
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
