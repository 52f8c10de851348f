"""Defines the calls of packages that say what a program trains, and how, with the values that they are given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.values import ABSENT, merge

SETS_TRAINING = re.compile(
    r"from_pretrained|from_config|[A-Z]\w*(For[A-Z]\w+|Model|Config)|create_model|\w*TrainingArguments|(SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO)(Config|Trainer)"
    r"|(\w+_)?tokeni[sz]er|(batch_)?encode_plus|LoraConfig|BitsAndBytesConfig|get_peft_model|\w*DataLoader|Accelerator|(resnet|vgg|densenet|vit_|swin_|convnext"
    r"|efficientnet|mobilenet|regnet|wide_resnet|resnext|alexnet|googlenet|inception|maxvit|shufflenet|squeezenet)\w*"
)
"""Functions, by the last part of their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedCall:
    """A call with what is known of its arguments; ``is_sure`` tells that the program makes it unless it ends before."""

    file: str
    line: int
    name: str
    positional: Sequence[Any]
    keywords: Mapping[str, Any]
    is_sure: bool

    def join(self, other: NotedCall) -> NotedCall:
        """Return the call with what either time may have given it."""
        rows = range(max(len(self.positional), len(other.positional)))
        return NotedCall(
            file=self.file,
            line=self.line,
            name=self.name,
            positional=tuple(merge(_get(self.positional, row), _get(other.positional, row)) for row in rows),
            keywords={
                name: merge(self.keywords.get(name, ABSENT), other.keywords.get(name, ABSENT))
                for name in (*self.keywords, *(name for name in other.keywords if name not in self.keywords))
            },
            is_sure=self.is_sure or other.is_sure,
        )


def _get(row: Sequence[Any], index: int) -> Any:
    """Return a part of a row; ``ABSENT`` behind its end."""
    return row[index] if index < len(row) else ABSENT
