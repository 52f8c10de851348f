"""Reads the training settings from a launch script of GPT-NeoX.

``deepy.py train.py [-d DIRECTORY] FILE...`` merges YAML files; no key may occur twice. Keys are written with
dashes or underscores. Source: ``configs/neox_arguments.md`` and ``megatron/neox_arguments/`` of GPT-NeoX v1 and v2.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from opsk.frameworks.settings.deepspeed_config import (
    NEOX_NUMBERS,
    NEOX_RECOMPUTE,
    NEOX_SEQUENCE_PARALLEL,
    NEOX_STAGES,
    STAGE,
    STAGE_WORDS,
    STEPS,
)
from opsk.frameworks.settings.usual_settings import PRECISION_WORDS
from opsk_jobcheck.scripts.bash.values import Invocation, Text, join, literal
from opsk_jobcheck.scripts.launchers.programs import SURE, list_base_names
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    mark_all_unknown,
    parse_boolean,
    parse_integer,
    state_number,
    state_truth,
    state_word,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

NEOX = "gpt-neox"
_SUFFIXES = (".yml", ".yaml", ".json")
_ALL = ("model.layers", "model.hidden", "model.heads", "model.seq", "plan.micro_batch", "plan.tp", "plan.pp")


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with GPT-NeoX."""
    names = list_base_names(invocation)
    if "deepy.py" not in names or "train.py" not in names[names.index("deepy.py") + 1 :]:
        return None
    arguments = get_arguments(invocation)
    return Match(framework=NEOX, weight=SURE + 1, invocation=invocation, arguments=arguments)


def read_neox(match: Match, reading: Reading) -> None:
    """State the values of all files."""
    files = [reading.config(path, match.invocation, form="yaml") for path in _list_paths(match.invocation.words)]
    findings = reading.findings
    if not files:
        mark_all_unknown(findings, _ALL, "no configuration file is named", match.invocation.line)
        return
    for key, field in NEOX_NUMBERS.items():
        state_number(findings, field, _find_entry(files, key))
    _state_stages(files, findings)
    _state_formats(files, findings)
    state_word(findings, "plan.sharding", _make_word(_find_entry(files, STAGE)), STAGE_WORDS)
    checkpoints = _find_entry(files, NEOX_RECOMPUTE)
    if checkpoints is not None:
        state_word(findings, "plan.recompute", _make_word(checkpoints), {"true": "full", "false": "none"})
    state_truth(findings, "plan.sequence_parallel", _find_entry(files, NEOX_SEQUENCE_PARALLEL))
    untied = _find_entry(files, "no_weight_tying")
    if untied is not None and not untied.why and (value := parse_boolean(untied.value)) is not None:
        findings.state("model.tied_embeddings", not value, untied.line, untied.text, file=untied.file)
    _state_parts(files, findings)
    steps = _find_entry(files, STEPS)
    if steps is not None and not steps.why and (count := parse_integer(steps.value)):
        findings.options[STEPS_OPTION] = str(count)


NEOX_READER = Reader(frameworks=(NEOX,), recognise=recognise, read=read_neox)


def _list_paths(words: Sequence[Text]) -> list[Text]:
    """Return the configuration files after ``train.py``, below ``-d`` where that is given."""
    names = [word.shown.rpartition("/")[2] for word in words]
    rest = words[names.index("train.py", names.index("deepy.py")) + 1 :]
    folder: Text | None = None
    paths: list[Text] = []
    waiting, is_value = iter(rest), False
    for word in waiting:
        if word.known in ("-d", "--conf_dir"):
            folder = next(waiting, None)
        elif (word.known or "").startswith("-"):
            is_value = "=" not in (word.known or "")
            continue
        elif not is_value or (word.known or "").endswith(_SUFFIXES):
            paths.append(_add_suffix(word))
        is_value = False
    if folder is None:
        return paths
    return [
        path if (path.known or "").startswith("/") else join((folder, literal("/", path.line), path)) for path in paths
    ]


def _add_suffix(word: Text) -> Text:
    """Return a file's name with the suffix that may be left out."""
    if word.known is None or posixpath.splitext(word.known)[1] in _SUFFIXES:
        return word
    return literal(f"{word.known}.yml", word.line)


def _find_entry(files: Sequence[ConfigFile], key: str) -> Entry | None:
    """Return the value of a key in the files, with dashes or underscores; unknown where one was not read."""
    entries = [
        entry for file in files for name in dict.fromkeys((key, key.replace("_", "-"))) if (entry := file.entry(name))
    ]
    stated = [entry for entry in entries if not entry.why]
    if stated:
        return stated[0]
    return entries[0] if entries else None


def _make_word(entry: Entry | None) -> Entry | None:
    if entry is None or entry.why or entry.value is None:
        return entry
    return Entry(value=str(entry.value).lower(), file=entry.file, line=entry.line, text=entry.text)


def _state_stages(files: Sequence[ConfigFile], findings: Findings) -> None:
    """State the pipeline's stages; 0 switches the pipeline off."""
    entry = _find_entry(files, NEOX_STAGES)
    stages = state_number(findings, "plan.pp", entry, minimum=0)
    if stages == 0 and entry is not None:
        findings.state("plan.pp", 1, entry.line, entry.text, file=entry.file)


def _state_formats(files: Sequence[ConfigFile], findings: Findings) -> None:
    """State the number format, from ``precision`` or from the switch of one."""
    entry = _find_entry(files, "precision")
    if entry is not None:
        state_word(findings, "plan.precision", entry, PRECISION_WORDS)
        return
    for name, precision in (("bf16", "bf16"), ("fp16", "fp16")):
        enabled, kind = _find_entry(files, f"{name}.enabled"), _find_entry(files, f"{name}.type")
        if enabled is not None and not enabled.why and parse_boolean(enabled.value):
            is_bf16 = kind is not None and str(kind.value).lower() in ("bfloat16", "bf16")
            value = "bf16" if is_bf16 else precision
            findings.state("plan.precision", value, enabled.line, enabled.text, file=enabled.file)
            return


def _state_parts(files: Sequence[ConfigFile], findings: Findings) -> None:
    """State the kind of the MLP and of positions, and experts where there are several."""
    for key in ("activation", "mlp_type"):
        entry = _find_entry(files, key)
        if entry is not None and not entry.why and str(entry.value).lower() in ("swiglu", "geglu", "llama"):
            findings.state("model.gated_mlp", True, entry.line, entry.text, file=entry.file)
    positions = _find_entry(files, "pos_emb")
    if positions is not None and not positions.why:
        findings.options["position_embedding_type"] = {"learned": "learned_absolute"}.get(
            str(positions.value), str(positions.value)[:80]
        )
    experts = _find_entry(files, "moe_num_experts") or _find_entry(files, "num_experts")
    if experts is not None and not (not experts.why and parse_integer(experts.value) in (0, 1)):
        state_number(findings, "model.experts", experts)
