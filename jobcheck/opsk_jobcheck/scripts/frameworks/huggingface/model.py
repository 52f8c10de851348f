"""Reads the model that a HuggingFace program trains: an id, a folder, or a shape given on the command line.

Source: ``ModelArguments`` of ``examples/pytorch/language-modeling/run_clm.py`` in transformers 4.6 to 5, and
``PretrainedConfig.update_from_string``. The shape of an id comes from opsk's catalogue, as an assumption.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from opsk.errors import InputError
from opsk.workload.huggingface import families
from opsk.workload.huggingface.config_shape import MAX_TEXT, Path
from opsk.workload.huggingface.model import read_shape
from opsk.workload.model import MODEL_FIELDS, StatedModel
from opsk.workload.public_models.lookup import find_base_name
from opsk.workload.public_models.measured import is_public
from opsk.workload.workload import Evidence, Problem
from opsk_jobcheck.scripts.bash.scope import resolve_path
from opsk_jobcheck.scripts.bash.values import CACHED_MODEL, PRINTED, Invocation
from opsk_jobcheck.scripts.launchers.programs import is_open
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry, read_object
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, Findings, mark_all_unknown, parse_boolean, state_number
from opsk_jobcheck.scripts.settings.reader import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReading:
    """What a ``config.json`` states: ``model`` with one entry of ``evidence`` a field, and what is wrong with it.

    ``model_type`` is the family's name as given; ``None`` when the file names none.
    """

    model: StatedModel = field(default_factory=StatedModel)
    model_type: str | None = None
    evidence: tuple[Evidence, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_config(text: str, *, file: str) -> ConfigReading:
    """Return the shape that the text of a ``config.json`` states; never raises.

    Multi-token prediction is left out: what trains from such a file does not build it.

    Parameters
    ----------
    text
        The whole file.
    file
        Its name, for evidence and messages.
    """
    try:
        document = read_object(text)
    except InputError as error:
        line = error.__cause__.lineno if isinstance(error.__cause__, json.JSONDecodeError) else 0
        return ConfigReading(problems=(Problem(what=error.message, file=file, line=line, hint=error.hint),))
    config = read_shape(document.values)
    if config.family in families.ENCODER_DECODERS:
        config.refuse()
    lines = text.split("\n")
    stated = {name: value for name, value in config.fields.items() if name in MODEL_FIELDS and config.is_decoder}
    return ConfigReading(
        model=StatedModel(**stated),
        model_type=config.family or None,
        evidence=tuple(
            _make_evidence(name, value, _find_line(document.lines, config.paths[name]), lines, file)
            for name, value in stated.items()
        ),
        problems=tuple(
            Problem(what=fault.what, file=file, line=_find_line(document.lines, fault.path), hint=fault.hint)
            for fault in config.faults
        ),
    )


def state_config(text: str, path: str, findings: Findings) -> str | None:
    """State the values of a HuggingFace configuration that the script itself does not; return the model's name."""
    reading = read_config(text, file=path)
    for entry in reading.evidence:
        key = entry.field.removeprefix("model.")
        if entry.field not in findings.values and entry.field not in findings.unknown and key != "name":
            findings.state(entry.field, getattr(reading.model, key), entry.line, entry.text, file=path)
    findings.problems.extend(reading.problems)
    return reading.model.name


def _find_line(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of a key, 0 where it is not known."""
    return lines.get(path, 0)


def _make_evidence(name: str, value: object, line: int, lines: list[str], file: str) -> Evidence:
    """Return a value with the line that states it."""
    shown = lines[line - 1].strip()[:MAX_TEXT] if 0 < line <= len(lines) else ""
    return Evidence(field=f"model.{name}", value=value, file=file, line=line, text=shown)


PRESET = "model.preset"
"""The option that names the public model whose shape a program starts from, where it trains another one."""
SHAPE = ("model.layers", "model.hidden", "model.heads")
_OVERRIDES = MappingProxyType(
    {
        **dict.fromkeys(("n_layer", "n_layers", "num_layers", "num_hidden_layers"), "model.layers"),
        **dict.fromkeys(("n_embd", "d_model", "hidden_size"), "model.hidden"),
        **dict.fromkeys(("n_head", "n_heads", "num_heads", "num_attention_heads"), "model.heads"),
        **dict.fromkeys(("n_inner", "intermediate_size", "ffn_dim"), "model.ffn"),
        **dict.fromkeys(("num_key_value_heads", "n_head_kv"), "model.kv_heads"),
        "head_dim": "model.head_dim",
        "vocab_size": "model.vocab",
        "num_local_experts": "model.experts",
        "num_experts_per_tok": "model.top_k",
    }
)
_POSITIONS = ("n_positions", "n_ctx", "max_position_embeddings")
_BLOCK = 1024
"""``run_clm.py`` packs blocks of at most so many tokens unless ``--block_size`` says otherwise."""
_FIRST_SHAPES = MappingProxyType(
    {
        "gpt2": "gpt2",
        "llama": "llama-7b",
        "mistral": "mistral-7b",
        "mixtral": "mixtral-8x7b",
        "gpt_neox": "gpt-neox-20b",
        "gptj": "gpt-j-6b",
    }
)
"""The model whose shape the configuration class of a ``--model_type`` has before anything is overridden."""
_NAMING = ("model_name_or_path", "model_name", "model", "model_id", "model_path", "base_model", "preset")
MAX_NAME, MAX_PATH = 200, 4096
UNNAMED = "the command names no model"
"""Why a shape is unknown where no setting names the model."""
_CACHED = re.compile(r"(?:^|/)models--([^/]+)--([^/]+)/snapshots/")
_FOLDERS_OF_STEPS = re.compile(
    r"(checkpoint|ckpt|epoch|step|global_step|iter|version|run|v)[-_=]?(\d[\w.]{0,12}|final|last|best)?|(final|last|best|merged|latest)([-_]\w{1,16})?|hf|model"
    r"|models|weights|output|outputs|actor|huggingface|policy|pytorch_model|snapshots?|main|full|tokenizer|[0-9a-f]{20,64}|\d{1,12}",
    re.IGNORECASE,
)
"""Names of folders that say how far a model was trained, not which one it is."""
_KNOWN_END = re.compile(r"\N{HORIZONTAL ELLIPSIS}/([\w./-]{1,150})/?$")
"""What is known of a path behind the last part that is not."""
_NAME = re.compile(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?")


def read_model(config: ConfigFile, invocation: Invocation, reading: Reading) -> None:
    """State the shape of the model that is trained, or name it, or report why neither is known."""
    overridden = _state_overrides(config.entry("config_overrides"), config, reading) or _state_flags(config, reading)
    entry = _find_first(config, "config_name", "model_name_or_path", "model_name", "model", "base_model", "model_path")
    if entry is not None and entry.why:
        if not name_known_end(entry, reading):
            mark_all_unknown(reading.findings, SHAPE, entry.why, entry.line)
        return
    if entry is None or not isinstance(entry.value, str) or not entry.value:
        kind = config.entry("model_type")
        if kind is not None and not kind.why and str(kind.value).lower() in _FIRST_SHAPES:
            reading.findings.options[PRESET] = _FIRST_SHAPES[str(kind.value).lower()]
        elif not overridden:
            why = config.why or UNNAMED
            mark_all_unknown(reading.findings, SHAPE, why, invocation.line)
        return
    name_model(entry, invocation, reading)


def find_public_name(given: Mapping[str, Entry]) -> str | None:
    """Return the public model that the flags of an unknown program name; ``None`` where they name none."""
    for flag in _NAMING:
        value = given[flag].value if flag in given else None
        if isinstance(value, str) and len(value) < MAX_NAME and is_public(value):
            return value
    return None


def name_known_end(entry: Entry, reading: Reading) -> bool:
    """Take the public model that the end of a path names whose beginning is not known; return whether it names one.

    ``--model_name_or_path $SCRATCH/models/Qwen2.5-7B`` does, and what looks for a snapshot in HuggingFace's cache:
    ``$(ls -d hub/models--Qwen--Qwen2.5-7B/snapshots/* | head -1)``.
    """
    match = _KNOWN_END.search(entry.text[-MAX_NAME:])
    cached = CACHED_MODEL.search(entry.why[:MAX_PATH]) if entry.why.startswith(PRINTED) else None
    name = f"{cached[1]}/{cached[2]}" if cached is not None else find_folder_name(match[1]) if match is not None else ""
    if not name or not is_public(name):
        return False
    reading.model_name = name
    return True


def name_model(entry: Entry, invocation: Invocation, reading: Reading) -> None:
    """Take a model's name: its own ``config.json`` where it is a folder that is read, else the catalogue's shape."""
    value = str(entry.value)[:MAX_PATH].strip().rstrip("/")
    if value in ("", "true"):  # a flag whose value is an empty variable
        mark_all_unknown(reading.findings, SHAPE, f"{entry.text[:60]} has no value", entry.line)
        return
    if cached := _CACHED.search(value + "/"):
        name = f"{cached[1]}/{cached[2]}"
    else:
        name = value if _is_id(value) else find_folder_name(value)
    is_listed = is_public(name)
    is_exact = is_listed and _is_id(value) and find_base_name(name) is None
    if not is_exact and _read_folder(value, invocation, reading):
        return
    if is_listed or _NAME.fullmatch(name):
        reading.model_name = name
    if not is_listed:
        why = f"the model is {value[:100]}, whose shape opsk does not know"
        mark_all_unknown(reading.findings, SHAPE, why, entry.line)


def _read_folder(value: str, invocation: Invocation, reading: Reading) -> bool:
    """Read the ``config.json`` of a folder, or of a path that is one; return whether it was read."""
    path = value if value.endswith(".json") else posixpath.join(value, "config.json")
    place, why = resolve_path(path, invocation.directory)
    if why:
        return False
    if place not in reading.files:
        reading.missing_files.append(place)
        return False
    reading.model_name = state_config(reading.files[place], place, reading.findings) or reading.model_name
    return True


def find_folder_name(path: str) -> str:
    """Return the last folder of a path that tells a model: the one before ``checkpoint-200`` and its like."""
    folders = [part for part in path.split("/") if part]
    while len(folders) > 1 and _FOLDERS_OF_STEPS.fullmatch(folders[-1]):
        folders.pop()
    return folders[-1] if folders else path


def _is_id(value: str) -> bool:
    """Return whether a name may be one of HuggingFace's hub: at most an organisation before it."""
    return not value.startswith(("/", ".", "~")) and value.count("/") <= 1


def _state_overrides(entry: Entry | None, config: ConfigFile, reading: Reading) -> bool:
    """State a shape given as ``n_embd=8192,n_layer=64``; return whether there is one."""
    findings = reading.findings
    if entry is None or (entry.value in (None, "") and not entry.why):
        return False
    if entry.why:
        mark_all_unknown(findings, (*SHAPE, "model.ffn", "model.kv_heads"), entry.why, entry.line)
        return True
    for pair in str(entry.value)[:4096].split(","):
        key, _, value = (piece.strip() for piece in pair.partition("="))
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 11 else None
        if key in _OVERRIDES and number and number <= MAX_NUMBER:
            findings.state(_OVERRIDES[key], number, entry.line, f"{key}={value}")
        elif key in _OVERRIDES:
            findings.mark_unknown(_OVERRIDES[key], f"{pair[:60]} gives no number", entry.line)
        elif key in _POSITIONS and number and number <= _BLOCK and config.entry("block_size") is None:
            findings.state("model.seq", number, entry.line, f"{key}={value}")
        elif key == "gradient_checkpointing" and parse_boolean(value) and is_open(findings, "plan.recompute"):
            findings.state("plan.recompute", "full", entry.line, f"{key}={value}")
        elif key == "tie_word_embeddings" and (tied := parse_boolean(value)) is not None:
            findings.state("model.tied_embeddings", tied, entry.line, f"{key}={value}")
    return True


def _state_flags(config: ConfigFile, reading: Reading) -> bool:
    """State a shape given as flags with the configuration's names (``--n_embd``); return whether there is any."""
    given = [(field, config.overrides[name]) for name, field in _OVERRIDES.items() if name in config.overrides]
    for field_name, entry in given:
        state_number(reading.findings, field_name, entry)
    return bool(given)


def _find_first(config: ConfigFile, *names: str) -> Entry | None:
    """Return the first of several settings that is given and not null."""
    for name in names:
        entry = config.entry(name)
        if entry is not None and (entry.why or entry.value not in (None, "", "null", "None")):
            return entry
    return None
