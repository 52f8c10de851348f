"""Reads commands of published programs that train models of images, of pictures with text, and of diffusion.

A program is recognised by its file and by flags that only it has, and not where a flag is given that it refuses; what
is not given are the defaults of its parser.
Source: see `opsk.frameworks.settings.published_programs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from opsk.frameworks.settings.published_programs import DIT, PROGRAMS, PublishedProgram, read_flags
from opsk.frameworks.settings.usual_settings import PRECISION_WORDS
from opsk.workload.measured_model import HAS_AVERAGE, INPUT_SIZE, LOCAL_LOSS
from opsk.workload.public_models.lookup import has_own_length, public_model
from opsk.workload.public_models.measured import find_measured
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import SHAPE, name_model
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE
from opsk_jobcheck.scripts.launchers.accelerate import find_accelerate_launch, read_accelerate
from opsk_jobcheck.scripts.launchers.programs import (
    SURE,
    Program,
    find_command,
    find_program,
    list_flag_names,
    parse_program_arguments,
    parse_program_flags,
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
    state_number,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

_SHORT = ("-b", "-a")
_STARTER = "distributed_train.sh"
_PATCH = re.compile(r"patch(\d{1,2})")
_OPTIMIZERS = {
    **dict.fromkeys(("sgd", "momentum", "nesterov", "lars"), "sgd"),
    **dict.fromkeys(("lion", "adafactor", "muon"), None),
}
"""Optimizers by what they hold for a parameter; any other has Adam's two moments."""
MAX_NAME = 120
_PATTERNS = tuple((re.compile(row.file), re.compile(row.path) if row.path else None, row) for row in PROGRAMS)


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that starts one of the programs."""
    program = _find_program(invocation)
    chosen = _find_row(program) if program is not None else None
    if chosen is None:
        return None
    row, weight = chosen
    return Match(framework=row.framework, weight=weight, invocation=invocation, arguments=get_arguments(invocation))


def _find_program(invocation: Invocation) -> Program | None:
    """Return the program, or the script of timm that starts it on the GPUs of a node."""
    return find_program(invocation) or find_command(invocation, _STARTER)


def _find_row(program: Program) -> tuple[PublishedProgram, int] | None:
    """Return the program that a command's file and flags are those of, and how many of its own flags it has."""
    names: frozenset[str] | None = None
    best: tuple[PublishedProgram, int] | None = None
    for file, path, row in _PATTERNS:
        if not file.fullmatch(program.file[:255]):
            continue
        names = list_flag_names(program) if names is None else names
        matched = len(row.flags & names)
        is_named = path is not None and path.search(program.name[-512:]) is not None
        if matched < row.min_flags and not (is_named and matched):
            continue
        if not is_named and not names <= read_flags()[row.framework]:
            continue
        weight = matched + SURE * is_named
        if best is None or weight > best[1]:
            best = row, weight
    return best


def read_published_program(match: Match, reading: Reading) -> None:
    """State the values of the flags, or the defaults of the program's parser."""
    program = _find_program(match.invocation)
    chosen = _find_row(program) if program is not None else None
    if program is None or chosen is None:
        return
    row, findings, line = chosen[0], reading.findings, match.invocation.line
    given = _collect_settings(program, match.invocation, reading)
    why = _find_doubt(program, given)
    if why:
        mark_all_unknown(findings, (*SHAPE, "plan.micro_batch", "plan.precision", "plan.recompute"), why, line)
        return
    size = _state_size(row, given, findings)
    _state_model(row, given, match.invocation, reading, size=size)
    _state_batch(row, given, findings, line)
    launch = find_accelerate_launch(
        match.invocation.words[: len(match.invocation.words) - len(program.words) - 1], match.invocation, reading
    )
    if launch:
        read_accelerate(launch, match.invocation, reading)
    _state_precision(row, given, findings, line)
    _state_memory(row, given, findings, line)
    state_data_parallel_only(findings, f"{row.framework} splits no model", line)


PUBLISHED = Reader(
    frameworks=tuple(dict.fromkeys(row.framework for row in PROGRAMS)),
    recognise=recognise,
    read=read_published_program,
)


def _collect_settings(program: Program, invocation: Invocation, reading: Reading) -> Mapping[str, Entry]:
    """Return the settings by name: those of a file that ``--config`` names, under those of the command."""
    given = dict(parse_program_flags(program))
    words = program.words
    for word, value in pairwise(words):
        if word.known in _SHORT:
            why = "" if value.known is not None else value.why
            text = f"{word.known} {value.shown}"
            given.setdefault(word.known[1:], Entry(value=value.known, line=value.line or word.line, text=text, why=why))
    named = parse_program_arguments(program).flags.get("--config")
    if named is not None and (named.value.known or "").endswith((".yaml", ".yml")):
        config = reading.config(named.value, invocation)
        if config.why:
            given["config"] = Entry(why=config.why, line=named.line)
        for name in config.names():
            entry = config.entry(name)
            if entry is not None and entry.value is not None:
                given.setdefault(name.replace("-", "_"), entry)
    return given


def _find_doubt(program: Program, given: Mapping[str, Entry]) -> str:
    """Return why settings may be given that are not known; empty where all are."""
    if (config := given.get("config")) is not None and config.why:
        return config.why
    opaque = parse_program_arguments(program).opaque
    return f"it may be among words that cannot be told: {opaque[0].why}" if opaque else ""


def _find(given: Mapping[str, Entry], names: tuple[str, ...]) -> Entry | None:
    """Return the first of several settings that is given."""
    return next((given[name] for name in names if name in given), None)


def _is_on(given: Mapping[str, Entry], names: tuple[str, ...]) -> bool:
    """Return whether one of several switches is on; a word after a bare switch is no value of it."""
    return any(parse_boolean(given[name].value) is not False for name in names if name in given)


def _state_size(row: PublishedProgram, given: Mapping[str, Entry], findings: Findings) -> int:
    """Note the side of the images, and return it; 0 where it is the model's own, or is not known."""
    entry = _find(given, row.sizes)
    size = parse_integer(entry.value) if entry is not None and not entry.why and entry.value is not None else None
    chosen = row.default_size if entry is None else size or 0
    if chosen > 0:
        findings.options[INPUT_SIZE] = str(chosen)
    return chosen


def _state_model(
    row: PublishedProgram, given: Mapping[str, Entry], invocation: Invocation, reading: Reading, *, size: int
) -> None:
    """Name the model, or mark its shape as unknown."""
    entry = _find(given, row.models)
    if entry is not None and entry.why:
        mark_all_unknown(reading.findings, SHAPE, entry.why, entry.line)
        return
    value = str(entry.value if entry is not None else row.default_model).strip()
    name = _find_known_name(f"{row.model_prefix}{value}"[:MAX_NAME])
    if name:
        reading.model_name = name
        _state_tokens(name, size, entry, reading.findings)
    elif value and row.model_prefix == "" and "/" in value and entry is not None:
        name_model(entry, invocation, reading)
    else:
        why = f"the model is {value[:100]}, whose shape opsk does not know" if value else "the command names no model"
        mark_all_unknown(reading.findings, SHAPE, why, entry.line if entry is not None else invocation.line)


def _find_known_name(value: str) -> str:
    """Return the name under which a model is known: MAE's names lack the size of images; empty for no model."""
    for name in (value, f"{value}_224"):
        if public_model(name) is not None or find_measured(name) is not None:
            return name
    bare = value.partition(".")[0]
    return bare if public_model(bare) is not None else ""


def _state_tokens(name: str, size: int, entry: Entry | None, findings: Findings) -> None:
    """State the patches of an image that is not of the size which the model's name says."""
    patch = _PATCH.search(name)
    if not size or patch is None or not has_own_length(name) or not int(patch[1]):
        return
    tokens = (size // int(patch[1])) ** 2 + 1
    known = public_model(name)
    if known is not None and known.seq != tokens:
        text = f"({size} / {patch[1]}) patches squared and one"
        findings.state("model.seq", tokens, entry.line if entry is not None else 0, text)


def _state_batch(row: PublishedProgram, given: Mapping[str, Entry], findings: Findings, line: int) -> None:
    """State the samples of a GPU, and the steps of accumulation."""
    if row.framework == DIT:
        whole = state_number(findings, "plan.global_batch", given.get("global_batch_size"))
        gpus = findings.get("plan.gpus")
        whole = whole or (256 if "global_batch_size" not in given else None)
        if whole and gpus and whole % gpus == 0:
            findings.state("plan.micro_batch", whole // gpus, line, f"{whole} over {gpus} GPUs")
        return
    entry, per_node = _find(given, row.batches), findings.get("plan.gpus_per_node") or findings.get("plan.gpus")
    if entry is None and row.default_batch:
        entry = Entry(value=row.default_batch, line=line, text=f"{row.framework}'s own {row.default_batch}")
    count = state_number(findings, "plan.micro_batch", entry)
    if row.is_batch_of_node and entry is not None and count:
        if per_node and _is_on(given, ("multiprocessing_distributed",)):
            findings.state(
                "plan.micro_batch", max(1, count // per_node), entry.line, f"{entry.text} over {per_node} GPUs"
            )
        elif per_node != 1:
            findings.mark_unknown("plan.micro_batch", f"{entry.text} may be shared by the GPUs of a node", entry.line)
    steps = _find(given, row.steps)
    number = parse_integer(steps.value) if steps is not None and not steps.why else None
    if number and 0 < number <= 10**6:
        findings.options[STEPS_OPTION] = str(number)


def _state_precision(row: PublishedProgram, given: Mapping[str, Entry], findings: Findings, line: int) -> None:
    """State the number format: by a word, by a switch, or the one that the program always uses."""
    word = _find(given, row.format_words)
    if word is not None:
        name = str(word.value).lower()
        precision = "bf16" if name.startswith("amp_bf") else PRECISION_WORDS.get(name, "fp32" if name == "no" else "")
        if word.why or not precision:
            findings.mark_unknown("plan.precision", word.why or f"{word.text[:80]} is not known", word.line)
        else:
            findings.state("plan.precision", precision, word.line, word.text)
        return
    for name, precision in row.formats:
        if name in given and parse_boolean(given[name].value) is not False:
            kind = given.get("amp_dtype")
            chosen = "bf16" if kind is not None and kind.value == "bfloat16" else precision
            findings.state("plan.precision", chosen, given[name].line, f"--{name}")
            return
    if "plan.precision" in findings.values or "plan.precision" in findings.unknown:
        return
    if row.has_open_format:
        return
    what = f"{row.framework} always computes in it" if row.always else f"{row.framework} computes in fp32 unless told"
    findings.state("plan.precision", row.always or "fp32", line, what)


def _state_memory(row: PublishedProgram, given: Mapping[str, Entry], findings: Findings, line: int) -> None:
    """State recomputation, what is trained, the optimizer, and what is held next to the model."""
    is_recomputed = _is_on(given, row.checkpoints)
    if row.checkpoints and "plan.recompute" not in findings.values:
        entry = _find(given, row.checkpoints)
        text = entry.text if entry is not None else f"no --{row.checkpoints[0]}"
        findings.state("plan.recompute", "full" if is_recomputed else "none", entry.line if entry else line, text)
    if "plan.sharding" not in findings.values and "plan.sharding" not in findings.unknown:
        findings.state("plan.sharding", "none", line, f"{row.framework} holds a replica on every GPU")
    frozen = next((name for name in row.freezes if name in given and _is_on(given, (name,))), "")
    if frozen:
        findings.options[TRAINABLE] = f"unknown: --{frozen} changes what is trained"
    elif row.adapters:
        rank = given.get("rank")
        findings.options["adapters"] = "lora"
        findings.options["adapters.rank"] = str(rank.value) if rank is not None and not rank.why else "4"
    if (row.has_average and not _is_on(given, row.no_average)) or _is_on(given, row.averages):
        findings.options[HAS_AVERAGE] = "true"
    if row.local_losses and _is_on(given, row.local_losses):
        findings.options[LOCAL_LOSS] = "true"
    named = _find(given, row.optimizers)
    word = str(named.value if named is not None and not named.why else row.default_optimizer).lower()
    if "use_8bit_adam" in given and parse_boolean(given["use_8bit_adam"].value) is not False:
        word = "adamw_8bit"
    chosen = _OPTIMIZERS.get(word, "adamw_8bit" if word == "adamw_8bit" else "adamw_torch_fused")
    findings.options["optimizer.name"] = chosen or word
