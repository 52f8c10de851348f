"""Finds how many words the tokenizer of a program has, where its model has as many: ``vocab_size=len(tokenizer)``."""

from __future__ import annotations

import re
from dataclasses import replace

from opsk.workload.public_models.lookup import public_model
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, parse_integer

_MAKES = re.compile(r"train(_new)?(_from_iterator)?|(Bpe|WordPiece|WordLevel|Unigram)Trainer|SentencePieceTrainer")
"""Calls that make a tokenizer of so many words (tokenizers 0.10 to 0.21)."""
_TOKENIZERS = re.compile(r"\w*Tokenizer(Fast)?")


def find_words_of_tokenizer(settings: ProgramSettings) -> Entry | None:
    """Return the words of the one tokenizer that a program makes, or loads by a public name; ``None`` for none."""
    source = settings.source
    rows: list[Entry] = []
    for call in source.calls if source is not None else ():
        if _MAKES.fullmatch(call.function) and "vocab_size" in call.keywords:
            rows.append(settings.resolve(call.keywords["vocab_size"]))
        elif call.function == "from_pretrained" and _TOKENIZERS.fullmatch(call.owner):
            entry = settings.resolve(call.first)
            shape = public_model(str(entry.value)) if isinstance(entry.value, str) and not entry.why else None
            rows += [replace(entry, value=shape.vocab)] if shape is not None else []
    numbers = {None if entry.why else parse_integer(entry.value) for entry in rows}
    number = numbers.pop() if len(numbers) == 1 else None
    return replace(rows[0], value=number) if number is not None and 0 < number <= MAX_NUMBER else None
