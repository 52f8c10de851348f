"""Reads the training settings from a launch script of LitGPT (formerly lit-gpt), and from its YAML file.

Source: ``litgpt/args.py``, ``pretrain.py`` and ``finetune/*.py`` (2024 to 2026), flags by ``jsonargparse``:
``litgpt pretrain pythia-160m --config x.yaml --train.micro_batch_size 4``. Devices shard data-parallel replicas.
"""

from __future__ import annotations

import re

from opsk.frameworks.settings.pytorch_programs import LITGPT_NUMBERS
from opsk.frameworks.settings.usual_settings import PRECISION_WORDS, TRUE_FORMATS
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import ADAPTERS, OPTION, WEIGHTS, read_trainable
from opsk_jobcheck.scripts.launchers.programs import SURE, collect_flags, find_command, name_shape
from opsk_jobcheck.scripts.launchers.ranks import MAX_RANKS, NODES_OPTION
from opsk_jobcheck.scripts.launchers.ranks import OPTION as RANKS
from opsk_jobcheck.scripts.settings.arguments import get_arguments, iterate_settings
from opsk_jobcheck.scripts.settings.config_file import ConfigFile
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    parse_integer,
    state_data_parallel_only,
    state_numbers,
    state_truth,
    state_word,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

LITGPT = "litgpt"
_TRAINS = re.compile(r"pretrain|finetune|finetune_\w+|full|lora|adapter|adapter_v2")
_NAMES = ("model_name", "checkpoint_dir")


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with LitGPT."""
    command = find_command(invocation, "litgpt")
    first = command.words[0].known if command is not None and command.words else None
    if first is None or not _TRAINS.fullmatch(first):
        return None
    return Match(framework=LITGPT, weight=SURE, invocation=invocation, arguments=get_arguments(invocation))


def read_litgpt(match: Match, reading: Reading) -> None:
    """State the values of the file and of the flags that override it."""
    findings, flags = reading.findings, match.arguments.flags
    config = ConfigFile(path="")
    if "--config" in flags:
        config = reading.config(flags["--config"].value, match.invocation, form="yaml")
    config.overrides = collect_flags(match.arguments)
    state_numbers(findings, config, LITGPT_NUMBERS)
    precision = config.entry("precision")
    state_word(findings, "plan.precision", precision, PRECISION_WORDS)
    if precision is not None and (weights_format := TRUE_FORMATS.get(str(precision.value))):
        findings.options[WEIGHTS] = weights_format
    state_truth(findings, "model.tied_embeddings", config.entry("train.tie_embeddings"))
    if not config.why:
        state_data_parallel_only(
            findings, "LitGPT shards replicas over its devices, nothing else", match.invocation.line
        )
    _state_ranks(config, findings)
    kind = _find_kind(match.invocation)
    is_lora = kind in ("finetune", "lora", "finetune_lora")
    settings = iterate_settings(config)
    read_trainable(match.invocation, findings, settings=settings, framework=LITGPT, adapters="lora" if is_lora else "")
    if (is_lora and (config.why or ADAPTERS not in findings.options)) or "adapter" in kind:
        findings.options[OPTION] = f"unknown: only adapters are trained (litgpt {kind})"
    why = config.why or "LitGPT has the shapes of its models in Python"
    name_shape(reading, _find_name(match.invocation, config), why=why, line=match.invocation.line)


LITGPT_READER = Reader(frameworks=(LITGPT,), recognise=recognise, read=read_litgpt)


def _state_ranks(config: ConfigFile, findings: Findings) -> None:
    """State the number of ranks where the file has both numbers; ``devices: auto`` takes all of a node."""
    devices, nodes = (config.entry(name) for name in ("devices", "num_nodes"))
    if devices is None or nodes is None or devices.why or nodes.why:
        return
    per_node, count = parse_integer(devices.value), parse_integer(nodes.value)
    if per_node and count and 0 < per_node * count <= MAX_RANKS:
        findings.options |= {RANKS: str(per_node * count), NODES_OPTION: str(count)}


def _find_kind(invocation: Invocation) -> str:
    """Return which subcommand it is; ``litgpt finetune full`` was two words once."""
    command = find_command(invocation, "litgpt")
    words = [word.known or "" for word in command.words[:2]] if command is not None else [""]
    if words[0] == "finetune" and len(words) > 1 and _TRAINS.fullmatch(words[1]):
        return words[1]
    return words[0]


def _find_name(invocation: Invocation, config: ConfigFile) -> str | None:
    """Return the model: a word after the subcommand, or a setting."""
    for key in _NAMES:
        entry = config.entry(key)
        if entry is not None and not entry.why and entry.value is not None:
            return str(entry.value).removeprefix("checkpoints/")
    command = find_command(invocation, "litgpt")
    words = command.words[1:3] if command is not None else ()
    for word in words:
        known = word.known
        if known is None or known.startswith("-"):
            return None
        if not _TRAINS.fullmatch(known):
            return known.removeprefix("checkpoints/")
    return None
