"""States the numbers of a user's own program: the shape of its model, lengths, batches and the axes of its plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from opsk.frameworks.settings.usual_settings import BATCHES, LAST_LENGTHS, LAST_WIDTHS, MAX_SEQUENCES, NUMBERS, STEPS
from opsk.workload.worst_case import MICRO_BATCH
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings, get_last_name
from opsk_jobcheck.scripts.launchers.programs import SHAPE
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, parse_integer
from opsk_jobcheck.scripts.settings.reader import Reading

FIELDS: Mapping[str, tuple[str, ...]] = {
    field_name: tuple(name for name, target in NUMBERS.items() if target == field_name)
    for field_name in dict.fromkeys(NUMBERS.values())
}
_PLAIN_FIELDS = tuple(name for name in FIELDS if name not in ("model.seq", "plan.micro_batch", "plan.global_batch"))
DDP = ("DistributedDataParallel", "DDP")
FSDP = ("FullyShardedDataParallel", "FSDP", "fully_shard")
_KINDS_OF_LAYERS = re.compile(r"num_encoder_layers|encoder_layers|n_encoder_layers|num_decoder_layers|n_conv_layers")

MAX_FILES = 24
MAX_CHARS = 1 << 17
_CUTS_BATCH = re.compile(r"\b\w*(slice|chunk|split|narrow)\w*\([^()\n]{0,160}(accum|micro_?batch)", re.IGNORECASE)
"""Calls that cut a batch into those of the steps of accumulation: ``batch.chunk(accumulation_steps)``."""


def state_entry(reading: Reading, name: str, value: object, entry: Entry) -> None:
    """State a value unless the field has one."""
    if name not in reading.findings.values:
        reading.findings.state(name, value, entry.line, entry.text, file=entry.file)


def doubt_entry(reading: Reading, name: str, why: str, entry: Entry) -> None:
    """Mark a field as unknown unless it has a value."""
    if name not in reading.findings.values:
        reading.findings.mark_unknown(name, why, entry.line, file=entry.file)


def state_count(reading: Reading, name: str, entry: Entry | None) -> int | None:
    """State a whole number, or that it is unknown."""
    if entry is None or (entry.value in (None, "", "null", "None", "none", "auto") and not entry.why):
        return None
    number = None if entry.why else parse_integer(entry.value)
    if number is None or not 1 <= number <= MAX_NUMBER:
        if number != 0 and number != -1:
            doubt_entry(reading, name, entry.why or f"{entry.text[:80]} is not a whole number from 1 on", entry)
        return None
    state_entry(reading, name, number, entry)
    return number


def state_numbers(settings: ProgramSettings, reading: Reading) -> None:
    """State the shape and the axes of the plan."""
    findings = reading.findings
    has_kinds = _has_kinds_of_layers(settings)
    if has_kinds:
        doubt_entry(reading, "model.layers", "encoder and decoder have layers of their own", Entry())
    for name in _PLAIN_FIELDS:
        is_open = name not in findings.unknown or name in SHAPE
        if is_open and not (has_kinds and name == "model.layers"):
            # a class of settings may be that of any kind of model
            state_count(reading, name, settings.find(FIELDS[name], with_attributes=False))
    if findings.get("model.layers") and findings.get("model.heads") and "model.hidden" not in findings.unknown:
        state_count(reading, "model.hidden", settings.find(LAST_WIDTHS))
    if findings.get("model.experts") == 1:
        findings.values.pop("model.experts")
        findings.evidence.pop("model.experts", None)
    hidden, heads = findings.get("model.hidden"), findings.get("model.heads")
    if hidden and heads and hidden % heads and not findings.get("model.head_dim"):
        findings.mark_unknown("model.heads", f"{heads} heads do not divide a width of {hidden}", 0)


def _has_kinds_of_layers(settings: ProgramSettings) -> bool:
    """Return whether a program has layers of several kinds, of which none is all of them."""
    names = [get_last_name(name) for name, _ in (*settings.given, *settings.of_files)]
    if settings.source is not None:
        names += [*settings.source.defaults, *settings.source.constants]
        names += [name for call in settings.source.calls for name in call.keywords]
    return any(map(_KINDS_OF_LAYERS.fullmatch, names))


def state_lengths_and_batches(settings: ProgramSettings, reading: Reading) -> None:
    """State the tokens of a sequence and the batch."""
    findings = reading.findings
    length = settings.find(FIELDS["model.seq"]) or settings.find(LAST_LENGTHS)
    if length is not None and length.why and settings.find(("n_embd",)) is not None:
        length = settings.find(("block_size",)) or length  # nanoGPT's, whatever else its descendants have
    state_count(reading, "model.seq", length)
    if _state_shared_steps(settings, reading):
        return
    steps = settings.find(STEPS)
    count = parse_integer(steps.value) if steps is not None and not steps.why and steps.value is not None else None
    whole = state_count(reading, "plan.global_batch", settings.find(FIELDS["plan.global_batch"]))
    if whole and whole > MAX_SEQUENCES:
        findings.mark_unknown("plan.global_batch", f"a batch of {whole} may count tokens", 0)
    if state_count(reading, "plan.micro_batch", settings.find(FIELDS["plan.micro_batch"])) is None:
        batch = settings.find(BATCHES)
        if batch is not None and "plan.micro_batch" not in findings.values:
            why = _find_doubt_about_batch(settings, findings.get("plan.gpus"), batch)
            if count != 1 and _cuts_batches(settings, reading):
                why = why or f"{batch.text[:60]} may be the batch of all steps of accumulation"
                whole_batch = parse_integer(batch.value) if batch.value is not None else None
                if count and whole_batch and count > 0:
                    findings.options[MICRO_BATCH] = str(max(1, -(-whole_batch // count)))
            if why:
                doubt_entry(reading, "plan.micro_batch", why, batch)
            else:
                findings.unknown.pop("plan.micro_batch", None)
                state_count(reading, "plan.micro_batch", batch)
    if count and 0 < count <= 10**6 and STEPS_OPTION not in findings.options:
        findings.options[STEPS_OPTION] = str(count)
    elif steps is not None and steps.why:
        doubt_entry(reading, "plan.global_batch", steps.why, steps)


def state_batch_of_loader(settings: ProgramSettings, batch_size: int, reading: Reading) -> None:
    """State the batch that the only loader of a training yields; a setting that says another one is not its batch."""
    findings, field = reading.findings, "plan.micro_batch"
    if field in findings.unknown or not 0 < batch_size <= MAX_NUMBER or _cuts_batches(settings, reading):
        return
    stated = findings.get(field) if field in findings.values else None
    if stated is None:
        text = f"the data loader yields batches of {batch_size}"
        state_entry(reading, field, batch_size, Entry(value=batch_size, file=settings.file, text=text))
    elif stated != batch_size:
        findings.mark_unknown(field, f"the data loader yields batches of {batch_size}", 0)


def _state_shared_steps(settings: ProgramSettings, reading: Reading) -> bool:
    """State the batch of a program that divides the steps of accumulation among its ranks, as nanoGPT does."""
    if settings.source is None or settings.source.divided.isdisjoint(STEPS):
        return False
    batch, steps = settings.find((*BATCHES, *FIELDS["plan.micro_batch"])), settings.find_unchanged(STEPS)
    if batch is None or steps is None or batch.why or steps.why:
        return False
    micro, count = state_count(reading, "plan.micro_batch", batch), parse_integer(steps.value)
    if micro and count and 0 < micro * count <= MAX_NUMBER:
        entry = replace(steps, text=f"{steps.text}: steps of all ranks × {micro}"[:200])
        state_entry(reading, "plan.global_batch", micro * count, entry)
    return micro is not None


def _cuts_batches(settings: ProgramSettings, reading: Reading) -> bool:
    """Return whether the program, or a module of it that is at hand, cuts batches for the steps of accumulation."""
    texts = [text for path, text in sorted(reading.files.items()) if path.endswith(".py")][:MAX_FILES]
    lines = settings.source.lines if settings.source is not None else ()
    return any(map(_CUTS_BATCH.search, lines)) or any(map(_cuts_batch, texts))


@lru_cache(maxsize=64)
def _cuts_batch(text: str) -> bool:
    """Return whether a program's text has a call that cuts a batch."""
    return _CUTS_BATCH.search(text[:MAX_CHARS]) is not None


def _find_doubt_about_batch(settings: ProgramSettings, gpus: int | None, batch: Entry) -> str:
    """Return why ``batch_size`` may not be what one GPU works on at a time; empty where it is."""
    if batch.why:
        return batch.why
    source = settings.source
    if source is not None and not source.divided.isdisjoint(BATCHES):
        return f"the program divides the batch ({settings.file})"
    if gpus == 1:
        return ""
    if source is None:
        return f"{batch.text[:60]} may be the batch of one GPU, or of all"
    is_each_ranks = any(call.function in (*DDP, *FSDP, "DistributedSampler", "Accelerator") for call in source.calls)
    is_loaded = any(
        call.keywords["batch_size"].name.lower() in BATCHES or call.keywords["batch_size"].is_known
        for call in source.calls
        if "batch_size" in call.keywords
    )
    is_lightning = any("lightning" in name for name in source.imports)
    return "" if is_loaded and (is_each_ranks or is_lightning) else f"{batch.text[:60]} may be the batch of all GPUs"
