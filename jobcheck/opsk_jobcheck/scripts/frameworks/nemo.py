"""Reads the training settings from a launch script of NVIDIA NeMo 1 (Hydra) or NeMo 2 (recipes).

NeMo 1 (``examples/nlp/language_modeling/megatron_gpt_*.py``, up to 24.12) reads a YAML file that ``--config-path`` and
``--config-name`` name; ``key=value`` overrides it. NeMo 2 (``nemo llm pretrain --factory llama3_8b``, from 24.07) takes
all that is not on its command line from a recipe in Python; these settings are unknown. Source:
``conf/megatron_gpt_config.yaml`` of NeMo 1.23, ``nemo/lightning/pytorch/strategies/megatron_strategy.py`` of NeMo 2.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from types import MappingProxyType

from opsk.frameworks.settings.nemo import (
    END_STAGE_OPTIONS,
    NUMBERS,
    NUMBERS_2,
    OPTIMIZER,
    RECOMPUTE,
    RECOMPUTE_LAYERS,
    RECOMPUTE_METHOD,
    SEQUENCE_PARALLEL,
    SEQUENCE_PARALLEL_2,
    SHARDED,
)
from opsk.frameworks.settings.usual_settings import PRECISION_WORDS
from opsk_jobcheck.scripts.bash.values import Invocation, literal
from opsk_jobcheck.scripts.frameworks.megatron.layout import read_layout
from opsk_jobcheck.scripts.frameworks.python.recipes import state_recipe
from opsk_jobcheck.scripts.launchers.programs import SURE, find_command, find_program, parse_assignments
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import Findings, mark_all_unknown, state_number, state_truth, state_word
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.uncounted_settings import UNCOUNTED_NEMO, report_uncounted_settings

NEMO = "nemo"
PLAN_FIELDS = tuple(
    f"plan.{name}"
    for name in ("tp", "pp", "cp", "ep", "vpp", "micro_batch", "global_batch", "sharding", "recompute", "precision")
)
"""What a recipe or a configuration file decides where the command line does not."""
SHAPE_FIELDS = ("model.layers", "model.hidden", "model.heads", "model.seq")
_PROGRAM = re.compile(r"(megatron_\w+_(pretraining|continue_training|finetuning|sft|tuning)|train_gpt_\w+)\.py")
_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        RECOMPUTE_METHOD: "recompute.method",
        RECOMPUTE_LAYERS: "recompute.layers",
        "model.fp8_params": "fp8.params",
        "model.cpu_offloading_num_layers": "offload.layers",
        "model.expert_tensor_parallel_size": "expert.tensor",
        **END_STAGE_OPTIONS,
    }
)
_RECOMPUTE: Mapping[str, object] = MappingProxyType({"full": "full", "selective": "selective", "none": "none"})
_STARTED = ("trainer.devices", "trainer.num_nodes", "exp_manager.")
"""Overrides that every program of NeMo 1 takes besides its model's settings."""
_ITS_OWN = tuple(
    f"model.{name}"
    for name in (
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size", "global_batch_size"),
        *("encoder_seq_length", "num_query_groups", "num_moe_experts"),
    )
)
"""Overrides that other programs configured by Hydra do not have."""
_NOTHING = ("none", "null", "")
_FACTORY = re.compile(r"([A-Za-z]\w*)(?:\((.*)\))?", re.DOTALL)


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with NeMo."""
    program = find_program(invocation)
    arguments = get_arguments(invocation)
    matched = len((NUMBERS.keys() | NUMBERS_2.keys()) & arguments.overrides.keys())
    if program and not program.is_module and _PROGRAM.fullmatch(program.file):
        return Match(framework=NEMO, weight=SURE + 1 + matched, invocation=invocation, arguments=arguments)
    is_started = any(name.startswith(_STARTED) for name in arguments.overrides) and any(
        name in arguments.overrides for name in _ITS_OWN
    )
    if program and not program.is_module and is_started and len(NUMBERS.keys() & arguments.overrides.keys()) >= 2:
        return Match(framework=NEMO, weight=SURE + 1 + matched, invocation=invocation, arguments=arguments)
    command = find_command(invocation, "nemo", "nemorun")
    if command and "llm" in [word.known for word in command.words[:4]]:
        return Match(framework=NEMO, weight=SURE + 1 + matched, invocation=invocation, arguments=arguments)
    return None


def read_nemo(match: Match, reading: Reading) -> None:
    """State the values of the command line, and of its file where there is one."""
    command = find_command(match.invocation, "nemo", "nemorun")
    if command is None or "llm" not in [word.known for word in command.words[:4]]:
        _read_hydra(match, reading)
    else:
        _read_recipe(match, reading)


NEMO_READER = Reader(frameworks=(NEMO,), recognise=recognise, read=read_nemo)


def _read_hydra(match: Match, reading: Reading) -> None:
    """State the values of NeMo 1's file and its overrides."""
    findings = reading.findings
    config = _read_hydra_config(match, reading)
    for key, field in NUMBERS.items():
        entry = config.entry(key)
        minimum = 0 if field == "model.experts" else 1
        if not (field == "model.ffn" and entry is not None and _is_computed(entry)):
            state_number(findings, field, entry, minimum=minimum)
    if not findings.get("model.seq"):
        state_number(findings, "model.seq", config.entry("model.data.seq_length"))
    state_truth(findings, "plan.sequence_parallel", config.entry(SEQUENCE_PARALLEL))
    _state_precision(findings, config.entry("trainer.precision"))
    state_word(findings, "plan.recompute", config.entry(RECOMPUTE), _RECOMPUTE)
    report_uncounted_settings(config, UNCOUNTED_NEMO, findings)
    for key, option in _OPTIONS.items():
        entry = config.entry(key)
        if entry is not None and not entry.why and entry.value not in (None, "null"):
            findings.options[option] = str(entry.value)[:80].lower()
    read_layout(match.arguments, findings)
    optimizer = config.entry(OPTIMIZER)
    if optimizer is not None and optimizer.value in SHARDED:
        findings.state("plan.sharding", "zero1", optimizer.line, optimizer.text, file=optimizer.file)
    elif optimizer is not None and optimizer.why:
        findings.mark_unknown("plan.sharding", optimizer.why, optimizer.line, file=optimizer.file)
    activation = config.entry("model.activation")
    if activation is not None and not activation.why and "glu" in str(activation.value).lower():
        findings.state("model.gated_mlp", True, activation.line, activation.text, file=activation.file)
    shared = config.entry("model.share_embeddings_and_output_weights")
    if shared is not None and not shared.why:
        state_truth(findings, "model.tied_embeddings", shared)


def _read_hydra_config(match: Match, reading: Reading) -> ConfigFile:
    """Return the file that Hydra composes from, as far as it is one file, with the overrides over it."""
    flags = match.arguments.flags
    folder, name = flags.get("--config-path"), flags.get("--config-name")
    overrides = parse_assignments(match.invocation.words)
    if name is None or name.value.known is None or folder is None or folder.value.known is None:
        missing = name if name is not None and name.value.known is None else folder
        why = (missing.value.why if missing else "") or "they lie in a file beside the program"
        config = ConfigFile(path="", why=f"NeMo's defaults are not known: {why}")
    else:
        file = name.value.known if name.value.known.endswith((".yaml", ".yml")) else f"{name.value.known}.yaml"
        path = literal(posixpath.join(folder.value.known, file), name.line)
        if folder.value.known.startswith("/"):
            config = reading.config(path, match.invocation)
        else:  # Hydra resolves it relative to the program
            config = ConfigFile(path=path.shown, why=f"{path.shown} lies beside the program, which opsk has not read")
    config.overrides = overrides
    if config.has("defaults"):
        config.why = f"{config.path} is composed from other files"
    return config


def _read_recipe(match: Match, reading: Reading) -> None:
    """State the values of NeMo 2's command line, and mark the rest as set by the recipe."""
    findings, given = reading.findings, parse_assignments(match.invocation.words)
    for key, field in NUMBERS_2.items():
        state_number(findings, field, given.get(key))
    state_truth(findings, "plan.sequence_parallel", given.get(SEQUENCE_PARALLEL_2))
    for key, option in END_STAGE_OPTIONS.items():
        if (entry := given.get(key)) is not None and not entry.why and str(entry.value).lower() not in _NOTHING:
            findings.options[option] = str(entry.value)[:80].lower()
    read_layout(match.arguments, findings)
    factory = match.arguments.flags.get("--factory")
    recipe = factory.value.known if factory else None
    named = _FACTORY.fullmatch(recipe.strip()) if recipe else None
    if named and not any(key.startswith("model.") for key in given):
        reading.model_name = named[1]
    if "peft" in given or (recipe and "peft" in recipe) or "finetune" in [w.known for w in match.invocation.words]:
        findings.options["trainable"] = "unknown: NeMo's fine-tuning recipes train adapters unless told otherwise"
    if named and "pretrain" in [word.known for word in match.invocation.words]:
        state_recipe(named[1], given, reading, line=match.invocation.line)
    why = f"the recipe {recipe[:60] if recipe else ''} decides it, in Python".replace("  ", " ")
    mark_all_unknown(findings, (*PLAN_FIELDS, *SHAPE_FIELDS), why, match.invocation.line)


def _state_precision(findings: Findings, entry: Entry | None) -> None:
    """State the number format; FP8 is requested elsewhere and is not known from this alone."""
    state_word(findings, "plan.precision", entry, PRECISION_WORDS)


def _is_computed(entry: Entry) -> bool:
    """Return whether a width is an expression of NeMo's own resolver (``${multiply:4, ...}``), not a number."""
    return bool(entry.why) and "put together when the job runs" in entry.why
