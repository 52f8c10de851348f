"""Finds the length to which a program cuts its texts where no setting states it: ``tokenizer(x, max_length=512)``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import Call
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import parse_boolean, parse_integer

_CUTS = re.compile(r"(\w+_)?tokeni[sz]er|(batch_)?encode_plus")
_OTHER = re.compile(
    r"(as_target|get|build|load|init|initiali[sz]e|create|make|set_?up|prepare|train|save|update|configure|extend|fix)_\w*"
)
"""Functions that make a tokenizer, or set it up."""
_TRUNCATIONS = (True, "longest_first", "only_first", "only_second")
_SFT_LENGTH = 1024
"""Tokens to which TRL's ``SFTTrainer`` cuts or packs where nothing is given: ``SFTConfig`` of TRL 0.9 to 0.25."""
_SFT_LENGTHS = frozenset({"max_length", "max_seq_length"})


def find_text_length(settings: ProgramSettings) -> Entry | None:
    """Return the greatest length to which texts are cut, or that of TRL's trainer; ``None`` where one is not known."""
    if settings.source is None or settings.closed:
        return None
    if any(settings.source.find_calls("SFTTrainer")):
        return _find_sft_length(settings)
    rows = list(_iterate_lengths(settings))
    if not rows or any(entry is None or entry.why for entry in rows):
        return None
    known = [(parse_integer(entry.value), entry) for entry in rows if entry is not None and entry.value is not None]
    numbers = [(number, entry) for number, entry in known if number is not None and number > 0]
    return max(numbers, key=lambda row: row[0])[1] if len(numbers) == len(rows) else None


def cuts_texts(settings: ProgramSettings) -> bool:
    """Return whether a program hands TRL texts that it cuts, and does not fill samples up with several of them."""
    if settings.source is None or settings.closed or not any(settings.source.find_calls("SFTTrainer")):
        return False
    packing = settings.find(("packing",))
    return packing is None or (not packing.why and parse_boolean(packing.value) is False)


def _find_sft_length(settings: ProgramSettings) -> Entry | None:
    """Return the default of TRL's trainer, where the program gives it no length, nor a table of settings."""
    source = settings.source
    calls = list(source.find_calls("SFTConfig", "SFTTrainer")) if source is not None else []
    # TRL before 0.9 took the Trainer's own arguments
    names = ("SFTConfig",) if any(call.function == "SFTConfig" for call in calls) else ("TrainingArguments",)
    configs = list(source.find_calls(*names)) if source is not None else []
    if source is None or len(configs) != 1 or ("output_dir" not in configs[0].keywords and configs[0].first.line == 0):
        return None
    given = [value for call in calls for name, value in call.keywords.items() if name in _SFT_LENGTHS]
    if any(not value.is_known or value.literal is not None for value in given):
        return None
    text = f"{source.get_line(configs[0].line)} (SFTTrainer's default)"
    return Entry(value=_SFT_LENGTH, file=settings.file, line=configs[0].line, text=text[:200])


def _iterate_lengths(settings: ProgramSettings) -> Iterator[Entry | None]:
    """Yield the lengths of the calls that make tokens of texts; ``None`` for one that does not cut them."""
    for call in settings.source.calls if settings.source is not None else ():
        is_prompt = "return_tensors" in call.keywords and call.keywords.keys().isdisjoint(("max_length", "padding"))
        if (
            _CUTS.fullmatch(call.function)
            and not _OTHER.fullmatch(call.function)
            and not is_prompt
            and settings.is_active(call) is not False
        ):
            length = call.keywords.get("max_length")
            entry = settings.resolve(length) if length is not None and _is_cut(call) else None
            yield replace(entry, text=settings.source.get_line(call.line)) if entry and settings.source else entry


def _is_cut(call: Call) -> bool:
    """Return whether a call cuts what is longer."""
    value = call.keywords.get("truncation")
    return value is not None and value.is_known and value.literal in _TRUNCATIONS
