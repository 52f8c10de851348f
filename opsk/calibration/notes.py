r"""What do the notes of a run say that its columns have no place for?

Only settings are read here, by patterns that any table may use: ``head_dim 128``, ``q_lora 1536``, Megatron flags as
``flags: name=value, …``, ``zero1=8``, ``TP2 PP8 MBS1``. What was measured is never taken from prose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

_NUMBERS = {
    "head_dim": r"head_dim (\d{1,6})",
    "q_lora_rank": r"q_lora (\d{1,6})",
    "kv_lora_rank": r"kv_lora (\d{1,6})",
    "qk_nope_dim": r"\bqk (\d{1,6})\+\d",
    "qk_rope_dim": r"\bqk \d{1,6}\+(\d{1,6})",
    "v_head_dim": r"kv_lora[^)]{0,60}\bv (\d{1,6})",
    "dense_ffn": r"dense (?:first )?layers ffn (\d{1,7})",
    "dense_layers": r"first (\d{1,4}) layers? dense",
    "shared_experts": r"\b(\d{1,4}) shared experts?\b",
    "shard_gpus": r"zero\d=(\d{1,6})\b",
    "model_parallel": r"model-parallel size (?:\(tp\*pp\) = )?(\d{1,5})\b",
    "tp": r"\btp(\d{1,4})\b(?= (?:pp|ep|vp|mbs|gbs|dp)\d)",
    "pp": r"\btp\d{1,4} (?:ep\d+ )?pp(\d{1,4})\b",
    "ep": r"\b(?:pp|tp)\d{1,4} ep(\d{1,4})\b",
    "vpp": r"\b(?:pp|ep)\d{1,4} vp(\d{1,4})\b",
    "micro_batch": r"\bmbs ?(\d{1,5})\b(?=,? gbs ?\d)",
    "global_batch": r"\bmbs ?\d{1,5},? gbs ?(\d{1,7})\b",
    "lora_rank": r"\bq?lora[- _]?(?:rank|r) ?=? ?(\d{1,4})\b",
}
_PATTERNS = {name: re.compile(pattern, re.ASCII) for name, pattern in _NUMBERS.items()}
_RATIO = re.compile(r"mlp_ratio (\d{1,3}(?:\.\d{1,4})?|\d{1,3}/\d{1,3})(?![\d/])", re.ASCII)
_TOKENS = re.compile(r"batch (?:of )?(\d{1,4}(?:\.\d{1,3})?) ?([mk]) tokens", re.ASCII)
_FLAGS = re.compile(r"flags: ([^;]*)")
_SCALE = {"k": 1e3, "m": 1e6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What the prose of a row says.

    ``text`` is the notes in small letters; ``numbers`` the settings found in it by name; ``flags`` the command-line
    flags that it lists; ``batch_tokens`` the tokens of a step.
    """

    text: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    mlp_ratio: Fraction | None = None
    batch_tokens: float | None = None

    def says(self, *words: str) -> bool:
        """Tell whether any of these words stands there."""
        return any(word in self.text for word in words)

    def flag(self, name: str) -> int | None:
        """Return a flag's value where it is a positive number."""
        value = self.flags.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and 0 < len(value) < 8 and int(value) else None


def read_notes(text: str) -> Notes:
    """Return the settings that the notes of a row state."""
    lowered = text.lower()
    numbers = {name: int(found[1]) for name, pattern in _PATTERNS.items() if (found := pattern.search(lowered))}
    ratio, tokens, listed = _RATIO.search(lowered), _TOKENS.search(lowered), _FLAGS.search(lowered)
    entries = (entry.partition("=") for entry in listed[1].split(",")) if listed else ()
    return Notes(
        text=lowered,
        numbers={name: value for name, value in numbers.items() if value},
        flags={name.strip(): value.strip() for name, _, value in entries},
        mlp_ratio=Fraction(ratio[1]) if ratio and not ratio[1].endswith("/0") else None,
        batch_tokens=float(tokens[1]) * _SCALE[tokens[2]] if tokens else None,
    )
