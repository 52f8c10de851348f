"""Reads the training settings from a launch script of Megatron-LM, Megatron-DeepSpeed, Megatron-Bridge or BioNeMo.

Source of what BioNeMo's programs fix in Python: ``bionemo/esm2/model/model.py`` (``ESM2GenericConfig``),
``bionemo/geneformer/scripts/train_geneformer.py`` and ``bionemo/amplify/model.py`` of BioNeMo 2. Megatron Core's
``gated_linear_unit`` is off unless a model sets it: ESM-2 and Geneformer have plain MLPs with GELU, AMPLIFY has SwiGLU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from types import MappingProxyType

from opsk.frameworks.checkpoints import FORMAT, LOADED
from opsk.frameworks.settings.bridge_recipes import performance_precision
from opsk.frameworks.settings.megatron_flags import (
    BOOLEAN_OVERRIDES,
    BRIDGE_PRECISIONS,
    BRIDGE_SWITCHES,
    BRIDGE_VALUES,
    CONSTANTS,
    FSDP_FLAGS,
    FSDP_STRATEGY,
    LAST_WORDS,
    LISTS,
    NO_CHANGE,
    NUMBERS,
    ONE_VALUE,
    OPTION_OVERRIDES,
    OPTIONS,
    OVERRIDES,
    UNMODELLED,
    VALUELESS,
    VALUES,
    WORDS,
)
from opsk.workload.plan import Recompute, Sharding
from opsk.workload.workload import Problem
from opsk_jobcheck.scripts.bash.values import Invocation, Text
from opsk_jobcheck.scripts.frameworks.megatron.layout import read_layout
from opsk_jobcheck.scripts.frameworks.megatron.shape import read_hybrid, read_sequence, read_shape
from opsk_jobcheck.scripts.launchers.programs import SURE, find_program
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments, get_arguments, parse_arguments
from opsk_jobcheck.scripts.settings.deepspeed_config import FRACTION, PARTLY, read_deepspeed
from opsk_jobcheck.scripts.settings.findings import Findings, mark_all_unknown
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.uncounted_settings import report_uncounted

_LOADS = ("--load", "--pretrained-checkpoint")
_FORMATS = {"--use-dist-ckpt": "torch_dist", "--universal-checkpoint": "universal"}
"""Flags without a value, and the format of checkpoints with them."""
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8": "fp8", "uint8": "fp8"}
_NOTHING = ("null", "None", "")
_OF_NOTHING = {"model.experts": 0, "plan.vpp": 1}
"""What an override of Megatron-Bridge that is null states."""
LM, DEEPSPEED, BRIDGE = "megatron-lm", "megatron-deepspeed", "megatron-bridge"
_DEEPSPEED_FLAGS = ("--deepspeed", "--deepspeed-config", "--deepspeed-activation-checkpointing")
_MEGATRON_FLAGS = frozenset(
    {
        "--num-layers",
        "--hidden-size",
        "--num-attention-heads",
        "--tensor-model-parallel-size",
        "--pipeline-model-parallel-size",
        "--micro-batch-size",
        "--global-batch-size",
        "--seq-length",
        "--ffn-hidden-size",
        "--max-position-embeddings",
    }
)
_BRIDGE_OVERRIDES = frozenset(OVERRIDES) - {
    "model.seq_length",
    "model.hidden_size",
    "model.num_layers",
    "model.vocab_size",
}
_BRIDGE_PROGRAM = re.compile(r"(^|/)run_recipe\.py$|Megatron-Bridge/.*\.py$", re.IGNORECASE)
_PERFORMANCE_PROGRAM = re.compile(r"(^|/)scripts/performance/run_script\.py$")
_RECIPE = re.compile(r"([a-z0-9_.]+?)_(?:pretrain|finetune|sft|peft)(?:_\w+)?_config", re.IGNORECASE)
_PARTIAL = re.compile(r"(^|_)(peft|lora|dora)(_|$)", re.IGNORECASE)
RECIPE_FIELDS = (
    *(
        "model.layers",
        "model.hidden",
        "model.heads",
        "model.seq",
        "plan.tp",
        "plan.pp",
        "plan.cp",
        "plan.ep",
        "plan.vpp",
    ),
    *("plan.micro_batch", "plan.global_batch", "plan.sharding", "plan.recompute", "plan.precision"),
)
"""What a recipe decides where the command line does not."""
MAIN_GRADIENTS = "optimizer.main_grads"
"""The option that names the format in which gradients are kept."""
COMMAND, ALL_READ = "command", "all read"
"""The option that marks all flags of the command as known: any other flag is not given."""
MIN_MEGATRON_FLAGS = 3
"""Number of Megatron's flags that make a command a Megatron command, whatever its program."""
_COUNT = re.compile(r"[0-9]{1,9}")
BIONEMO = "bionemo"
_NAME = re.compile(r"esm2|geneformer|amplify")
_FIXED: Mapping[str, Mapping[str, bool | int]] = MappingProxyType(
    {
        "esm2": {
            "model.gated_mlp": False,
            "model.tied_embeddings": True,
            "model.learned_positions": False,
        },
        "geneformer": {"model.gated_mlp": False, "model.learned_positions": True},
        "amplify": {"model.gated_mlp": True, "model.learned_positions": False},
    }
)
"""Settings for which the program of each model has no flag."""
_TOKENIZER, _TOKENIZERS = "tokenizer.type", MappingProxyType({"esm2": "ESM-2's tokenizer"})
"""The size of the vocabulary is not stated; it is assumed by the name."""


def read_memory(match: Match, findings: Findings) -> None:
    """Copy the memory settings into options, which the completion reads."""
    flags, overrides = match.arguments.flags, match.arguments.overrides
    for name, option in VALUES.items():
        if (argument := flags.get(name)) is not None:
            _set_option(findings, option, name, argument)
    for name, option in LISTS.items():
        if (argument := flags.get(name)) is not None:
            _set_list_option(match, findings, option, name, argument)
    for name, why in UNMODELLED.items():
        if (argument := flags.get(name)) is not None and argument.value.known not in NO_CHANGE.get(name, ()):
            report_uncounted(findings, name, argument.value.known or "given", why)
    for name, option in BRIDGE_VALUES.items():
        if (argument := overrides.get(name)) is not None and argument.value.known not in _NOTHING:
            _set_option(findings, option, name, argument)
    if "--grad-reduce-in-bf16" in flags and flags["--grad-reduce-in-bf16"].certain:
        # the gradients' buffer has the format in which they are reduced, whatever --main-grads-dtype is
        findings.options[MAIN_GRADIENTS] = "bf16"
    for name, (option, on, off) in BRIDGE_SWITCHES.items():
        if (argument := overrides.get(name)) is not None and (argument.value.known or "").lower() in ("true", "false"):
            findings.options[option] = on if (argument.value.known or "").lower() == "true" else off
    _state_bridge_precision(match, findings)


def shorten_format(text: str) -> str:
    """Return a number format as flags write it: ``bf16`` for ``torch.bfloat16``."""
    name = text.strip().removeprefix("torch.")
    return _SHORT.get(name, name)


def _set_option(findings: Findings, option: str, name: str, argument: Argument) -> None:
    """Set an option from one value; an unknown value is reported instead."""
    known = argument.value.known
    if known is None and option == FRACTION:
        findings.options[PARTLY] = "true"
    elif known is None:
        report_uncounted(findings, name, "unknown", f"its value is unknown: {argument.value.why}"[:200])
    elif known:
        findings.options[option] = shorten_format(known)[:80]


def _set_list_option(match: Match, findings: Findings, option: str, name: str, argument: Argument) -> None:
    """Set an option from the words after a flag, up to the next one."""
    words = [argument.value]
    following = match.invocation.words[argument.word_index + 1 : argument.word_index + 33]
    if following and following[0] is argument.value:
        words = list(takewhile(lambda word: not (word.known or "").startswith("-"), following))
    known = [word.known for word in words if word.known is not None]
    if len(known) < len(words) or not argument.certain:
        why = next((word.why for word in words if word.known is None), argument.value.why)
        report_uncounted(findings, name, "unknown", f"its words cannot be told: {why}"[:200])
    else:
        findings.options[option] = " ".join(known)[:200]


def _state_bridge_precision(match: Match, findings: Findings) -> None:
    """State the number format of a recipe of Megatron-Bridge's ``mixed_precision``."""
    words = (word for word in match.invocation.words if (word.known or "").startswith("mixed_precision="))
    word = next(words, None)
    if word is None:
        return
    precision = BRIDGE_PRECISIONS.get((word.known or "").partition("=")[2])
    if precision is None:
        findings.mark_unknown("plan.precision", f"{(word.known or '')[:80]} is no recipe that opsk knows", word.line)
        return
    findings.state("plan.precision", precision[0], word.line, (word.known or "")[:80])
    if precision[1]:
        findings.options.setdefault("fp8.params", precision[1])


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with a member of the family, or ``None``."""
    framework, weight = _recognise(get_arguments(invocation))
    if not framework and _runs_recipe(invocation):
        framework, weight = BRIDGE, SURE
    if not framework:
        return None
    arguments = get_arguments(invocation)
    if any(arguments.flags[flag].value.parts for flag in VALUELESS & arguments.flags.keys()):
        arguments = parse_arguments(invocation.words, valueless=VALUELESS)
    return Match(framework=framework, weight=weight, invocation=invocation, arguments=arguments)


def read_megatron(match: Match, reading: Reading) -> None:
    """State the values of the flags, the overrides and the DeepSpeed configuration."""
    framework, arguments, findings = match.framework, match.arguments, reading.findings
    for argument in sorted(arguments.flags.values(), key=lambda entry: LAST_WORDS.get(entry.flag, 0)):
        if argument.flag != FSDP_STRATEGY or any(flag in arguments.flags for flag in FSDP_FLAGS):
            _state_flag(argument, findings)
    for argument in arguments.overrides.values():
        _state_override(argument, findings)
    _check_query_groups(arguments, findings)
    _check_experts_by_layer(match, findings)
    _state_shared_experts(findings)
    read_memory(match, findings)
    _read_checkpoint(arguments, findings)
    read_shape(arguments, findings)
    read_hybrid(arguments, findings)
    read_sequence(match, findings)
    read_layout(arguments, findings)
    config = arguments.flags.get("--deepspeed-config") if framework == DEEPSPEED else None
    if config:
        read_deepspeed(reading.config(config.value, match.invocation, form="json"), findings)
    if arguments.opaque:
        _mark_hidden(arguments.opaque[0], findings)
    if framework == BRIDGE:
        _state_recipe(match, reading)
    if _is_all_read(arguments):
        findings.options[COMMAND] = ALL_READ


def _read_checkpoint(arguments: Arguments, findings: Findings) -> None:
    """Set the checkpoint that is loaded, and its format where that is stated."""
    flags = arguments.flags
    loaded = next((flags[name] for name in _LOADS if name in flags), None)
    if loaded is None:
        return
    findings.options[LOADED] = loaded.shown[:80]
    if "--ckpt-format" in flags:
        findings.options[FORMAT] = (flags["--ckpt-format"].value.known or "")[:20]
    elif name := next((name for name in _FORMATS if name in flags), ""):
        findings.options[FORMAT] = _FORMATS[name]


MEGATRON = Reader(frameworks=(LM, DEEPSPEED, BRIDGE), recognise=recognise, read=read_megatron)


def _runs_recipe(invocation: Invocation) -> bool:
    """Return whether a command runs a recipe of Megatron-Bridge."""
    program = find_program(invocation)
    return program is not None and _BRIDGE_PROGRAM.search(program.name) is not None


def _state_recipe(match: Match, reading: Reading) -> None:
    """Report that a recipe in Python decides what the command line does not, and name the model that it trains."""
    flag = match.arguments.flags.get("--recipe")
    recipe = flag.value.known if flag else None
    if recipe and (named := _RECIPE.fullmatch(recipe)) and reading.findings.get("model.layers") is None:
        reading.model_name = named[1]
    if not _sets_precision(match.invocation):
        _state_performance_recipe(match, recipe or "", reading.findings)
    if (recipe and _PARTIAL.search(recipe)) or "--peft-scheme" in match.arguments.flags:
        reading.findings.options["trainable"] = f"unknown: {(recipe or 'the recipe')[:60]} may train adapters only"
    why = f"the recipe {recipe[:60]} decides it, in Python" if recipe else "a recipe in Python decides it"
    mark_all_unknown(reading.findings, RECIPE_FIELDS, why, match.invocation.line)


def _state_performance_recipe(match: Match, recipe: str, findings: Findings) -> None:
    """State the formats of a performance recipe, by its name or by the launcher of these."""
    precision = performance_precision(recipe)
    if precision is not None and "plan.precision" not in findings.values:
        findings.state("plan.precision", precision, match.invocation.line, recipe)
    program = find_program(match.invocation)
    is_launcher = program is not None and _PERFORMANCE_PROGRAM.search(program.name) is not None
    if precision is not None or (is_launcher and "--use-recipes" not in match.arguments.flags):
        findings.options.setdefault(MAIN_GRADIENTS, "bf16")


def _sets_precision(invocation: Invocation) -> bool:
    """Return whether the command line replaces the formats of a recipe; those of ``mixed_precision`` reduce in fp32."""
    return any((word.known or "").startswith("mixed_precision=") for word in invocation.words)


def _is_all_read(arguments: Arguments) -> bool:
    """Return whether no unknown word can be a flag: each is the value of a flag that takes one."""
    values = [arguments.flags[flag].value for flag in ONE_VALUE if flag in arguments.flags]
    return all(any(word is value for value in values) for word in arguments.opaque)


def _recognise(arguments: Arguments) -> tuple[str, int]:
    """Return which member of the family a command belongs to, and how much it states; an empty name for none."""
    overrides = len(_BRIDGE_OVERRIDES & arguments.overrides.keys())
    if overrides >= 2:
        return BRIDGE, overrides
    # argparse knows Megatron's flags by their dashes alone; with underscores they are some other program's
    names = [flag for flag in _MEGATRON_FLAGS & arguments.flags.keys() if "_" not in arguments.flags[flag].written]
    matched = len(names)
    if matched < MIN_MEGATRON_FLAGS:
        return "", 0
    is_deepspeed = any(flag in arguments.flags and arguments.flags[flag].certain for flag in _DEEPSPEED_FLAGS)
    return (DEEPSPEED if is_deepspeed else LM), matched


def _state_flag(argument: Argument, findings: Findings) -> None:
    """State the value of one flag."""
    name, known = argument.flag, argument.value.known
    if name in OPTIONS and known:
        findings.options[OPTIONS[name]] = known[:80]
    if name in NUMBERS:
        if argument.value.parts:
            findings.state_number(NUMBERS[name], argument.value, argument.line, argument.shown)
        else:
            findings.mark_unknown(NUMBERS[name], f"{name} has no value", argument.line)
    elif name in CONSTANTS:
        for field, value in CONSTANTS[name].items():
            if not argument.certain:
                if not field.startswith("option."):
                    findings.mark_unknown(field, argument.value.why, argument.line)
            elif field.startswith("option."):
                findings.options[field.removeprefix("option.")] = str(value)
            else:
                findings.state(field, value, argument.line, argument.flag)
    elif name in WORDS:
        _state_word(argument, findings)


def _state_word(argument: Argument, findings: Findings) -> None:
    """State the value of a flag that takes one of a few words."""
    field, values = WORDS[argument.flag]
    known = argument.value.known
    if known is None:
        findings.mark_unknown(field, argument.value.why, argument.line)
    elif known in values:
        findings.state(field, values[known], argument.line, argument.shown)
    else:
        findings.mark_unknown(field, f"{argument.shown[:80]} is no value that it takes", argument.line)


def _state_override(argument: Argument, findings: Findings) -> None:
    """State the value of one Megatron-Bridge override."""
    shown = f"{argument.flag}={argument.value.shown}"
    if argument.flag in OPTION_OVERRIDES and (known := argument.value.known) not in (None, "null", "None"):
        findings.options[OPTION_OVERRIDES[argument.flag]] = known.lower()[:80]
    if argument.flag in OVERRIDES:
        if argument.value.known in ("null", "None"):
            if (field := OVERRIDES[argument.flag]) in _OF_NOTHING:
                findings.state(field, _OF_NOTHING[field], argument.line, shown)
        else:
            findings.state_number(OVERRIDES[argument.flag], argument.value, argument.line, shown)
    elif argument.flag in BOOLEAN_OVERRIDES and (known := (argument.value.known or "").lower()) in ("true", "false"):
        findings.state(BOOLEAN_OVERRIDES[argument.flag], known == "true", argument.line, shown)
    elif argument.flag == "ddp.use_distributed_optimizer" and (argument.value.known or "").lower() == "true":
        findings.state("plan.sharding", Sharding.ZERO1, argument.line, shown)
    elif argument.flag == "model.recompute_granularity" and argument.value.known in ("full", "selective"):
        findings.state("plan.recompute", argument.value.known, argument.line, shown)
    elif argument.flag == "model.recompute_granularity" and argument.value.known in ("null", "None"):
        findings.state("plan.recompute", Recompute.NONE.value, argument.line, shown)


def _check_query_groups(arguments: Arguments, findings: Findings) -> None:
    """Megatron-LM reads ``--num-query-groups`` only together with ``--group-query-attention``."""
    flags = arguments.flags
    if "--num-query-groups" in flags and "--group-query-attention" not in flags:
        argument = flags["--num-query-groups"]
        if not _is_all_read(arguments):
            why = f"--group-query-attention may be among words that cannot be told: {arguments.opaque[0].why}"
            findings.mark_unknown("model.kv_heads", why, argument.line)
            return
        findings.mark_unknown(
            "model.kv_heads", "--group-query-attention is not given, so it has no effect", argument.line
        )
        findings.problems.append(
            Problem(
                what=f"{argument.shown} has no effect without --group-query-attention",
                file=findings.locate(argument.line)[0],
                line=findings.locate(argument.line)[1],
                hint="add --group-query-attention",
            )
        )


def _check_experts_by_layer(match: Match, findings: Findings) -> None:
    """Megatron-DeepSpeed takes several numbers of experts, one for each of its layers that have any."""
    argument, words = match.arguments.flags.get("--num-experts"), match.invocation.known_words
    if argument is not None and _COUNT.fullmatch("".join(words[argument.word_index + 2 : argument.word_index + 3])):
        why = f"{argument.flag} has a number for each layer with experts"
        findings.mark_unknown("model.experts", why, argument.line)


def _state_shared_experts(findings: Findings) -> None:
    """State the number of shared experts where its width is a multiple of one expert's."""
    shared_ffn, expert_ffn = findings.options.get("moe.shared_expert_ffn", ""), findings.get("model.expert_ffn")
    experts = findings.get("model.experts")
    if experts == 1:
        findings.values.pop("model.experts")
        findings.evidence.pop("model.experts", None)
    if _COUNT.fullmatch(shared_ffn) and expert_ffn and int(shared_ffn) % expert_ffn == 0:
        file, line = findings.find_source("model.expert_ffn")
        findings.state(
            "model.shared_experts", int(shared_ffn) // expert_ffn, line, f"{shared_ffn} / {expert_ffn}", file=file
        )


def _mark_hidden(opaque: Text, findings: Findings) -> None:
    """Mark unstated fields as unknown where they may be in unknown words."""
    for name in ("model.layers", "model.hidden", "model.heads", "model.seq", "plan.micro_batch"):
        if name not in findings.values and name not in findings.unknown:
            findings.mark_unknown(name, f"it may be among words that cannot be told: {opaque.why}", opaque.line)


def recognise_bionemo(invocation: Invocation) -> Match | None:
    """Return a command that trains with one of BioNeMo's programs, whose flags are those of Megatron."""
    program = find_program(invocation)
    if program is None or BIONEMO not in program.name.lower():
        return None
    match = recognise(invocation)
    if match is None or match.framework != LM:
        return None
    return replace(match, framework=BIONEMO, weight=match.weight + 1)


def read_bionemo(match: Match, reading: Reading) -> None:
    """State the values of the flags, and those that the program fixes."""
    read_megatron(match, reading)
    program = find_program(match.invocation)
    if program is not None and (named := _NAME.search(program.file.lower())):
        _state_fixed(named[0], program.file, match.invocation.line, reading.findings)


BIONEMO_READER = Reader(frameworks=(BIONEMO,), recognise=recognise_bionemo, read=read_bionemo)


def _state_fixed(name: str, file: str, line: int, findings: Findings) -> None:
    """State the values that one program fixes."""
    for field, value in _FIXED[name].items():
        findings.state(field, value, line, f"{file[:80]} has it so")
    if name in _TOKENIZERS:
        findings.options.setdefault(_TOKENIZER, _TOKENIZERS[name])
